// This file owns joining the namespaces of a running container. The kernel lets
// only a single-threaded process join a user namespace, and a Go process never is
// one; so a raw fork child does it:
//
//	sbxrun ──fork──▶ child: not dumpable, setns on each namespace
//	   ▲               └─clone(CLONE_PARENT)──▶ init: descriptors, identity, execveat
//	   └────────────── pid of init ◀── pipe ──┘  (the child exits)
//
// Between fork and exec only raw system calls may be made: no allocation, no lock,
// no stack growth, since the child has one thread of a copied Go runtime. The fork
// hooks are the ones that package syscall uses, reached by linkname as others do
// (they are kept stable for that). The second clone is what puts init into a joined
// PID namespace, and CLONE_PARENT makes it sbxrun's own child.

package runtime

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe" // also for go:linkname

	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

//go:linkname runtimeBeforeFork syscall.runtime_BeforeFork
func runtimeBeforeFork()

//go:linkname runtimeAfterFork syscall.runtime_AfterFork
func runtimeAfterFork()

//go:linkname runtimeAfterForkInChild syscall.runtime_AfterForkInChild
func runtimeAfterForkInChild()

// maxJoin is the number of kinds of namespaces, maxFiles that of descriptors.
const (
	maxJoin  = 8
	maxFiles = 256
)

// joint is what the child needs, all of it in place before the fork.
type joint struct {
	users func(pid int) error // maps the ids of a user namespace among clone, nil for none

	namespaces [maxJoin]uintptr // descriptors, user namespace first
	count      int
	clone      uintptr // further namespaces to make
	hold       uintptr // a pipe to wait at until users has mapped the ids, 0 for none
	files      [maxFiles]uintptr
	fileCount  int
	root       bool // take on inside id 0 of the user namespace
	exe        uintptr
	argv, envp [2]*byte
	empty      *byte
	pipe       uintptr
}

// lowestFile keeps the sources of the descriptors above their targets.
const lowestFile = maxFiles + 16

// start starts an init in existing namespaces. files become its descriptors 0, 1, 2,
// …; exe is what it executes.
func (j *joint) start(namespaces []*os.File, exe *os.File, files []*os.File) (*os.Process, error) {
	j.count, j.exe, j.fileCount = len(namespaces), exe.Fd(), len(files)
	if j.count > maxJoin || j.fileCount > maxFiles {
		return nil, fmt.Errorf("join: too many namespaces or descriptors")
	}
	for i, f := range namespaces {
		j.namespaces[i] = f.Fd()
	}
	for i, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, lowestFile)
		if err != nil {
			return nil, fmt.Errorf("join: duplicate a descriptor: %w", err)
		}
		defer unix.Close(fd)
		j.files[i] = uintptr(fd)
	}
	var err error
	if j.argv[0], err = syscall.BytePtrFromString(sbxinit.Name); err != nil {
		return nil, err
	}
	j.empty = new(byte)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	j.pipe = w.Fd()
	held, release, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	defer held.Close()
	defer release.Close()
	if j.users != nil {
		j.hold = held.Fd()
	}
	pid, err := forkJoiner(j)
	w.Close()
	if err != nil {
		return nil, fmt.Errorf("join: fork: %w", err)
	}
	proc, err := awaitJoined(r, pid)
	if err != nil || j.users == nil {
		return proc, err
	}
	if err := j.users(proc.Pid); err != nil {
		return nil, errors.Join(err, proc.Kill(), release.Close())
	}
	_, err = release.Write([]byte{0})
	return proc, err
}

