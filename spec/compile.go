// This file owns Compile: a policy in, an OCI config.json out, the same bytes for
// the same input.

package spec

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Host is what Compile has to know of the machine and of the caller.
type Host struct {
	UID, GID uint32 // the caller's effective ids
	RunID    uint32 // unused host id that inside id 0 becomes when the caller is root
	Arch     string // as in GOARCH
}

// Process is what is to be run.
type Process struct {
	Args []string
	Env  []string // the caller's environment, used unless the policy scrubs it
	Cwd  string   // used without a private working directory; "" is "/"
	Root string   // root file system, "" is the host's "/"
}

// WorkdirPath is where the program finds its private working directory. From L5 it
// lies on a tmpfs of the run; below, the runtime puts a directory of the host in
// its place, also in the environment.
const WorkdirPath = "/tmp/work"

// BundleRunID is the RunID of bundles that are kept: fixed, so that a policy
// compiles to the same bytes each time. Runs at the same time should not share it.
const BundleRunID = 1<<32 - 1<<16

// ReaperTasks is what the reaper adds to pids.max: it lives in the run's group.
const ReaperTasks = 1

// The environment that a scrubbed program gets.
const (
	envPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	envLang = "LANG=C.UTF-8"
)

// Annotations hold what OCI has no field for. One prefix, one key for each value.
const (
	prefix       = "dev.sbxrun."
	keyFormat    = prefix + "format"
	keyLevel     = prefix + "level"
	keyWall      = prefix + "wall"
	keyHeld      = prefix + "output-held"
	keyChars     = prefix + "output-chars"
	keySweep     = prefix + "sweep"
	keyMemory    = prefix + "memory" // only with cgroup off, where RLIMIT_AS has the value too
	keyScrub     = prefix + "environment"
	keySet       = prefix + "environment.set." // + name
	keyWorkdir   = prefix + "workdir"
	keyMonitor   = prefix + "monitor"
	keyProcesses = prefix + "processes" // only with cgroup off, where no resource has the value
	keyHide      = prefix + "hide."     // + number
	keyCgroup    = prefix + "cgroup"

	format = "1"
)

// ociVersion is the oldest version of the specification that has every field a
// compiled config uses: older runtimes refuse a newer one unread.
const ociVersion = "1.0.2"

// Compile turns the policy into the config.json that enforces it. It is pure: it
// looks at nothing but its arguments.
func Compile(p Policy, host Host, proc Process) (*specs.Spec, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	if len(proc.Args) == 0 || proc.Args[0] == "" {
		return nil, fmt.Errorf("there is no program to run")
	}
	root := proc.Root
	if root == "" {
		root = "/"
	}
	if root != "/" && !p.Processes.Isolate {
		return nil, fmt.Errorf("a root file system of its own needs processes.isolate (L3 or higher)")
	}
	sp := &specs.Spec{
		Version:     ociVersion,
		Root:        &specs.Root{Path: root, Readonly: p.Filesystem.Isolate},
		Annotations: p.annotations(),
		Process: &specs.Process{
			Args: slices.Clone(proc.Args), Env: p.environment(proc.Env), Cwd: p.cwd(proc.Cwd),
			Rlimits: p.rlimits(), NoNewPrivileges: p.Capabilities.NoNewPrivileges, Capabilities: p.capabilities(),
			User: specs.User{UID: host.UID, GID: host.GID},
		},
		Linux: &specs.Linux{Namespaces: p.namespaces(), Resources: p.resources()},
	}
	if p.Processes.Isolate {
		sp.Hostname = "sbxrun"
		sp.Process.User = specs.User{}
		sp.Linux.UIDMappings, sp.Linux.GIDMappings = idMappings(host)
		sp.Mounts = p.mounts()
	}
	if p.Filesystem.Isolate {
		sp.Linux.MaskedPaths = append(slices.Clone(kernelMasks), p.Filesystem.Hide...)
		sp.Linux.ReadonlyPaths = slices.Clone(kernelReadonly)
	}
	if p.Syscalls.Filter {
		filter, err := DefaultFilter(host.Arch)
		if err != nil {
			return nil, err
		}
		sp.Linux.Seccomp = filter
	}
	return sp, nil
}

