// This file owns a container's life when engines drive it: create, start, kill,
// delete, each a call of its own (OCI runtime-spec, runtime.md#lifecycle).

package runtime

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/spec"
)

// CreateOptions are the flags of "create".
type CreateOptions struct {
	ID, Bundle    string
	PidFile       string     // gets the pid of the container's first process
	ConsoleSocket string     // gets the terminal's master when the config wants one
	Keep          []*os.File // become the program's descriptors 3, 4, …
}

// errSupervised refuses what would leave a policy's annotations without force.
var errSupervised = errors.New("the config was compiled from a policy, which needs a supervisor: use sbxrun run")

// Create makes a container: everything is in place, its first process waits for
// Start. After an error nothing is left. The caller closes the container.
func (s *Store) Create(sp *specs.Spec, opt CreateOptions) (_ *Container, err error) {
	if opt.ID == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrID)
	}
	if _, err := checkID(opt.ID); err != nil {
		return nil, err
	}
	if spec.IsCompiled(sp) {
		return nil, errSupervised
	}
	if sp.Process != nil && sp.Process.Terminal && opt.ConsoleSocket == "" {
		return nil, errNoConsoleSocket
	}
	plan := &blueprint{spec: sp, waits: true, kept: len(opt.Keep)}
	if err := plan.draw(opt.Bundle); err != nil {
		return nil, err
	}
	c, err := s.reserve(opt.ID)
	if err != nil {
		return nil, err
	}
	if err := c.build(plan, sp, opt); err != nil {
		err = errors.Join(err, c.forget())
		c.Close()
		return nil, err
	}
	return c, nil
}

// build makes the group and init, and writes down what there is before init gets
// leave to go on: a crash in between leaves something that Delete can remove.
func (c *Container) build(plan *blueprint, sp *specs.Spec, opt CreateOptions) (err error) {
	root := sp.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(opt.Bundle, root)
	}
	digest, err := spec.Digest(sp)
	if err != nil {
		return err
	}
	c.record = record{
		State:  specs.State{Version: specs.Version, ID: opt.ID, Status: specs.StateCreating, Bundle: opt.Bundle, Annotations: sp.Annotations},
		Rootfs: root, Created: time.Now().UTC(), Boot: bootID(), Config: sp, Digest: digest,
	}
	group, err := groupFor(sp, opt.ID)
	if err != nil {
		return err
	}
	if group != nil {
		defer group.Close()
		state := group.State()
		c.record.Cgroup = &state
	}
	undo := func(err error) error {
		if group != nil {
			err = errors.Join(err, group.Kill(), group.Delete())
		}
		return err
	}
	if err := c.save(); err != nil {
		return undo(err)
	}
	listener, err := c.listen()
	if err != nil {
		return undo(err)
	}
	defer listener.Close()
	ch, err := plan.start(group, stdio{os.Stdin, os.Stdout, os.Stderr}, more{start: listener, keep: opt.Keep})
	if err != nil {
		return undo(err)
	}
	if err := c.settle(ch, plan, group, opt); err != nil {
		ch.abandon()
		return undo(explain(err))
	}
	ch.close()
	return nil
}

// settle takes a started init to the point where it waits for Start.
func (c *Container) settle(ch *child, plan *blueprint, group *cgroup.Group, opt CreateOptions) error {
	if err := ch.prepare(plan.plan); err != nil {
		return err
	}
	if ch.hand != nil {
		if err := sendTerminal(opt.ConsoleSocket, ch.hand); err != nil {
			return err
		}
	}
	if err := arm(group); err != nil {
		return err
	}
	st, ok := readStat(ch.proc.Pid)
	if !ok {
		return errInitDied
	}
	c.record.Pid, c.record.StartTime, c.record.Status = ch.proc.Pid, st.start, specs.StateCreated
	if err := c.save(); err != nil {
		return err
	}
	if opt.PidFile != "" {
		if err := writeAtomically(opt.PidFile, []byte(strconv.Itoa(ch.proc.Pid))); err != nil {
			return fmt.Errorf("write the pid file: %w", err)
		}
	}
	if _, err := ch.channel.Write(sbxinit.Go()); err != nil {
		return fmt.Errorf("let init wait for start: %w", err)
	}
	return nil
}

// startAddress names the start socket through the container's open directory: a
// path to it may be longer than an address holds.
func (c *Container) startAddress() string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", c.lock.Fd(), startSock)
}

// listen makes the socket on which init waits for start.
func (c *Container) listen() (*os.File, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.startAddress(), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the start socket: %w", err)
	}
	defer l.Close()
	l.SetUnlinkOnClose(false)
	f, err := l.File()
	if err != nil {
		return nil, fmt.Errorf("make the start socket: %w", err)
	}
	// File hands out a descriptor that does not block; init's accept must.
	return f, unix.SetNonblock(int(f.Fd()), false)
}

