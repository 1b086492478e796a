// Tests of the seccomp compiler: against a direct reading of the profile, and
// against the kernel.

package runtime

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/spec"
)

// callData is struct seccomp_data.
type callData struct {
	nr, arch uint32
	args     [6]uint64
}

func (d callData) word(offset uint32) uint32 {
	switch offset {
	case offsetNr:
		return d.nr
	case offsetArch:
		return d.arch
	}
	i := (offset - offsetArgs) / 8
	if offset%8 == 4 {
		return uint32(d.args[i] >> 32)
	}
	return uint32(d.args[i])
}

// interpret runs a filter as the kernel would.
func interpret(t testing.TB, code []unix.SockFilter, d callData) uint32 {
	var acc uint32
	for pc := 0; pc < len(code); pc++ {
		in := code[pc]
		jumpTo := func(yes bool) {
			if yes {
				pc += int(in.Jt)
			} else {
				pc += int(in.Jf)
			}
		}
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = d.word(in.K)
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jumpTo(acc == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jumpTo(acc >= in.K)
		case unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K:
			jumpTo(acc > in.K)
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		default:
			t.Fatalf("instruction %d has the unknown code %#x", pc, in.Code)
		}
	}
	t.Fatal("the filter runs off its end")
	return 0
}

// read is what the profile says about a call, read as a person reads it.
func read(s *specs.LinuxSeccomp, d callData) uint32 {
	fallback, _ := answerOf(s.DefaultAction, s.DefaultErrnoRet)
	var use *abi
	for i, a := range abis {
		wanted := a.name == specs.ArchX86_64
		for _, l := range s.Architectures {
			wanted = wanted || l == a.name
		}
		if wanted && a.audit == d.arch && (a.bit == x32Bit) == (d.nr >= x32Bit && a.audit == unix.AUDIT_ARCH_X86_64) {
			use = &abis[i]
		}
	}
	switch {
	case use == nil && d.arch == unix.AUDIT_ARCH_X86_64:
		return retENOSYS
	case use == nil:
		return unix.SECCOMP_RET_KILL_PROCESS
	}
	numbers := numbersOf(*use)
	var answer *uint32
	newest := use.bit
	for _, call := range s.Syscalls {
		a, _ := answerOf(call.Action, call.ErrnoRet)
		for _, name := range call.Names {
			n, ok := numbers[name]
			if !ok || a == fallback {
				continue
			}
			newest = max(newest, n)
			if n != d.nr {
				continue
			}
			if len(call.Args) == 0 {
				if answer == nil {
					answer = &a
				}
			} else if answer == nil && matches(call.Args, d) && !unconditional(s, numbers, d.nr, fallback) {
				answer = &a
			}
		}
	}
	switch {
	case answer != nil:
		return *answer
	case d.nr > newest && enosysBeyond(s):
		return retENOSYS
	}
	return fallback
}

// unconditional says whether some rule answers the call whatever its arguments.
func unconditional(s *specs.LinuxSeccomp, numbers map[string]uint32, nr, fallback uint32) bool {
	for _, call := range s.Syscalls {
		a, _ := answerOf(call.Action, call.ErrnoRet)
		for _, name := range call.Names {
			if n, ok := numbers[name]; ok && n == nr && len(call.Args) == 0 && a != fallback {
				return true
			}
		}
	}
	return false
}

func matches(args []specs.LinuxSeccompArg, d callData) bool {
	one := func(a specs.LinuxSeccompArg) bool {
		v := d.args[a.Index]
		return map[specs.LinuxSeccompOperator]bool{
			specs.OpEqualTo: v == a.Value, specs.OpNotEqual: v != a.Value, specs.OpMaskedEqual: v&a.Value == a.ValueTwo,
			specs.OpGreaterThan: v > a.Value, specs.OpGreaterEqual: v >= a.Value,
			specs.OpLessThan: v < a.Value, specs.OpLessEqual: v <= a.Value,
		}[a.Op]
	}
	seen, twice, all, any := map[uint]bool{}, false, true, false
	for _, a := range args {
		twice = twice || seen[a.Index]
		seen[a.Index] = true
		all, any = all && one(a), any || one(a)
	}
	return all || twice && any
}

var interesting = []uint64{0, 1, 2, 0x7f, 0xffffffff, 1 << 32, 1<<32 + 1, 0x5412, 0x1_0000_5412, 1 << 63, ^uint64(0), 0x10000000}

