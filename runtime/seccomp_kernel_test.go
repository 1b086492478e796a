// Tests of compiled filters against the kernel, calls of i386 included.

package runtime

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/spec"
)

// seccompChild installs the filter in its argument, "null" is none, on itself and makes
// one call.
func seccompChild() {
	fail := func(err any) {
		fmt.Println(err)
		os.Exit(3)
	}
	var s specs.LinuxSeccomp
	if err := json.Unmarshal([]byte(os.Args[2]), &s); err != nil {
		fail(err)
	}
	prog, err := compileSeccomp(&s, goarch)
	if err != nil {
		fail(err)
	}
	var nr, a0, a1, a2 uintptr
	if _, err := fmt.Sscan(os.Args[4], &nr, &a0, &a1, &a2); err != nil {
		fail(err)
	}
	call := func() syscall.Errno {
		pid, _, e := unix.RawSyscall6(nr, a0, a1, a2, 0, 0, 0)
		if nr == unix.SYS_CLONE && e == 0 && pid == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		return e
	}
	if os.Args[3] == "int80" {
		if call, err = int80(uint32(nr), uint32(a0)); err != nil {
			fail(err)
		}
	}
	if os.Args[2] == "null" {
		fmt.Print(int(call()))
		syscall.Exit(0)
	}
	fprog := unix.SockFprog{Len: uint16(len(prog.code)), Filter: &prog.code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fail(err)
	}
	// All threads: the test call may run on any.
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		fail(e)
	}
	fmt.Print(int(call()))
	syscall.Exit(0) // at once: os.Exit waits a second for the race detector
}

// int80 gives a function that makes a call of i386 from this process.
func int80(nr, arg uint32) (func() syscall.Errno, error) {
	code := []byte{0x53, 0xbb} // push %rbx; mov $arg, %ebx
	code = binary.LittleEndian.AppendUint32(code, arg)
	code = append(code, 0xb8) // mov $nr, %eax
	code = binary.LittleEndian.AppendUint32(code, nr)
	code = append(code, 0xcd, 0x80, 0x5b, 0xc3) // int $0x80; pop %rbx; ret
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	copy(page, code)
	entry := unsafe.Pointer(&page[0])
	closure := unsafe.Pointer(&entry) // a func value points to the address of its code
	run := *(*func() uintptr)(unsafe.Pointer(&closure))
	return func() syscall.Errno {
		if r := int32(run()); r < 0 {
			return syscall.Errno(-r)
		}
		return 0
	}, nil
}

// callUnder makes a call in a process under a filter; how is "native" or "int80".
func callUnder(t *testing.T, s *specs.LinuxSeccomp, how string, call [4]uintptr) (text string, killed bool) {
	profile, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe", "seccomp-child", string(profile), how, fmt.Sprint(call[0], call[1], call[2], call[3]))
	out, err := cmd.Output()
	if st := cmd.ProcessState.Sys().(syscall.WaitStatus); st.Signaled() && st.Signal() == unix.SIGSYS {
		return "", true
	}
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out), false
}

