// This file owns the steps: one table row and one function for each thing that
// init can do.

package sbxinit

import (
	"errors"
	"io/fs"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/rootfs"
)

// Op names a step.
type Op uint8

// The operations, in the order in which a plan uses them.
const (
	opInvalid      Op = iota
	OpCgroupNS        // a cgroup namespace, made once init is in its group
	OpKeyring         // a session keyring of its own, empty
	OpPropagation     // nums: MS_* flags; the whole tree stops passing mounts to the host
	OpRoot            // nums: its tree's descriptor, cut it off, and the mount below it; strs: directory; it becomes the container's root
	OpRootBelow       // the host's "/" and all below becomes read-only before own mounts come
	OpMount           // made by MountStep; strs: source, target, type, options…
	OpDevice          // nums: bind, mode, dev, uid, gid; strs: path
	OpSymlink         // strs: target, path
	OpSysctl          // strs: path below /proc/sys, value
	OpReadonly        // strs: path
	OpMask            // nums: discard; strs: path
	OpWorkdir         // nums: a session's, which is there; strs: path; its descriptor goes to the supervisor
	OpDirectory       // strs: path that is made if it is missing
	OpRootReadonly    // the container's root becomes read-only
	OpHooks           // the runtime calls the hooks of its own namespaces
	OpHook            // nums: argc, timeout in ms; strs: state, path, arguments, environment
	OpPivot           // nums: 1 to move the root to / instead; pivot_root into the container's root
	OpChroot          // in place of OpPivot, where the mount namespace is the caller's
	OpHostname        // strs: name
	OpDomainname      // strs: name
	OpLoopback        // the network namespace gets its loopback interface
	OpConsole         // nums: width, height, uid; a new terminal becomes stdio, its master goes to the supervisor
	OpTerminal        // as OpConsole, in a container that has its console already
	OpLookup          // strs: directory, program, environment; the program is there and executable
	OpReady           // the barrier: the supervisor arms the limits and answers
	OpAwait           // the container is created; "start" connects
	OpMore            // the rest of the plan comes now
	OpKeep            // strs: options; a session's file system, for as long as the channel is open
	OpChdir           // strs: path inside the container
	OpHome            // nums: uid; HOME becomes what the container's /etc/passwd says
	OpRlimit          // nums: resource, soft, hard
	OpOOMScore        // strs: value
	OpScheduler       // nums: policy, flags, nice, priority, runtime, deadline, period
	OpIOPriority      // nums: class and priority as ioprio_set(2) takes them
	OpAffinity        // nums: CPUs
	OpPersonality     // nums: as personality(2) takes it
	OpLabel           // strs: file below /proc/thread-self/attr, what execve gives the program
	OpBounding        // nums: mask of capabilities that stay
	OpUser            // nums: uid, gid, umask, additional gids…
	OpCaps            // nums: effective, permitted, inheritable, ambient
	OpSecurebits      // nums: bits
	OpNoNewPrivs      // no_new_privs
	OpSeccomp         // nums: flags; strs: program
	OpExec            // nums: argc, descriptors kept beyond 2; strs: arguments, environment
	OpReap            // as OpExec, with the reaper as parent of the program
	opCount
)

// row is what init knows of an operation.
type row struct {
	name       string // as an auditor reads it
	layer      string // layer of the policy that it serves, empty for plumbing
	nums, strs int    // the least number of arguments
	run        func(*state, Step) error
}

