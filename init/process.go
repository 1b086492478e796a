// This file owns the steps that concern the process itself: directory, limits,
// identity, capabilities, filter, execve. Raw system calls are used where Go's
// wrappers act on all threads: only the calling thread lives past execve.

package sbxinit

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/rootfs"
)

func (s *state) chdir(st Step) error {
	if err := unix.Chdir(st.Strs[0]); err != nil {
		return call("chdir", st.Strs[0], err)
	}
	// A directory that was reached through an inherited descriptor lies outside
	// the root, and getcwd says so (CVE-2024-21626).
	var buf [unix.PathMax]byte
	n, err := unix.Getcwd(buf[:])
	if err != nil {
		return call("getcwd", st.Strs[0], err)
	}
	if n < 1 || buf[0] != '/' {
		return call("chdir outside the root", st.Strs[0], unix.EACCES)
	}
	return nil
}

// rlimit goes through package syscall, which remembers that Go itself raised
// RLIMIT_NOFILE at start-up and would else put the old value back at execve.
func (s *state) rlimit(st Step) error {
	lim := syscall.Rlimit{Cur: st.Nums[1], Max: st.Nums[2]}
	if st.Nums[0] == unix.RLIMIT_AS {
		s.space = &lim
		return nil
	}
	return call("setrlimit", st.Strs[0], syscall.Setrlimit(int(st.Nums[0]), &lim))
}

// limitSpace sets RLIMIT_AS, at the last moment: Go reserves more than most limits, and
// its runtime dies when it gets no memory or thread.
func (s *state) limitSpace() error {
	if s.space == nil {
		return nil
	}
	_, _, e := unix.RawSyscall6(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_AS, uintptr(unsafe.Pointer(s.space)), 0, 0, 0)
	return call("setrlimit", "RLIMIT_AS", errnoErr(e))
}

func (s *state) oomScore(st Step) error {
	return rootfs.WriteOwnProc("/proc/self/oom_score_adj", st.Strs[0])
}

func (s *state) scheduler(st Step) error {
	n := st.Nums
	attr := unix.SchedAttr{
		Policy: uint32(n[0]), Flags: n[1], Nice: int32(uint32(n[2])), Priority: uint32(n[3]),
		Runtime: n[4], Deadline: n[5], Period: n[6],
	}
	return call("sched_setattr", "", unix.SchedSetAttr(0, &attr, 0))
}

func (s *state) ioPriority(st Step) error {
	const whoProcess = 1 // IOPRIO_WHO_PROCESS; 0 is this thread
	_, _, e := unix.RawSyscall(unix.SYS_IOPRIO_SET, whoProcess, 0, uintptr(st.Nums[0]))
	return call("ioprio_set", "", errnoErr(e))
}

func (s *state) affinity(st Step) error {
	var set unix.CPUSet
	for _, cpu := range st.Nums {
		set.Set(int(cpu))
	}
	return call("sched_setaffinity", "", unix.SchedSetaffinity(0, &set))
}

func (s *state) personality(st Step) error {
	_, _, e := unix.RawSyscall(unix.SYS_PERSONALITY, uintptr(st.Nums[0]), 0, 0)
	return call("personality", "", errnoErr(e))
}

// label names the AppArmor profile or SELinux context that execve changes to.
func (s *state) label(st Step) error {
	return rootfs.WriteOwnProc("/proc/thread-self/attr/"+st.Strs[0], st.Strs[1])
}

// bounding drops every capability that is not in the mask from the bounding set.
func (s *state) bounding(st Step) error {
	for c := uintptr(0); c < 64; c++ {
		if st.Nums[0]&(1<<c) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
		if err == unix.EINVAL {
			return nil // beyond the kernel's last capability
		}
		if err != nil {
			return call("PR_CAPBSET_DROP", "", err)
		}
	}
	return nil
}

