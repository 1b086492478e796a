// This file owns what is on disk of sessions: below the store's root, in "sessions", a
// directory for each, with state.json, the socket, and the lock that the process which
// holds the session has as long as it lives.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

const (
	sessionState  = "state.json"
	sessionSocket = "socket"
	sessionLock   = "lock"
)

// sessionDir is the directory of all sessions of a user.
type sessionDir struct{ path string }

// sessionRecord is state.json.
type sessionRecord struct {
	ID      string        `json:"id"`
	Level   spec.Level    `json:"level"`
	Created time.Time     `json:"created"`
	TTL     time.Duration `json:"ttl"`
	// Who holds it: a process that a number alone does not name for certain.
	Pid   int    `json:"pid"`
	Start uint64 `json:"startTime"`
	// Dir is the working directory on the host, of a level that has it there.
	Dir   string `json:"dir,omitempty"`
	Ready bool   `json:"ready"`
}

// openSessions finds the directory, by the rules of the store that it lies in.
func openSessions(c *cli.Context) (*sessionDir, error) {
	root := c.String("root")
	if root == "" {
		root = runtime.DefaultRoot()
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	if _, err := runtime.OpenStore(root, nil); err != nil { // not another user's
		return nil, err
	}
	return &sessionDir{filepath.Join(root, runtime.SessionsDir)}, nil
}

// at is the directory of a session, which may not be there.
func (s *sessionDir) at(id string) (string, error) {
	if err := runtime.CheckID(id); err != nil {
		return "", fmt.Errorf("session: %w", err)
	}
	return filepath.Join(s.path, id), nil
}

// errNoSession says that there is none of that id.
var errNoSession = errors.New("there is no session")

// find is at for one that is there.
func (s *sessionDir) find(id string) (string, error) {
	dir, err := s.at(id)
	if err == nil {
		if _, gone := os.Lstat(dir); errors.Is(gone, fs.ErrNotExist) {
			err = fmt.Errorf("%w %q", errNoSession, id)
		} else {
			err = gone
		}
	}
	return dir, err
}

// alone runs f while nobody else makes or removes a session's directory.
func (s *sessionDir) alone(f func() error) error {
	if err := os.MkdirAll(s.path, 0o700); err != nil {
		return fmt.Errorf("make the sessions' directory: %w", err)
	}
	d, err := os.Open(s.path)
	if err != nil {
		return fmt.Errorf("open the sessions' directory: %w", err)
	}
	defer d.Close()
	for {
		if err = unix.Flock(int(d.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("lock the sessions' directory: %w", err)
	}
	return f()
}

// reserve makes the directory of a new session, locked for this process. Of two with
// one id exactly one wins.
func (s *sessionDir) reserve(id string) (dir string, lock *os.File, err error) {
	if dir, err = s.at(id); err != nil {
		return "", nil, err
	}
	err = s.alone(func() error {
		if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("a session %q is there already", id)
		} else if err != nil {
			return fmt.Errorf("make the session's directory: %w", err)
		}
		lock, err = os.OpenFile(filepath.Join(dir, sessionLock), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = unix.FcntlFlock(lock.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
		}
		if err != nil {
			return errors.Join(fmt.Errorf("lock the session: %w", err), os.RemoveAll(dir))
		}
		return nil
	})
	return dir, lock, err
}

// held says whether a process holds the session in dir. The question takes no lock
// itself: two may ask at once.
func held(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, sessionLock), os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &l)
	return err == nil && l.Type != unix.F_UNLCK
}

// write writes state.json so that a reader sees the old or the new one.
func (r *sessionRecord) write(dir string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	temp := filepath.Join(dir, "."+sessionState)
	if err = os.WriteFile(temp, text, 0o600); err == nil {
		err = os.Rename(temp, filepath.Join(dir, sessionState))
	}
	if err != nil {
		return fmt.Errorf("write the session's state: %w", err)
	}
	return nil
}

// maxRecord bounds state.json.
const maxRecord = 64 << 10

func readRecord(dir string) (*sessionRecord, error) {
	f, st, err := openRegular(filepath.Join(dir, sessionState))
	if err != nil {
		return nil, fmt.Errorf("read the session's state: %w", err)
	}
	defer f.Close()
	if st.Size() > maxRecord {
		return nil, fmt.Errorf("read the session's state: it is larger than %d bytes", maxRecord)
	}
	r := &sessionRecord{}
	if err := json.NewDecoder(f).Decode(r); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w", f.Name(), err)
	}
	if r.ID != filepath.Base(dir) {
		return nil, fmt.Errorf("%s is damaged: it is that of %.40q", f.Name(), r.ID)
	}
	return r, nil
}

// dial connects to the process that holds the session in dir. A path to the socket may
// be longer than an address holds.
func dial(dir string) (*net.UnixConn, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return net.DialUnix("unix", nil, &net.UnixAddr{Name: socketAt(d), Net: "unix"})
}

func socketAt(d *os.File) string { return fmt.Sprintf("/proc/self/fd/%d/%s", d.Fd(), sessionSocket) }

// ids are those of all sessions, whatever state they are in.
func (s *sessionDir) ids() (ids []string, err error) {
	entries, err := os.ReadDir(s.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the sessions' directory: %w", err)
	}
	for _, e := range entries {
		if runtime.CheckID(e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}