var table = [opCount]row{
	OpCgroupNS:     {"cgroup namespace", "processes", 0, 0, (*state).cgroupNS},
	OpKeyring:      {"keyring", "processes", 0, 0, (*state).keyring},
	OpPropagation:  {"mount propagation", "filesystem", 1, 0, (*state).propagation},
	OpRoot:         {"root", "filesystem", 3, 1, (*state).openRoot},
	OpRootBelow:    {"read-only host tree", "filesystem", 0, 0, (*state).readonlyRoot},
	OpMount:        {"mount", "filesystem", mountNums, 3, (*state).mount},
	OpDevice:       {"device", "filesystem", 5, 1, (*state).device},
	OpSymlink:      {"symlink", "filesystem", 0, 2, (*state).symlink},
	OpSysctl:       {"sysctl", "processes", 0, 2, (*state).sysctl},
	OpReadonly:     {"read-only path", "filesystem", 0, 1, (*state).readonlyPath},
	OpMask:         {"mask", "filesystem", 1, 1, (*state).mask},
	OpWorkdir:      {"working directory", "workdir", 1, 1, (*state).workdir},
	OpDirectory:    {"directory", "filesystem", 0, 1, (*state).directory},
	OpRootReadonly: {"read-only root", "filesystem", 0, 0, (*state).readonlyRoot},
	OpHooks:        {"runtime hooks", "", 0, 0, (*state).awaitHooks},
	OpHook:         {"hook", "", 2, 2, (*state).hook},
	OpPivot:        {"pivot_root", "filesystem", 1, 0, (*state).pivot},
	OpChroot:       {"chroot", "filesystem", 0, 0, (*state).chroot},
	OpHostname:     {"hostname", "processes", 0, 1, (*state).hostname},
	OpDomainname:   {"domainname", "processes", 0, 1, (*state).domainname},
	OpLoopback:     {"loopback", "network", 0, 0, (*state).loopback},
	OpConsole:      {"console", "", 3, 0, (*state).console},
	OpTerminal:     {"terminal", "", 3, 0, (*state).terminal},
	OpLookup:       {"exec", "", 0, 2, (*state).lookup},
	OpReady:        {"ready", "", 0, 0, (*state).ready},
	OpAwait:        {"await start", "", 0, 0, (*state).await},
	OpMore:         {"rest of the plan", "", 0, 0, (*state).more},
	OpKeep:         {"session's file system", "workdir", 0, 0, (*state).keep},
	OpChdir:        {"chdir", "", 0, 1, (*state).chdir},
	OpHome:         {"home directory", "", 1, 0, (*state).findHome},
	OpRlimit:       {"rlimit", "limits", 3, 1, (*state).rlimit},
	OpOOMScore:     {"oom_score_adj", "", 0, 1, (*state).oomScore},
	OpScheduler:    {"scheduler", "", 7, 0, (*state).scheduler},
	OpIOPriority:   {"io priority", "", 1, 0, (*state).ioPriority},
	OpAffinity:     {"cpu affinity", "", 1, 0, (*state).affinity},
	OpPersonality:  {"personality", "", 1, 0, (*state).personality},
	OpLabel:        {"security label", "capabilities", 0, 2, (*state).label},
	OpBounding:     {"bounding set", "capabilities", 1, 0, (*state).bounding},
	OpUser:         {"user", "", 3, 0, (*state).user},
	OpCaps:         {"capability sets", "capabilities", 4, 0, (*state).caps},
	OpSecurebits:   {"securebits", "capabilities", 1, 0, (*state).securebits},
	OpNoNewPrivs:   {"no_new_privs", "capabilities", 0, 0, (*state).noNewPrivs},
	OpSeccomp:      {"seccomp", "syscalls", 1, 1, (*state).seccomp},
	OpExec:         {"exec", "", 2, 1, (*state).exec},
	OpReap:         {"exec under the reaper", "", 1, 1, (*state).reap},
}

// String is the step as an auditor reads it, without values that may be secret.
func (s Step) String() string {
	name := table[s.Op].name
	switch {
	case s.Op == OpMount || s.Op == OpSymlink || s.Op == OpLookup:
		return name + " " + s.Strs[1]
	case len(s.Strs) > 0 && s.Op != OpSeccomp:
		return name + " " + s.Strs[0]
	}
	return name
}

// Name is the operation as an auditor reads it, empty where there is none.
func (o Op) Name() string {
	if o >= opCount {
		return ""
	}
	return table[o].name
}