func TestTheKernelObeysTheFilter(t *testing.T) {
	def, err := spec.DefaultFilter(goarch)
	if err != nil {
		t.Skip(err)
	}
	kill := one(specs.ActKillProcess, "getppid")
	logged := one(specs.ActLog, "getppid")
	traced := one(specs.ActTrace, "getppid")
	for _, tc := range []struct {
		name string
		s    *specs.LinuxSeccomp
		call [4]uintptr
		want syscall.Errno
		dies bool
	}{
		{"an allowed call passes", def, [4]uintptr{unix.SYS_GETPPID}, 0, false},
		{"unshare is not permitted", def, [4]uintptr{unix.SYS_UNSHARE, unix.CLONE_NEWUTS}, unix.EPERM, false},
		{"a new user namespace by clone is not permitted", def, [4]uintptr{unix.SYS_CLONE, unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}, unix.EPERM, false},
		{"clone without one is", def, [4]uintptr{unix.SYS_CLONE, uintptr(unix.SIGCHLD)}, 0, false},
		{"clone3 is not there", def, [4]uintptr{unix.SYS_CLONE3}, unix.ENOSYS, false},
		{"io_uring is not there", def, [4]uintptr{unix.SYS_IO_URING_SETUP, 1}, unix.ENOSYS, false},
		{"a vsock socket is not there", def, [4]uintptr{unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EAFNOSUPPORT, false},
		{"nor with a bit that the kernel does not look at", def, [4]uintptr{unix.SYS_SOCKET, 1<<32 | unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EAFNOSUPPORT, false},
		{"nor a pair of them", def, [4]uintptr{unix.SYS_SOCKETPAIR, unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EAFNOSUPPORT, false},
		{"nor a netlink socket", def, [4]uintptr{unix.SYS_SOCKET, unix.AF_NETLINK, unix.SOCK_RAW}, unix.EAFNOSUPPORT, false},
		{"nor one of a family below the last one", def, [4]uintptr{unix.SYS_SOCKET, 1<<32 | unix.AF_AX25, unix.SOCK_STREAM}, unix.EAFNOSUPPORT, false},
		{"a TCP socket is", def, [4]uintptr{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM}, 0, false},
		{"a unix socket is", def, [4]uintptr{unix.SYS_SOCKET, unix.AF_UNIX, unix.SOCK_STREAM}, 0, false},
		{"an SCTP socket is not", def, [4]uintptr{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM, 132}, unix.EPROTONOSUPPORT, false},
		{"nor a DCCP one", def, [4]uintptr{unix.SYS_SOCKET, unix.AF_INET6, unix.SOCK_STREAM, 33}, unix.EPROTONOSUPPORT, false},
		{"the reaper's processors are not to be chosen", def, [4]uintptr{unix.SYS_SCHED_SETAFFINITY, 1}, unix.EPERM, false},
		{"nor its scheduling class", def, [4]uintptr{unix.SYS_SCHED_SETATTR, 1}, unix.EPERM, false},
		{"nor its priority", def, [4]uintptr{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 1}, unix.EPERM, false},
		{"nor that of all of the user", def, [4]uintptr{unix.SYS_SETPRIORITY, unix.PRIO_USER, 0}, unix.EPERM, false},
		{"one's own is", def, [4]uintptr{unix.SYS_SETPRIORITY, unix.PRIO_PROCESS, 0}, 0, false},
		{"a line discipline is not to be chosen", def, [4]uintptr{unix.SYS_IOCTL, 0, 0x5423}, unix.EPERM, false},
		{"TIOCSTI is not permitted", def, [4]uintptr{unix.SYS_IOCTL, 0, unix.TIOCSTI}, unix.EPERM, false},
		{"nor with a bit that the kernel does not look at", def, [4]uintptr{unix.SYS_IOCTL, 0, 1<<32 | unix.TIOCSTI}, unix.EPERM, false},
		{"an x32 call is not there", def, [4]uintptr{x32Bit | 39}, unix.ENOSYS, false},
		{"a logged call passes", &logged, [4]uintptr{unix.SYS_GETPPID}, 0, false},
		{"a call for a tracer is not there without one", &traced, [4]uintptr{unix.SYS_GETPPID}, unix.ENOSYS, false},
		{"a call that kills, kills", &kill, [4]uintptr{unix.SYS_GETPPID}, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.call[0] >= x32Bit && goarch != "amd64" {
				t.Skip("x32 is of amd64")
			}
			if text, killed := callUnder(t, tc.s, "native", tc.call); killed != tc.dies || !killed && text != fmt.Sprint(int(tc.want)) {
				t.Fatalf("answered %q, killed %v; want %d, %v", text, killed, int(tc.want), tc.dies)
			}
		})
	}
}

func TestTheKernelKillsCallsOfI386UnlessListed(t *testing.T) {
	if goarch != "amd64" {
		t.Skip("i386 is of amd64")
	}
	const getpid, mkdir, socketcall = 20, 39, 102
	if err := exec.Command("/proc/self/exe", "seccomp-child", "null", "int80", fmt.Sprint(getpid, 0, 0, 0)).Run(); err != nil {
		t.Skip("this kernel has no entry for 32-bit calls, a process without a filter dies of them:", err)
	}
	listed := func(s specs.LinuxSeccomp) *specs.LinuxSeccomp {
		s.Architectures = []specs.Arch{specs.ArchX86}
		return &s
	}
	nothing := one(specs.ActErrno, "kexec_load")
	socket := one(specs.ActErrno, "socket", specs.LinuxSeccompArg{Value: unix.AF_ALG, Op: specs.OpEqualTo})
	if text, killed := callUnder(t, listed(nothing), "int80", [4]uintptr{getpid}); killed || text != "0" {
		t.Fatalf("a listed architecture: answered %q, killed %v", text, killed)
	}
	def, err := spec.DefaultFilter(goarch)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*specs.LinuxSeccomp{def, &nothing, {DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchARM, specs.ArchX32}}} {
		if text, killed := callUnder(t, s, "int80", [4]uintptr{getpid}); !killed {
			t.Errorf("an architecture that is not listed is answered %q", text)
		}
	}
	for _, tc := range []struct {
		name string
		s    *specs.LinuxSeccomp
		call [4]uintptr
		want syscall.Errno
	}{
		{"a denial holds by its own number", listed(one(specs.ActErrno, "mkdir")), [4]uintptr{mkdir}, unix.EPERM},
		{"a call that is also made through socketcall is denied there", listed(socket), [4]uintptr{socketcall, 1}, unix.EPERM},
		{"and its neighbours are not", listed(socket), [4]uintptr{socketcall, 2}, unix.EFAULT},
	} {
		if text, killed := callUnder(t, tc.s, "int80", tc.call); killed || text != fmt.Sprint(int(tc.want)) {
			t.Errorf("%s: answered %q, killed %v; want %d", tc.name, text, killed, int(tc.want))
		}
	}
}
