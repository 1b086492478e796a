// This file owns the table of attacks: what each tries, from which level on it is
// promised to be stopped, and by which keys of the policy.

package lab

import (
	"github.com/sbxrun/sbxrun/spec"
)

// Attack is one row of the matrix.
type Attack struct {
	Threat string     // its row in the table of threats
	Name   string     // as the report calls it
	What   string     // what it does
	From   spec.Level // the first level at which it can be tried
	Stops  spec.Level // the promise: from this level on it is stopped
	By     []string   // keys of the policy that stop it, the one that acts first in front
	Parts  []part     // single mechanisms that must do it alone

	// What the promise is where the machine or the user gives less.
	WithoutGroup, AsUser *exception

	adjust    func(*spec.Policy) // what the attack needs changed in a policy, said in Parts or in the notes
	onWall    bool               // limits.wall stays the preset's
	alone     bool               // not beside others
	seconds   int                // how long it takes at most
	mechanism string             // for what always acts
	try       func(*try) error
}

// exception is another promise, with its reason.
type exception struct {
	stops spec.Level
	why   string
}

// never is a level that there is none of.
const never = spec.L5 + 1

// Why the promise is another one without a control group or for an ordinary user.
var (
	noPackets   = &exception{spec.L0, "an ordinary user has no CAP_NET_RAW in the host's network"}
	blindCPU    = &exception{never, "without a control group only RLIMIT_CPU counts CPU time, and it counts for each process"}
	blindMemory = &exception{never, "without a control group only RLIMIT_AS bounds memory, and it does not see memfds"}
)

// seccomp is the filter with what it needs.
var seccomp = keys("seccomp filter", "capabilities.no-new-privileges=on syscalls.filter=on")

// cpuSecond makes the limit on CPU time one second where there is one.
func cpuSecond(p *spec.Policy) {
	if p.Limits.CPU > 0 {
		p.Limits.CPU = 1e9
	}
}

// lessMemory and lessRoom make limits smaller, so that less is to be filled.
func lessMemory(mib int64) func(*spec.Policy) {
	return func(p *spec.Policy) {
		if p.Limits.Memory > 0 {
			p.Limits.Memory = mib << 20
		}
	}
}

// noGroup keeps a run on the thread that makes it.
func noGroup(p *spec.Policy) { p.Cgroup = spec.CgroupOff }

func lessRoom(p *spec.Policy) {
	if p.Workdir.Size > 0 {
		p.Workdir.Size = 16 << 20
	}
}