// Layer is the layer of the policy that it serves, empty for what starts any program.
func (o Op) Layer() string { return table[o].layer }

// state is what the steps share.
type state struct {
	root   *rootfs.Root
	home   string          // of OpHome
	space  *syscall.Rlimit // RLIMIT_AS, set right before execve; nil without
	rest   []byte          // steps that came with OpMore
	handFD int             // for the supervisor: the working directory or the terminal's master, -1 without
}

// perform runs the plan. It returns only on failure.
func perform(p Plan) *Failure {
	if err := closeOnExec(); err != nil {
		return failure(Step{}, err)
	}
	s := &state{handFD: -1}
	for i := 0; i < len(p); i++ {
		if err := table[p[i].Op].run(s, p[i]); err != nil {
			return failure(p[i], err)
		}
		if s.rest == nil {
			continue
		}
		rest, err := decode(s.rest)
		if err != nil {
			return failure(p[i], err)
		}
		p, s.rest = append(p, rest...), nil
	}
	return &Failure{Step: "plan", Op: "ended without exec"}
}

func failure(step Step, err error) *Failure {
	f := &Failure{Step: table[step.Op].name, Layer: table[step.Op].layer, Op: "failed"}
	var at *fs.PathError
	switch {
	case errors.As(err, &at) && step.Op == OpMount && at.Path != step.Strs[1]:
		f.Op, f.Path = at.Op+" "+at.Path+" for", step.Strs[1]
	case errors.As(err, &at):
		f.Op, f.Path = at.Op, at.Path
	case len(step.Strs) > 0 && step.Op != OpSeccomp && step.Op != OpHook && step.Op != OpLookup && step.Op != OpExec:
		f.Path = step.Strs[0]
	}
	if !errors.As(err, &f.Errno) {
		f.Op = err.Error()
	}
	return f
}

// call is a system call that failed, with what it was about.
func call(op, path string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: path, Err: err}
}

