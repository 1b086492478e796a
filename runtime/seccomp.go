// This file owns the seccomp compiler: linux.seccomp of config.json in, a classic
// BPF program out (OCI runtime-spec, config-linux.md#seccomp; seccomp(2)). What a
// program sees is what it sees under runc with libseccomp, but for five differences,
// each on the safe side:
//
//   - a call of an architecture that is not listed kills the process, not the thread;
//   - an x32 call, unless x32 is listed, is answered ENOSYS as by a kernel without x32;
//   - a denial of a call that nobody has heard of is an error, not a debug line;
//   - conditions on a call that i386 makes through socketcall(2) or ipc(2) cannot be
//     tested there: a denial then holds for every such call, a permission for none;
//   - no flag is added: runc sets SECCOMP_FILTER_FLAG_SPEC_ALLOW when none is listed.

package runtime

import (
	"cmp"
	"fmt"
	"math"
	"slices"
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

// bytes is the program as init installs it: for each instruction 8 bytes in the
// machine's byte order, code (2), jt (1), jf (1), k (4): struct sock_filter.
func (p seccompProgram) bytes() []byte {
	if len(p.code) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&p.code[0])), len(p.code)*unix.SizeofSockFilter)
}

// maxProgram is BPF_MAXINSNS.
const maxProgram = 4096

const retENOSYS = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)

// profile is linux.seccomp, checked and in numbers, before any architecture.
type profile struct {
	fallback uint32 // the answer where no rule holds
	enosys   bool   // calls newer than the profile are answered ENOSYS
	entries  []entry
}

// entry is one element of linux.seccomp.syscalls.
type entry struct {
	names []string
	rules []rule // any of them suffices
}

// rule is one way for a call to get an answer.
type rule struct {
	args   []specs.LinuxSeccompArg // all must hold; none always holds
	answer uint32
}

// compileSeccomp compiles the filter for a machine of the architecture arch, named
// as in GOARCH. Errors name the part of linux.seccomp that is wrong.
func compileSeccomp(s *specs.LinuxSeccomp, arch string) (prog seccompProgram, err error) {
	used, err := abisOf(s.Architectures, arch)
	if err != nil {
		return prog, err
	}
	p, err := readProfile(s, used[0])
	if err != nil {
		return prog, err
	}
	if prog.notify, err = checkNotify(s); err != nil {
		return prog, err
	}
	if prog.flags, err = seccompFlags(s.Flags, prog.notify); err != nil {
		return prog, err
	}
	prog.code = []unix.SockFilter{load(offsetArch)}
	for len(used) > 0 {
		n := 1
		for n < len(used) && used[n].audit == used[0].audit {
			n++
		}
		block := append([]unix.SockFilter{load(offsetNr)}, search(p.numberLine(used[:n]))...)
		// The block may be longer than the 255 instructions that a conditional jump reaches.
		prog.code = append(prog.code, jump(unix.BPF_JEQ, used[0].audit, 1, 0), always(len(block)))
		prog.code = append(prog.code, block...)
		used = used[n:]
	}
	prog.code = append(prog.code, ret(unix.SECCOMP_RET_KILL_PROCESS))
	if len(prog.code) > maxProgram {
		return seccompProgram{}, fmt.Errorf("syscalls: the filter has %d instructions, the kernel takes %d", len(prog.code), maxProgram)
	}
	return prog, nil
}

// readProfile checks the actions, the names and the conditions.
func readProfile(s *specs.LinuxSeccomp, native abi) (p profile, err error) {
	if p.fallback, err = answerOf(s.DefaultAction, s.DefaultErrnoRet); err != nil {
		return p, fmt.Errorf("defaultAction: %w", err)
	}
	// A profile that permits by name cannot know later calls, and libc turns to an
	// older call on ENOSYS only. Tracers are supposed to know them.
	p.enosys = !slices.Contains([]specs.LinuxSeccompAction{specs.ActAllow, specs.ActLog, specs.ActTrace}, s.DefaultAction)
	for i, call := range s.Syscalls {
		e, err := readEntry(call, p.fallback, native)
		if err != nil {
			return p, fmt.Errorf("syscalls[%d]%w", i, err)
		}
		p.entries = append(p.entries, e)
	}
	return p, nil
}

func readEntry(call specs.LinuxSyscall, fallback uint32, native abi) (e entry, err error) {
	answer, err := answerOf(call.Action, call.ErrnoRet)
	if err != nil {
		return e, fmt.Errorf(".action: %w", err)
	}
	if len(call.Names) == 0 {
		return e, fmt.Errorf(".names: empty")
	}
	for _, name := range call.Names {
		if _, ok := native.numbers[name]; !ok && strictness(answer) > strictness(fallback) && !known(name) {
			return e, fmt.Errorf(".names: unknown system call %q cannot be denied", name)
		}
	}
	ways, err := waysOf(call.Args)
	if err != nil {
		return e, fmt.Errorf(".args%w", err)
	}
	e.names = call.Names
	if answer == fallback {
		return e, nil // says what holds anyway, and must not shadow what does not
	}
	for _, args := range ways {
		e.rules = append(e.rules, rule{args, answer})
	}
	return e, nil
}

