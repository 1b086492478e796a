// This file owns the steps that concern the process itself: directory, limits,
// identity, capabilities, filter, execve. Raw system calls are used where Go's
// wrappers act on all threads: only the calling thread lives past execve.

package sbxinit

import (
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
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
	fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return call("open", "/proc/self/oom_score_adj", err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(st.Strs[0]))
	return call("write", "/proc/self/oom_score_adj", err)
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
// set them (PR_SET_KEEPCAPS); execve clears that flag.
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
	_, _, e := unix.RawSyscall(unix.SYS_SETRESUID, uid, uid, uid)
	return call("setresuid", "", errnoErr(e))
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
	_, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, uintptr(st.Nums[0]), uintptr(unsafe.Pointer(&fprog)))
	return call("seccomp", "SECCOMP_SET_MODE_FILTER", errnoErr(e))
}

// exec replaces init by the program.
func (s *state) exec(st Step) error {
	args, env := split(st)
	path, err := lookup(args[0], env)
	if err != nil {
		return err
	}
	kept := int(st.Nums[1])
	if err := keep(kept); err != nil {
		return err
	}
	if err := closeFrom(3 + kept); err != nil {
		return err
	}
	if err := s.limitSpace(); err != nil {
		return err
	}
	return call("execve", path, syscall.Exec(path, args, env))
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
	if err := closeFrom(ChannelFD); err != nil {
		return err
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

// closeFrom marks every descriptor from first on close-on-exec, also those that
// the caller of sbxrun leaked into it.
func closeFrom(first int) error {
	return call("close_range", "", unix.CloseRange(uint(first), ^uint(0)>>32, unix.CLOSE_RANGE_CLOEXEC))
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
	return "", call("look up in PATH", name, found)
}