// user takes on the identity. Capabilities survive it when the plan goes on to
// set them (PR_SET_KEEPCAPS); execve clears that flag. From here on init may be an equal
// of processes that run in the container already: not dumpable, it is not theirs to
// write into before its filter is there (CVE-2016-9962). The program is dumpable again.
func (s *state) user(st Step) error {
	uid, gid := uintptr(st.Nums[0]), uintptr(st.Nums[1])
	unix.Umask(int(st.Nums[2]))
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return call("PR_SET_KEEPCAPS", "", err)
	}
	groups := make([]uint32, 0, 8)
	for _, g := range st.Nums[3:] {
		groups = append(groups, uint32(g))
	}
	if err := setgroups(groups); err != nil {
		return err
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESGID, gid, gid, gid); e != 0 {
		return call("setresgid", "", e)
	}
	if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid); e != 0 {
		return call("setresuid", "", e)
	}
	return call("PR_SET_DUMPABLE", "", unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// setgroups sets the additional groups. A user namespace of an ordinary user
// denies the call; that is fine when there is nothing to set.
func setgroups(groups []uint32) error {
	var p unsafe.Pointer
	if len(groups) > 0 {
		p = unsafe.Pointer(&groups[0])
	}
	_, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(p), 0)
	if e == unix.EPERM && len(groups) == 0 {
		return nil
	}
	return call("setgroups", "", errnoErr(e))
}

// caps sets effective, permitted and inheritable with one capset and then the
// ambient set, which is cleared first: a leftover there would survive execve.
func (s *state) caps(st Step) error {
	eff, perm, inh, amb := st.Nums[0], st.Nums[1], st.Nums[2], st.Nums[3]
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return call("PR_CAP_AMBIENT_CLEAR_ALL", "", err)
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{
		{Effective: uint32(eff), Permitted: uint32(perm), Inheritable: uint32(inh)},
		{Effective: uint32(eff >> 32), Permitted: uint32(perm >> 32), Inheritable: uint32(inh >> 32)},
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return call("capset", "", err)
	}
	for c := uintptr(0); c < 64; c++ {
		if amb&(1<<c) == 0 {
			continue
		}
		if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, c, 0, 0); err != nil {
			return call("PR_CAP_AMBIENT_RAISE", "", err)
		}
	}
	return nil
}

func (s *state) securebits(st Step) error {
	return call("PR_SET_SECUREBITS", "", unix.Prctl(unix.PR_SET_SECUREBITS, uintptr(st.Nums[0]), 0, 0, 0))
}

func (s *state) noNewPrivs(Step) error {
	return call("PR_SET_NO_NEW_PRIVS", "", unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
}

// seccomp installs the filter on this thread, the one that executes the program.
func (s *state) seccomp(st Step) error {
	code := []byte(st.Strs[0])
	if len(code) == 0 || len(code)%unix.SizeofSockFilter != 0 {
		return call("seccomp", "", unix.EINVAL)
	}
	// An array of the right type keeps the alignment that the kernel wants.
	prog := make([]unix.SockFilter, len(code)/unix.SizeofSockFilter)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&prog[0])), len(code)), code)
	fprog := unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]}
	fd, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(st.Nums[0]), uintptr(unsafe.Pointer(&fprog)))
	if e != 0 || st.Nums[0]&unix.SECCOMP_FILTER_FLAG_NEW_LISTENER == 0 {
		return call("seccomp", "SECCOMP_SET_MODE_FILTER", errnoErr(e))
	}
	return handListener(int(fd))
}

// handListener lets the runtime fetch the filter's listener, by pidfd_getfd(2). Of the
// calls that the filter may already pass to it only write is known not to be among them.
func handListener(fd int) error {
	frame := binary.NativeEndian.AppendUint32([]byte{FrameListener}, uint32(fd))
	if _, err := unix.Write(channel, frame); err != nil {
		return call("write", "channel", err)
	}
	if err := receiveGo(); err != nil {
		return call("read", "channel", err)
	}
	return call("close", "listener", unix.Close(fd))
}

// exec replaces init by the program.
func (s *state) exec(st Step) error {
	args, env := split(st)
	if s.home != "" {
		env = append(env, "HOME="+s.home)
	}
	path, err := lookup(args[0], env)
	if err != nil {
		return err
	}
	kept := int(st.Nums[1])
	if err := keep(kept); err != nil {
		return err
	}
	if err := s.limitSpace(); err != nil {
		return err
	}
	return call("execve", path, syscall.Exec(path, args, env))
}

