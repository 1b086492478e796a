// This file owns the start of an init: clone with its namespaces, cgroup and
// descriptors, and the conversation up to the running program. The messages
// are drawn in init/channel.go and init/reaper.go.

package runtime

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	goruntime "runtime"
	"sync"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	sbxinit "github.com/sbxrun/sbxrun/init"
)

// child is a started init, later the reaper, and the channel to it.
type child struct {
	proc    *os.Process
	channel *net.UnixConn
	hand    *os.File // what init handed over: its working directory or terminal, nil without
	// listen takes the listener of the program's filter, which is descriptor fd of init.
	listen func(fd int) error
}

// stdio are the descriptors that the program gets as 0, 1 and 2.
type stdio [3]*os.File

// more are the descriptors beyond the fixed ones: where init waits for start, nil
// when it does not, and what the program keeps.
type more struct {
	start *os.File
	keep  []*os.File
}

// start makes an init in the blueprint's namespaces, born in its group. It waits for
// its plan.
func (b *blueprint) start(group *cgroup.Group, io3 stdio, extra more) (_ *child, err error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	defer func() {
		if err != nil {
			ours.Close()
		}
	}()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	kill, reaper := null, null
	if b.reaped {
		if reaper, err = reaperImage(); err != nil {
			return nil, err
		}
		if group != nil {
			if f, err := group.KillFile(); err != nil {
				return nil, fmt.Errorf("open cgroup.kill: %w", err)
			} else if f != nil {
				defer f.Close()
				kill = f
			}
		}
	}
	if extra.start == nil {
		extra.start = null
	}
	files := append([]*os.File{io3[0], io3[1], io3[2], theirs, kill, reaper, extra.start}, extra.keep...)
	trees, err := b.openTrees()
	defer closeAll(trees)
	if err != nil {
		return nil, err
	}
	files = append(files, trees...)
	proc, err := b.spawn(group, files)
	if err != nil && planted("fail-open") {
		b.clone &^= unix.CLONE_NEWNET
		proc, err = b.spawn(group, files)
	}
	if err != nil {
		return nil, b.explainStart(err)
	}
	if err := b.showGroup(group); err != nil {
		return nil, errors.Join(err, proc.Kill())
	}
	return &child{proc: proc, channel: ours}, nil
}

// spawn makes the init process, with files as its descriptors from 0 on.
func (b *blueprint) spawn(group *cgroup.Group, files []*os.File) (proc *os.Process, err error) {
	self := b.self()
	if !b.reaped { // under the reaper the program is nobody to the binary, and never its child
		image, err := protectedSelf()
		if err != nil {
			return nil, err
		}
		defer image.Close()
		if len(b.joins) > 0 || b.mapsLater() {
			return b.spawnJoined(group, image, files)
		}
		self = fmt.Sprintf("/proc/self/fd/%d", image.Fd())
	}
	attr := &os.ProcAttr{
		Env:   []string{}, // nothing of the caller's environment reaches init
		Files: files,
		Sys:   b.sysProcAttr(group),
	}
	start := func() error {
		proc, err = os.StartProcess(self, []string{sbxinit.Name}, attr)
		return err
	}
	switch {
	case group == nil:
		err = start()
	case b.driven, group.Late():
		// clone3(2), which could make it in the group, gives no child to a parent; and
		// systemd makes a group around a process.
		if err = start(); err == nil {
			err = adopt(group, proc)
		}
	default:
		err = group.Enter(start)
	}
	return proc, err
}

// self is the program that becomes init.
func (b *blueprint) self() string { return cmp.Or(b.binary, "/proc/self/exe") }

// adopt moves an init to its group while it waits for its plan.
func adopt(group *cgroup.Group, proc *os.Process) error {
	if err := group.Adopt(proc.Pid); err != nil {
		return errors.Join(unavailableCgroup(err), proc.Kill())
	}
	return nil
}

