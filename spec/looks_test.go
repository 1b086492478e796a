// Tests of the questions asked of a config.json where an answer is easily wrong.

package spec

import (
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// A rule that is overlooked would tell a reader that an open call is refused.
func TestWhatAFilterLetsThrough(t *testing.T) {
	rule := func(action specs.LinuxSeccompAction, name string, args ...specs.LinuxSeccompArg) specs.LinuxSyscall {
		return specs.LinuxSyscall{Names: []string{"x", name}, Action: action, Args: args}
	}
	is := func(op specs.LinuxSeccompOperator, value, two uint64) specs.LinuxSeccompArg {
		return specs.LinuxSeccompArg{Op: op, Value: value, ValueTwo: two}
	}
	allow, deny := specs.ActAllow, specs.ActErrno
	for _, tc := range []struct {
		name  string
		first specs.LinuxSeccompAction // the default
		rules []specs.LinuxSyscall
		mount bool // passes
		vsock bool // is refused
	}{
		{"nothing but a default that refuses", deny, nil, false, true},
		{"nothing but a default that allows", allow, nil, true, false},
		{"a default that only logs", specs.ActLog, nil, true, false},
		{"an allowed call", deny, []specs.LinuxSyscall{rule(allow, "mount"), rule(allow, "socket")}, true, false},
		{"the first rule without a condition wins", deny, []specs.LinuxSyscall{rule(allow, "mount"), rule(deny, "mount")}, true, true},
		{"in either order", allow, []specs.LinuxSyscall{rule(deny, "mount"), rule(allow, "mount")}, false, false},
		{"a call allowed with some arguments passes", deny, []specs.LinuxSyscall{rule(allow, "mount", is(specs.OpEqualTo, 1, 0))}, true, true},
		{"one refused with some arguments passes, too", allow, []specs.LinuxSyscall{rule(deny, "mount", is(specs.OpEqualTo, 1, 0))}, true, false},
		{"all families but one", deny, []specs.LinuxSyscall{rule(allow, "socket", is(specs.OpNotEqual, 40, 0))}, false, true},
		{"all families but another", deny, []specs.LinuxSyscall{rule(allow, "socket", is(specs.OpNotEqual, 38, 0))}, false, false},
		{"one family", deny, []specs.LinuxSyscall{rule(allow, "socket", is(specs.OpEqualTo, 1, 0))}, false, true},
		{"the family refused under a mask", allow, []specs.LinuxSyscall{rule(deny, "socket", is(specs.OpMaskedEqual, 0xffffffff, 40))}, true, true},
		{"a comparison that says nothing", deny, []specs.LinuxSyscall{rule(allow, "socket", is(specs.OpGreaterThan, 3, 0))}, false, false},
	} {
		sp := &specs.Spec{Linux: &specs.Linux{Seccomp: &specs.LinuxSeccomp{DefaultAction: tc.first, Syscalls: tc.rules}}}
		if got := len(passes(sp, "mount")) == 1; got != tc.mount {
			t.Errorf("%s: mount passes is %v", tc.name, got)
		}
		if got := refusesVsock(sp); got != tc.vsock {
			t.Errorf("%s: vsock is refused is %v", tc.name, got)
		}
	}
	if none := (&specs.Spec{}); len(passes(none, "mount")) != 1 || refusesVsock(none) {
		t.Error("without a filter nothing is refused")
	}
	l5, _ := Compile(Preset(L5), rootHost, program)
	if !refusesVsock(l5) || openCalls(l5) != "" {
		t.Errorf("the filter of L5: vsock refused is %v, open is %q", refusesVsock(l5), openCalls(l5))
	}
}
