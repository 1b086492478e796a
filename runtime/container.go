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
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	"github.com/sbxrun/sbxrun/spec"
)

// CreateOptions are the flags of "create", "run" has them too.
type CreateOptions struct {
	ID, Bundle    string
	PidFile       string     // gets the pid of the container's first process
	ConsoleSocket string     // gets the terminal's master when the config wants one
	OldKeyring    bool       // stay in the caller's session keyring
	NoPivot       bool       // move the root to / where the host's own is a ramdisk, which pivot_root refuses
	Keep          []*os.File // become the program's descriptors 3, 4, …
	Systemd       bool       // systemd makes the control group, a scope
}

// RunOptions are the flags of "run".
type RunOptions struct {
	CreateOptions
	Detach bool // return when the program runs
	Leave  bool // leave the container there when the program has ended
}

// Create makes a container: everything is in place, its first process waits for
// Start. After an error nothing is left. The caller closes the container.
func (s *Store) Create(sp *specs.Spec, opt CreateOptions) (*Container, error) {
	if err := checkConsole(sp.Process, opt.ConsoleSocket, true); err != nil {
		return nil, err
	}
	if opt.ID == "" {
		return nil, fmt.Errorf("%w: it is empty", ErrID)
	}
	if _, err := checkID(opt.ID); err != nil {
		return nil, err
	}
	if isSupervised(sp) {
		return s.createSupervised(sp, opt)
	}
	c, ch, err := s.launch(sp, opt, true)
	if err != nil {
		return nil, err
	}
	ch.close()
	return c, nil
}

// Run creates a container, starts it, waits for its program's end and removes it
// again. It returns the program's exit code, 128 + signal when a signal ended it.
// Signals that sbxrun gets meanwhile go on to the program.
func (s *Store) Run(sp *specs.Spec, opt RunOptions) (code int, err error) {
	if err := checkConsole(sp.Process, opt.ConsoleSocket, opt.Detach); err != nil {
		return 0, err
	}
	if opt.ID, err = checkID(opt.ID); err != nil {
		return 0, err
	}
	if isSupervised(sp) {
		return 0, s.runSupervised(sp, opt)
	}
	c, ch, err := s.launch(sp, opt.CreateOptions, false)
	if err != nil {
		return 0, err
	}
	defer ch.close()
	ch.listen = c.listener(ch.proc.Pid)
	if err := ch.started(false); err != nil {
		ch.abandon()
		return 0, errors.Join(explain(err), c.Delete(true), c.Close())
	}
	err = errors.Join(c.running(), c.Close()) // others may pause, kill or delete meanwhile
	if opt.Detach || err != nil {
		return 0, err
	}
	code, err = ch.wait(sp.Process.Terminal && opt.ConsoleSocket == "")
	if err != nil || opt.Leave {
		return code, err
	}
	again, err := s.Load(opt.ID)
	if errors.Is(err, ErrNotExist) {
		return code, nil // somebody deleted it
	}
	if err != nil {
		return code, err
	}
	if again.record.Pid != c.record.Pid || again.record.StartTime != c.record.StartTime {
		return code, again.Close() // somebody deleted it and made another
	}
	again.record.Pid = 0 // it was waited for
	return code, errors.Join(again.Delete(true), again.Close())
}

// launch makes the container's directory, group and init, which has leave to pass
// its barrier and, if it waits, to wait for Start.
func (s *Store) launch(sp *specs.Spec, opt CreateOptions, waits bool) (*Container, *child, error) {
	plan := &blueprint{spec: sp, waits: waits, keyring: !opt.OldKeyring, noPivot: opt.NoPivot, kept: len(opt.Keep)}
	if err := plan.draw(opt.Bundle); err != nil {
		return nil, nil, err
	}
	s.tell(plan)
	if err := checkRlimits(sp.Process); err != nil {
		return nil, nil, err
	}
	c, err := s.reserve(opt.ID)
	if err != nil {
		return nil, nil, err
	}
	ch, err := c.build(plan, opt)
	if err != nil {
		return nil, nil, errors.Join(err, c.forget(), c.Close())
	}
	return c, ch, nil
}

// tell says what a plan leaves out, and what it does.
func (s *Store) tell(b *blueprint) {
	if len(b.unknownCaps) > 0 {
		s.warn(fmt.Errorf("process.capabilities: unknown ones are left out: %s", strings.Join(b.unknownCaps, ", ")))
	}
	if len(b.deniedCaps) > 0 {
		s.warn(fmt.Errorf("process.capabilities.ambient: left out, as not permitted and inheritable: %s", strings.Join(b.deniedCaps, ", ")))
	}
	for _, step := range b.plan {
		s.trace("plan: %s", step)
	}
}