func errnoErr(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func (s *state) cgroupNS(Step) error {
	return call("unshare", "CLONE_NEWCGROUP", unix.Unshare(unix.CLONE_NEWCGROUP))
}

// keyring joins a new session keyring: the caller's is inherited across everything
// else, and holds keys. A kernel without keyrings has nothing to hide.
func (s *state) keyring(Step) error {
	// Raw: x/sys passes a name always, and an empty one is refused.
	_, _, e := unix.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if e == unix.ENOSYS {
		return nil
	}
	return call("keyctl", "KEYCTL_JOIN_SESSION_KEYRING", errnoErr(e))
}

func (s *state) propagation(st Step) error {
	return call("make propagation of", "/", unix.Mount("", "/", "", uintptr(st.Nums[0]), ""))
}

func (s *state) openRoot(st Step) (err error) {
	s.root, err = rootfs.OpenRoot(st.Strs[0], int(st.Nums[0]), st.Nums[1] != 0, st.Nums[2] != 0)
	return err
}

func (s *state) readonlyRoot(Step) error { return s.root.Readonly() }

// pivot leaves the host's tree; there is no root to speak of afterwards.
func (s *state) pivot(st Step) error {
	root := s.root
	s.root = nil
	if st.Nums[0] == 1 {
		return root.Move()
	}
	return root.Pivot()
}

// mountNums is the count of numbers of an OpMount step.
const mountNums = 11

// MountStep gives the arguments of an OpMount step.
func MountStep(m rootfs.Mount) ([]uint64, []string) {
	flag := func(b bool) uint64 {
		if b {
			return 1
		}
		return 0
	}
	nums := []uint64{flag(m.Bind), flag(m.Recursive), m.Set, m.Clear, m.RecSet, m.RecClear, m.Propagation, flag(m.RecPropagation),
		uint64(m.Tree), flag(m.Remount), flag(m.CopyUp)}
	return nums, append([]string{m.Source, m.Target, m.Type}, m.Options...)
}

func (s *state) mount(st Step) error {
	n := st.Nums
	return s.root.Mount(rootfs.Mount{
		Source: st.Strs[0], Target: st.Strs[1], Type: st.Strs[2], Options: st.Strs[3:],
		Bind: n[0] == 1, Recursive: n[1] == 1, Set: n[2], Clear: n[3], RecSet: n[4], RecClear: n[5],
		Propagation: n[6], RecPropagation: n[7] == 1, Tree: int(n[8]), Remount: n[9] == 1, CopyUp: n[10] == 1,
	})
}

func (s *state) device(st Step) error {
	n := st.Nums
	return s.root.Device(st.Strs[0], n[0] == 1, uint32(n[1]), n[2], int(n[3]), int(n[4]))
}

func (s *state) symlink(st Step) error      { return s.root.Symlink(st.Strs[0], st.Strs[1]) }
func (s *state) sysctl(st Step) error       { return s.root.WriteProc(st.Strs[0], st.Strs[1]) }
func (s *state) readonlyPath(st Step) error { return s.root.ReadonlyPath(st.Strs[0]) }
func (s *state) mask(st Step) error         { return s.root.Mask(st.Strs[0], st.Nums[0] == 1) }

func (s *state) directory(st Step) error { return s.root.MkdirAll(st.Strs[0]) }

func (s *state) workdir(st Step) (err error) {
	s.handFD, err = s.root.Workdir(st.Strs[0], st.Nums[0] != 0)
	return err
}

func (s *state) chroot(Step) error {
	root := s.root
	s.root = nil
	return root.Chroot()
}

func (s *state) hostname(st Step) error {
	return call("sethostname", st.Strs[0], unix.Sethostname([]byte(st.Strs[0])))
}

func (s *state) domainname(st Step) error {
	return call("setdomainname", st.Strs[0], unix.Setdomainname([]byte(st.Strs[0])))
}

// loopback brings "lo" up (netdevice(7)).
func (s *state) loopback(Step) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return call("socket", "AF_INET", err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return call("SIOCSIFFLAGS", "lo", err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return call("SIOCGIFFLAGS", "lo", err)
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return call("SIOCSIFFLAGS", "lo", unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
}

// ready tells the supervisor that everything is in place and waits for its word.
// The working directory's descriptor travels with the message.
func (s *state) ready(Step) error {
	var oob []byte
	if s.handFD >= 0 {
		oob = unix.UnixRights(s.handFD)
	}
	if err := unix.Sendmsg(ChannelFD, []byte{FrameReady}, oob, nil, unix.MSG_NOSIGNAL); err != nil {
		return call("sendmsg", "channel", err)
	}
	if s.handFD >= 0 {
		unix.Close(s.handFD)
	}
	return call("read", "channel", receiveGo())
}

// await lets the container be in the state "created" until somebody starts it. A
// caller that goes away before it said so does not start anything.
func (s *state) await(Step) error {
	for {
		fd, _, err := unix.Accept4(StartFD, unix.SOCK_CLOEXEC)
		if err == unix.EINTR || err == unix.ECONNABORTED {
			continue
		}
		if err != nil {
			return call("accept", "start socket", err)
		}
		if err := unix.Dup3(fd, ChannelFD, unix.O_CLOEXEC); err != nil {
			return call("dup3", "start socket", err)
		}
		unix.Close(fd)
		if err = receiveGo(); err == nil {
			return call("close", "start socket", unix.Close(StartFD))
		} else if err != unix.EPIPE {
			return call("read", "start socket", err)
		}
	}
}

// receiveGo waits for the word to go on; EPIPE says that the other side is gone.
func receiveGo() error {
	var answer [1]byte
	if err := readFull(ChannelFD, answer[:]); err != nil {
		return err
	}
	if answer[0] != frameGo {
		return unix.EPROTO
	}
	return nil
}
