// Tests of the seccomp compiler against a direct reading of profiles.

package runtime

import (
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/spec"
)

func TestACompiledFilterAnswersAsTheProfileReads(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	for i := range 400 {
		s := randomProfile(rnd)
		r := read(s)
		for _, machine := range []string{"amd64", "arm64"} {
			prog, err := compileSeccomp(s, machine)
			if err != nil {
				t.Fatalf("profile %d: %v", i, err)
			}
			for range 150 {
				d := r.randomCall(rnd)
				want := r.answers(d)
				if (machine == "amd64") != (d.arch == unix.AUDIT_ARCH_X86_64 || d.arch == unix.AUDIT_ARCH_I386) {
					want = []uint32{unix.SECCOMP_RET_KILL_PROCESS}
				}
				if got := interpret(t, prog.code, d); !slices.Contains(want, got) {
					text, _ := json.Marshal(s)
					t.Fatalf("on %s call %+v is answered %#x, the profile says %#x: %s", machine, d, got, want, text)
				}
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
		{"an architecture that the machine lacks and nobody has", "architectures[1]", specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Architectures: []specs.Arch{specs.ArchMIPS, "SCMP_ARCH_VAX"}}},
		{"an errno for an action that has none", "errnoRet", specs.LinuxSeccomp{DefaultAction: specs.ActKill, DefaultErrnoRet: &errno}},
		{"a wait for an answer without a listener", "flags", specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Flags: []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagWaitKillableRecv}}},
		{"metadata for no listener", "listenerMetadata", specs.LinuxSeccomp{DefaultAction: specs.ActAllow, ListenerMetadata: "x"}},
		{"notify by default", "defaultAction", specs.LinuxSeccomp{DefaultAction: specs.ActNotify, ListenerPath: "/x"}},
		{"notify on write", "syscalls[0]", one(specs.ActNotify, "write")},
		{"more than a kernel takes", "4096", long(300)},
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
	if os.Getenv("SBXRUN_NO_MODULES") != "" {
		t.Skip("the module's source is not here")
	}
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
	for _, text := range []string{
		`{"defaultAction":"SCMP_ACT_ALLOW","architectures":["SCMP_ARCH_X86"],"syscalls":[{"names":["ioctl"],"action":"SCMP_ACT_ERRNO",` +
			`"args":[{"index":1,"value":4294967295,"valueTwo":21522,"op":"SCMP_CMP_MASKED_EQ"}]}]}`,
		`{"defaultAction":"SCMP_ACT_ERRNO","defaultErrnoRet":38,"syscalls":[{"names":["socket","read"],"action":"SCMP_ACT_ALLOW",` +
			`"args":[{"index":0,"value":40,"op":"SCMP_CMP_NE"},{"index":0,"value":3,"op":"SCMP_CMP_GE"}]}]}`,
	} {
		f.Add([]byte(text), uint32(16), uint64(0x5412))
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
			if got, want := interpret(t, prog.code, d), read(&s).answers(d); !slices.Contains(want, got) {
				t.Fatalf("call %+v is answered %#x, the profile says %#x", d, got, want)
			}
		}
	})
}

// long is a profile with n rules for each of a few calls.
func long(n int) specs.LinuxSeccomp {
	s := specs.LinuxSeccomp{DefaultAction: specs.ActAllow}
	for i := range uint64(n) {
		arg := specs.LinuxSeccompArg{Index: 1, Op: specs.OpGreaterEqual, Value: i << 31, ValueTwo: 0}
		exact := specs.LinuxSeccompArg{Index: 2, Op: specs.OpEqualTo, Value: i}
		s.Syscalls = append(s.Syscalls, specs.LinuxSyscall{Names: []string{"read", "ioctl"}, Action: specs.ActErrno, Args: []specs.LinuxSeccompArg{arg, exact}})
	}
	return s
}