// spawnJoined makes the init process by a joiner: in namespaces that are there already,
// or in a user namespace whose ids are mapped by others. It joins its group while it waits for its plan.
func (b *blueprint) spawnJoined(group *cgroup.Group, image *os.File, files []*os.File) (*os.Process, error) {
	var namespaces []*os.File
	defer func() { closeAll(namespaces) }()
	for _, name := range joinOrder {
		for _, ns := range b.joins {
			if procName(ns.Type) != name {
				continue
			}
			f, err := openNamespace(ns)
			if err != nil {
				return nil, err
			}
			namespaces = append(namespaces, f)
		}
	}
	j := joint{clone: b.clone, root: b.has(unix.CLONE_NEWUSER)}
	if b.mapsLater() {
		j.users = func(pid int) error { return writeMappings(pid, b.spec.Linux) }
	}
	proc, err := j.start(namespaces, image, files)
	if err != nil || group == nil {
		return proc, err
	}
	return proc, adopt(group, proc)
}

// procName is what a kind of namespace is called in /proc/PID/ns.
func procName(t specs.LinuxNamespaceType) string {
	switch t {
	case specs.NetworkNamespace:
		return "net"
	case specs.MountNamespace:
		return "mnt"
	}
	return string(t)
}

// openNamespace opens a namespace by path and checks that it is one of that kind.
func openNamespace(ns specs.LinuxNamespace) (*os.File, error) {
	f, err := os.Open(ns.Path)
	if err != nil {
		return nil, fmt.Errorf("linux.namespaces: open the %s namespace: %w", ns.Type, err)
	}
	kind, err := unix.IoctlRetInt(int(f.Fd()), unix.NS_GET_NSTYPE)
	if err != nil || uintptr(kind) != cloneFlags[ns.Type] {
		f.Close()
		return nil, fmt.Errorf("linux.namespaces: %s is not a %s namespace", ns.Path, ns.Type)
	}
	return f, nil
}

func (b *blueprint) sysProcAttr(group *cgroup.Group) *syscall.SysProcAttr {
	sys := &syscall.SysProcAttr{Cloneflags: b.clone, Setsid: true}
	if b.driven {
		sys.Cloneflags |= unix.CLONE_PARENT
	}
	if group != nil && group.FD() >= 0 && !b.driven {
		sys.UseCgroupFD, sys.CgroupFD = true, group.FD()
	}
	if b.has(unix.CLONE_NEWUSER) {
		sys.UidMappings = idMap(b.spec.Linux.UIDMappings)
		sys.GidMappings = idMap(b.spec.Linux.GIDMappings)
		// An ordinary user may write a gid map only after giving up setgroups.
		groups := os.Geteuid() == 0 && setgroupsAllowed()
		sys.GidMappingsEnableSetgroups = groups
		// Inside id 0 holds the namespace's capabilities across execve of init.
		sys.Credential = &syscall.Credential{Uid: 0, Gid: 0, NoSetGroups: !groups}
	}
	return sys
}

func idMap(in []specs.LinuxIDMapping) []syscall.SysProcIDMap {
	out := make([]syscall.SysProcIDMap, len(in))
	for i, m := range in {
		out[i] = syscall.SysProcIDMap{ContainerID: int(m.ContainerID), HostID: int(m.HostID), Size: int(m.Size)}
	}
	return out
}

// socketpair makes the channel: our end as a connection with deadlines, theirs
// as a plain file. Both are close-on-exec.
func socketpair() (*net.UnixConn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the channel to init: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "channel"), os.NewFile(uintptr(fds[1]), "channel")
	defer ours.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("make the channel to init: %w", err)
	}
	return conn.(*net.UnixConn), theirs, nil
}

