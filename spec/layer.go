// This file owns the table of the layers: what each one takes from the program,
// what it leaves, and what in a config.json makes it.

package spec

import (
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// layer is one layer of a policy in words.
type layer struct {
	name    string
	from    Level
	on      func(*Policy) bool
	open    []remark // what the program can do without the layer
	allowed []remark // what it can do with it
	denied  []string // what it cannot do with it
	remains []remark // what the layer does not stop
	foreign []string // what of denied a config that was not compiled may say, if not all
	needs   []need   // what makes the layer in any config.json
	steps   []remark // the steps of init that serve it
}

// startSteps are the steps of init that start any program and take nothing from it.
var startSteps = []string{"ready", "await start", "chdir", "user", "exec under the reaper"}

// remark is a sentence about a config.json.
type remark struct {
	say  string
	gone func(*specs.Spec) bool   // whether it does not hold; nil: it always does
	what func(*specs.Spec) string // what stands behind it, if not nothing
}

// need is one thing that a config.json must have for a layer.
type need struct {
	say  string
	has  func(*specs.Spec) bool
	what func(*specs.Spec) string // what is against it
	// supervised marks what OCI has no field for: only a compiled policy has it.
	supervised bool
	// negative marks what an empty config has, too.
	negative bool
}

// layers in the order of the levels.
var layers = []layer{
	{
		name: "limits", from: L1, steps: steps(noRlimit, "rlimit"),
		on: func(p *Policy) bool { return p.Limits.Memory > 0 && p.Limits.CPU > 0 && p.Limits.Sweep },
		open: []remark{
			{say: "use all memory that its user may use", gone: either(hasMemory, rlimit("RLIMIT_AS"))},
			{say: "use CPU time without end", gone: rlimit("RLIMIT_CPU")},
			{say: "write files of any size", gone: rlimit("RLIMIT_FSIZE")},
			{say: "open as many files as its user may", gone: rlimit("RLIMIT_NOFILE")},
			{say: "run without end", gone: func(sp *specs.Spec) bool { return sp.Annotations[keyWall] != "" && sp.Annotations[keyWall] != "0s" }},
			{say: "print without end", gone: IsCompiled},
			{say: "leave processes running after its end", gone: either(own(specs.PIDNamespace), swept)},
		},
		allowed: []remark{{say: "run, compute, write and print up to the values below"}},
		denied:  []string{"go on after a limit: the run is ended and the verdict names the limit", "keep a process of its own after the run: the sweep kills what is left, daemons too"},
		remains: []remark{
			{say: "amounts are limited only: which files, networks and processes it reaches is not"},
			{say: "RLIMIT_FSIZE is per file, RLIMIT_NOFILE and RLIMIT_CPU are per process"},
			{say: "without a control group memory is RLIMIT_AS, for each process by itself", gone: hasMemory},
		},
		needs: []need{
			{say: "a memory limit (linux.resources.memory.limit)", has: either(hasMemory, rlimit("RLIMIT_AS"))},
			{say: "no swap beside it (linux.resources.memory.swap equal to limit)", has: either(noSwap, rlimit("RLIMIT_AS"))},
			{say: "RLIMIT_CPU", has: rlimit("RLIMIT_CPU")},
			{say: "RLIMIT_FSIZE", has: rlimit("RLIMIT_FSIZE")},
			{say: "RLIMIT_NOFILE", has: rlimit("RLIMIT_NOFILE")},
			{say: "a wall clock, an output cap and the sweep (annotations dev.sbxrun.*)", has: swept, supervised: true},
		},
	},
	{
		name: "environment", from: L2,
		on: func(p *Policy) bool { return p.Environment.Scrub },
		open: []remark{
			{say: "read every variable of the caller, secrets among them", gone: foreign},
			{say: "read variables of the caller or of the image, if they are such", gone: IsCompiled, what: otherVariables},
		},
		allowed: []remark{
			{say: "read PATH, LANG, HOME and TMPDIR, with values of sbxrun's, and the variables set by the policy", gone: foreign},
			{say: "read the variables of config.json", gone: IsCompiled, what: variables},
		},
		denied:  []string{"read the caller's variables from its own environment"},
		remains: []remark{{say: "the caller's environment can be read through the host's /proc", gone: ownProc}},
		needs: []need{{say: "no variable beyond PATH, LANG, HOME, TMPDIR, TERM, HOSTNAME, container", negative: true, what: otherVariables, has: func(sp *specs.Spec) bool {
			return IsCompiled(sp) && sp.Annotations[keyScrub] == "scrub" || foreign(sp) && otherVariables(sp) == ""
		}}},
	},
	{
		name: "workdir", from: L2, steps: steps(rootWritten, "working directory"),
		on: func(p *Policy) bool { return p.Workdir.Private },
		open: []remark{
			{say: "write to the caller's current directory", gone: foreign},
			{say: "find what an earlier run left where it may write; only tmpfs goes away with the run", gone: IsCompiled},
		},
		allowed: []remark{{say: "read and write a fresh directory, mode 0700"}},
		denied:  []string{"find files of the caller or of an earlier run in its working directory"},
		remains: []remark{
			{say: "other directories are as before", gone: rootReadonly},
			{say: "the directory's total size is not bounded", gone: func(sp *specs.Spec) bool { return optionOf(mountAt(sp, "/tmp"), "size=") != "" }},
		},
		needs: []need{{say: "a private working directory that goes away (annotation " + keyWorkdir + ")", supervised: true,
			has: func(sp *specs.Spec) bool { return sp.Annotations[keyWorkdir] != "" }}},
	},
	{
		name: "processes", from: L3,
		// The mount namespace is for its /proc; of the capabilities two go, though no layer drops them.
		steps: append(steps(sharesProcesses, "cgroup namespace", "keyring", "mount propagation", "root", "mount", "pivot_root", "hostname", "bounding set", "capability sets"),
			steps(func(sp *specs.Spec) bool { return sharesProcesses(sp) || !ownRoot(sp) }, "device", "symlink")...),
		on: func(p *Policy) bool { return p.Processes.Isolate },
		open: []remark{
			{say: "see, signal and trace processes outside, as far as its user may", gone: ownProc},
			{say: "use the host's SysV IPC and POSIX queues", gone: own(specs.IPCNamespace)},
			{say: "use the caller's keyrings", gone: either(foreign, own(specs.PIDNamespace))},
			{say: "see the host's name, and change it if its user may", gone: own(specs.UTSNamespace)},
			{say: "see the host's control groups", gone: own(specs.CgroupNamespace)},
			{say: "be user %s on the host", what: hostUser, gone: unmappedRoot},
			{say: "start processes without end", gone: hasPids},
		},
		allowed: []remark{{say: "start processes and threads, up to the cap below"}},
		denied:  []string{"see or signal processes outside", "keep a process of its own after the run: its namespace ends with it", "use the host's SysV IPC, POSIX queues and keyrings", "be root on the host: a run by root is an unused host id"},
		remains: []remark{
			{say: "the network", gone: own(specs.NetworkNamespace)},
			{say: "files that its host user may read or write: started by root that is an unused id without groups, so what everybody may; started by an ordinary user it is that user, keys and all", gone: foreign},
			{say: "files that user %s of the host may read or write, where it can reach them", what: hostUser, gone: IsCompiled},
		},
		foreign: []string{"see or signal processes outside", "keep a process of its own after the run: its namespace ends with it", "use the host's SysV IPC and POSIX queues", "be root on the host: host id 0 is not mapped"},
		needs: append(needNamespaces(specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace, specs.CgroupNamespace, specs.UserNamespace),
			need{say: "a mapping without host id 0 (linux.uidMappings)", has: unmappedRoot},
			need{say: "its own /proc (mounts)", has: func(sp *specs.Spec) bool { return mountAt(sp, "/proc") != nil && mountAt(sp, "/proc").Type == "proc" }},
			need{say: "a process cap (linux.resources.pids.limit)", has: hasPids},
		),
	},
	{
		name: "network", from: L4,
		on: func(p *Policy) bool { return p.Network.Isolate },
		open: []remark{
			{say: "reach every network of the host that its user may, localhost among them", gone: either(own(specs.NetworkNamespace), joinsNetwork)},
			{say: "connect to abstract unix sockets of the host", gone: either(own(specs.NetworkNamespace), joinsNetwork)},
			{say: "reach what the namespace reaches that it joins (linux.namespaces)", gone: func(sp *specs.Spec) bool { return !joinsNetwork(sp) }},
		},
		allowed: []remark{{say: "use sockets among its own processes"}},
		denied:  []string{"reach any network: there is no interface that is up, not even loopback", "connect to abstract unix sockets of the host"},
		remains: []remark{
			{say: "unix sockets that have a path in the file system, where they are not hidden"},
			{say: "vsock, which has no namespace (the system call filter of L5 refuses it)", gone: refusesVsock},
			{say: "what an engine or a hook puts into the namespace is not in config.json", gone: IsCompiled},
		},
		foreign: []string{"use the host's interfaces and abstract unix sockets"},
		needs:   needNamespaces(specs.NetworkNamespace),
	},
	{
		name: "filesystem", from: L5,
		steps: append(steps(rootWritten, "mount propagation", "root", "mount", "device", "symlink", "read-only path", "mask", "pivot_root"),
			remark{say: "read-only host tree", gone: either(rootWritten, ownRoot)},
			remark{say: "read-only root", gone: func(sp *specs.Spec) bool { return rootWritten(sp) || !ownRoot(sp) }}),
		on: func(p *Policy) bool { return p.Filesystem.Isolate },
		open: []remark{
			{say: "write what its host user may in the root file system", gone: rootReadonly},
			{say: "read every file of the host that its host user may", gone: hidesHomes},
			{say: "use sockets and FIFOs with a path that its host user may: those of engines, D-Bus and ssh-agent among them", gone: hidesHomes},
			{say: "write to the host through bind mounts", gone: noWritableBind, what: writableBinds},
			{say: "use /dev and /dev/shm of its root file system", gone: ownDev},
			{say: "read the kernel's devices, addresses and control groups in /sys, and write there what its user may", gone: shutSys},
			{say: "read what /proc tells of the kernel's memory, keys and timers, if its user may", gone: masksProc},
			{say: "change settings of the kernel in /proc/sys and /proc/sysrq-trigger, if its user may", gone: readonlyProc},
		},
		allowed: []remark{
			{say: "read what is not hidden and its host user may read"},
			{say: "write in /tmp and /dev/shm, which are its own and go away", gone: foreign},
			{say: "write in the mounts", gone: IsCompiled, what: writableMounts},
		},
		denied:  []string{"write anywhere else", "read the hidden paths: they are empty", "see the host's devices and /sys"},
		remains: []remark{{say: "sockets and FIFOs that anybody may use in places that are not hidden"}, {say: "locks and watches on readable files"}},
		foreign: []string{"write to the root file system", "read the masked paths"},
		needs: []need{
			{say: "a read-only root (root.readonly)", has: rootReadonly},
			{say: "no bind mount from the host that can be written", has: noWritableBind, what: writableBinds, negative: true},
			{say: "its own /dev and /dev/shm", has: ownDev},
			{say: "a hidden or read-only /sys", has: shutSys},
			{say: "masks over /proc/kcore, /proc/keys and /proc/timer_list", has: masksProc},
			{say: "a read-only /proc/sys and /proc/sysrq-trigger", has: readonlyProc},
			{say: "masks over homes and /run, or a root file system of its own", has: hidesHomes},
		},
	},
	{
		name: "capabilities", from: L5,
		steps: append(steps(func(sp *specs.Spec) bool { return !hasSets(sp) || !noCapability(sp) }, "bounding set", "securebits", "capability sets"),
			steps(func(sp *specs.Spec) bool { return !noNewPrivileges(sp) }, "no_new_privs")...),
		on: func(p *Policy) bool { return p.Capabilities.Drop && p.Capabilities.NoNewPrivileges },
		open: []remark{
			{say: "use the capabilities that the caller has", gone: hasSets},
			{say: "use the capabilities", gone: noCapability, what: capabilityList},
			{say: "gain more from set-uid programs and file capabilities", gone: noNewPrivileges},
		},
		allowed: []remark{{say: "do what a process without privileges may do"}},
		denied:  []string{"use or regain any capability", "gain privileges from set-uid programs or file capabilities"},
		remains: []remark{{say: "faults of the kernel that need no privilege"}},
		needs: []need{
			{say: "no capability in any set (process.capabilities)", has: func(sp *specs.Spec) bool { return hasSets(sp) && noCapability(sp) }},
			{say: "no new privileges (process.noNewPrivileges)", has: noNewPrivileges},
		},
	},
	{
		name: "syscalls", from: L5, steps: steps(nil, "seccomp"),
		on: func(p *Policy) bool { return p.Syscalls.Filter },
		open: []remark{
			{say: "make every system call of the kernel", gone: hasFilter},
			{say: "make calls that lead to known escapes, if its capabilities allow", gone: func(sp *specs.Spec) bool { return !hasFilter(sp) || openCalls(sp) == "" }, what: openCalls},
		},
		allowed: []remark{
			{say: "make every system call that is not on the deny list", gone: foreign},
			{say: "make the system calls that its filter lets through", gone: IsCompiled},
		},
		denied:  []string{"use io_uring, bpf, keyrings, ptrace, mounts, new namespaces, modules, handles past masks, 32-bit calls"},
		foreign: []string{"use io_uring, bpf, keyrings, userfaultfd, ptrace, mounts, new namespaces, handles past masks"},
		remains: []remark{{say: "faults of the kernel behind calls that stay allowed"}, {say: "side channels"}},
		needs: []need{
			{say: "a filter (linux.seccomp)", has: hasFilter},
			{say: "a refusal of calls that lead to known escapes", has: func(sp *specs.Spec) bool { return openCalls(sp) == "" }, what: openCalls},
		},
	},
}

// steps makes remarks of the names of steps that all need the same.
func steps(gone func(*specs.Spec) bool, names ...string) (out []remark) {
	for _, name := range names {
		out = append(out, remark{say: name, gone: gone})
	}
	return out
}

// sentences gives those of the remarks that hold of the config.
func sentences(all []remark, sp *specs.Spec) []string {
	out := []string{}
	for _, r := range all {
		if r.gone != nil && r.gone(sp) {
			continue
		}
		out = append(out, filled(r.say, r.what, sp))
	}
	return out
}

// filled puts what a look at the config gives into a sentence, or behind it.
func filled(say string, what func(*specs.Spec) string, sp *specs.Spec) string {
	text := ""
	if what != nil {
		text = what(sp)
	}
	if before, after, ok := strings.Cut(say, "%s"); ok {
		return before + text + after
	}
	if text != "" {
		return say + ": " + text
	}
	return say
}