// checkRlimits refuses early what init could only refuse once the container is started:
// hard limits above the caller's own.
func checkRlimits(p *specs.Process) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&head, &caps[0]); err != nil || caps[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0 {
		return err
	}
	for _, l := range p.Rlimits {
		var own unix.Rlimit
		if err := unix.Getrlimit(rlimits[l.Type], &own); err != nil || l.Hard > own.Max {
			return &UnavailableError{Layer: "limits", Mechanism: "setrlimit " + l.Type, Err: unix.EPERM, Remedy: remedies["limits"]}
		}
	}
	return nil
}

// build makes the group and init, and writes down what there is before init gets
// leave to go on: a crash in between leaves something that Delete can remove.
func (c *Container) build(plan *blueprint, opt CreateOptions) (_ *child, err error) {
	sp := plan.spec
	digest, err := spec.Digest(sp)
	if err != nil {
		return nil, err
	}
	c.record = record{
		State:  specs.State{Version: specs.Version, ID: opt.ID, Status: specs.StateCreating, Bundle: opt.Bundle, Annotations: sp.Annotations},
		Rootfs: rootOf(sp, opt.Bundle), Created: time.Now().UTC(), Boot: c.store.boot,
	}
	group, err := groupFor(sp, opt, c.announce)
	if err != nil {
		return nil, err
	}
	if group != nil {
		defer group.Close()
	}
	c.grouped(group)
	c.record.Config, c.record.Digest = sp, digest
	if !plan.has(unix.CLONE_NEWNS) && c.record.Rootfs != "/" {
		if c.record.RootMount, err = mountOf(c.record.Rootfs); err != nil {
			return nil, err
		}
	}
	undo := func(err error) error {
		err = errors.Join(err, c.unmountRoot())
		if group != nil {
			err = errors.Join(err, group.Kill(), group.Delete())
		}
		return err
	}
	if err := c.save(); err != nil {
		return nil, undo(err)
	}
	var extra more
	if extra.keep = opt.Keep; plan.waits {
		if extra.start, err = c.listen(); err != nil {
			return nil, undo(err)
		}
		defer extra.start.Close()
	}
	ch, err := plan.start(group, stdio{os.Stdin, os.Stdout, os.Stderr}, extra)
	if err != nil {
		return nil, undo(err)
	}
	if group != nil {
		*c.record.Cgroup = group.State() // by now it is there in any case
	}
	if err := c.settle(ch, plan, group, opt); err != nil {
		ch.abandon()
		err = undo(explain(err))
		c.record.Pid = 0
		warnHooks(sp, "poststop", c.hookState(specs.StateStopped), c.store.warn)
		return nil, err
	}
	return ch, nil
}

// announce writes down where the container's group will be.
func (c *Container) announce(state cgroup.State) error {
	c.record.Cgroup, c.record.Making = &state, true
	return c.save()
}

// grouped takes in the group that was made, if there is one; the next save has it.
func (c *Container) grouped(group *cgroup.Group) {
	c.record.Cgroup, c.record.Making = nil, false
	if group != nil {
		state := group.State()
		c.record.Cgroup = &state
	}
}

// settle takes a started init past its barrier.
func (c *Container) settle(ch *child, plan *blueprint, group *cgroup.Group, opt CreateOptions) error {
	st, err := readStat(ch.proc.Pid)
	if err == errGone {
		return errInitDied
	}
	if err != nil {
		return err
	}
	c.record.Pid, c.record.StartTime = ch.proc.Pid, st.start
	c.store.trace("init is process %d", ch.proc.Pid)
	if err := plan.tellHooks(c.hookState("")); err != nil {
		return err
	}
	callHooks := func() error {
		// Whoever asks for the state meanwhile, a hook perhaps, sees this.
		if err := c.save(); err != nil {
			return err
		}
		return createHooks(plan.spec, c.hookState(specs.StateCreating))
	}
	if err := ch.prepare(plan.plan, callHooks); err != nil {
		return err
	}
	if ch.hand != nil && opt.ConsoleSocket != "" {
		if err := sendTerminal(opt.ConsoleSocket, ch.hand); err != nil {
			return err
		}
	}
	if err := arm(group); err != nil {
		return err
	}
	c.record.Status = specs.StateCreated
	if err := c.save(); err != nil {
		return err
	}
	if opt.PidFile != "" {
		if err := writeAtomically(opt.PidFile, []byte(strconv.Itoa(ch.proc.Pid))); err != nil {
			return fmt.Errorf("write the pid file: %w", err)
		}
	}
	c.store.trace("init stands at its barrier, everything is in place")
	return ch.goOn()
}

