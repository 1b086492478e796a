// This file owns the seccomp compiler: linux.seccomp of config.json in, a classic
// BPF program out (OCI runtime-spec, config-linux.md#seccomp; seccomp(2)). It
// behaves as libseccomp does under runc where that can be seen, and is stricter in
// one place: a call of an architecture that is not listed is killed, an x32 call
// refused, whatever the default action is.

package runtime

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// seccompProgram is a compiled filter.
type seccompProgram struct {
	code   []unix.SockFilter
	flags  uint32 // for seccomp(SECCOMP_SET_MODE_FILTER)
	notify bool   // an action asks for a listener
}

// bytes is the program as init installs it: 8 bytes for each instruction, in the
// machine's byte order.
func (p seccompProgram) bytes() []byte {
	if len(p.code) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.code[0])), len(p.code)*unix.SizeofSockFilter)
}

// maxProgram is BPF_MAXINSNS.
const maxProgram = 4096

// abi is one way to number system calls.
type abi struct {
	name  specs.Arch
	audit uint32 // AUDIT_ARCH_*
	table string
	bit   uint32 // set in every number of this ABI
}

const x32Bit = 0x40000000

var (
	abiAMD64 = abi{specs.ArchX86_64, unix.AUDIT_ARCH_X86_64, syscallsAMD64, 0}
	abiX32   = abi{specs.ArchX32, unix.AUDIT_ARCH_X86_64, syscallsX32, x32Bit}
	abiX86   = abi{specs.ArchX86, unix.AUDIT_ARCH_I386, syscallsX86, 0}
	abiARM64 = abi{specs.ArchAARCH64, unix.AUDIT_ARCH_AARCH64, syscallsARM64, 0}
	abiARM   = abi{specs.ArchARM, unix.AUDIT_ARCH_ARM, syscallsARM, 0}
	abis     = []abi{abiAMD64, abiX32, abiX86, abiARM64, abiARM}
)

