// This file owns the harness of the reaper's tests: how a test starts the real
// image as a supervisor would, reads its frames and watches its processes; and the
// helpers as which the test binary executes itself.

package sbxinit_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

const (
	patience   = 20 * time.Second
	helperName = "reaper-helper" // argv[0] of the test binary as a helper
	imageFD    = 5               // where a helper finds the image when it is passed on
)

var helpers = map[string]func(args []string) error{
	"show":      show,
	"burn":      burn,
	"pry":       pry,
	"careless":  careless,
	"supervise": supervise,
	"reuse":     reuse,
}

// init and not TestMain: the package may have another use for that.
func init() {
	if os.Args[0] != helperName {
		return
	}
	if err := helpers[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// self is the test binary, to be executed as a helper.
func self() string {
	path, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return path
}

// reachable is a copy of the test binary that other users can execute.
func reachable(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "reaper")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b, err := os.ReadFile(self())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "test")
	for _, err := range []error{os.Chmod(dir, 0o755), os.WriteFile(path, b, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// setup is what a test wants different from the usual.
type setup struct {
	image     []byte      // sbxinit.Reaper()
	mode      os.FileMode // 0755
	via       []string    // executed instead, with the image as descriptor 5
	env       []string
	out, kill *os.File // stdout and stderr, and descriptor 4
	sys       *syscall.SysProcAttr
}

// child is a running reaper, seen from its supervisor.
type child struct {
	*os.Process
	channel *os.File
}

// launch starts the reaper, which starts path with argv.
func launch(s setup, path string, argv ...string) (*child, error) {
	if s.image == nil {
		s.image = sbxinit.Reaper()
	}
	if s.mode == 0 {
		s.mode = 0o755
	}
	image, err := memfd(s.image, s.mode)
	if err != nil {
		return nil, err
	}
	defer image.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	theirs := os.NewFile(uintptr(pair[1]), "theirs")
	defer theirs.Close()
	// Non-blocking, so that the runtime's poller gives it deadlines.
	if err := unix.SetNonblock(pair[0], true); err != nil {
		return nil, fmt.Errorf("set O_NONBLOCK: %w", err)
	}
	c := &child{channel: os.NewFile(uintptr(pair[0]), "channel")}

	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if s.out == nil {
		s.out = null
	}
	exe := "/proc/self/fd/" + strconv.Itoa(int(image.Fd()))
	files := []*os.File{null, s.out, s.out, theirs, s.kill}
	argv = append([]string{path}, argv...)
	if s.via != nil {
		exe, files = s.via[0], append(files, image)
		argv = append(s.via[1:len(s.via):len(s.via)], argv...)
	}
	c.Process, err = os.StartProcess(exe, argv, &os.ProcAttr{Env: s.env, Files: files, Sys: s.sys})
	if err != nil {
		c.channel.Close()
		return nil, err
	}
	return c, nil
}

// memfd gives a sealed file with the content, far above the descriptors that a
// child of ours gets.
func memfd(content []byte, mode os.FileMode) (*os.File, error) {
	fd, err := unix.MemfdCreate("reaper", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, content); err != nil {
		return nil, fmt.Errorf("write memfd: %w", err)
	}
	if err := unix.Fchmod(fd, uint32(mode)); err != nil {
		return nil, fmt.Errorf("fchmod memfd: %w", err)
	}
	seals := unix.F_SEAL_WRITE | unix.F_SEAL_GROW | unix.F_SEAL_SHRINK | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("seal memfd: %w", err)
	}
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 100)
	if err != nil {
		return nil, fmt.Errorf("F_DUPFD_CLOEXEC: %w", err)
	}
	return os.NewFile(uintptr(high), "memfd"), nil
}

// frame is a message of the reaper; kind 0 is the end of the stream.
type frame struct {
	kind  byte
	value int32
	usage syscall.Rusage
}

func (c *child) read() (f frame, err error) {
	if err := c.channel.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return f, err
	}
	b := make([]byte, 5+144)
	if _, err = io.ReadFull(c.channel, b[:5]); err == io.EOF {
		return f, nil
	}
	if err == nil && b[0] == sbxinit.FrameExited {
		if _, err = io.ReadFull(c.channel, b[5:]); err == nil {
			err = binary.Read(bytes.NewReader(b[5:]), binary.NativeEndian, &f.usage)
		}
	}
	f.kind, f.value = b[0], int32(binary.NativeEndian.Uint32(b[1:]))
	return f, err
}

// shutdown ends what the supervisor sends and leaves it listening.
func (c *child) shutdown() error {
	conn, err := c.channel.SyscallConn()
	if err != nil {
		return err
	}
	e := conn.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) })
	return errors.Join(e, err)
}

// start is launch for a test, which must not leave a reaper behind.
func start(t *testing.T, s setup, path string, argv ...string) *child {
	t.Helper()
	if sbxinit.Reaper() == nil {
		t.Skip("there is no reaper for", runtime.GOARCH)
	}
	c, err := launch(s, path, argv...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.channel.Close()
		c.Kill()
		c.Wait()
	})
	return c
}

// expect reads a frame of the kind.
func (c *child) expect(t *testing.T, kind byte) frame {
	t.Helper()
	f, err := c.read()
	if err != nil || f.kind != kind {
		t.Fatalf("got frame %q with %d and error %v, want %q", f.kind, f.value, err, kind)
	}
	return f
}