// awaitJoined reads the joiner's answer: init's pid, or the step and its errno.
func awaitJoined(r *os.File, joiner int) (*os.Process, error) {
	var answer [3]uint32
	b := (*[12]byte)(unsafe.Pointer(&answer))
	n, err := r.Read(b[:])
	var status syscall.WaitStatus
	for {
		if _, e := syscall.Wait4(joiner, &status, 0, nil); e != syscall.EINTR {
			break
		}
	}
	if n != len(b) || err != nil {
		return nil, fmt.Errorf("join: the joining process ended without an answer (%v)", status)
	}
	if answer[0] != 0 {
		return nil, fmt.Errorf("join: %s: %w", joinSteps[answer[1]%uint32(len(joinSteps))], syscall.Errno(answer[0]))
	}
	return os.FindProcess(int(answer[2]))
}

// joinSteps names what can fail in the joiner.
var joinSteps = [...]string{"prctl", "setns", "clone"}

// forkJoiner forks. The child never returns.
//
//go:noinline
//go:norace
//go:nocheckptr
func forkJoiner(j *joint) (int, error) {
	syscall.ForkLock.Lock()
	defer syscall.ForkLock.Unlock()
	runtimeBeforeFork()
	pid, _, errno := syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 {
		runtimeAfterFork()
		return 0, errno
	}
	if pid == 0 {
		runtimeAfterForkInChild()
		joinInChild(j)
	}
	runtimeAfterFork()
	return int(pid), nil
}

// joinInChild is the joiner: raw system calls, straight down.
//
//go:nosplit
//go:noinline
//go:norace
//go:nocheckptr
func joinInChild(j *joint) {
	var answer [3]uint32
	step := uint32(0)
	// Before anything of the container can see this copy of sbxrun's memory (CVE-2016-9962).
	_, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, syscall.PR_SET_DUMPABLE, 0, 0)
	for i := 0; errno == 0 && i < j.count; i++ {
		step = 1
		_, _, errno = syscall.RawSyscall(unix.SYS_SETNS, j.namespaces[i], 0, 0)
	}
	if errno == 0 {
		step = 2
		var pid uintptr
		pid, _, errno = syscall.RawSyscall6(syscall.SYS_CLONE, uintptr(syscall.SIGCHLD)|unix.CLONE_PARENT|j.clone, 0, 0, 0, 0, 0)
		if errno == 0 && pid == 0 {
			becomeInit(j)
		}
		answer[2] = uint32(pid)
	}
	answer[0], answer[1] = uint32(errno), step
	syscall.RawSyscall(syscall.SYS_WRITE, j.pipe, uintptr(unsafe.Pointer(&answer)), 12)
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 0, 0, 0)
	}
}

// becomeInit is what the joiner's child does: descriptors, session, identity, exec.
// A failure shows as the channel's end.
//
//go:nosplit
//go:noinline
//go:norace
//go:nocheckptr
func becomeInit(j *joint) {
	if j.hold != 0 { // until then ids mean nothing here
		var b byte
		if n, _, _ := syscall.RawSyscall(syscall.SYS_READ, j.hold, uintptr(unsafe.Pointer(&b)), 1); n != 1 {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 125, 0, 0)
		}
	}
	for i := 0; i < j.fileCount; i++ {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_DUP3, j.files[i], uintptr(i), 0); errno != 0 {
			syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 125, 0, 0)
		}
	}
	syscall.RawSyscall(syscall.SYS_SETSID, 0, 0, 0)
	if j.root {
		syscall.RawSyscall(syscall.SYS_SETGROUPS, 0, 0, 0) // denied in an ordinary user's namespace
		syscall.RawSyscall(syscall.SYS_SETRESGID, 0, 0, 0)
		syscall.RawSyscall(syscall.SYS_SETRESUID, 0, 0, 0)
	}
	syscall.RawSyscall6(unix.SYS_EXECVEAT, j.exe, uintptr(unsafe.Pointer(j.empty)),
		uintptr(unsafe.Pointer(&j.argv)), uintptr(unsafe.Pointer(&j.envp)), unix.AT_EMPTY_PATH, 0)
	for {
		syscall.RawSyscall(syscall.SYS_EXIT_GROUP, 125, 0, 0)
	}
}
