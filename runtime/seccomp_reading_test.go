// What the tests of the seccomp compiler stand on: an interpreter of BPF, a direct
// reading of profiles, and random profiles and calls.

package runtime

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
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

// reading answers calls from the profile itself, one rule after the other, with
// whole numbers: what the compiled filter is held against.
type reading struct {
	s        *specs.LinuxSeccomp
	fallback uint32
	numbers  map[specs.Arch]map[string]uint32
}

func read(s *specs.LinuxSeccomp) reading {
	fallback, _ := answerOf(s.DefaultAction, s.DefaultErrnoRet)
	return reading{s, fallback, tables()}
}

var tables = sync.OnceValue(func() map[specs.Arch]map[string]uint32 {
	all := map[specs.Arch]map[string]uint32{}
	for _, a := range []abi{abiAMD64, abiX32, abiX86, abiARM64, abiARM} {
		all[a.name] = a.read()
	}
	return all
})

// arch names the ABI of a call, "" if the filter does not know it.
func (r reading) arch(d callData) specs.Arch {
	listed := func(a specs.Arch) specs.Arch {
		if a == specs.ArchX86_64 || a == specs.ArchAARCH64 || slices.Contains(r.s.Architectures, a) {
			return a
		}
		return ""
	}
	switch {
	case d.arch == unix.AUDIT_ARCH_X86_64 && d.nr >= x32Bit:
		return listed(specs.ArchX32)
	case d.arch == unix.AUDIT_ARCH_X86_64:
		return specs.ArchX86_64
	case d.arch == unix.AUDIT_ARCH_I386:
		return listed(specs.ArchX86)
	case d.arch == unix.AUDIT_ARCH_AARCH64:
		return specs.ArchAARCH64
	case d.arch == unix.AUDIT_ARCH_ARM:
		return listed(specs.ArchARM)
	}
	return ""
}

// answers gives what the filter may say to a call: several where rules with
// different answers hold, as nobody has promised an order.
func (r reading) answers(d callData) []uint32 {
	arch := r.arch(d)
	switch {
	case arch == "" && d.arch != unix.AUDIT_ARCH_X86_64:
		return []uint32{unix.SECCOMP_RET_KILL_PROCESS}
	case d.nr == math.MaxUint32:
		return []uint32{r.fallback}
	case arch == "":
		return []uint32{retENOSYS}
	}
	narrow := arch == specs.ArchX32 || arch == specs.ArchX86 || arch == specs.ArchARM
	var newest uint32
	var some, always []uint32
	named := false
	for _, call := range r.s.Syscalls {
		answer, _ := answerOf(call.Action, call.ErrnoRet)
		for _, name := range call.Names {
			n, ok := r.numbers[arch][name]
			if ok && (n < 0xf0000 || n >= x32Bit) {
				newest = max(newest, n)
			}
			if answer == r.fallback {
				continue
			}
			named = named || ok && n == d.nr
			if ok && n == d.nr && holdsAlways(call.Args, narrow) {
				always = append(always, answer)
			} else if ok && n == d.nr && matches(call.Args, d, narrow) {
				some = append(some, answer)
			}
			if arch == specs.ArchX86 && through(name, d) && (holdsAlways(call.Args, narrow) || strictness(answer) > strictness(r.fallback)) {
				some = append(some, answer)
			}
		}
	}
	switch {
	case len(always) > 0:
		return always[:1]
	case len(some) > 0:
		return some
	case !named && d.nr > newest && newest > 0 && !slices.Contains([]specs.LinuxSeccompAction{specs.ActAllow, specs.ActLog, specs.ActTrace}, r.s.DefaultAction):
		return []uint32{retENOSYS}
	}
	return []uint32{r.fallback}
}

// Facts of linux/net.h and linux/ipc.h: the calls by their numbers from 1 on.
var (
	socketNumbers = strings.Fields("socket bind connect listen accept getsockname getpeername socketpair send recv sendto recvfrom " +
		"shutdown setsockopt getsockopt sendmsg recvmsg accept4 recvmmsg sendmmsg")
	ipcNumbers = map[string]uint32{"semop": 1, "semget": 2, "semctl": 3, "semtimedop": 4, "msgsnd": 11, "msgrcv": 12, "msgget": 13,
		"msgctl": 14, "shmat": 21, "shmdt": 22, "shmget": 23, "shmctl": 24}
)

// through says whether an i386 call is the named one, made through another.
func through(name string, d callData) bool {
	sub := uint32(d.args[0])
	inSocket, inIPC := uint32(slices.Index(socketNumbers, name)+1), ipcNumbers[name]
	return d.nr == 102 && inSocket > 0 && sub == inSocket || d.nr == 117 && inIPC > 0 && sub&0xffff == inIPC
}