// ended waits for the reaper itself, which must exit with the code.
func (c *child) ended(t *testing.T, code int) {
	t.Helper()
	state, err := c.Wait()
	if err != nil || state.ExitCode() != code {
		t.Fatalf("reaper ended with %v and error %v, want exit code %d", state, err, code)
	}
}

// children lists the direct children of a process as the host counts.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range strings.Fields(string(b)) {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, n)
	}
	return pids
}

// until polls for what the kernel announces by no event.
func until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never came true:", what)
		}
	}
}

// grip holds a process by pidfd, so that its death can be seen without a race.
type grip int

func hold(t *testing.T, pid int) grip {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("pidfd_open %d: %v", pid, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return grip(fd)
}

// dead waits at most for d until the process is dead.
func (g grip) dead(d time.Duration) bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(g), Events: unix.POLLIN}}, int(d.Milliseconds()))
		if err != unix.EINTR {
			return n == 1
		}
	}
}

// place is where a reaper runs: in a PID namespace of its own (from L3), or not.
type place struct {
	name string
	sys  func() *syscall.SysProcAttr
}

var (
	host     = place{"among the host's processes", func() *syscall.SysProcAttr { return nil }}
	ownTree  = place{"as PID 1", newPIDNamespace}
	anywhere = []place{host, ownTree}
)

func newPIDNamespace() *syscall.SysProcAttr {
	if os.Getuid() == 0 {
		return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID}
	}
	return &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWPID | unix.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
}

// Helpers, in processes of their own.

// show prints what a program was given: arguments and environment.
func show(args []string) error {
	env, err := os.ReadFile("/proc/self/environ") // os.Environ drops what is odd
	fmt.Printf("%q %q", args, env)
	return err
}

// burn uses 0.2 s of CPU.
func burn([]string) error {
	for {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			return err
		}
		if u.Utime.Nano()+u.Stime.Nano() >= int64(200*time.Millisecond) {
			return nil
		}
	}
}

// pry tries to get at its parent, the reaper, and prints what worked.
func pry([]string) error {
	ppid := os.Getppid()
	var worked []string
	try := func(what string, err error) {
		if err == nil || err == unix.Errno(0) {
			worked = append(worked, what)
		}
	}
	_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(ppid), 0, 0, 0, 0)
	try("ptrace", errno)
	local := []unix.Iovec{{Base: new(byte), Len: 1}}
	_, err := unix.ProcessVMReadv(ppid, local, []unix.RemoteIovec{{Base: 0x400000, Len: 1}}, 0)
	try("process_vm_readv", err)
	fd, err := unix.PidfdOpen(ppid, 0)
	if err != nil {
		return err
	}
	_, err = unix.PidfdGetfd(fd, 3, 0)
	try("pidfd_getfd", err)
	// In the host's /proc the parent has another number.
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, _ := bytes.Cut(status, []byte("PPid:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	for _, name := range []string{"mem", "fd", "environ"} {
		f, err := os.Open("/proc/" + string(line) + "/" + name)
		f.Close()
		try(name, err)
	}
	fmt.Print(strings.Join(worked, " "))
	return nil
}

// careless passes on ignored and blocked signals and a tight limit of descriptors,
// then becomes the reaper with the arguments.
func careless(args []string) error {
	signal.Ignore(unix.SIGCHLD, unix.SIGHUP, unix.SIGPIPE)
	runtime.LockOSThread()
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return err
	}
	// syscall's: it would put back what it remembers otherwise.
	if err := syscall.Setrlimit(unix.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 4, Max: 4}); err != nil {
		return err
	}
	return syscall.Exec("/proc/self/fd/"+strconv.Itoa(imageFD), args, os.Environ())
}

// supervise holds a reaper and tells its pid, until it is killed.
func supervise(args []string) error {
	s := setup{env: os.Environ()}
	if args[0] == ownTree.name {
		s.sys = newPIDNamespace()
	}
	c, err := launch(s, "/bin/sh", "sh", "-c", args[1])
	if err != nil {
		return err
	}
	if _, err := c.read(); err != nil {
		return err
	}
	fmt.Println(c.Pid)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// reuse is PID 1 of a namespace in which a stranger gets the pid of a program that
// was reaped, and leads a process group of that number, when the reaper ends.
func reuse([]string) error {
	c, err := launch(setup{}, "/bin/true", "true")
	if err != nil {
		return err
	}
	f, err := c.read()
	if err != nil {
		return err
	}
	if _, err := c.read(); err != nil { // the program was reaped
		return err
	}
	for range 100 { // our own threads take pids as well
		last := strconv.Itoa(int(f.value) - 1)
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(last), 0); err != nil {
			return err
		}
		p, err := os.StartProcess("/bin/sleep", []string{"sleep", "1000"},
			&os.ProcAttr{Sys: &syscall.SysProcAttr{Setsid: true}})
		if err != nil {
			return err
		}
		if p.Pid != int(f.value) {
			p.Kill()
			p.Wait()
			continue
		}
		c.channel.Close()
		if _, err := c.Wait(); err != nil {
			return err
		}
		if pid, err := syscall.Wait4(p.Pid, nil, syscall.WNOHANG, nil); pid != 0 || err != nil {
			return fmt.Errorf("the stranger with the program's pid was killed: %d, %v", pid, err)
		}
		return nil
	}
	return fmt.Errorf("pid %d was not given out again", f.value)
}