func (p *Policy) annotations() map[string]string {
	a := map[string]string{
		keyFormat: format,
		keyLevel:  p.Level.String(),
		keyWall:   p.Limits.Wall.String(),
		keyHeld:   formatCount(p.Limits.OutputHeld),
		keyChars:  formatCount(p.Limits.OutputChars),
		keySweep:  strconv.FormatBool(p.Limits.Sweep),
		keyScrub:  map[bool]string{true: "scrub", false: "inherit"}[p.Environment.Scrub],
		keyCgroup: string(p.Cgroup),
	}
	if p.Workdir.Private {
		a[keyWorkdir] = WorkdirPath
	}
	if p.Processes.Monitor > 0 {
		a[keyMonitor] = p.Processes.Monitor.String()
	}
	if p.Cgroup == CgroupOff {
		a[keyMemory] = formatCount(p.Limits.Memory)
		a[keyProcesses] = formatCount(p.Processes.Max)
	}
	for k := range p.Environment.Set {
		a[keySet+k] = p.Environment.Set[k]
	}
	for i, h := range p.Filesystem.Hide {
		a[keyHide+strconv.Itoa(i)] = h
	}
	return a
}

func (p *Policy) environment(callers []string) []string {
	var env []string
	if p.Environment.Scrub {
		env = append(env, envPath, envLang)
	} else {
		env = append(env, callers...)
	}
	if p.Workdir.Private {
		env = append(env, "HOME="+WorkdirPath, "TMPDIR="+WorkdirPath+"/tmp")
	} else if p.Environment.Scrub {
		env = append(env, "HOME=/", "TMPDIR=/tmp")
	}
	for _, k := range slices.Sorted(maps.Keys(p.Environment.Set)) {
		env = append(env, k+"="+p.Environment.Set[k])
	}
	return lastWins(env)
}

// lastWins keeps the last value of each variable, at the place of its first.
func lastWins(env []string) []string {
	at := map[string]int{}
	var out []string
	for _, e := range env {
		name := e
		for i := range e {
			if e[i] == '=' {
				name = e[:i]
				break
			}
		}
		if i, ok := at[name]; ok {
			out[i] = e
			continue
		}
		at[name] = len(out)
		out = append(out, e)
	}
	return out
}

func (p *Policy) cwd(callers string) string {
	switch {
	case p.Workdir.Private:
		return WorkdirPath
	case callers != "":
		return path.Clean("/" + callers)
	}
	return "/"
}

func (p *Policy) rlimits() []specs.POSIXRlimit {
	var out []specs.POSIXRlimit
	add := func(name string, soft, hard uint64) {
		out = append(out, specs.POSIXRlimit{Type: name, Soft: soft, Hard: hard})
	}
	l := p.Limits
	if l.CPU > 0 {
		// The first process of a PID namespace ignores SIGXCPU; what stops it is the
		// SIGKILL of the hard limit one second later.
		s := uint64(l.CPU / time.Second)
		add("RLIMIT_CPU", s, s+1)
	}
	if l.FileSize > 0 {
		add("RLIMIT_FSIZE", uint64(l.FileSize), uint64(l.FileSize))
	}
	if l.Files > 0 {
		add("RLIMIT_NOFILE", uint64(l.Files), uint64(l.Files))
	}
	if p.Level >= L1 {
		add("RLIMIT_CORE", 0, 0)
	}
	if l.Memory > 0 && p.Cgroup == CgroupOff {
		add("RLIMIT_AS", uint64(l.Memory), uint64(l.Memory))
	}
	return out
}

// capabilities: none when dropped, most of the user namespace's otherwise; without a
// namespace the caller's stay as they are.
func (p *Policy) capabilities() *specs.LinuxCapabilities {
	switch {
	case p.Capabilities.Drop:
		return &specs.LinuxCapabilities{}
	case p.Processes.Isolate:
		// Not these two: with the one the host's /proc could be uncovered, with the other
		// the reaper be traced, when both belong to an ordinary user.
		all := slices.DeleteFunc(slices.Clone(CapabilityNames), func(c string) bool { return c == "CAP_SYS_ADMIN" || c == "CAP_SYS_PTRACE" })
		return &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
	}
	return nil
}

