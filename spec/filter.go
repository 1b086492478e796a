// This file owns the system call filter of L5: what no program of this kind needs.
// It is a deny list, because the programs are anybody's; what it must keep away are
// the interfaces through which sandboxes have been left.

package spec

import (
	"fmt"

	"github.com/opencontainers/runtime-spec/specs-go"
)

var architectures = map[string]specs.Arch{
	"amd64": specs.ArchX86_64, "arm64": specs.ArchAARCH64,
}

// denied lists system calls by the answer they get. Where programs probe for a
// feature and fall back, the answer is "not implemented"; elsewhere "not permitted".
var denied = []struct {
	errno uint
	why   string
	names []string
}{
	{enosys, "asynchronous rings run system calls that no filter sees", []string{"io_uring_setup", "io_uring_enter", "io_uring_register"}},
	{enosys, "its flags lie behind a pointer that a filter cannot read; libc falls back to clone", []string{"clone3"}},
	{eperm, "kernel code from user space", []string{"bpf", "init_module", "finit_module", "delete_module", "create_module", "kexec_load", "kexec_file_load"}},
	{eperm, "keyrings have no namespace", []string{"add_key", "request_key", "keyctl"}},
	{eperm, "lets user space stop the kernel in the middle of a copy", []string{"userfaultfd"}},
	{eperm, "large and often faulty interface", []string{"perf_event_open", "fanotify_init", "lookup_dcookie", "nfsservctl"}},
	{eperm, "reads and writes other processes", []string{"ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise"}},
	{eperm, "changes what is mounted where", []string{
		"mount", "umount2", "umount", "pivot_root", "chroot", "move_mount", "open_tree", "open_tree_attr",
		"fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "swapon", "swapoff", "quotactl", "quotactl_fd"}},
	{eperm, "makes or joins namespaces", []string{"unshare", "setns"}},
	{eperm, "opens files without a path, past every mask (shocker)", []string{"open_by_handle_at", "name_to_handle_at"}},
	{eperm, "belongs to the whole machine", []string{
		"reboot", "acct", "syslog", "settimeofday", "clock_settime", "clock_adjtime", "adjtimex", "sethostname", "setdomainname",
		"iopl", "ioperm", "vhangup", "vm86", "vm86old", "uselib", "ustat", "sysfs", "_sysctl"}},
	{enosys, "takes its share of what the whole host has", []string{"io_setup"}},
}

const (
	eperm           = 1
	enosys          = 38
	eprotonosupport = 93
	eafnosupport    = 97
)

// newNamespaces are the clone flags that make a namespace; each is tested alone.
var newNamespaces = []uint64{
	0x10000000, // CLONE_NEWUSER
	0x00020000, // CLONE_NEWNS
	0x02000000, // CLONE_NEWCGROUP
	0x04000000, // CLONE_NEWUTS
	0x08000000, // CLONE_NEWIPC
	0x20000000, // CLONE_NEWPID
	0x40000000, // CLONE_NEWNET
}

// Of the address families AF_UNIX, AF_INET and AF_INET6 are left. Others lead out of the
// network namespace (AF_VSOCK has none), have a record of faults (AF_ALG, AF_PACKET), keep
// memory that no group is charged for (AF_NETLINK), or make the host load a module.
var families = []uint64{3, 4, 5, 6, 7, 8, 9}

const (
	lastFamily   = 10 // AF_INET6: what is above is not left
	lastProtocol = 58 // IPPROTO_ICMPV6: above are SCTP, L2TP, MPTCP and the like, modules
	dccp         = 33
)

// terminal are ioctls that put input into a terminal, or load a module for it.
var terminal = []uint64{0x5412 /* TIOCSTI */, 0x541c /* TIOCLINUX */, 0x5423 /* TIOCSETD */}

// ofReaper are calls on the process or thread that an argument names. The reaper has the
// same user: by them it could be ended, or kept from ending the run in time.
var ofReaper = []struct {
	call string
	arg  uint
}{{"sched_setattr", 0}, {"sched_setscheduler", 0}, {"sched_setparam", 0}, {"sched_setaffinity", 0}, {"setpriority", 1}, {"ioprio_set", 1}}

const (
	prioUser   = 2 // PRIO_USER: the reaper too
	ioprioUser = 3 // IOPRIO_WHO_USER
)

// DefaultFilter is the filter of L5 for an architecture named as in GOARCH.
// Calls of any other architecture, and x32 calls, are refused whatever they are.
func DefaultFilter(arch string) (*specs.LinuxSeccomp, error) {
	native, ok := architectures[arch]
	if !ok {
		return nil, fmt.Errorf("syscalls.filter: there is no filter for architecture %q", arch)
	}
	f := &specs.LinuxSeccomp{DefaultAction: specs.ActAllow, Architectures: []specs.Arch{native}}
	for _, d := range denied {
		errno := d.errno
		f.Syscalls = append(f.Syscalls, specs.LinuxSyscall{Names: d.names, Action: specs.ActErrno, ErrnoRet: &errno})
	}
	for _, flag := range newNamespaces {
		f.Syscalls = append(f.Syscalls, denyArg("clone", 0, flag, flag, specs.OpMaskedEqual))
	}
	for _, family := range families { // an int for the kernel: the upper half says nothing
		for _, call := range []string{"socket", "socketpair"} {
			f.Syscalls = append(f.Syscalls, answerArg(eafnosupport, call, 0, 0xffffffff, family, specs.OpMaskedEqual))
		}
	}
	for _, call := range []string{"socket", "socketpair"} {
		f.Syscalls = append(f.Syscalls,
			answerArg(eafnosupport, call, 0, lastFamily, 0, specs.OpGreaterThan),
			answerArg(eprotonosupport, call, 2, lastProtocol, 0, specs.OpGreaterThan),
			answerArg(eprotonosupport, call, 2, 0xffffffff, dccp, specs.OpMaskedEqual))
	}
	for _, request := range terminal {
		// The kernel looks at the lower half only (CVE-2019-10063).
		f.Syscalls = append(f.Syscalls, denyArg("ioctl", 1, 0xffffffff, request, specs.OpMaskedEqual))
	}
	for _, r := range ofReaper {
		f.Syscalls = append(f.Syscalls, denyArg(r.call, r.arg, 0xffffffff, 1, specs.OpMaskedEqual))
	}
	f.Syscalls = append(f.Syscalls,
		denyArg("setpriority", 0, 0xffffffff, prioUser, specs.OpMaskedEqual),
		denyArg("ioprio_set", 0, 0xffffffff, ioprioUser, specs.OpMaskedEqual))
	// Limits of the reaper may be asked for, not set.
	reaper := denyArg("prlimit64", 0, 0xffffffff, 1, specs.OpMaskedEqual)
	reaper.Args = append(reaper.Args, specs.LinuxSeccompArg{Index: 2, Value: 0, Op: specs.OpNotEqual})
	f.Syscalls = append(f.Syscalls, reaper)
	return f, nil
}

func denyArg(name string, index uint, value, valueTwo uint64, op specs.LinuxSeccompOperator) specs.LinuxSyscall {
	return answerArg(eperm, name, index, value, valueTwo, op)
}

func answerArg(errno uint, name string, index uint, value, valueTwo uint64, op specs.LinuxSeccompOperator) specs.LinuxSyscall {
	return specs.LinuxSyscall{
		Names: []string{name}, Action: specs.ActErrno, ErrnoRet: &errno,
		Args: []specs.LinuxSeccompArg{{Index: index, Value: value, ValueTwo: valueTwo, Op: op}},
	}
}