// waysOf splits conditions that test one argument twice into one way for each
// condition, any of which suffices: that is what runc does, and profiles rely on it.
func waysOf(args []specs.LinuxSeccompArg) (ways [][]specs.LinuxSeccompArg, err error) {
	var count [6]int
	for i, a := range args {
		if a.Index >= uint(len(count)) {
			return nil, fmt.Errorf("[%d].index: there is no argument %d", i, a.Index)
		}
		if !knownOperator(a.Op) {
			return nil, fmt.Errorf("[%d].op: unknown operator %q", i, a.Op)
		}
		count[a.Index]++
	}
	if slices.Max(count[:]) <= 1 {
		return append(ways, args), nil
	}
	for i := range args {
		ways = append(ways, args[i:i+1])
	}
	return ways, nil
}

// seccompActions gives the value that a filter returns for an action.
func seccompActions() map[specs.LinuxSeccompAction]uint32 {
	return map[specs.LinuxSeccompAction]uint32{
		specs.ActKill: unix.SECCOMP_RET_KILL_THREAD, specs.ActKillThread: unix.SECCOMP_RET_KILL_THREAD,
		specs.ActKillProcess: unix.SECCOMP_RET_KILL_PROCESS, specs.ActTrap: unix.SECCOMP_RET_TRAP,
		specs.ActErrno: unix.SECCOMP_RET_ERRNO, specs.ActTrace: unix.SECCOMP_RET_TRACE,
		specs.ActAllow: unix.SECCOMP_RET_ALLOW, specs.ActLog: unix.SECCOMP_RET_LOG, specs.ActNotify: unix.SECCOMP_RET_USER_NOTIF,
	}
}

// answerOf gives the value for an action with its errno.
func answerOf(action specs.LinuxSeccompAction, errnoRet *uint) (uint32, error) {
	v, ok := seccompActions()[action]
	if !ok {
		return 0, fmt.Errorf("unknown action %q", action)
	}
	errno := uint(unix.EPERM)
	if errnoRet != nil {
		errno = *errnoRet
	}
	switch {
	case action == specs.ActErrno && errno > 4095, errno > math.MaxUint16: // MAX_ERRNO, SECCOMP_RET_DATA
		return 0, fmt.Errorf("errnoRet %d is out of range", errno)
	case action == specs.ActErrno || action == specs.ActTrace:
		v |= uint32(errno)
	case errnoRet != nil && *errnoRet != 0:
		return 0, fmt.Errorf("errnoRet has no meaning for %s", action)
	}
	return v, nil
}

// strictness orders answers as the kernel does when filters disagree.
func strictness(answer uint32) int64 { return -int64(int32(answer & unix.SECCOMP_RET_ACTION_FULL)) }

// filterFlags are the flags of seccomp(2). TSYNC does nothing: execve leaves one
// thread only, and that is the one with the filter.
func filterFlags() map[specs.LinuxSeccompFlag]uint32 {
	return map[specs.LinuxSeccompFlag]uint32{
		specs.LinuxSeccompFlagLog: unix.SECCOMP_FILTER_FLAG_LOG, specs.LinuxSeccompFlagSpecAllow: unix.SECCOMP_FILTER_FLAG_SPEC_ALLOW,
		specs.LinuxSeccompFlagWaitKillableRecv: unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, "SECCOMP_FILTER_FLAG_TSYNC": 0,
	}
}

// seccompFlags gives the flags for seccomp(2).
func seccompFlags(names []specs.LinuxSeccompFlag, notify bool) (flags uint32, err error) {
	values := filterFlags()
	for _, n := range names {
		v, ok := values[n]
		if !ok {
			return 0, fmt.Errorf("flags: unknown %q", n)
		}
		flags |= v
	}
	if flags&unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV != 0 && !notify {
		return 0, fmt.Errorf("flags: %s needs an action %s", specs.LinuxSeccompFlagWaitKillableRecv, specs.ActNotify)
	}
	if notify {
		flags |= unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
	}
	return flags, nil
}

// checkNotify says whether a listener is wanted, and that it can be handed over.
func checkNotify(s *specs.LinuxSeccomp) (notify bool, err error) {
	if s.DefaultAction == specs.ActNotify {
		return false, fmt.Errorf("defaultAction: %s would catch the call that hands over the listener", s.DefaultAction)
	}
	for i, call := range s.Syscalls {
		notify = notify || call.Action == specs.ActNotify
		if call.Action == specs.ActNotify && slices.Contains(call.Names, "write") {
			return false, fmt.Errorf("syscalls[%d]: %s cannot be used for the write syscall, which hands over the listener", i, call.Action)
		}
	}
	switch {
	case s.ListenerMetadata != "" && s.ListenerPath == "":
		return false, fmt.Errorf("listenerMetadata: listenerPath is missing")
	case notify && s.ListenerPath == "":
		return false, fmt.Errorf("listenerPath: missing, an action is %s", specs.ActNotify)
	}
	return notify, nil
}

// interval is a range of call numbers with one piece of code: from first up to the
// next interval's first.
type interval struct {
	first uint32
	code  []unix.SockFilter
}