// prepare sends the plan and waits until init stands at its barrier. On the way
// there a plan with hooks lets hooks be called.
func (c *child) prepare(plan sbxinit.Plan, hooks func() error) error {
	if _, err := c.channel.Write(plan.Encode()); err != nil && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("send the plan to init: %w", err)
	}
	for {
		kind, oob := [1]byte{}, make([]byte, unix.CmsgSpace(4))
		n, oobn, _, _, err := c.channel.ReadMsgUnix(kind[:], oob)
		if n == 0 || err != nil {
			return c.died("before it was ready", err)
		}
		if err := c.takeHand(oob[:oobn]); err != nil {
			return err
		}
		switch {
		case kind[0] == sbxinit.FrameReady:
			return nil
		case kind[0] != sbxinit.FrameHooks || hooks == nil:
			return c.failure(kind[0])
		}
		if err := hooks(); err != nil {
			return err
		}
		if err := c.goOn(); err != nil {
			return err
		}
	}
}

// goOn lets an init that waits go on. One that is gone shows in the next read.
func (c *child) goOn() error {
	if _, err := c.channel.Write(sbxinit.Go()); err != nil && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("let init go on: %w", err)
	}
	return nil
}

// takeHand takes the descriptor that came with a message.
func (c *child) takeHand(oob []byte) error {
	f, err := receiveFile(oob, "from init")
	if err == nil && f != nil {
		c.hand = f
	}
	return err
}

// receiveFile gives the descriptor that came with a message, nil when there was none.
func receiveFile(oob []byte, name string) (f *os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("read the descriptor that init sent: %w", err)
	}
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return nil, fmt.Errorf("read the descriptor that init sent: %w", err)
		}
		for _, fd := range fds { // there is one: the buffer has no room for more
			unix.CloseOnExec(fd)
			f = os.NewFile(uintptr(fd), name)
		}
	}
	return f, nil
}

// arm sets the group's process limit, now that init stands at its barrier.
func arm(group *cgroup.Group) error {
	if group == nil || planted("nproc-trusted") {
		return nil
	}
	if err := group.Arm(); err != nil {
		return unavailableCgroup(err)
	}
	return nil
}

// release lets init go on to the program. One that was prepared ahead of time is told
// the rest of its plan, and may be given a stdin.
func (c *child) release(reaped bool, rest sbxinit.Plan, stdin *os.File) error {
	if err := c.goOn(); err != nil {
		return err
	}
	if rest != nil {
		if err := c.goOnWith(rest, stdin); err != nil {
			return err
		}
	}
	return c.started(reaped)
}

// goOnWith is goOn with what an init at OpMore waits for.
func (c *child) goOnWith(rest sbxinit.Plan, stdin *os.File) error {
	var oob []byte
	if stdin != nil {
		oob = unix.UnixRights(int(stdin.Fd()))
		defer goruntime.KeepAlive(stdin)
	}
	text := append(sbxinit.Go(), rest.Encode()...)
	n, _, err := c.channel.WriteMsgUnix(text, oob, nil)
	if err == nil && n < len(text) {
		_, err = c.channel.Write(text[n:])
	}
	if err != nil && !errors.Is(err, unix.EPIPE) {
		return fmt.Errorf("tell init the rest of its plan: %w", err)
	}
	return nil
}

// started waits until the program runs.
func (c *child) started(reaped bool) error {
	var kind [1]byte
	switch _, err := io.ReadFull(c.channel, kind[:]); {
	case err == io.EOF && !reaped:
		return nil
	case err == nil && kind[0] == sbxinit.FrameListener && c.listen != nil:
		fd, err := c.int32()
		if err == nil {
			err = c.listen(int(fd))
		}
		if err == nil {
			err = c.goOn()
		}
		if err != nil {
			return err
		}
		return c.started(reaped)
	case err != nil:
		return c.died("before the program ran", err)
	case kind[0] != sbxinit.FrameStarted:
		return c.failure(kind[0])
	}
	_, err := c.int32() // the pid, as the run's own namespace counts
	return err
}