func TestJumpsReachAcrossLongRules(t *testing.T) {
	s := long(90)
	prog, err := compileSeccomp(&s, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if len(prog.code) < 4*255 {
		t.Fatalf("%d instructions need no long jump", len(prog.code))
	}
	r := read(&s)
	for _, nr := range []uint32{0, 1, 16, 500} {
		for i := range uint64(91) {
			for _, off := range []uint64{0, 1} {
				d := callData{nr: nr, arch: unix.AUDIT_ARCH_X86_64, args: [6]uint64{0, i<<31 - off, i}}
				if got, want := interpret(t, prog.code, d), r.answers(d)[0]; got != want {
					t.Fatalf("call %+v is answered %#x, the profile says %#x", d, got, want)
				}
			}
		}
	}
}

// allowList is a profile of the kind that container engines come with: some 350
// calls by name, some by argument, for all ABIs of amd64.
func allowList() *specs.LinuxSeccomp {
	s := &specs.LinuxSeccomp{DefaultAction: specs.ActErrno, Architectures: []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32}}
	var names []string
	for name, n := range abiAMD64.read() {
		if n%11 != 5 && n < 440 && name != "personality" && name != "clone" && name != "socket" {
			names = append(names, name)
		}
	}
	s.Syscalls = append(s.Syscalls, specs.LinuxSyscall{Names: names, Action: specs.ActAllow})
	for _, v := range []uint64{0, 8, 0x20000, 0x20008, 0xffffffff} {
		s.Syscalls = append(s.Syscalls, one(specs.ActAllow, "personality", specs.LinuxSeccompArg{Value: v, Op: specs.OpEqualTo}).Syscalls...)
	}
	s.Syscalls = append(s.Syscalls, one(specs.ActAllow, "clone", specs.LinuxSeccompArg{Value: 0x7e020000, Op: specs.OpMaskedEqual}).Syscalls...)
	s.Syscalls = append(s.Syscalls, one(specs.ActAllow, "socket", specs.LinuxSeccompArg{Value: unix.AF_VSOCK, Op: specs.OpNotEqual}).Syscalls...)
	return s
}