// mountOf gives the id of the mount that a path is on, statx(2).
func mountOf(name string) (uint64, error) {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_MNT_ID, &st); err != nil {
		return 0, &os.PathError{Op: "statx", Path: name, Err: err}
	}
	return st.Mnt_id, nil
}

// unmountRoot removes what a container without a mount namespace mounted on its root.
func (c *Container) unmountRoot() error {
	if c.record.RootMount == 0 {
		return nil
	}
	now, err := mountOf(c.record.Rootfs)
	if err != nil || now == c.record.RootMount {
		return nil // gone, or nothing was mounted
	}
	if err := unix.Unmount(c.record.Rootfs, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmount %s: %w", c.record.Rootfs, err)
	}
	return nil
}

// hookState is what hooks get to read.
func (c *Container) hookState(status specs.ContainerState) specs.State {
	st := c.record.State
	st.Status = status
	return st
}

// rootOf is the absolute path of the config's root.
func rootOf(sp *specs.Spec, bundle string) string {
	root := sp.Root.Path
	if !filepath.IsAbs(root) {
		root = filepath.Join(bundle, root)
	}
	return filepath.Clean(root)
}

// startAddress names the start socket through the container's open directory: a
// path to it may be longer than an address holds.
func (c *Container) startAddress() string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", c.lock.Fd(), startSock)
}

// startSocket makes the socket on which somebody waits for start.
func (c *Container) startSocket() (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: c.startAddress(), Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("make the start socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(c.startAddress(), 0o600); err != nil { // the umask had its say
		return nil, errors.Join(fmt.Errorf("make the start socket: %w", err), l.Close())
	}
	return l, nil
}

// listen is startSocket for an init.
func (c *Container) listen() (*os.File, error) {
	l, err := c.startSocket()
	if err != nil {
		return nil, err
	}
	defer l.Close()
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
	status, err := c.Status()
	if err != nil {
		return err
	}
	switch status {
	case specs.StateCreated:
	case specs.StateStopped:
		return errors.New("cannot start a container that has stopped")
	case specs.StateRunning:
		return errors.New("cannot start an already running container")
	default:
		return fmt.Errorf("cannot start a container in the %s state", status)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: c.startAddress(), Net: "unix"})
	if err != nil {
		return fmt.Errorf("reach the container's init: %w", err)
	}
	defer conn.Close()
	ch := &child{channel: conn, listen: c.listener(c.record.Pid)}
	if err := ch.release(false, nil, nil); err != nil {
		return explain(err)
	}
	if err := os.Remove(filepath.Join(c.dir, startSock)); err != nil {
		return fmt.Errorf("remove the start socket: %w", err)
	}
	if c.record.Supervisor != nil {
		c.record.Program = program(c.record.Pid)
	}
	return c.running()
}

// running writes down that the program runs, and lets hooks know.
func (c *Container) running() error {
	c.record.Status = specs.StateRunning
	c.store.trace("the program runs")
	err := c.save()
	warnHooks(c.record.Config, "poststart", c.hookState(specs.StateRunning), c.store.warn)
	return err
}

// errNotRunning is what engines look for when they kill what is gone already.
var errNotRunning = errors.New("container not running")

// Kill sends a signal to the container's first process, or to all its processes.
func (c *Container) Kill(sig unix.Signal, all bool) error {
	if all {
		return c.killAll(sig)
	}
	fd, err := c.openFirst()
	if err != nil {
		return err
	}
	defer func() { unix.Close(fd) }()
	if program, err := c.record.Program.open(); err == nil { // the reaper takes no signals
		unix.Close(fd)
		fd = program
	}
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
		status, err := c.Status()
		if err == nil && status != specs.StateStopped {
			err = errNotRunning
		}
		return err // none as where there is a group, which is empty then
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
	switch status, err := c.Status(); {
	case err != nil:
		return err
	case status == specs.StateStopped:
	case status == specs.StateCreated || status == specs.StateCreating || force: // who was creating it is gone, the lock is ours
		if err := c.Kill(unix.SIGKILL, false); err != nil && !errors.Is(err, errNotRunning) && !errors.Is(err, unix.ESRCH) {
			return err
		}
	default:
		return fmt.Errorf("cannot delete container %s that is not stopped: %s", c.record.ID, status)
	}
	if err := c.awaitSupervisor(); err != nil {
		return err
	}
	if err := c.endGroup(); err != nil {
		return err
	}
	c.record.Pid = 0
	if err := errors.Join(c.unmountRoot(), c.removeWorkdir(), c.forget()); err != nil {
		return err
	}
	if c.record.Config != nil {
		warnHooks(c.record.Config, "poststop", c.hookState(specs.StateStopped), c.store.warn)
	}
	return nil
}