// numberLine covers every number that a call can have, for ABIs of one AUDIT_ARCH.
func (p profile) numberLine(abis []abi) (line []interval) {
	for _, a := range abis {
		line = append(line, p.intervals(a)...)
	}
	if last := abis[len(abis)-1]; last.name == specs.ArchX86_64 {
		line = append(line, interval{x32Bit, []unix.SockFilter{ret(retENOSYS)}})
	}
	// A tracer sets -1 to skip a call that has passed already (seccomp(2)).
	line = append(line, interval{math.MaxUint32, []unix.SockFilter{ret(p.fallback)}})
	return slices.CompactFunc(line, func(x, y interval) bool { return slices.Equal(x.code, y.code) })
}

// intervals covers the numbers of one ABI.
func (p profile) intervals(a abi) (line []interval) {
	rules, newest := p.rulesFor(a)
	bounds := []uint32{a.bit, newest + 1}
	for n := range rules {
		bounds = append(bounds, n, n+1)
	}
	slices.Sort(bounds)
	for _, n := range slices.Compact(bounds) {
		switch {
		case n < a.bit: // newest, when the profile names no call of this ABI
		case len(rules[n]) > 0:
			line = append(line, interval{n, p.body(rules[n], a)})
		case p.enosys && newest > 0 && n > newest:
			line = append(line, interval{n, []unix.SockFilter{ret(retENOSYS)}})
		default:
			line = append(line, interval{n, []unix.SockFilter{ret(p.fallback)}})
		}
	}
	return line
}

// rulesFor gives the rules of each call of one ABI, and the highest number that the
// profile names, 0 when it names none.
func (p profile) rulesFor(a abi) (rules map[uint32][]rule, newest uint32) {
	rules = map[uint32][]rule{}
	for _, e := range p.entries {
		for _, name := range e.names {
			n, ok := a.numbers[name]
			if ok && n-a.bit < firstPrivate {
				newest = max(newest, n)
			}
			outer, sub, muxed := a.multiplexed(name)
			for _, r := range e.rules {
				r.args = a.meaningful(r.args)
				if ok {
					rules[n] = append(rules[n], r)
				}
				if muxed && (len(r.args) == 0 || strictness(r.answer) > strictness(p.fallback)) {
					m := a.numbers[outer]
					rules[m] = append(rules[m], rule{[]specs.LinuxSeccompArg{sub}, r.answer})
				}
			}
		}
	}
	return rules, newest
}

// body answers one call. A rule without conditions makes all others pointless, the
// first such one wins, as in libseccomp.
func (p profile) body(rules []rule, a abi) (code []unix.SockFilter) {
	for _, r := range rules {
		if len(r.args) == 0 {
			return []unix.SockFilter{ret(r.answer)}
		}
	}
	slices.SortFunc(rules, inOrder)
	rules = slices.CompactFunc(rules, func(x, y rule) bool { return slices.Equal(x.args, y.args) })
	for _, r := range rules {
		if code = append(code, r.code(a.narrow)...); len(code) > maxProgram {
			break // too long already, which compileSeccomp reports
		}
	}
	return append(code, ret(p.fallback))
}

// inOrder says which of two rules is tried first. They disagree on few calls and in
// few profiles, but there libseccomp has an order: it looks at the conditions one by
// one, a later argument before an earlier one, equality before "at most" before "at
// least", and the narrower bound first. Of equal rules the stricter one is kept.
func inOrder(x, y rule) int {
	byArgs := slices.CompareFunc(x.args, y.args, func(a, b specs.LinuxSeccompArg) int {
		aClass, aValue := precedence(a)
		bClass, bValue := precedence(b)
		return cmp.Or(cmp.Compare(b.Index, a.Index), cmp.Compare(bClass, aClass), cmp.Compare(bValue, aValue),
			cmp.Compare(a.Op, b.Op), cmp.Compare(b.Value, a.Value))
	})
	return cmp.Or(byArgs, cmp.Compare(strictness(y.answer), strictness(x.answer)), cmp.Compare(x.answer, y.answer))
}

func precedence(a specs.LinuxSeccompArg) (class int, value uint64) {
	switch a.Op {
	case specs.OpLessEqual, specs.OpLessThan:
		return 2, ^a.Value
	case specs.OpGreaterEqual, specs.OpGreaterThan:
		return 1, a.Value
	case specs.OpMaskedEqual:
		return 3, a.Value & a.ValueTwo
	}
	return 3, a.Value
}

// search finds the interval of the loaded number by halving.
func search(line []interval) []unix.SockFilter {
	if len(line) == 1 {
		return line[0].code
	}
	mid := len(line) / 2
	low, high := search(line[:mid]), search(line[mid:])
	var code []unix.SockFilter
	if len(low) <= math.MaxUint8 {
		code = append(code, jump(unix.BPF_JGE, line[mid].first, uint8(len(low)), 0))
	} else {
		code = append(code, jump(unix.BPF_JGE, line[mid].first, 0, 1), always(len(low)))
	}
	return append(append(code, low...), high...)
}