// native is the ABI that the machine's own programs use; a filter always knows it.
var native = map[string]specs.Arch{"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64}

// foreign are architectures that no amd64 or arm64 kernel can execute: listing one
// changes nothing.
var foreign = []specs.Arch{
	specs.ArchMIPS, specs.ArchMIPS64, specs.ArchMIPS64N32, specs.ArchMIPSEL, specs.ArchMIPSEL64, specs.ArchMIPSEL64N32,
	specs.ArchPPC, specs.ArchPPC64, specs.ArchPPC64LE, specs.ArchS390, specs.ArchS390X, specs.ArchPARISC,
	specs.ArchPARISC64, specs.ArchRISCV64, "SCMP_ARCH_LOONGARCH64", "SCMP_ARCH_M68K", "SCMP_ARCH_SH", "SCMP_ARCH_SHEB",
}

// rule is one way for a call to get an answer.
type rule struct {
	args   []specs.LinuxSeccompArg // all must hold; none always holds
	answer uint32
}

// compileSeccomp compiles the filter for a machine of the architecture arch, named
// as in GOARCH. Errors name the part of linux.seccomp that is wrong.
func compileSeccomp(s *specs.LinuxSeccomp, arch string) (seccompProgram, error) {
	var prog seccompProgram
	fallback, err := answerOf(s.DefaultAction, s.DefaultErrnoRet)
	if err != nil {
		return prog, fmt.Errorf("defaultAction: %w", err)
	}
	if prog.flags, err = seccompFlags(s.Flags); err != nil {
		return prog, err
	}
	used, err := abisOf(s.Architectures, arch)
	if err != nil {
		return prog, err
	}
	if prog.notify, err = checkNotify(s); err != nil {
		return prog, err
	}
	byAudit := map[uint32][]interval{}
	var order []uint32
	for _, a := range used {
		rules, err := rulesFor(s, a, fallback)
		if err != nil {
			return prog, err
		}
		if byAudit[a.audit] == nil {
			order = append(order, a.audit)
		}
		byAudit[a.audit] = append(byAudit[a.audit], intervals(rules, a, fallback, enosysBeyond(s))...)
	}
	prog.code = []unix.SockFilter{load(offsetArch)}
	for _, audit := range order {
		block := append([]unix.SockFilter{load(offsetNr)}, search(complete(byAudit[audit], audit))...)
		// The block may be longer than the 255 instructions that a conditional jump reaches.
		prog.code = append(prog.code, jump(unix.BPF_JEQ, audit, 1, 0), always(len(block)))
		prog.code = append(prog.code, block...)
	}
	prog.code = append(prog.code, ret(unix.SECCOMP_RET_KILL_PROCESS))
	if len(prog.code) > maxProgram {
		return prog, fmt.Errorf("syscalls: the filter has %d instructions, the kernel takes %d", len(prog.code), maxProgram)
	}
	return prog, nil
}

// abisOf gives the ABIs that the filter knows, the native one first.
func abisOf(listed []specs.Arch, arch string) ([]abi, error) {
	own, ok := native[arch]
	if !ok {
		return nil, fmt.Errorf("architectures: there are no tables for %s", arch)
	}
	var out []abi
	names := append([]specs.Arch{own}, listed...)
	for i, name := range names {
		at := slices.IndexFunc(abis, func(a abi) bool { return a.name == name })
		switch {
		case slices.Contains(names[:i], name) || slices.Contains(foreign, name):
		case at < 0:
			return nil, fmt.Errorf("architectures: unknown %q", name)
		default:
			out = append(out, abis[at])
		}
	}
	return out, nil
}

// answerOf gives the value that a filter returns for an action.
func answerOf(action specs.LinuxSeccompAction, errnoRet *uint) (uint32, error) {
	values := map[specs.LinuxSeccompAction]uint32{
		specs.ActKill: unix.SECCOMP_RET_KILL_THREAD, specs.ActKillThread: unix.SECCOMP_RET_KILL_THREAD,
		specs.ActKillProcess: unix.SECCOMP_RET_KILL_PROCESS, specs.ActTrap: unix.SECCOMP_RET_TRAP,
		specs.ActErrno: unix.SECCOMP_RET_ERRNO, specs.ActTrace: unix.SECCOMP_RET_TRACE,
		specs.ActAllow: unix.SECCOMP_RET_ALLOW, specs.ActLog: unix.SECCOMP_RET_LOG, specs.ActNotify: unix.SECCOMP_RET_USER_NOTIF,
	}
	v, ok := values[action]
	if !ok {
		return 0, fmt.Errorf("unknown action %q", action)
	}
	errno := uint(unix.EPERM)
	if errnoRet != nil {
		errno = *errnoRet
	}
	switch {
	case action == specs.ActErrno && errno > 4095, errno > math.MaxUint16:
		return 0, fmt.Errorf("errnoRet %d is out of range", errno)
	case action == specs.ActErrno || action == specs.ActTrace:
		v |= uint32(errno)
	case errnoRet != nil && *errnoRet != 0:
		return 0, fmt.Errorf("errnoRet has no meaning for %s", action)
	}
	return v, nil
}

// seccompFlags gives the flags of seccomp(2). TSYNC is left out: execve leaves one
// thread only, and that is the one with the filter.
func seccompFlags(names []specs.LinuxSeccompFlag) (flags uint32, err error) {
	values := map[specs.LinuxSeccompFlag]uint32{
		specs.LinuxSeccompFlagLog: unix.SECCOMP_FILTER_FLAG_LOG, specs.LinuxSeccompFlagSpecAllow: unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		specs.LinuxSeccompFlagWaitKillableRecv: unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, "SECCOMP_FILTER_FLAG_TSYNC": 0,
	}
	for _, n := range names {
		v, ok := values[n]
		if !ok {
			return 0, fmt.Errorf("flags: unknown %q", n)
		}
		flags |= v
	}
	return flags, nil
}

func checkNotify(s *specs.LinuxSeccomp) (bool, error) {
	notify := s.DefaultAction == specs.ActNotify
	if notify {
		return false, fmt.Errorf("defaultAction: %s would catch the call that hands over the listener", s.DefaultAction)
	}
	for _, call := range s.Syscalls {
		notify = notify || call.Action == specs.ActNotify
		if call.Action == specs.ActNotify && slices.Contains(call.Names, "write") {
			return false, fmt.Errorf("syscalls: %s on write would catch the call that hands over the listener", call.Action)
		}
	}
	if s.ListenerPath != "" && !notify || s.ListenerMetadata != "" && s.ListenerPath == "" {
		return false, fmt.Errorf("listenerPath: no action is %s", specs.ActNotify)
	}
	if notify && s.ListenerPath == "" {
		return false, fmt.Errorf("listenerPath: missing, an action is %s", specs.ActNotify)
	}
	return notify, nil
}

// numbersOf reads an ABI's table.
func numbersOf(a abi) map[string]uint32 {
	numbers := make(map[string]uint32, 400)
	for entry := range strings.FieldsSeq(a.table) {
		name, number, _ := strings.Cut(entry, ":")
		n, _ := strconv.ParseUint(number, 10, 32) // generated: always a number
		numbers[name] = uint32(n) | a.bit
	}
	return numbers
}

// rulesFor gives the rules of each call of one ABI, in the order of the config.
func rulesFor(s *specs.LinuxSeccomp, a abi, fallback uint32) (map[uint32][]rule, error) {
	numbers := numbersOf(a)
	rules := map[uint32][]rule{}
	for i, call := range s.Syscalls {
		field := fmt.Sprintf("syscalls[%d]", i)
		answer, err := answerOf(call.Action, call.ErrnoRet)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		if len(call.Names) == 0 {
			return nil, fmt.Errorf("%s.names: empty", field)
		}
		if answer == fallback {
			continue // says what holds anyway, and must not shadow what does not
		}
		ways, err := waysOf(call.Args, answer, field)
		if err != nil {
			return nil, err
		}
		for _, name := range call.Names {
			n, ok := numbers[name]
			if !ok {
				if err := unknownCall(name, answer, fallback); err != nil {
					return nil, fmt.Errorf("%s.names: %w", field, err)
				}
				continue
			}
			rules[n] = append(rules[n], ways...)
		}
	}
	return rules, nil
}

// waysOf splits a rule that tests one argument twice into one rule for each test,
// any of which suffices: that is what runc does, and profiles rely on it.
func waysOf(args []specs.LinuxSeccompArg, answer uint32, field string) ([]rule, error) {
	var count [6]int
	twice := false
	for _, a := range args {
		if a.Index > 5 {
			return nil, fmt.Errorf("%s.args: there is no argument %d", field, a.Index)
		}
		if _, ok := tests[a.Op]; !ok {
			return nil, fmt.Errorf("%s.args: unknown operator %q", field, a.Op)
		}
		count[a.Index]++
		twice = twice || count[a.Index] > 1
	}
	if !twice {
		return []rule{{args, answer}}, nil
	}
	var ways []rule
	for _, a := range args {
		ways = append(ways, rule{[]specs.LinuxSeccompArg{a}, answer})
	}
	return ways, nil
}

// unknownCall decides on a name that an ABI does not have. One that is known
// elsewhere, or that would only be allowed more than the rest, is left out. A
// denial that nobody knows is a denial that would not happen.
func unknownCall(name string, answer, fallback uint32) error {
	if strictness(answer) <= strictness(fallback) {
		return nil
	}
	for _, a := range abis {
		if _, ok := numbersOf(a)[name]; ok {
			return nil
		}
	}
	if slices.Contains(retired, name) {
		return nil
	}
	return fmt.Errorf("unknown system call %q cannot be denied", name)
}

// retired are calls that the kernel has given up on every architecture here.
var retired = []string{"create_module", "get_kernel_syms", "query_module", "_sysctl", "vm86old", "uselib", "ustat", "nfsservctl", "lookup_dcookie"}

// strictness orders answers as the kernel does when filters disagree.
func strictness(answer uint32) int64 { return -int64(int32(answer & 0xffff0000)) }

// enosysBeyond says whether calls newer than the profile are answered ENOSYS: a
// profile that allows by name cannot know them, and libc falls back on ENOSYS only.
func enosysBeyond(s *specs.LinuxSeccomp) bool {
	switch s.DefaultAction {
	case specs.ActAllow, specs.ActLog, specs.ActTrace:
		return false
	}
	return s.DefaultErrnoRet == nil || *s.DefaultErrnoRet != uint(unix.ENOSYS)
}

// interval is a range of call numbers with one piece of code: from first up to the
// next interval's first.
type interval struct {
	first uint32
	code  []unix.SockFilter
}

const retENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)