// failure reads the rest of a message that says what went wrong.
func (c *child) failure(kind byte) error {
	switch kind {
	case sbxinit.FrameError:
		n, err := c.int32()
		if err != nil || n < 0 || n > 64<<10 {
			return c.died("while it reported a failure", err)
		}
		b := make([]byte, n)
		if _, err := io.ReadFull(c.channel, b); err != nil {
			return c.died("while it reported a failure", err)
		}
		return sbxinit.DecodeFailure(b)
	case sbxinit.FrameExecFailed, sbxinit.FrameStartFailed:
		errno, err := c.int32()
		if err != nil {
			return c.died("while it reported a failure", err)
		}
		op := map[byte]string{sbxinit.FrameExecFailed: "execve", sbxinit.FrameStartFailed: "set up the reaper or clone"}[kind]
		return &sbxinit.Failure{Step: "exec under the reaper", Op: op, Errno: syscall.Errno(errno)}
	}
	return fmt.Errorf("init sent an unknown message %q", kind)
}

// spoke says whether a message, or the end of the channel, is there to be read.
func (c *child) spoke() bool {
	raw, err := c.channel.SyscallConn()
	if err != nil {
		return false
	}
	ready := false
	_ = raw.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		ready = err == nil && n > 0
	})
	return ready
}

func (c *child) int32() (int32, error) {
	var b [4]byte
	_, err := io.ReadFull(c.channel, b[:])
	return int32(binary.NativeEndian.Uint32(b[:])), err
}

// errInitDied says that init ended without a word: killed, by the kernel's
// memory limit most likely.
var errInitDied = errors.New("init ended without a message")

func (c *child) died(when string, err error) error {
	if err == nil || errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		err = errInitDied
	}
	return fmt.Errorf("%w %s", err, when)
}

// abandon ends an init that is not wanted any more.
func (c *child) abandon() {
	_ = c.proc.Kill()    // it may be gone already; Wait is what counts
	_, _ = c.proc.Wait() // a child of our parent is his to wait for
	c.close()
}

func (c *child) close() {
	c.channel.Close()
	if c.hand != nil {
		c.hand.Close()
	}
}

// protectedSelf is this binary as containers may get to see it through /proc/PID/exe,
// where root inside could else open and overwrite it (CVE-2019-5736): on a read-only
// mount that is attached nowhere, 0.1 ms, or where that takes rights that the caller
// has not, a sealed copy, several ms.
func protectedSelf() (*os.File, error) {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	tree, err := unix.OpenTree(int(self.Fd()), "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	if err != nil {
		return sealed("sbxrun", self)
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &attr); err != nil {
		unix.Close(tree)
		return sealed("sbxrun", self)
	}
	return os.NewFile(uintptr(tree), "sbxrun"), nil
}

// reaperImage is the reaper's ELF image, made once per process: the program can
// neither change it nor reach the sbxrun binary through it.
var reaperImage = sync.OnceValues(func() (*os.File, error) {
	image := sbxinit.Reaper()
	if image == nil {
		return nil, &UnavailableError{Layer: "processes", Mechanism: "reaper", Remedy: "run on amd64 or arm64", Err: errors.New("no reaper for " + goarch)}
	}
	return sealed("sbxrun-reaper", bytes.NewReader(image))
})

// sealed makes an executable memfd that nobody can change. It can be executed but
// not read by others: then tracing what runs from it needs a privilege that nothing
// inside can have, see init/reaper.go.
func sealed(name string, image io.Reader) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if err == unix.EINVAL { // before Linux 6.3 there is no MFD_EXEC and every memfd is executable
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, &UnavailableError{Layer: "processes", Mechanism: "memfd_create", Remedy: "set sysctl vm.memfd_noexec to 0 or 1", Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err = io.Copy(f, image); err == nil {
		if err = f.Chmod(0o711); err == nil {
			_, err = unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals)
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the image of %s: %w", name, err), f.Close())
	}
	return f, nil
}