// installed is the profile of the distribution's container engine, all conditions on
// capabilities taken as met.
func installed(t *testing.T) *specs.LinuxSeccomp {
	text, err := os.ReadFile("/usr/share/containers/seccomp.json")
	if err != nil {
		t.Skipf("no profile of a container engine is installed: %v", err)
	}
	var file struct {
		specs.LinuxSeccomp
		Syscalls []struct {
			specs.LinuxSyscall
			Includes struct{ Arches []string }
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	s := &file.LinuxSeccomp
	s.Architectures = []specs.Arch{specs.ArchX86_64, specs.ArchX86, specs.ArchX32}
	for _, call := range file.Syscalls {
		if a := call.Includes.Arches; len(a) == 0 || slices.Contains(a, "amd64") {
			s.Syscalls = append(s.Syscalls, call.LinuxSyscall)
		}
	}
	return s
}

func TestProfilesOfContainerEnginesAreSmallAndMeanWhatTheySay(t *testing.T) {
	for name, profile := range map[string]func(*testing.T) *specs.LinuxSeccomp{
		"a list of that shape": func(*testing.T) *specs.LinuxSeccomp { return allowList() },
		"the installed one":    installed,
	} {
		t.Run(name, func(t *testing.T) {
			s := profile(t)
			prog, err := compileSeccomp(s, "amd64")
			if err != nil {
				t.Fatal(err)
			}
			if len(prog.code) > 1000 {
				t.Errorf("%d instructions", len(prog.code))
			}
			r := read(s)
			rnd := rand.New(rand.NewPCG(1, 1))
			for range 4000 {
				d := r.randomCall(rnd)
				if d.arch != unix.AUDIT_ARCH_X86_64 && d.arch != unix.AUDIT_ARCH_I386 {
					continue
				}
				if got, want := interpret(t, prog.code, d), r.answers(d); !slices.Contains(want, got) {
					t.Fatalf("call %+v is answered %#x, the profile says %#x", d, got, want)
				}
			}
		})
	}
}

func TestOfRulesThatDisagreeTheNarrowerOneHolds(t *testing.T) {
	eq := specs.LinuxSeccompArg{Value: 5, Op: specs.OpEqualTo}
	ge := specs.LinuxSeccompArg{Value: 3, Op: specs.OpGreaterEqual}
	always := []specs.LinuxSeccompArg(nil)
	deny := unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	type way struct {
		action specs.LinuxSeccompAction
		args   []specs.LinuxSeccompArg
	}
	for _, tc := range []struct {
		name string
		ways []way
		want uint32
	}{
		{"equality before a bound", []way{{specs.ActErrno, []specs.LinuxSeccompArg{ge}}, {specs.ActLog, []specs.LinuxSeccompArg{eq}}}, unix.SECCOMP_RET_LOG},
		{"in whatever order they come", []way{{specs.ActLog, []specs.LinuxSeccompArg{eq}}, {specs.ActErrno, []specs.LinuxSeccompArg{ge}}}, unix.SECCOMP_RET_LOG},
		{"the stricter of equals", []way{{specs.ActLog, []specs.LinuxSeccompArg{eq}}, {specs.ActErrno, []specs.LinuxSeccompArg{eq}}}, deny},
		{"no condition before any", []way{{specs.ActErrno, []specs.LinuxSeccompArg{eq}}, {specs.ActLog, always}}, unix.SECCOMP_RET_LOG},
		{"the first without a condition", []way{{specs.ActErrno, always}, {specs.ActLog, always}}, deny},
		{"never what is the default anyway", []way{{specs.ActAllow, always}, {specs.ActErrno, []specs.LinuxSeccompArg{eq}}}, deny},
	} {
		s := specs.LinuxSeccomp{DefaultAction: specs.ActAllow}
		for _, w := range tc.ways {
			s.Syscalls = append(s.Syscalls, one(w.action, "dup", w.args...).Syscalls...)
		}
		prog, err := compileSeccomp(&s, "amd64")
		if err != nil {
			t.Fatal(err)
		}
		if got := interpret(t, prog.code, callData{nr: unix.SYS_DUP, arch: unix.AUDIT_ARCH_X86_64, args: [6]uint64{5}}); got != tc.want {
			t.Errorf("%s: answered %#x, want %#x", tc.name, got, tc.want)
		}
	}
}

func TestWhatTheCallerMustInstall(t *testing.T) {
	s := one(specs.ActNotify, "mkdir")
	s.ListenerPath = "/run/agent"
	s.Flags = []specs.LinuxSeccompFlag{specs.LinuxSeccompFlagLog, specs.LinuxSeccompFlagWaitKillableRecv, "SECCOMP_FILTER_FLAG_TSYNC"}
	prog, err := compileSeccomp(&s, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	want := uint32(unix.SECCOMP_FILTER_FLAG_LOG | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER)
	if !prog.notify || prog.flags != want {
		t.Errorf("notify %v, flags %#x, want %#x", prog.notify, prog.flags, want)
	}
	if text := prog.bytes(); len(text) != 8*len(prog.code) || binary.NativeEndian.Uint32(text[4:]) != offsetArch {
		t.Errorf("the program's bytes are % x", text[:16])
	}
	ignored := specs.LinuxSeccomp{DefaultAction: specs.ActAllow, ListenerPath: "/run/agent"}
	if prog, err := compileSeccomp(&ignored, "amd64"); err != nil || prog.notify || prog.flags != 0 {
		t.Errorf("a listener's path that no action uses is not ignored: %+v, %v", prog, err)
	}
	for _, name := range []string{"sysmips", "riscv_flush_icache", "set_tls", "umount", "socketcall"} {
		s := one(specs.ActErrno, name)
		if _, err := compileSeccomp(&s, "amd64"); err != nil {
			t.Errorf("denying a call of another architecture: %v", err)
		}
	}
}
