// Attacks on what lies outside: files, network, privileges, system calls, the
// caller's terminal (A9, A13 to A16, A18).

package attack

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	register(
		attack{"A9", "overwrite", "FILE…", "overwrites files of the caller", func(args []string) {
			for _, f := range args {
				saw(f, os.WriteFile(f, []byte("overwritten"), 0o600))
			}
		}},
		attack{"A13", "tcp", "ADDRESS", "connects", func(args []string) { connect("tcp", arg(args, 0)) }},
		attack{"A13", "unix", "ADDRESS", "connects to a socket, @NAME for an abstract one", func(args []string) { connect("unix", arg(args, 0)) }},
		attack{"A13", "sockets", "", "opens raw, packet and vsock sockets", sockets},
		attack{"A14", "read-key", "FILE", "reads a file along every path", readKey},
		attack{"A15", "privileges", "", "mounts, unshares, traces, makes devices, loads modules", privileges},
		attack{"A15", "status", "", "prints its capability sets", func([]string) { text, _ := os.ReadFile("/proc/self/status"); fmt.Print(string(text)) }},
		attack{"A16", "syscalls", "", "makes calls with a record", dangerous},
		attack{"A18", "tiocsti", "", "types into the caller's terminal", func([]string) { saw("TIOCSTI", ioctl(0, unix.TIOCSTI, 'x')) }},
		attack{"C6", "no-seccomp", "CMD…", "takes seccomp away from CMD", noSeccomp},
	)
}

func connect(network, address string) {
	c, err := net.DialTimeout(network, address, time.Second)
	if err == nil {
		c.Close()
	}
	saw(network+" "+address, err)
}

func sockets([]string) {
	for _, s := range []struct {
		name          string
		family, typ   int
		protocol, arg int
	}{{"raw", unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP, 0}, {"packet", unix.AF_PACKET, unix.SOCK_RAW, 0, 0}, {"vsock", unix.AF_VSOCK, unix.SOCK_STREAM, 0, 0}} {
		fd, err := unix.Socket(s.family, s.typ, s.protocol)
		if err == nil {
			unix.Close(fd)
		}
		saw(s.name, err)
	}
}

func readKey(args []string) {
	key := arg(args, 0)
	paths := []string{key, "/proc/self/root" + key, "/proc/1/root" + key, fmt.Sprintf("/proc/%d/root%s", os.Getppid(), key), filepath.Dir(key) + "/../" + filepath.Base(filepath.Dir(key)) + "/" + filepath.Base(key)}
	if os.Link(key, "link-to-key") == nil {
		paths = append(paths, "link-to-key")
	}
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, p := range append(paths, fds...) {
		st, err := os.Stat(p)
		if err != nil || !st.Mode().IsRegular() {
			continue
		}
		if text, err := os.ReadFile(p); err == nil && strings.Contains(string(text), "PRIVATE KEY") {
			saw("read as "+p, nil)
			return
		}
	}
	saw("every path", errors.New("not read"))
}

func sys(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, e := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); e != 0 {
		return e
	}
	return nil
}

func privileges([]string) {
	runtime.LockOSThread()
	saw("unshare user", unix.Unshare(unix.CLONE_NEWUTS))
	saw("unshare mount", unix.Unshare(unix.CLONE_NEWNS))
	saw("mount", unix.Mount("none", "/mnt", "tmpfs", 0, ""))
	saw("chroot", unix.Chroot("/"))
	saw("mknod", unix.Mknod("device", unix.S_IFBLK|0o600, int(unix.Mkdev(254, 0))))
	saw("load a module", sys(unix.SYS_INIT_MODULE, 0, 0, 0))
	saw("become another user", unix.Setresuid(1, 1, 1))
	saw("lower nice", unix.Setpriority(unix.PRIO_PROCESS, 0, -10))
	child := self("sleep")
	if child.Start() == nil {
		saw("trace", unix.PtraceAttach(child.Process.Pid))
		_ = child.Process.Kill()
	}
}

func dangerous(args []string) {
	for _, c := range []struct {
		name string
		nr   uintptr
		args []uintptr
	}{
		{"io_uring_setup", unix.SYS_IO_URING_SETUP, []uintptr{1, 0}},
		{"bpf", unix.SYS_BPF, nil},
		{"userfaultfd", unix.SYS_USERFAULTFD, nil},
		{"keyctl", unix.SYS_KEYCTL, []uintptr{0, ^uintptr(3), 0}},
		{"perf_event_open", unix.SYS_PERF_EVENT_OPEN, nil},
		{"x32 getpid", 0x40000000 | 39, nil},
	} {
		saw(c.name, sys(c.nr, c.args...))
	}
	if len(args) > 0 && runtime.GOARCH == "amd64" {
		foreign()
		saw("32-bit call", nil)
	}
}

// foreign makes a call by the i386 entry: mov eax, 20 (getpid); int 0x80; ret.
func foreign() {
	code, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		saw("executable memory", err)
		return
	}
	copy(code, []byte{0xb8, 20, 0, 0, 0, 0xcd, 0x80, 0xc3})
	entry := &code[0]
	f := *(*func())(unsafe.Pointer(&[]*unsafe.Pointer{(*unsafe.Pointer)(unsafe.Pointer(&entry))}[0]))
	f()
}

func ioctl(fd int, request uintptr, char byte) error {
	_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(&char)))
	if e != 0 {
		return e
	}
	return nil
}

// noSeccomp makes seccomp(2) and PR_SET_SECCOMP fail with EINVAL, by a filter of its
// own, and executes CMD.
func noSeccomp(args []string) {
	deny := uint32(unix.SECCOMP_RET_ERRNO | int(unix.EINVAL))
	code := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_SECCOMP, Jt: 3},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PRCTL, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.PR_SET_SECCOMP, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: deny},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	runtime.LockOSThread()
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	if err := sys(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); err != nil {
		saw("own filter", err)
		os.Exit(3)
	}
	saw("exec", syscall.Exec(arg(args, 0), args, os.Environ()))
}
