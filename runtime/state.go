// This file owns what is kept of containers on disk: one directory for each, with
// state.json written atomically, locked against two callers at once.

package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/moby/sys/userns"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
)

// Errors of the store, for errors.Is.
var (
	ErrNotExist = errors.New("does not exist")
	ErrExist    = errors.New("container with given ID already exists")
	ErrDamaged  = errors.New("the container's state is damaged")
)

// Store is the directory of all containers of a user.
type Store struct {
	root string
	boot string // the machine's boot id
	warn func(error)
	// Trace, when it is set, gets what is done, step by step.
	Trace func(format string, args ...any)
}

func (s *Store) trace(format string, args ...any) {
	if s.Trace != nil {
		s.Trace(format, args...)
	}
}

// DefaultRoot is /run/sbxrun for root and below XDG_RUNTIME_DIR for others. A user who
// is root in a user namespace of his own is one of the others, as with runc.
func DefaultRoot() string {
	if os.Geteuid() == 0 && (os.Getenv("USER") == "root" || !userns.RunningInUserNS()) {
		return "/run/sbxrun"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "sbxrun")
	}
	return fmt.Sprintf("/tmp/sbxrun-%d", os.Geteuid())
}

// OpenStore opens the store in root, "" being the default. The directory is made
// when the first container is. warn gets what goes wrong without undoing anything:
// hooks that fail once the container runs, or is gone.
func OpenStore(root string, warn func(error)) (*Store, error) {
	if root == "" {
		root = DefaultRoot()
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("find the state directory: %w", err)
	}
	if err := ownDirectory(root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the state directory: %w", err)
	}
	boot, err := readBootID()
	if err != nil {
		return nil, err
	}
	return &Store{root: root, boot: boot, warn: warn}, nil
}

// record is state.json.
type record struct {
	specs.State
	Created   time.Time     `json:"created"`
	Rootfs    string        `json:"rootfs"`
	StartTime uint64        `json:"startTime"` // of the pid, clock ticks since boot: tells a reused pid
	Boot      string        `json:"boot"`      // boot id in which the pid means something
	Cgroup    *cgroup.State `json:"cgroup,omitempty"`
	Making    bool          `json:"making,omitempty"` // the group is being made, and nobody is in it yet
	Config    *specs.Spec   `json:"config"`
	Digest    string        `json:"digest"` // of Config, spec.Digest
	// RootMount is the mount that Rootfs was on before, of a container without a mount
	// namespace: another one there is the container's, and goes with it.
	RootMount uint64 `json:"rootMount,omitempty"`
	// Of a container with a policy: who stays with it, and the program, which the
	// reaper, the container's first process, is not.
	Supervisor *process `json:"supervisor,omitempty"`
	Program    *process `json:"program,omitempty"`
	Workdir    string   `json:"workdir,omitempty"` // the working directory on the host
}

// Container is one container of a store.
type Container struct {
	store  *Store
	dir    string
	lock   *os.File
	record record
}

const (
	stateFile = "state.json"
	startSock = "start.sock"
)

// reserve makes the directory of a new container and locks it. Of two callers
// with one id exactly one wins.
func (s *Store) reserve(id string) (*Container, error) {
	if err := CheckID(id); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(s.root, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	if err := ownDirectory(s.root); err != nil { // somebody may have been quicker
		return nil, fmt.Errorf("the state directory: %w", err)
	}
	c := &Container{store: s, dir: filepath.Join(s.root, id)}
	if err := os.Mkdir(c.dir, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("%w: %s", ErrExist, id)
		}
		return nil, fmt.Errorf("make the container's state directory: %w", err)
	}
	if err := c.acquire(); err != nil {
		return nil, errors.Join(err, os.Remove(c.dir)) // nothing is in it yet
	}
	return c, nil
}

// Load reads the container id and locks it until Close.
func (s *Store) Load(id string) (*Container, error) {
	c, err := s.find(id)
	if err != nil {
		return nil, err
	}
	if err := c.acquire(); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("container %q %w", id, ErrNotExist)
	} else if err != nil {
		return nil, err
	}
	if err := c.read(); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Look reads the container id for a look at it: without the lock, which a hook's
// caller may hold. Nothing may be done to such a container.
func (s *Store) Look(id string) (*Container, error) {
	c, err := s.find(id)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(c.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("container %q %w", id, ErrNotExist)
	}
	return c, c.read()
}

// find gives the container id, which may not be there.
func (s *Store) find(id string) (*Container, error) {
	if CheckID(id) != nil {
		return nil, fmt.Errorf("%w: %.40q", ErrID, id)
	}
	return &Container{store: s, dir: filepath.Join(s.root, id)}, nil
}

// read takes in state.json. One that is missing or torn is that of a container
// whose creation was cut short: it counts as stopped, and can be deleted.
func (c *Container) read() error {
	c.record = record{State: specs.State{Version: specs.Version, ID: filepath.Base(c.dir)}}
	data, err := os.ReadFile(filepath.Join(c.dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the container's state: %w", err)
	}
	if err := json.Unmarshal(data, &c.record); err != nil {
		return fmt.Errorf("%w, delete --force removes it: %s: %w", ErrDamaged, filepath.Join(c.dir, stateFile), err)
	}
	return nil
}

// save writes state.json so that a reader sees the old or the new one.
func (c *Container) save() error {
	data, err := json.Marshal(&c.record)
	if err != nil {
		return fmt.Errorf("encode the container's state: %w", err)
	}
	return writeAtomically(filepath.Join(c.dir, stateFile), data)
}

// writeAtomically replaces the file name by a new one with the data.
func writeAtomically(name string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+"-*")
	if err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write %s: %w", name, err), os.Remove(f.Name()))
	}
	return nil
}

// acquire locks the container's directory against other callers.
func (c *Container) acquire() error {
	f, err := os.Open(c.dir)
	if err != nil {
		return fmt.Errorf("open the container's state: %w", err)
	}
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	// Whoever held the lock may have deleted the container.
	if _, gone := os.Stat(c.dir); err == nil && gone != nil {
		err = gone
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("lock the container's state: %w", err)
	}
	c.lock = f
	return nil
}

// Close lets go of the container.
func (c *Container) Close() error {
	if c.lock == nil {
		return nil
	}
	lock := c.lock
	c.lock = nil
	// Not by closing alone: a child that was stopped before its execve has a copy.
	err := unix.Flock(int(lock.Fd()), unix.LOCK_UN)
	return errors.Join(err, lock.Close())
}

// Discard removes what is left of a container whose state cannot be read any more. What
// it may have had beside its directory nobody knows.
func (s *Store) Discard(id string) error {
	c, err := s.find(id)
	if err == nil {
		err = c.acquire()
	}
	if err != nil {
		return err
	}
	return errors.Join(c.forget(), c.Close())
}

// forget removes the container's directory.
func (c *Container) forget() error { return os.RemoveAll(c.dir) }

// List loads every container, without holding a lock on any.
func (s *Store) List() ([]*Container, error) {
	entries, err := os.ReadDir(s.root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the state directory: %w", err)
	}
	var out []*Container
	for _, e := range entries {
		if !e.IsDir() || strings.HasPrefix(e.Name(), ".") || e.Name() == SessionsDir {
			continue
		}
		c := &Container{store: s, dir: filepath.Join(s.root, e.Name())}
		if err := c.read(); err != nil {
			c.record.ID = e.Name() // damaged: shown as stopped, so that somebody deletes it
		}
		out = append(out, c)
	}
	return out, nil
}
