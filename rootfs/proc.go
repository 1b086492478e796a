// This file owns writes to the container's /proc. A write that lands elsewhere sets
// nothing and says it did (CVE-2019-16884), or sets something else (CVE-2025-52881):
// so /proc must be procfs, and nothing mounted in it may be passed.

package rootfs

import (
	"strings"

	"golang.org/x/sys/unix"
)

// WriteProc writes value to the file p below the container's /proc.
func (r *Root) WriteProc(p, value string) error {
	proc, err := r.resolve("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return wrap("open", "/proc", err)
	}
	defer unix.Close(proc)
	return writeBelow(proc, strings.TrimPrefix(p, "/proc/"), value)
}

// WriteOwnProc writes value to the file p below the /proc of the caller's own root.
func WriteOwnProc(p, value string) error {
	proc, err := unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return wrap("open", "/proc", err)
	}
	defer unix.Close(proc)
	return writeBelow(proc, strings.TrimPrefix(p, "/proc/"), value)
}

func writeBelow(proc int, name, value string) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(proc, &st); err != nil {
		return wrap("statfs", "/proc", err)
	}
	if st.Type != unix.PROC_SUPER_MAGIC {
		return wrap("check procfs of", "/proc", unix.EXDEV)
	}
	// thread-self is a link, an honest one as long as nothing is mounted.
	fd, err := unix.Openat2(proc, name, &unix.OpenHow{
		Flags:   unix.O_WRONLY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return wrap("open", "/proc/"+name, err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return wrap("write "+strings.TrimSpace(value)+" to", "/proc/"+name, err)
}
