// This file owns "tmpcopyup": a tmpfs that starts with what its place held. Both
// sides are walked by descriptor and no link is followed, since the place may be in
// an image that nobody has read.

package rootfs

import (
	"io/fs"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// copyUp copies the directory from, and all below it, into the empty directory to.
// Directories, regular files, links, devices and FIFOs keep owner, mode and times;
// sockets are left out.
func copyUp(from, to int) error {
	src, err := reopen(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := reopen(to)
	if err != nil {
		return err
	}
	defer dst.Close()
	return copyEntries(src, dst) // the directory itself is as the mount's options say
}

// reopen makes a readable directory of a descriptor that only names one.
func reopen(fd int) (*os.File, error) {
	dir, err := openBeneath(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return nil, wrap("open", "directory", err)
	}
	return os.NewFile(uintptr(dir), "directory"), nil
}

// copyTree copies the entries of src, and then what the directory itself is like.
func copyTree(src, dst *os.File) error {
	if err := copyEntries(src, dst); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(src.Fd()), &st); err != nil {
		return err
	}
	return liken(int(dst.Fd()), &st)
}

func copyEntries(src, dst *os.File) error {
	names, err := src.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := copyEntry(src, dst, name); err != nil {
			return wrap("copy", name, err)
		}
	}
	return nil
}

func copyEntry(src, dst *os.File, name string) error {
	from, to := int(src.Fd()), int(dst.Fd())
	var st unix.Stat_t
	if err := unix.Fstatat(from, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if err := unix.Mkdirat(to, name, 0o700); err != nil {
			return err
		}
		a, err := openIn(from, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer a.Close()
		b, err := openIn(to, name, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return err
		}
		defer b.Close()
		return copyTree(a, b)
	case unix.S_IFREG:
		return copyFile(from, to, name)
	case unix.S_IFLNK:
		target := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(from, name, target)
		if err != nil {
			return err
		}
		if err := unix.Symlinkat(string(target[:n]), to, name); err != nil {
			return err
		}
		return unix.Fchownat(to, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
	case unix.S_IFSOCK:
		return nil
	}
	if err := unix.Mknodat(to, name, st.Mode, int(st.Rdev)); err != nil {
		return err
	}
	node, err := openBeneath(to, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(node)
	return liken(node, &st)
}

// openIn opens the single name in a directory as a file of package os.
func openIn(dir int, name string, flags uint64) (*os.File, error) {
	fd, err := openBeneath(dir, name, flags)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func copyFile(from, to int, name string) error {
	a, err := openIn(from, name, unix.O_RDONLY|unix.O_NONBLOCK)
	if err != nil {
		return err
	}
	defer a.Close()
	// What was opened counts, not what was seen before.
	var st unix.Stat_t
	if err := unix.Fstat(int(a.Fd()), &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fs.ErrInvalid
	}
	fd, err := unix.Openat(to, name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	b := os.NewFile(uintptr(fd), name)
	defer b.Close()
	if _, err := b.ReadFrom(a); err != nil {
		return err
	}
	return liken(fd, &st)
}

// liken gives what fd names the owner, mode and times of st.
func liken(fd int, st *unix.Stat_t) error {
	if err := unix.Fchownat(fd, "", int(st.Uid), int(st.Gid), unix.AT_EMPTY_PATH); err != nil {
		return err
	}
	name := "/proc/self/fd/" + strconv.Itoa(fd) // its magic link is what chmod can follow
	if err := unix.Fchmodat(unix.AT_FDCWD, name, st.Mode&0o7777, 0); err != nil {
		return err
	}
	return unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{st.Atim, st.Mtim}, 0)
}