func randomProfile(r *rand.Rand) *specs.LinuxSeccomp {
	actions := []specs.LinuxSeccompAction{specs.ActAllow, specs.ActErrno, specs.ActKillProcess, specs.ActTrap, specs.ActLog}
	ops := []specs.LinuxSeccompOperator{specs.OpEqualTo, specs.OpNotEqual, specs.OpMaskedEqual, specs.OpGreaterThan, specs.OpGreaterEqual, specs.OpLessThan, specs.OpLessEqual}
	names := []string{"read", "write", "open", "openat", "clone", "socket", "ioctl", "mount", "personality", "execve", "futex", "io_uring_setup", "close_range"}
	s := &specs.LinuxSeccomp{DefaultAction: actions[r.IntN(len(actions))]}
	for _, a := range abis[:3] {
		if r.IntN(2) == 0 {
			s.Architectures = append(s.Architectures, a.name)
		}
	}
	for range r.IntN(12) {
		call := specs.LinuxSyscall{Action: actions[r.IntN(len(actions))]}
		for range 1 + r.IntN(3) {
			call.Names = append(call.Names, names[r.IntN(len(names))])
		}
		for range r.IntN(4) {
			call.Args = append(call.Args, specs.LinuxSeccompArg{Index: uint(r.IntN(3)), Op: ops[r.IntN(len(ops))],
				Value: interesting[r.IntN(len(interesting))], ValueTwo: interesting[r.IntN(len(interesting))]})
		}
		s.Syscalls = append(s.Syscalls, call)
	}
	return s
}

func randomCall(r *rand.Rand) callData {
	archs := []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_AARCH64}
	d := callData{nr: uint32(r.IntN(480)), arch: archs[r.IntN(len(archs))]}
	switch r.IntN(8) {
	case 0:
		d.nr |= x32Bit
	case 1:
		d.nr = []uint32{0, 1, 2, 16, 41, 56, 59, 425, 436, 0x3fffffff, x32Bit, 0xffffffff, x32Bit | 514}[r.IntN(13)]
	}
	for i := range d.args {
		d.args[i] = interesting[r.IntN(len(interesting))]
	}
	return d
}

func TestACompiledFilterAnswersAsTheProfileReads(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for i := range 400 {
		s := randomProfile(r)
		prog, err := compileSeccomp(s, "amd64")
		if err != nil {
			t.Fatalf("profile %d: %v", i, err)
		}
		for range 300 {
			d := randomCall(r)
			if got, want := interpret(t, prog.code, d), read(s, d); got != want {
				text, _ := json.Marshal(s)
				t.Fatalf("call %+v is answered %#x, the profile says %#x: %s", d, got, want, text)
			}
		}
	}
}

func TestTheDefaultFilterRefusesForeignCallsWhateverTheyAre(t *testing.T) {
	f, err := spec.DefaultFilter("amd64")
	if err != nil {
		t.Fatal(err)
	}
	prog, err := compileSeccomp(f, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	for nr := range uint32(600) {
		if got := interpret(t, prog.code, callData{nr: nr, arch: unix.AUDIT_ARCH_I386}); got != unix.SECCOMP_RET_KILL_PROCESS {
			t.Fatalf("i386 call %d is answered %#x", nr, got)
		}
		if got := interpret(t, prog.code, callData{nr: nr | x32Bit, arch: unix.AUDIT_ARCH_X86_64}); got != retENOSYS {
			t.Fatalf("x32 call %d is answered %#x", nr, got)
		}
	}
}

func TestProfilesThatCannotBeMeantAreRefused(t *testing.T) {
	errno := uint(5000)
	for _, tc := range []struct {
		name, want string
		s          specs.LinuxSeccomp
	}{
		{"an unknown action", "defaultAction", specs.LinuxSeccomp{DefaultAction: "SCMP_ACT_MAYBE"}},
		{"an unknown flag", "flags", specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Flags: []specs.LinuxSeccompFlag{"X"}}},
		{"an unknown architecture", "architectures", specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Architectures: []specs.Arch{"X"}}},
		{"an unknown operator", "syscalls[0].args", one(specs.ActErrno, "read", specs.LinuxSeccompArg{Op: "X"})},
		{"a seventh argument", "syscalls[0].args", one(specs.ActErrno, "read", specs.LinuxSeccompArg{Index: 6, Op: specs.OpEqualTo})},
		{"a denied call that nobody knows", "no_such_call", one(specs.ActErrno, "no_such_call")},
		{"an errno beyond the kernel's", "errnoRet", specs.LinuxSeccomp{DefaultAction: specs.ActErrno, DefaultErrnoRet: &errno}},
		{"a rule without names", "names", specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{{Action: specs.ActErrno}}}},
		{"a listener nobody asks for", "listenerPath", specs.LinuxSeccomp{DefaultAction: specs.ActAllow, ListenerPath: "/x"}},
		{"notify without a listener", "listenerPath", one(specs.ActNotify, "mkdir")},
	} {
		if _, err := compileSeccomp(&tc.s, "amd64"); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want an error with %q", tc.name, err, tc.want)
		}
	}
	allowed := one(specs.ActAllow, "no_such_call")
	allowed.DefaultAction = specs.ActErrno
	if _, err := compileSeccomp(&allowed, "amd64"); err != nil {
		t.Errorf("allowing an unknown call weakens nothing, but: %v", err)
	}
	if _, err := compileSeccomp(&specs.LinuxSeccomp{DefaultAction: specs.ActAllow}, "riscv64"); err == nil {
		t.Error("an architecture without tables is accepted")
	}
}

