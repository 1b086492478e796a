// This file owns the table of the layers: what each one takes from the program,
// what it leaves, and what in a config.json makes it.

package spec

import (
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// layer is one layer of a policy in words.
type layer struct {
	name    string
	from    Level
	on      func(*Policy) bool
	open    []string // what the program can do without the layer
	allowed []string // what it can do with it
	denied  []string // what it cannot do with it
	remains []string // what the layer does not stop
	foreign []string // what of denied a config that was not compiled may say, if not all
	needs   []need   // what makes the layer in any config.json
}

// need is one thing that a config.json must have for a layer.
type need struct {
	say string
	has func(*specs.Spec) bool
	// supervised marks what OCI has no field for: only a compiled policy has it.
	supervised bool
}

// layers in the order of the levels.
var layers = []layer{
	{
		name: "limits", from: L1,
		on:      func(p *Policy) bool { return p.Limits.Memory > 0 && p.Limits.CPU > 0 && p.Limits.Sweep },
		open:    []string{"use all CPU time, memory and disk that the caller may use", "leave processes running after its end, which then go on (without the process layer)"},
		allowed: []string{"run, compute, write and print up to the values below"},
		denied:  []string{"go on after a limit: the run is ended and the verdict names the limit", "survive the run: the sweep kills what is left, daemons too"},
		remains: []string{"reading and writing all that the caller can", "RLIMIT_FSIZE is per file, RLIMIT_NOFILE and RLIMIT_CPU are per process", "without a control group memory is RLIMIT_AS, for each process by itself"},
		needs: []need{
			{"a memory limit (linux.resources.memory.limit)", func(sp *specs.Spec) bool {
				return hasMemory(sp) || hasRlimit(sp, "RLIMIT_AS")
			}, false},
			{"no swap beside it (linux.resources.memory.swap equal to limit)", func(sp *specs.Spec) bool {
				return hasRlimit(sp, "RLIMIT_AS") || hasMemory(sp) && sp.Linux.Resources.Memory.Swap != nil && *sp.Linux.Resources.Memory.Swap == *sp.Linux.Resources.Memory.Limit
			}, false},
			{"RLIMIT_CPU", func(sp *specs.Spec) bool { return hasRlimit(sp, "RLIMIT_CPU") }, false},
			{"RLIMIT_FSIZE", func(sp *specs.Spec) bool { return hasRlimit(sp, "RLIMIT_FSIZE") }, false},
			{"RLIMIT_NOFILE", func(sp *specs.Spec) bool { return hasRlimit(sp, "RLIMIT_NOFILE") }, false},
			{"a wall clock, an output cap and the sweep (annotations dev.sbxrun.*)", supervised, true},
		},
	},
	{
		name: "environment", from: L2,
		on:      func(p *Policy) bool { return p.Environment.Scrub },
		open:    []string{"read every variable of the caller, secrets among them"},
		allowed: []string{"read PATH, LANG, HOME, TMPDIR and the variables set by the policy"},
		denied:  []string{"read the caller's other variables from its own environment"},
		remains: []string{"below L3 the caller's environment can be read through the host's /proc"},
		needs: []need{{"no variable beyond PATH, LANG, HOME, TMPDIR, TERM, HOSTNAME", func(sp *specs.Spec) bool {
			return IsCompiled(sp) && sp.Annotations[keyScrub] == "scrub" || !IsCompiled(sp) && plainEnvironment(sp)
		}, false}},
	},
	{
		name: "workdir", from: L2,
		on:      func(p *Policy) bool { return p.Workdir.Private },
		open:    []string{"write to the caller's current directory"},
		allowed: []string{"read and write a fresh directory, mode 0700"},
		denied:  []string{"find files of the caller or of an earlier run in its working directory"},
		remains: []string{"other directories are as before", "below L5 the directory's total size is not bounded"},
		needs: []need{
			{"a private working directory that goes away (annotation " + keyWorkdir + ")", func(sp *specs.Spec) bool { return sp.Annotations[keyWorkdir] != "" }, true},
		},
	},
	{
		name: "processes", from: L3,
		on:      func(p *Policy) bool { return p.Processes.Isolate },
		open:    []string{"see, signal and trace the caller's processes, as far as the caller can", "use the caller's IPC objects and keyrings"},
		allowed: []string{"start processes and threads, up to the cap below"},
		denied:  []string{"see or signal processes outside", "survive the run: its namespace ends with it", "use the host's SysV IPC, POSIX queues and keyrings", "be root on the host: a run by root is an unused host id"},
		remains: []string{"the network", "files that its host user may read or write: run by root that is an unused id, so what everybody may; run by an ordinary user it is that user, with his keys"},
		needs: append(needNamespaces(specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace, specs.CgroupNamespace, specs.UserNamespace),
			need{"host id 0 is not mapped (linux.uidMappings)", unmappedRoot, false},
			need{"an own /proc (mounts)", func(sp *specs.Spec) bool { return mountAt(sp, "/proc") != nil && mountAt(sp, "/proc").Type == "proc" }, false},
			need{"a process cap (linux.resources.pids.limit)", func(sp *specs.Spec) bool {
				return hasPids(sp) || IsCompiled(sp) && sp.Annotations[keyProcesses] != "" && sp.Annotations[keyProcesses] != "0"
			}, false},
		),
	},
	{
		name: "network", from: L4,
		on:      func(p *Policy) bool { return p.Network.Isolate },
		open:    []string{"reach every network that the caller can, localhost among them", "connect to abstract unix sockets of the host"},
		allowed: []string{"sockets among its own processes"},
		denied:  []string{"reach any network: there is no interface that is up, not even loopback", "connect to abstract unix sockets of the host"},
		remains: []string{"unix sockets that have a path in the file system", "vsock, which has no namespace (the system call filter refuses it)"},
		foreign: []string{"use the host's interfaces and abstract unix sockets; what an engine or a hook puts into the namespace is not in config.json"},
		needs:   needNamespaces(specs.NetworkNamespace),
	},
	{
		name: "filesystem", from: L5,
		on:      func(p *Policy) bool { return p.Filesystem.Isolate },
		open:    []string{"read and write every file that its host user may"},
		allowed: []string{"read what is not hidden and its host user may read", "write in /tmp and /dev/shm, which are its own and go away"},
		denied:  []string{"write anywhere else", "read the hidden paths: they are empty", "see the host's devices and /sys"},
		remains: []string{"sockets and FIFOs that anybody may use in places that are not hidden", "locks and watches on readable files"},
		foreign: []string{"write to the root file system", "read the masked paths"},
		needs: []need{
			{"a read-only root (root.readonly)", func(sp *specs.Spec) bool { return sp.Root != nil && sp.Root.Readonly }, false},
			{"no bind mount from the host that can be written", noWritableBind, false},
			{"own /dev and /dev/shm", func(sp *specs.Spec) bool { return isTmpfs(sp, "/dev") && isTmpfs(sp, "/dev/shm") }, false},
			{"/sys hidden or read-only", func(sp *specs.Spec) bool {
				m := mountAt(sp, "/sys")
				return slices.Contains(maskedPaths(sp), "/sys") || m == nil && sp.Root != nil && sp.Root.Path != "/" || m != nil && slices.Contains(m.Options, "ro")
			}, false},
			{"/proc/kcore, /proc/keys and /proc/timer_list masked", func(sp *specs.Spec) bool {
				return containsAll(maskedPaths(sp), "/proc/kcore", "/proc/keys", "/proc/timer_list")
			}, false},
			{"/proc/sys and /proc/sysrq-trigger read-only", func(sp *specs.Spec) bool {
				return sp.Linux != nil && containsAll(sp.Linux.ReadonlyPaths, "/proc/sys", "/proc/sysrq-trigger")
			}, false},
			{"homes and /run hidden, or a root file system of its own", func(sp *specs.Spec) bool {
				return sp.Root != nil && path0(sp.Root.Path) != "/" || containsAll(maskedPaths(sp), "/root", "/home", "/run")
			}, false},
		},
	},
	{
		name: "capabilities", from: L5,
		on:      func(p *Policy) bool { return p.Capabilities.Drop && p.Capabilities.NoNewPrivileges },
		open:    []string{"use the capabilities that it has, and gain more from set-uid programs"},
		allowed: []string{"what a process without privileges may do"},
		denied:  []string{"use or regain any capability", "gain privileges from set-uid programs or file capabilities"},
		remains: []string{"faults of the kernel that need no privilege"},
		needs: []need{
			{"no capability in any set (process.capabilities)", func(sp *specs.Spec) bool { return len(capabilitiesOf(sp)) == 0 && keepsNone(sp) }, false},
			{"no new privileges (process.noNewPrivileges)", func(sp *specs.Spec) bool { return sp.Process != nil && sp.Process.NoNewPrivileges }, false},
		},
	},
	{
		name: "syscalls", from: L5,
		on:      func(p *Policy) bool { return p.Syscalls.Filter },
		open:    []string{"make every system call of the kernel"},
		allowed: []string{"every system call that is not on the deny list"},
		denied:  []string{"io_uring, bpf, keyrings, ptrace, mounts, new namespaces, modules, handles past masks, 32-bit calls"},
		remains: []string{"faults of the kernel behind calls that stay allowed", "side channels"},
		needs: []need{
			{"a filter (linux.seccomp)", func(sp *specs.Spec) bool { return sp.Linux != nil && sp.Linux.Seccomp != nil }, false},
			{"it refuses io_uring_setup, bpf, keyctl, userfaultfd, ptrace, mount, unshare, setns, open_by_handle_at", func(sp *specs.Spec) bool {
				return len(passes(sp, "io_uring_setup", "bpf", "keyctl", "userfaultfd", "ptrace", "mount", "unshare", "setns", "open_by_handle_at")) == 0
			}, false},
		},
	},
}

func needNamespaces(types ...specs.LinuxNamespaceType) (out []need) {
	for _, t := range types {
		out = append(out, need{"a " + string(t) + " namespace of its own (linux.namespaces)", func(sp *specs.Spec) bool { return ownNamespace(sp, t) }, false})
	}
	return out
}

func supervised(sp *specs.Spec) bool { return IsCompiled(sp) }

func hasMemory(sp *specs.Spec) bool {
	r := resourcesOf(sp)
	return r != nil && r.Memory != nil && r.Memory.Limit != nil && *r.Memory.Limit > 0
}

func hasPids(sp *specs.Spec) bool {
	r := resourcesOf(sp)
	return r != nil && r.Pids != nil && r.Pids.Limit != nil && *r.Pids.Limit > 0
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

func plainEnvironment(sp *specs.Spec) bool {
	if sp.Process == nil {
		return true
	}
	plain := []string{"PATH", "LANG", "HOME", "TMPDIR", "TERM", "HOSTNAME", "container"}
	return !slices.ContainsFunc(sp.Process.Env, func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return !slices.Contains(plain, name)
	})
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

func writable(m specs.Mount) bool {
	return !slices.Contains(m.Options, "ro") && !slices.Contains(m.Options, "rro")
}

// noWritableBind leaves out what engines make for each container: its own hosts,
// resolv.conf and the like.
func noWritableBind(sp *specs.Spec) bool {
	return !slices.ContainsFunc(sp.Mounts, func(m specs.Mount) bool { return isBind(m) && writable(m) && !engineFile(m.Destination) })
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

// keepsNone holds when the sets are given: without them a compiled run keeps the caller's.
func keepsNone(sp *specs.Spec) bool { return sp.Process != nil && sp.Process.Capabilities != nil }

// passes lists those of the calls that the filter lets through, whatever their arguments.
func passes(sp *specs.Spec, names ...string) (out []string) {
	if sp.Linux == nil || sp.Linux.Seccomp == nil {
		return names
	}
	allows := func(a specs.LinuxSeccompAction) bool { return a == specs.ActAllow || a == specs.ActLog }
	for _, name := range names {
		open := allows(sp.Linux.Seccomp.DefaultAction)
		for _, rule := range sp.Linux.Seccomp.Syscalls {
			if slices.Contains(rule.Names, name) && (len(rule.Args) == 0 || allows(rule.Action)) {
				open = allows(rule.Action)
			}
		}
		if open {
			out = append(out, name)
		}
	}
	return out
}