// intervals covers the numbers of one ABI.
func intervals(rules map[uint32][]rule, a abi, fallback uint32, enosys bool) []interval {
	out := []interval{{a.bit, []unix.SockFilter{ret(fallback)}}}
	last := a.bit
	for n := range rules {
		last = max(last, n)
		out = append(out, interval{n, body(rules[n], fallback)})
	}
	slices.SortFunc(out[1:], func(x, y interval) int { return int(int64(x.first) - int64(y.first)) })
	// After each call the default holds again, unless the next number has a rule too.
	var all []interval
	for i, iv := range out {
		all = append(all, iv)
		if i > 0 && (i+1 == len(out) || out[i+1].first != iv.first+1) {
			all = append(all, interval{iv.first + 1, []unix.SockFilter{ret(fallback)}})
		}
	}
	if enosys {
		all = append(all, interval{last + 1, []unix.SockFilter{ret(retENOSYS)}})
	}
	return all
}

// complete sorts the intervals of one AUDIT_ARCH, drops what is hidden by a later
// one at the same place, merges equal neighbours, and closes the range of x32.
func complete(all []interval, audit uint32) []interval {
	if audit == unix.AUDIT_ARCH_X86_64 {
		x32 := slices.ContainsFunc(all, func(i interval) bool { return i.first == x32Bit })
		if !x32 {
			all = append(all, interval{x32Bit, []unix.SockFilter{ret(retENOSYS)}})
		}
	}
	slices.SortStableFunc(all, func(x, y interval) int {
		switch {
		case x.first < y.first:
			return -1
		case x.first > y.first:
			return 1
		}
		return 0
	})
	var out []interval
	for _, iv := range all {
		if n := len(out); n > 0 && out[n-1].first == iv.first {
			out = out[:n-1]
		}
		if n := len(out); n > 0 && slices.Equal(out[n-1].code, iv.code) {
			continue
		}
		out = append(out, iv)
	}
	return out
}

// search finds the interval of the loaded number by halving.
func search(ivs []interval) []unix.SockFilter {
	if len(ivs) == 1 {
		return ivs[0].code
	}
	mid := len(ivs) / 2
	low, high := search(ivs[:mid]), search(ivs[mid:])
	var code []unix.SockFilter
	if len(low) <= math.MaxUint8 {
		code = append(code, jump(unix.BPF_JGE, ivs[mid].first, uint8(len(low)), 0))
	} else {
		code = append(code, jump(unix.BPF_JGE, ivs[mid].first, 0, 1), always(len(low)))
	}
	return append(append(code, low...), high...)
}

// body answers one call: the first rule whose arguments hold, unless a rule without
// arguments makes them all pointless; then that one, as in libseccomp.
func body(rules []rule, fallback uint32) []unix.SockFilter {
	for _, r := range rules {
		if len(r.args) == 0 {
			return []unix.SockFilter{ret(r.answer)}
		}
	}
	var code []unix.SockFilter
	for _, r := range rules {
		code = append(code, r.code()...)
	}
	return append(code, ret(fallback))
}