var attacks = []Attack{
	{Threat: "A1", Name: "never-ends", What: "sleeps for ever", Stops: spec.L0, By: []string{"limits.wall"},
		Parts: []part{keys("limits.wall", "limits.wall=500ms")}, onWall: true, seconds: 10, try: neverEnds},
	{Threat: "A1", Name: "spins", What: "computes for ever", Stops: spec.L0, By: []string{"limits.wall"},
		Parts: []part{keys("limits.wall", "limits.wall=500ms")}, onWall: true, seconds: 10, try: spins},
	{Threat: "A20", Name: "suspends", What: "stops itself with a child that goes on", Stops: spec.L0, By: []string{"limits.wall"},
		Parts: []part{keys("limits.wall", "limits.wall=500ms")}, onWall: true, seconds: 10, try: suspends},
	{Threat: "A2", Name: "burns-cpu", What: "burns 2.5 s of CPU time and ignores SIGXCPU", Stops: spec.L1, By: []string{"limits.cpu"},
		Parts:  []part{keys("RLIMIT_CPU", "limits.cpu=1s cgroup=off"), keys("cgroup CPU count", "limits.cpu=1s cgroup=on")},
		adjust: cpuSecond, seconds: 5, try: burnsCPU},
	{Threat: "A2", Name: "shares-cpu", What: "burns 3 s of CPU time in three processes, each within the limit", Stops: spec.L1, By: []string{"limits.cpu"},
		Parts: []part{keys("cgroup CPU count", "limits.cpu=1s cgroup=on")}, WithoutGroup: blindCPU, adjust: cpuSecond, seconds: 4, try: sharesCPU},
	{Threat: "A3", Name: "hoards-memory", What: "touches 48 MiB", Stops: spec.L1, By: []string{"limits.memory"},
		Parts: []part{keys("memory.max", "limits.memory=32MiB cgroup=on"), keys("RLIMIT_AS", "limits.memory=32MiB cgroup=off")}, adjust: lessMemory(32), try: hoardsMemory},
	{Threat: "A3", Name: "hides-memory", What: "puts 96 MiB into memfds, which no mapping shows", Stops: spec.L1, By: []string{"limits.memory"},
		Parts: []part{keys("memory.max", "limits.memory=64MiB cgroup=on")}, WithoutGroup: blindMemory, adjust: lessMemory(64), try: hidesMemory},
	{Threat: "A4", Name: "big-file", What: "writes a file of 12 MiB", Stops: spec.L1, By: []string{"limits.file-size"},
		Parts: []part{keys("RLIMIT_FSIZE", "limits.file-size=10MiB")}, try: bigFile},
	{Threat: "A4", Name: "many-bytes", What: "writes 12 files of 2 MiB, each within the limit", Stops: spec.L5, By: []string{"workdir.size"},
		Parts: []part{keys("tmpfs size", "workdir.private=on processes.monitor=5ms processes.isolate=on filesystem.isolate=on workdir.size=16MiB")}, adjust: lessRoom, seconds: 1, try: manyBytes},
	{Threat: "A4", Name: "many-files", What: "makes 5 000 files", Stops: spec.L5, By: []string{"workdir.inodes"},
		Parts: []part{keys("tmpfs nr_inodes", "workdir.private=on processes.monitor=5ms processes.isolate=on filesystem.isolate=on workdir.inodes=4096")}, seconds: 2, try: manyFiles},
	{Threat: "A5", Name: "opens-files", What: "opens 200 descriptors", Stops: spec.L1, By: []string{"limits.files"},
		Parts: []part{keys("RLIMIT_NOFILE", "limits.files=64")}, try: opensFiles},
	{Threat: "A6", Name: "floods", What: "prints 12 MiB in one line", Stops: spec.L1, By: []string{"limits.output-chars"},
		Parts: []part{keys("limits.output-chars", "limits.output-chars=8000")}, try: floods},
	{Threat: "A6", Name: "fills-supervisor", What: "prints 12 MiB for the supervisor to hold", Stops: spec.L0, By: []string{"limits.output-held"},
		Parts: []part{keys("limits.output-held", "limits.output-chars=0")}, adjust: func(p *spec.Policy) { p.Limits.OutputChars = 0 }, try: fillsSupervisor},
	{Threat: "A7", Name: "holds-stdout", What: "ends, while a child keeps stdout open for 45 s", Stops: spec.L0, By: []string{"limits.sweep", always},
		mechanism: "a bounded wait for the end of the output", seconds: 45, try: holdsStdout},
	{Threat: "A10", Name: "leaves-child", What: "leaves a child running", Stops: spec.L1, By: []string{"limits.sweep", "processes.isolate"},
		Parts: []part{keys("sweep of the tree", "limits.sweep=on cgroup=off"), keys("sweep of the group", "limits.sweep=on cgroup=on")}, try: leavesChild},
	{Threat: "A10", Name: "leaves-daemon", What: "leaves a daemon in a session of its own", Stops: spec.L1, By: []string{"limits.sweep", "processes.isolate"},
		Parts: []part{keys("sweep of the tree", "limits.sweep=on cgroup=off"), keys("sweep of the group", "limits.sweep=on cgroup=on")}, try: leavesDaemon},
	{Threat: "A6", Name: "blames-memory", What: "prints MemoryError and fails, to be taken for a victim of the limit", Stops: spec.L0, By: []string{"cgroup", always},
		mechanism: "words count only where nothing is counted", try: blamesMemory},
	{Threat: "A8", Name: "reads-environment", What: "prints its environment", Stops: spec.L2, By: []string{"environment.scrub"},
		Parts: []part{keys("environment.scrub", "environment.scrub=on")}, try: readsEnvironment},
	{Threat: "A8", Name: "reads-callers-environment", What: "prints the caller's environment, out of /proc", Stops: spec.L3, By: []string{"processes.isolate"},
		Parts: []part{keys("own /proc", "processes.monitor=5ms processes.isolate=on")}, try: readsCallersEnvironment},
	{Threat: "A8", Name: "reads-callers-arguments", What: "prints the arguments of the caller's processes, out of /proc", Stops: spec.L3, By: []string{"processes.isolate"},
		Parts: []part{keys("own /proc", "processes.monitor=5ms processes.isolate=on")}, try: readsCallersArguments},
	{Threat: "A9", Name: "overwrites-nearby", What: "overwrites a file in the directory where it starts", Stops: spec.L2, By: []string{"workdir.private", "filesystem.isolate"},
		Parts: []part{keys("workdir.private", "workdir.private=on")}, try: overwritesNearby},
	{Threat: "A9", Name: "overwrites-anywhere", What: "overwrites a file that everybody may write, by its full name", Stops: spec.L5, By: []string{"filesystem.isolate"},
		Parts: []part{keys("read-only root", "processes.monitor=5ms processes.isolate=on filesystem.isolate=on"), keys("masks", "processes.monitor=5ms processes.isolate=on filesystem.isolate=on filesystem.hide=/var/tmp")}, try: overwritesAnywhere},
	{Threat: "B1", Name: "plants-a-link", What: "names a link to the key as its output", From: spec.L2, Stops: spec.L2, By: []string{always},
		Parts:     []part{keys("gateway", "workdir.private=on")},
		mechanism: "the gateway follows no link", try: plantsLink},
	{Threat: "A19", Name: "litters", What: "leaves deep directories and odd names", From: spec.L2, Stops: spec.L2, By: []string{"workdir.private"},
		Parts: []part{keys("host directory", "workdir.private=on")}, try: litters},
	{Threat: "C2", Name: "uses-open-files", What: "reads the key from a descriptor that the caller left open", Stops: spec.L0, By: []string{always},
		mechanism: "every other descriptor is closed at execve", try: usesOpenFiles},
	{Threat: "A11", Name: "multiplies", What: "keeps 40 children", Stops: spec.L3, By: []string{"processes.max"},
		Parts: []part{keys("pids.max", "cgroup=on limits.sweep=on processes.monitor=1s processes.max=16"), keys("monitor", "cgroup=off processes.monitor=5ms processes.max=16")}, seconds: 1, try: multiplies},
	{Threat: "A11", Name: "forks-a-tree", What: "forks a tree of 63 shells", Stops: spec.L3, By: []string{"processes.max"},
		Parts: []part{keys("pids.max", "cgroup=on limits.sweep=on processes.monitor=1s processes.max=16"), keys("monitor", "cgroup=off processes.monitor=5ms processes.max=16")}, seconds: 1, try: forksTree},
	{Threat: "A11", Name: "kills-a-bystander", What: "kills a process of the caller", Stops: spec.L3, By: []string{"processes.isolate"},
		Parts: []part{keys("PID namespace", "processes.monitor=5ms processes.isolate=on")}, try: killsBystander},
	{Threat: "A15", Name: "traces-a-bystander", What: "traces a process of the caller", Stops: spec.L3, By: []string{"processes.isolate", "syscalls.filter"},
		Parts: []part{keys("PID namespace", "processes.monitor=5ms processes.isolate=on"), seccomp}, try: tracesBystander},
	{Threat: "A17", Name: "leaves-shared-memory", What: "leaves System V shared memory", Stops: spec.L3, By: []string{"processes.isolate"},
		Parts: []part{keys("IPC namespace", "processes.monitor=5ms processes.isolate=on")}, try: leavesShm},
	{Threat: "A17", Name: "leaves-shm-file", What: "leaves a file in /dev/shm", Stops: spec.L5, By: []string{"filesystem.isolate"},
		Parts: []part{keys("own /dev/shm", "processes.monitor=5ms processes.isolate=on filesystem.isolate=on")}, try: leavesShmFile},
	{Threat: "A17", Name: "leaves-key", What: "leaves a key in the user's keyring", Stops: spec.L3, By: []string{"processes.isolate", "syscalls.filter"},
		Parts: []part{keys("user namespace", "processes.monitor=5ms processes.isolate=on"), seccomp}, try: leavesKey},
	{Threat: "A17", Name: "reads-session-key", What: "reads a key of the caller's session keyring", Stops: spec.L3, By: []string{"processes.isolate", "syscalls.filter"},
		Parts: []part{keys("session keyring", "processes.monitor=5ms processes.isolate=on"), seccomp}, adjust: noGroup, try: readsSessionKey},
	{Threat: "A18", Name: "types-for-the-caller", What: "types into the caller's terminal, its stdin", Stops: spec.L0, By: []string{always},
		mechanism: "stdin comes through a pipe", try: typesForCaller},
	{Threat: "A13", Name: "watches-the-network", What: "opens a packet socket, which sees what passes", Stops: spec.L3, By: []string{"processes.isolate", "syscalls.filter", always},
		Parts: []part{keys("user namespace", "processes.monitor=5ms processes.isolate=on"), seccomp}, AsUser: noPackets,
		mechanism: "the user's lack of CAP_NET_RAW", try: opensPacket},
	{Threat: "A13", Name: "calls-tcp", What: "calls a server on the host's 127.0.0.1", Stops: spec.L4, By: []string{"network.isolate"},
		Parts: []part{keys("network namespace", "processes.monitor=5ms processes.isolate=on network.isolate=on")}, try: callsTCP},
	{Threat: "A13", Name: "calls-tcp-python", What: "the same in Python", Stops: spec.L4, By: []string{"network.isolate"}, try: callsTCPPython},
	{Threat: "A13", Name: "calls-abstract", What: "calls an abstract unix socket", Stops: spec.L4, By: []string{"network.isolate"},
		Parts: []part{keys("network namespace", "processes.monitor=5ms processes.isolate=on network.isolate=on")}, try: callsAbstract},
	{Threat: "A13", Name: "talks-to-itself", What: "talks over 127.0.0.1 to itself", Stops: spec.L4, By: []string{"network.isolate"},
		Parts: []part{keys("network namespace", "processes.monitor=5ms processes.isolate=on network.isolate=on")}, try: talksToItself},
	{Threat: "A13", Name: "calls-socket-file", What: "calls a unix socket by its path", Stops: spec.L5, By: []string{"filesystem.hide"},
		Parts: []part{keys("masks", "processes.monitor=5ms processes.isolate=on filesystem.isolate=on filesystem.hide=/var/tmp")}, try: callsSocketFile},
	{Threat: "A13", Name: "opens-vsock", What: "opens a socket to the hypervisor, for which there is no namespace", Stops: spec.L5, By: []string{"syscalls.filter"},
		Parts: []part{seccomp}, try: opensVsock},
	{Threat: "C6", Name: "starves-the-kernel", What: "calls the server when the kernel has no network namespace left", From: spec.L4, Stops: spec.L4, By: []string{"network.isolate"},
		try: starvesKernel},
	{Threat: "A14", Name: "reads-key", What: "reads a key, by each way to it", Stops: spec.L5, By: []string{"filesystem.hide"},
		Parts: []part{keys("masks", "processes.monitor=5ms processes.isolate=on filesystem.isolate=on filesystem.hide=/var/tmp")}, try: readsKey},
	{Threat: "A14", Name: "reads-kernel", What: "reads /proc/interrupts, which tells of the whole machine", Stops: spec.L5, By: []string{"filesystem.isolate"},
		Parts: []part{keys("masks", "processes.monitor=5ms processes.isolate=on filesystem.isolate=on")}, try: readsKernel},
	{Threat: "A15", Name: "keeps-capabilities", What: "has a capability in one of the five sets", Stops: spec.L5, By: []string{"capabilities.drop"},
		Parts: []part{keys("capabilities.drop", "processes.monitor=5ms processes.isolate=on capabilities.drop=on")}, try: keepsCapabilities},
	{Threat: "A15", Name: "may-gain-privileges", What: "would gain privileges from a setuid program", Stops: spec.L5, By: []string{"capabilities.no-new-privileges"},
		Parts: []part{keys("PR_SET_NO_NEW_PRIVS", "capabilities.no-new-privileges=on")}, try: mayGain},
	{Threat: "A15", Name: "own-user-namespace", What: "makes a user namespace, in which it is root", Stops: spec.L5, By: []string{"syscalls.filter"},
		Parts: []part{seccomp}, try: ownUserNamespace},
	{Threat: "A16", Name: "io-uring", What: "makes an io_uring, which no filter looks into", Stops: spec.L5, By: []string{"syscalls.filter"},
		Parts: []part{seccomp}, try: ioUring},
	{Threat: "A16", Name: "stops-the-kernel", What: "makes a userfaultfd, which stops the kernel in a copy", Stops: spec.L5, By: []string{"syscalls.filter"},
		Parts: []part{seccomp}, try: stopsInCopy},
}