// endGroup ends whoever is in the container's group and removes it, what there is of it.
func (c *Container) endGroup() error {
	if g := c.group(); g != nil {
		return errors.Join(g.Kill(), g.Delete())
	}
	err := errors.Join(c.awaitEnd(), c.resetScope())
	if now := c.record.Cgroup; now == nil || now.Scope != nil || c.record.Boot != c.store.boot {
		return err
	}
	if c.record.Making {
		return errors.Join(err, cgroup.Abandon(*c.record.Cgroup))
	}
	g, open := cgroup.Rest(*c.record.Cgroup)
	if open != nil {
		return errors.Join(err, open)
	}
	return errors.Join(err, g.Kill(), g.Delete())
}

// removeWorkdir removes the working directory that a killed supervisor has left.
func (c *Container) removeWorkdir() error {
	if c.record.Workdir == "" {
		return nil
	}
	return RemoveDir(c.record.Workdir)
}

// resetScope makes systemd forget the unit of a group that is gone.
func (c *Container) resetScope() error {
	if c.record.Cgroup == nil {
		return nil
	}
	return cgroup.ResetScope(*c.record.Cgroup)
}

// awaitEnd waits until the killed first process is gone; without a group nothing
// else tells when.
func (c *Container) awaitEnd() error {
	fd, err := c.pidfd()
	if err == errGone {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for the container's end: %w", err)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(killTime.Milliseconds()))
	if err == nil && n == 0 {
		err = os.ErrDeadlineExceeded
	}
	return err
}

// ID is the container's name.
func (c *Container) ID() string { return c.record.ID }

// State is what "state" and "list" print.
func (c *Container) State() (State, error) {
	status, err := c.Status()
	if err != nil {
		return State{}, err
	}
	r := &c.record
	st := State{
		Version: r.Version, ID: r.ID, Pid: r.Pid, Status: status, Bundle: r.Bundle, Rootfs: r.Rootfs,
		Created: r.Created.Format(time.RFC3339Nano), Annotations: r.Annotations, Owner: ownerOfFile(c.dir),
	}
	if st.Status == specs.StateStopped {
		st.Pid = 0
	}
	if c.record.Supervisor != nil && st.Status == specs.StateStopped {
		st.Result = c.Result()
	}
	return st, nil
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
func (c *Container) Pause() error {
	return c.freeze((*cgroup.Group).Freeze, specs.StateRunning, specs.StateCreated)
}

// Resume undoes Pause.
func (c *Container) Resume() error { return c.freeze((*cgroup.Group).Thaw, Paused) }

func (c *Container) freeze(turn func(*cgroup.Group) error, from ...specs.ContainerState) error {
	status, err := c.Status()
	if err != nil {
		return err
	}
	if !slices.Contains(from, status) {
		return fmt.Errorf("container not %s: it is %s", from[0], status)
	}
	g := c.group()
	if g == nil {
		return errors.New("the container has no control group to freeze")
	}
	defer g.Close()
	return turn(g)
}

// alive gives errNotRunning for a container that has stopped.
func (c *Container) alive() error {
	status, err := c.Status()
	if err == nil && status == specs.StateStopped {
		err = errNotRunning
	}
	return err
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
	if err := c.alive(); err != nil {
		return err
	}
	g := c.group()
	if g == nil {
		return errors.New("the container has no control group")
	}
	defer g.Close()
	res = c.withoutKernelMemory(res)
	// Engines send all that they know, the device rules that hold anyway included.
	if now := c.record.Config.Linux.Resources; now != nil && reflect.DeepEqual(now.Devices, res.Devices) {
		changed := *res
		changed.Devices = nil
		res = &changed
	}
	return g.Update(res)
}

// withoutKernelMemory leaves out what OCI lets runtimes ignore, with a warning.
//
//nolint:staticcheck // the fields are deprecated, which is why
func (c *Container) withoutKernelMemory(res *specs.LinuxResources) *specs.LinuxResources {
	set := func(n *int64) bool { return n != nil && *n != 0 }
	if res.Memory == nil || !set(res.Memory.Kernel) && !set(res.Memory.KernelTCP) {
		return res
	}
	c.store.warn(errors.New("memory.kernel, memory.kernelTCP: limits of kernel memory have no effect"))
	memory, less := *res.Memory, *res
	memory.Kernel, memory.KernelTCP = nil, nil
	less.Memory = &memory
	return &less
}

// ParseSignal reads a signal as people write it: TERM, SIGTERM, 15; 0 only asks
// whether a signal could be sent.
func ParseSignal(s string) (unix.Signal, error) {
	if n, err := strconv.Atoi(s); err == nil && n >= 0 && n < 65 {
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