func one(action specs.LinuxSeccompAction, name string, args ...specs.LinuxSeccompArg) specs.LinuxSeccomp {
	return specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Syscalls: []specs.LinuxSyscall{{Names: []string{name}, Action: action, Args: args}}}
}

func TestTheTablesAreThoseOfTheModule(t *testing.T) {
	before, err := os.ReadFile("seccomp_tables.go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/runtime", 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "run", "../hack/syscalls", dir+"/runtime/seccomp_tables.go")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	after, err := os.ReadFile(dir + "/runtime/seccomp_tables.go")
	if err != nil || string(after) != string(before) {
		t.Errorf("seccomp_tables.go is not what hack/syscalls writes (%v)", err)
	}
}

func FuzzSeccompProfile(f *testing.F) {
	for _, arch := range []string{"amd64", "arm64"} {
		s, _ := spec.DefaultFilter(arch)
		text, _ := json.Marshal(s)
		f.Add(text, uint32(16), uint64(0x5412))
	}
	f.Fuzz(func(t *testing.T, text []byte, nr uint32, arg uint64) {
		var s specs.LinuxSeccomp
		if json.Unmarshal(text, &s) != nil {
			return
		}
		prog, err := compileSeccomp(&s, "amd64")
		if err != nil {
			return
		}
		for _, arch := range []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386} {
			d := callData{nr: nr, arch: arch, args: [6]uint64{arg, arg, arg, arg, arg, arg}}
			if got, want := interpret(t, prog.code, d), read(&s, d); got != want {
				t.Fatalf("call %+v is answered %#x, the profile says %#x", d, got, want)
			}
		}
	})
}

// seccompChild installs the filter in its argument on itself and makes one call.
func seccompChild() {
	var s specs.LinuxSeccomp
	if err := json.Unmarshal([]byte(os.Args[2]), &s); err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	prog, err := compileSeccomp(&s, goarch)
	if err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	fprog := unix.SockFprog{Len: uint16(len(prog.code)), Filter: &prog.code[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		os.Exit(3)
	}
	// All threads: the test call may run on any.
	if _, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&fprog))); e != 0 {
		fmt.Println(e)
		os.Exit(3)
	}
	var nr, a0, a1 uintptr
	if _, err := fmt.Sscan(os.Args[3], &nr, &a0, &a1); err != nil {
		os.Exit(3)
	}
	_, _, e := unix.RawSyscall6(nr, a0, a1, 0, 0, 0, 0)
	fmt.Print(int(e))
	os.Exit(0)
}

func TestTheKernelObeysTheFilter(t *testing.T) {
	def, err := spec.DefaultFilter(goarch)
	if err != nil {
		t.Skip(err)
	}
	kill := one(specs.ActKillProcess, "getppid")
	for _, tc := range []struct {
		name string
		s    *specs.LinuxSeccomp
		call [3]uintptr
		want syscall.Errno
		dies bool
	}{
		{"an allowed call passes", def, [3]uintptr{unix.SYS_GETPPID}, 0, false},
		{"unshare is not permitted", def, [3]uintptr{unix.SYS_UNSHARE, unix.CLONE_NEWUTS}, unix.EPERM, false},
		{"a new user namespace by clone is not permitted", def, [3]uintptr{unix.SYS_CLONE, unix.CLONE_NEWUSER | uintptr(unix.SIGCHLD)}, unix.EPERM, false},
		{"clone3 is not there", def, [3]uintptr{unix.SYS_CLONE3}, unix.ENOSYS, false},
		{"io_uring is not there", def, [3]uintptr{unix.SYS_IO_URING_SETUP, 1}, unix.ENOSYS, false},
		{"a vsock socket is not permitted", def, [3]uintptr{unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EPERM, false},
		{"nor with a bit that the kernel does not look at", def, [3]uintptr{unix.SYS_SOCKET, 1<<32 | unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EPERM, false},
		{"TIOCSTI is not permitted", def, [3]uintptr{unix.SYS_IOCTL, 0, unix.TIOCSTI}, unix.EPERM, false},
		{"nor with a bit that the kernel does not look at", def, [3]uintptr{unix.SYS_IOCTL, 0, 1<<32 | unix.TIOCSTI}, unix.EPERM, false},
		{"an x32 call is not there", def, [3]uintptr{x32Bit | 39}, unix.ENOSYS, false},
		{"a call that kills, kills", &kill, [3]uintptr{unix.SYS_GETPPID}, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			text, _ := json.Marshal(tc.s)
			cmd := exec.Command("/proc/self/exe", "seccomp-child", string(text), fmt.Sprint(tc.call[0], tc.call[1], tc.call[2]))
			out, err := cmd.Output()
			if tc.dies {
				if st := cmd.ProcessState.Sys().(syscall.WaitStatus); !st.Signaled() || st.Signal() != unix.SIGSYS {
					t.Fatalf("ended with %v, want SIGSYS", cmd.ProcessState)
				}
				return
			}
			if err != nil || string(out) != fmt.Sprint(int(tc.want)) {
				t.Fatalf("answered %s (%v), want %d", out, err, int(tc.want))
			}
		})
	}
}