// maxPasswd bounds what is read of a passwd file, which is the image's.
const maxPasswd = 1 << 20

// findHome looks the user up. One that is not there, or a file that cannot be read,
// gives "/".
func (s *state) findHome(st Step) error {
	s.home = "/"
	fd, err := unix.Open("/etc/passwd", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	text := make([]byte, maxPasswd)
	n, err := unix.Read(fd, text)
	if err != nil {
		return nil
	}
	uid := strconv.FormatUint(st.Nums[0], 10)
	for line := range strings.Lines(string(text[:n])) {
		if f := strings.Split(strings.TrimSuffix(line, "\n"), ":"); len(f) >= 6 && f[2] == uid && f[5] != "" {
			s.home = f[5]
			break
		}
	}
	return nil
}

// keep gives the program n descriptors from 3 on, which came from FirstFree on. The
// channel makes room.
func keep(n int) (err error) {
	if n == 0 {
		return nil
	}
	if channel, err = unix.FcntlInt(ChannelFD, unix.F_DUPFD_CLOEXEC, FirstFree+n); err != nil {
		return call("fcntl", "channel", err)
	}
	for i := range n {
		if err := unix.Dup3(FirstFree+i, 3+i, 0); err != nil {
			return call("dup3", "kept descriptor", err)
		}
	}
	return nil
}

// reap replaces init by the reaper, which starts the program as its child and
// keeps the channel and the kill file.
func (s *state) reap(st Step) error {
	args, env := split(st)
	path, err := lookup(args[0], env)
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings(append([]string{path}, args...))
	if err != nil {
		return call("execve", path, err)
	}
	envp, err := syscall.SlicePtrFromStrings(env)
	if err != nil {
		return call("execve", path, err)
	}
	for _, fd := range []int{ChannelFD, KillFD} {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
			return call("fcntl", "", err)
		}
	}
	if err := s.limitSpace(); err != nil {
		return err
	}
	empty := [1]byte{}
	_, _, e := unix.RawSyscall6(unix.SYS_EXECVEAT, ReaperFD, uintptr(unsafe.Pointer(&empty[0])),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])), unix.AT_EMPTY_PATH, 0)
	return call("execveat", "reaper", errnoErr(e))
}

func split(st Step) (args, env []string) {
	n := min(int(st.Nums[0]), len(st.Strs))
	return st.Strs[:n], st.Strs[n:]
}

// closeOnExec marks every descriptor beyond 2 close-on-exec, also those that the
// caller of sbxrun leaked into it. It is done first of all, while no filter of the
// run can refuse it; whatever init opens later is close-on-exec by itself.
func closeOnExec() error {
	return call("close_range", "", unix.CloseRange(ChannelFD, ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC))
}

// lookup says early, while the container is made, that there is no such program; engines
// tell that from other failures. The last word has execve, with the program's user.
func (s *state) lookup(st Step) error {
	dir, name := st.Strs[0], st.Strs[1]
	path, err := lookup(name, st.Strs[2:])
	if err != nil {
		return err
	}
	if path[0] != '/' {
		path = dir + "/" + path
	}
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return call("stat", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || stat.Mode&0o111 == 0 {
		return call("execute", path, unix.EACCES)
	}
	return nil
}

// lookup finds the program as execvp would, with the PATH that the program gets.
func lookup(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	found := error(unix.ENOENT)
	for _, dir := range strings.Split(path, ":") {
		if dir == "" || dir[0] != '/' {
			continue // never from the current directory: hostile code may own it
		}
		full := strings.TrimSuffix(dir, "/") + "/" + name
		var st unix.Stat_t
		if err := unix.Stat(full, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
			continue
		}
		err := unix.Faccessat(unix.AT_FDCWD, full, unix.X_OK, unix.AT_EACCESS)
		if err == nil {
			return full, nil
		}
		found = err
	}
	if found == unix.ENOENT {
		return "", errors.New(strconv.Quote(name) + ": executable file not found in $PATH") // the words that engines look for
	}
	return "", call("look up in PATH", name, found)
}