func matches(args []specs.LinuxSeccompArg, d callData, narrow bool) bool {
	one := func(a specs.LinuxSeccompArg) bool {
		v, x, y := d.args[a.Index], a.Value, a.ValueTwo
		if narrow {
			v, x, y = v&0xffffffff, x&0xffffffff, y&0xffffffff
		}
		return map[specs.LinuxSeccompOperator]bool{
			specs.OpEqualTo: v == x, specs.OpNotEqual: v != x, specs.OpMaskedEqual: v&x == y&x,
			specs.OpGreaterThan: v > x, specs.OpGreaterEqual: v >= x, specs.OpLessThan: v < x, specs.OpLessEqual: v <= x,
		}[a.Op]
	}
	held := len(slices.DeleteFunc(slices.Clone(args), func(a specs.LinuxSeccompArg) bool { return !one(a) }))
	return held == len(args) || twice(args) && held > 0
}

// twice says whether an argument is tested more than once.
func twice(args []specs.LinuxSeccompArg) bool {
	seen := map[uint]bool{}
	for _, a := range args {
		seen[a.Index] = true
	}
	return len(seen) < len(args)
}

// holdsAlways says whether the arguments of a call cannot matter.
func holdsAlways(args []specs.LinuxSeccompArg, narrow bool) bool {
	empty := func(a specs.LinuxSeccompArg) bool {
		return a.Op == specs.OpMaskedEqual && (a.Value == 0 || narrow && a.Value&0xffffffff == 0)
	}
	n := len(slices.DeleteFunc(slices.Clone(args), empty))
	return n == 0 || twice(args) && n < len(args)
}

var interesting = []uint64{0, 1, 2, 3, 16, 23, 0x7f, 0xffffffff, 1 << 32, 1<<32 + 1, 0x5412, 0x1_0000_5412, 0x1_0017, 1 << 63, ^uint64(0), 0x10000000}

var someNames = []string{"read", "write", "open", "openat", "clone", "socket", "connect", "sendmsg", "socketcall", "shmget", "ipc", "ioctl",
	"mount", "personality", "execve", "futex", "io_uring_setup", "close_range", "set_tls", "umount", "getrandom", "rt_sigaction"}

func randomProfile(r *rand.Rand) *specs.LinuxSeccomp {
	actions := []specs.LinuxSeccompAction{specs.ActAllow, specs.ActErrno, specs.ActKillProcess, specs.ActKill, specs.ActTrap, specs.ActLog, specs.ActTrace}
	ops := []specs.LinuxSeccompOperator{specs.OpEqualTo, specs.OpNotEqual, specs.OpMaskedEqual, specs.OpGreaterThan, specs.OpGreaterEqual, specs.OpLessThan, specs.OpLessEqual}
	s := &specs.LinuxSeccomp{DefaultAction: actions[r.IntN(len(actions))]}
	for _, a := range []specs.Arch{specs.ArchX86_64, specs.ArchX32, specs.ArchX86, specs.ArchARM, specs.ArchAARCH64, specs.ArchS390X} {
		if r.IntN(2) == 0 {
			s.Architectures = append(s.Architectures, a)
		}
	}
	for range r.IntN(12) {
		call := specs.LinuxSyscall{Action: actions[r.IntN(len(actions))]}
		if e := uint(r.IntN(40)); call.Action == specs.ActErrno && e > 0 {
			call.ErrnoRet = &e
		}
		for range 1 + r.IntN(3) {
			call.Names = append(call.Names, someNames[r.IntN(len(someNames))])
		}
		for range r.IntN(4) {
			call.Args = append(call.Args, specs.LinuxSeccompArg{Index: uint(r.IntN(4)), Op: ops[r.IntN(len(ops))],
				Value: interesting[r.IntN(len(interesting))], ValueTwo: interesting[r.IntN(len(interesting))]})
		}
		s.Syscalls = append(s.Syscalls, call)
	}
	return s
}

// randomCall makes a call, mostly one that the profile speaks of.
func (r reading) randomCall(rnd *rand.Rand) callData {
	archs := map[uint32]abi{unix.AUDIT_ARCH_X86_64: abiAMD64, unix.AUDIT_ARCH_I386: abiX86, unix.AUDIT_ARCH_AARCH64: abiARM64, unix.AUDIT_ARCH_ARM: abiARM}
	audit := slices.Sorted(maps.Keys(archs))[rnd.IntN(len(archs))]
	a := archs[audit]
	if audit == unix.AUDIT_ARCH_X86_64 && rnd.IntN(3) == 0 {
		a = abiX32
	}
	d := callData{nr: uint32(rnd.IntN(480)) | a.bit, arch: audit}
	if n, ok := r.numbers[a.name][someNames[rnd.IntN(len(someNames))]]; ok && rnd.IntN(4) > 0 {
		d.nr = n
	}
	switch rnd.IntN(12) {
	case 0:
		d.nr = []uint32{0, 0x3fffffff, x32Bit, 0x7fffffff, 1 << 31, 0xfffffffe, math.MaxUint32, 0xf0000, 0xf0007, 512}[rnd.IntN(10)]
	case 1:
		d.nr++
	}
	for i := range d.args {
		d.args[i] = interesting[rnd.IntN(len(interesting))]
	}
	return d
}