// Start lets a created container's program run. It returns when the program was
// executed, or with what went wrong.
func (c *Container) Start() error {
	switch status := c.Status(); status {
	case specs.StateCreated:
	case specs.StateStopped:
		return errors.New("cannot start a container that has stopped")
	default:
		return fmt.Errorf("cannot start an already running container (it is %s)", status)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.startAddress(), Net: "unix"})
	if err != nil {
		return fmt.Errorf("reach the container's init: %w", err)
	}
	defer conn.Close()
	ch := &child{channel: conn}
	if err := ch.release(false); err != nil {
		return explain(err)
	}
	c.record.Status = specs.StateRunning
	return errors.Join(os.Remove(filepath.Join(c.dir, startSock)), c.save())
}

// errNotRunning is what engines look for when they kill what is gone already.
var errNotRunning = errors.New("container not running")

// Kill sends a signal to the container's first process, or to all its processes.
func (c *Container) Kill(sig unix.Signal, all bool) error {
	if all {
		return c.killAll(sig)
	}
	fd := c.pidfd()
	if fd < 0 {
		return errNotRunning
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		return fmt.Errorf("signal the container: %w", err)
	}
	// A frozen process gets no signal before it is thawed; a kill is meant now.
	if g := c.group(); g != nil {
		defer g.Close()
		if frozen, err := g.Frozen(); err == nil && frozen && sig == unix.SIGKILL {
			return g.Thaw()
		}
	}
	return nil
}

func (c *Container) killAll(sig unix.Signal) error {
	g := c.group()
	if g == nil {
		return errNotRunning
	}
	defer g.Close()
	if sig == unix.SIGKILL {
		return g.Kill()
	}
	pids, err := g.Procs()
	for _, pid := range pids {
		if kill := unix.Kill(pid, sig); kill != nil && kill != unix.ESRCH {
			err = errors.Join(err, fmt.Errorf("signal process %d: %w", pid, kill))
		}
	}
	return err
}

// Delete removes a container that has stopped, with force also one that has not.
func (c *Container) Delete(force bool) error {
	switch status := c.Status(); {
	case status == specs.StateStopped:
	case status == specs.StateCreated || force:
		if err := c.Kill(unix.SIGKILL, false); err != nil && !errors.Is(err, errNotRunning) && !errors.Is(err, unix.ESRCH) {
			return err
		}
	default:
		return fmt.Errorf("cannot delete container %s that is not stopped: %s", c.record.ID, status)
	}
	if g := c.group(); g != nil {
		if err := errors.Join(g.Kill(), g.Delete()); err != nil {
			return err
		}
	} else if err := c.awaitEnd(); err != nil {
		return err
	}
	return c.forget()
}

// awaitEnd waits until the killed first process is gone; without a group nothing
// else tells when.
func (c *Container) awaitEnd() error {
	fd := c.pidfd()
	if fd < 0 {
		return nil
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(killTime.Milliseconds()))
	if err == nil && n == 0 {
		err = os.ErrDeadlineExceeded
	}
	return err
}

// State is what "state" and "list" print.
func (c *Container) State() State {
	st := State{State: c.record.State, Rootfs: c.record.Rootfs, Created: c.record.Created.Format(time.RFC3339Nano)}
	st.Status = c.Status()
	if st.Status == specs.StateStopped {
		st.Pid = 0
	}
	st.Owner = ownerOfFile(c.dir)
	return st
}

// ownerOfFile names who made a file, by number when nobody knows the name.
func ownerOfFile(name string) string {
	var raw unix.Stat_t
	if err := unix.Stat(name, &raw); err != nil {
		return ""
	}
	id := strconv.Itoa(int(raw.Uid))
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// Pause stops every process of the container where it is; Resume lets them go on.
func (c *Container) Pause() error { return c.freeze((*cgroup.Group).Freeze, specs.StateRunning) }

// Resume undoes Pause.
func (c *Container) Resume() error { return c.freeze((*cgroup.Group).Thaw, Paused) }

func (c *Container) freeze(turn func(*cgroup.Group) error, from specs.ContainerState) error {
	if status := c.Status(); status != from {
		return fmt.Errorf("container not %s: it is %s", from, status)
	}
	g := c.group()
	if g == nil {
		return errors.New("the container has no control group to freeze")
	}
	defer g.Close()
	return turn(g)
}

// Processes lists the container's processes as the host numbers them.
func (c *Container) Processes() ([]int, error) {
	g := c.group()
	if g == nil {
		return nil, errNotRunning
	}
	defer g.Close()
	return g.Procs()
}

// Update changes the container's limits.
func (c *Container) Update(res *specs.LinuxResources) error {
	if c.Status() == specs.StateStopped {
		return errNotRunning
	}
	g := c.group()
	if g == nil {
		return errors.New("the container has no control group")
	}
	defer g.Close()
	return g.Update(res)
}

// ParseSignal reads a signal as people write it: TERM, SIGTERM, 15.
func ParseSignal(s string) (unix.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n < 65 {
		return unix.Signal(n), nil
	}
	name := strings.ToUpper(s)
	if !strings.HasPrefix(name, "SIG") {
		name = "SIG" + name
	}
	if sig := unix.SignalNum(name); sig != 0 {
		return sig, nil
	}
	return 0, fmt.Errorf("unknown signal %q", s)
}
