// This file owns the questions that the layers and the rules ask of a config.json.

package spec

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func needNamespaces(types ...specs.LinuxNamespaceType) (out []need) {
	for _, t := range types {
		out = append(out, need{say: "a " + string(t) + " namespace of its own (linux.namespaces)", has: own(t)})
	}
	return out
}

// own asks for a namespace that the config makes.
func own(t specs.LinuxNamespaceType) func(*specs.Spec) bool {
	return func(sp *specs.Spec) bool { return ownNamespace(sp, t) }
}

func either(a, b func(*specs.Spec) bool) func(*specs.Spec) bool {
	return func(sp *specs.Spec) bool { return a(sp) || b(sp) }
}

func rlimit(name string) func(*specs.Spec) bool {
	return func(sp *specs.Spec) bool { return hasRlimit(sp, name) }
}

func noRlimit(sp *specs.Spec) bool { return sp.Process == nil || len(sp.Process.Rlimits) == 0 }

func rootReadonly(sp *specs.Spec) bool { return sp.Root != nil && sp.Root.Readonly }

func rootWritten(sp *specs.Spec) bool { return !rootReadonly(sp) }

func ownRoot(sp *specs.Spec) bool { return sp.Root != nil && path0(sp.Root.Path) != "/" }

func sharesProcesses(sp *specs.Spec) bool { return !ownNamespace(sp, specs.PIDNamespace) }

func foreign(sp *specs.Spec) bool { return !IsCompiled(sp) }

func swept(sp *specs.Spec) bool { return sp.Annotations[keySweep] == "true" }

func noSwap(sp *specs.Spec) bool {
	m := resourcesOf(sp)
	return hasMemory(sp) && m.Memory.Swap != nil && *m.Memory.Swap == *m.Memory.Limit
}

func hasMemory(sp *specs.Spec) bool {
	r := resourcesOf(sp)
	return r != nil && r.Memory != nil && r.Memory.Limit != nil && *r.Memory.Limit > 0
}

func hasPids(sp *specs.Spec) bool {
	r := resourcesOf(sp)
	n := sp.Annotations[keyProcesses] // with cgroup off
	return r != nil && r.Pids != nil && r.Pids.Limit != nil && *r.Pids.Limit > 0 || IsCompiled(sp) && n != "" && n != "0"
}

func resourcesOf(sp *specs.Spec) *specs.LinuxResources {
	if sp.Linux == nil {
		return nil
	}
	return sp.Linux.Resources
}

// hasRlimit holds when the limit is there and is one.
func hasRlimit(sp *specs.Spec, name string) bool {
	return sp.Process != nil && slices.ContainsFunc(sp.Process.Rlimits, func(l specs.POSIXRlimit) bool { return l.Type == name && l.Hard < 1<<62 })
}

func ownNamespace(sp *specs.Spec, t specs.LinuxNamespaceType) bool {
	return sp.Linux != nil && slices.ContainsFunc(sp.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == t && n.Path == "" })
}

// unmappedRoot holds when nothing inside is host user 0.
func unmappedRoot(sp *specs.Spec) bool {
	return ownNamespace(sp, specs.UserNamespace) && len(sp.Linux.UIDMappings) > 0 &&
		!slices.ContainsFunc(sp.Linux.UIDMappings, func(m specs.LinuxIDMapping) bool { return m.HostID == 0 && m.Size > 0 })
}

// hostUser names the user of the host that the program is at first.
func hostUser(sp *specs.Spec) string {
	inside := uint32(0)
	if sp.Process != nil {
		inside = sp.Process.User.UID
	}
	if !ownNamespace(sp, specs.UserNamespace) {
		return fmt.Sprint(inside)
	}
	for _, m := range sp.Linux.UIDMappings {
		if inside >= m.ContainerID && inside-m.ContainerID < m.Size {
			return fmt.Sprint(m.HostID + inside - m.ContainerID)
		}
	}
	return "nobody" // what has no mapping is the overflow id
}

// ownProc holds when the processes that /proc shows are the program's own.
func ownProc(sp *specs.Spec) bool {
	m := mountAt(sp, "/proc")
	return ownNamespace(sp, specs.PIDNamespace) && m != nil && m.Type == "proc"
}