func (p *Policy) namespaces() []specs.LinuxNamespace {
	if !p.Processes.Isolate {
		return nil
	}
	types := []specs.LinuxNamespaceType{specs.UserNamespace, specs.PIDNamespace, specs.IPCNamespace,
		specs.UTSNamespace, specs.MountNamespace, specs.CgroupNamespace}
	if p.Network.Isolate {
		types = append(types, specs.NetworkNamespace)
	}
	var out []specs.LinuxNamespace
	for _, t := range types {
		out = append(out, specs.LinuxNamespace{Type: t})
	}
	return out
}

// idMappings maps inside id 0 alone: to an unused id for root, to himself for an
// ordinary user, who may map nothing else.
func idMappings(h Host) (uid, gid []specs.LinuxIDMapping) {
	u, g := h.UID, h.GID
	if u == 0 {
		u, g = h.RunID, h.RunID
	}
	return []specs.LinuxIDMapping{{HostID: u, Size: 1}}, []specs.LinuxIDMapping{{HostID: g, Size: 1}}
}

func (p *Policy) resources() *specs.LinuxResources {
	if p.Cgroup == CgroupOff {
		return nil
	}
	r := &specs.LinuxResources{}
	if m := p.Limits.Memory; m > 0 {
		// OCI counts swap as memory and swap together: equal means no swap.
		swap := m
		r.Memory = &specs.LinuxMemory{Limit: &m, Swap: &swap}
	}
	if p.Processes.Max > 0 {
		n := p.Processes.Max + ReaperTasks
		r.Pids = &specs.LinuxPids{Limit: &n}
	}
	return r
}

func (p *Policy) mounts() []specs.Mount {
	proc := specs.Mount{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}}
	if !p.Filesystem.Isolate {
		return []specs.Mount{proc}
	}
	tmp := specs.Mount{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "nodev", "mode=1777"}}
	if p.Workdir.Size > 0 {
		tmp.Options = append(tmp.Options, "size="+formatCount(p.Workdir.Size))
	}
	if p.Workdir.Inodes > 0 {
		tmp.Options = append(tmp.Options, "nr_inodes="+formatCount(p.Workdir.Inodes))
	}
	return []specs.Mount{
		proc,
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=64k", "nr_inodes=64"}},
		// No gid=: group 5 is not mapped.
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=64m", "nr_inodes=1024"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		tmp,
	}
}

// kernelMasks and kernelReadonly keep kernel interfaces away that tell or change
// something of the whole machine; the list that engines use.
var (
	kernelMasks = []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
		"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
		"/proc/config.gz", "/proc/kallsyms", "/proc/modules",
		"/sys", // the host's devices, addresses, control groups
	}
	kernelReadonly = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)

// CapabilityNames lists the names by number, as in the kernel's capability.h.
var CapabilityNames = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_SETGID",
	"CAP_SETUID", "CAP_SETPCAP", "CAP_LINUX_IMMUTABLE", "CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN",
	"CAP_NET_RAW", "CAP_IPC_LOCK", "CAP_IPC_OWNER", "CAP_SYS_MODULE", "CAP_SYS_RAWIO", "CAP_SYS_CHROOT",
	"CAP_SYS_PTRACE", "CAP_SYS_PACCT", "CAP_SYS_ADMIN", "CAP_SYS_BOOT", "CAP_SYS_NICE", "CAP_SYS_RESOURCE",
	"CAP_SYS_TIME", "CAP_SYS_TTY_CONFIG", "CAP_MKNOD", "CAP_LEASE", "CAP_AUDIT_WRITE", "CAP_AUDIT_CONTROL",
	"CAP_SETFCAP", "CAP_MAC_OVERRIDE", "CAP_MAC_ADMIN", "CAP_SYSLOG", "CAP_WAKE_ALARM", "CAP_BLOCK_SUSPEND",
	"CAP_AUDIT_READ", "CAP_PERFMON", "CAP_BPF", "CAP_CHECKPOINT_RESTORE",
}