func joinsNetwork(sp *specs.Spec) bool {
	return sp.Linux != nil && slices.ContainsFunc(sp.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == specs.NetworkNamespace && n.Path != "" })
}

// variables lists the names in the environment of the config.
func variables(sp *specs.Spec) string { return variablesBut(sp) }

// otherVariables lists those of a foreign config that are not in every container.
func otherVariables(sp *specs.Spec) string {
	if IsCompiled(sp) {
		return ""
	}
	return variablesBut(sp, "PATH", "LANG", "HOME", "TMPDIR", "TERM", "HOSTNAME", "container")
}

func variablesBut(sp *specs.Spec, plain ...string) string {
	if sp.Process == nil {
		return ""
	}
	var names []string
	for _, e := range sp.Process.Env {
		if name, _, _ := strings.Cut(e, "="); !slices.Contains(plain, name) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// mountAt gives the last mount at a place, which is the one that is seen.
func mountAt(sp *specs.Spec, destination string) *specs.Mount {
	for i := len(sp.Mounts) - 1; i >= 0; i-- {
		if path0(sp.Mounts[i].Destination) == destination {
			return &sp.Mounts[i]
		}
	}
	return nil
}

func isTmpfs(sp *specs.Spec, destination string) bool {
	m := mountAt(sp, destination)
	return m != nil && (m.Type == "tmpfs" || isBind(*m) && strings.HasSuffix(m.Source, "/shm"))
}

func isBind(m specs.Mount) bool {
	return m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}

// optionOf gives the value of a mount's option such as "size=".
func optionOf(m *specs.Mount, name string) string {
	if m == nil {
		return ""
	}
	for _, o := range m.Options {
		if value, ok := strings.CutPrefix(o, name); ok {
			return value
		}
	}
	return ""
}

func ownDev(sp *specs.Spec) bool { return isTmpfs(sp, "/dev") && isTmpfs(sp, "/dev/shm") }

func shutSys(sp *specs.Spec) bool {
	m := mountAt(sp, "/sys")
	return slices.Contains(maskedPaths(sp), "/sys") || m == nil && sp.Root != nil && sp.Root.Path != "/" || m != nil && !writable(*m)
}

func masksProc(sp *specs.Spec) bool {
	return containsAll(maskedPaths(sp), "/proc/kcore", "/proc/keys", "/proc/timer_list")
}

func readonlyProc(sp *specs.Spec) bool {
	return sp.Linux != nil && containsAll(sp.Linux.ReadonlyPaths, "/proc/sys", "/proc/sysrq-trigger")
}

func hidesHomes(sp *specs.Spec) bool {
	return ownRoot(sp) || containsAll(maskedPaths(sp), "/root", "/home", "/run")
}

func writable(m specs.Mount) bool {
	return !slices.Contains(m.Options, "ro") && !slices.Contains(m.Options, "rro")
}

// writableBinds lists where the host can be written. It leaves out what engines make
// for each container: its own hosts, resolv.conf and the like.
func writableBinds(sp *specs.Spec) string {
	var out []string
	for _, m := range sp.Mounts {
		if isBind(m) && writable(m) && !engineFile(m.Destination) {
			out = append(out, m.Source+" at "+m.Destination)
		}
	}
	return strings.Join(out, ", ")
}

func noWritableBind(sp *specs.Spec) bool { return writableBinds(sp) == "" }

// writableMounts lists what is not the root file system and can be written.
func writableMounts(sp *specs.Spec) string {
	var out []string
	for _, m := range sp.Mounts {
		if writable(m) && m.Type != "proc" && m.Type != "sysfs" {
			out = append(out, m.Destination)
		}
	}
	return strings.Join(out, ", ")
}

func engineFile(destination string) bool {
	return slices.Contains([]string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv", "/dev/shm", "/run/secrets"}, path0(destination))
}

func maskedPaths(sp *specs.Spec) []string {
	if sp.Linux == nil {
		return nil
	}
	return sp.Linux.MaskedPaths
}

func containsAll(list []string, want ...string) bool {
	return !slices.ContainsFunc(want, func(w string) bool { return !slices.Contains(list, w) })
}

// capabilitiesOf gives every capability that is in one of the five sets, sorted.
func capabilitiesOf(sp *specs.Spec) []string {
	if sp.Process == nil || sp.Process.Capabilities == nil {
		return nil
	}
	c := sp.Process.Capabilities
	return slices.Compact(slices.Sorted(slices.Values(slices.Concat(c.Bounding, c.Effective, c.Permitted, c.Inheritable, c.Ambient))))
}

func noCapability(sp *specs.Spec) bool { return len(capabilitiesOf(sp)) == 0 }

func capabilityList(sp *specs.Spec) string {
	have, say := capabilitiesOf(sp), ""
	if len(have) > len(CapabilityNames)/2 {
		have, say = without(CapabilityNames, have), "all but "
	}
	say += strings.ReplaceAll(strings.Join(have, " "), "CAP_", "")
	if ownNamespace(sp, specs.UserNamespace) {
		say += ", within its user namespace"
	}
	return say
}

// hasSets holds when the sets are given: without them a compiled run keeps the caller's.
func hasSets(sp *specs.Spec) bool { return sp.Process != nil && sp.Process.Capabilities != nil }

func noNewPrivileges(sp *specs.Spec) bool { return sp.Process != nil && sp.Process.NoNewPrivileges }

func hasFilter(sp *specs.Spec) bool { return sp.Linux != nil && sp.Linux.Seccomp != nil }

// openCalls lists those of the calls by which programs have left containers that pass.
func openCalls(sp *specs.Spec) string {
	return strings.Join(passes(sp, "io_uring_setup", "bpf", "keyctl", "userfaultfd", "ptrace", "mount", "unshare", "setns", "open_by_handle_at"), ", ")
}

// refusesVsock holds when no rule lets socket(AF_VSOCK) through.
func refusesVsock(sp *specs.Spec) bool {
	const afVsock = 40
	if !hasFilter(sp) {
		return false
	}
	for _, rule := range sp.Linux.Seccomp.Syscalls {
		if slices.Contains(rule.Names, "socket") && !allows(rule.Action) && len(rule.Args) == 1 && rule.Args[0].Index == 0 && mayBe(rule.Args[0], afVsock) {
			return true // a condition that names it, beside a rule for the rest
		}
	}
	return !answers(sp.Linux.Seccomp, "socket", func(args []specs.LinuxSeccompArg) bool {
		return !slices.ContainsFunc(args, func(a specs.LinuxSeccompArg) bool { return a.Index == 0 && !mayBe(a, afVsock) })
	})
}

// mayBe says whether a condition holds for a value, as far as it compares for equality.
func mayBe(a specs.LinuxSeccompArg, value uint64) bool {
	switch a.Op {
	case specs.OpEqualTo:
		return a.Value == value
	case specs.OpNotEqual:
		return a.Value != value
	case specs.OpMaskedEqual:
		return value&a.Value == a.ValueTwo
	}
	return true
}

func allows(a specs.LinuxSeccompAction) bool { return a == specs.ActAllow || a == specs.ActLog }

// passes lists those of the calls that the filter lets through, at least with some
// arguments.
func passes(sp *specs.Spec, names ...string) (out []string) {
	for _, name := range names {
		if !hasFilter(sp) || answers(sp.Linux.Seccomp, name, func([]specs.LinuxSeccompArg) bool { return true }) {
			out = append(out, name)
		}
	}
	return out
}

// answers says whether a filter allows a call when its conditions may hold. As in
// libseccomp, the first rule without conditions is the answer, whatever else there is.
func answers(filter *specs.LinuxSeccomp, call string, may func([]specs.LinuxSeccompArg) bool) bool {
	open := allows(filter.DefaultAction)
	for _, rule := range filter.Syscalls {
		switch {
		case !slices.Contains(rule.Names, call):
		case len(rule.Args) == 0:
			return allows(rule.Action)
		case may(rule.Args) && allows(rule.Action):
			open = true
		}
	}
	return open
}
