// Package rootfs owns everything about paths that hostile code may control:
// mounts, pivot_root, masks and devices of a container's root, and the file
// gateway that copies in and out beneath a directory descriptor.
//
// This file owns Root: every path of a container is resolved here, by openat2
// beneath the root's descriptor, and nowhere else.
package rootfs

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"runtime"

	"golang.org/x/sys/unix"
)

// Root is the directory that is, or becomes, a container's root. Paths given to
// its methods are the container's own ("/proc"), and links in them are followed
// inside the root only.
type Root struct {
	fd    int
	dev   int  // the host's /dev, held open because a container's own may cover it
	null  int  // the host's /dev/null, checked; masks of files are binds of it
	place bool // the root is "/" itself: nothing is created on it and there is no pivot

	kernel []kernelTree // what was mounted of the kernel's files, in that order
}

// OpenRoot opens the directory dir as a container's root. When dir is not "/",
// its tree is bound onto itself first, so that it is a mount that pivot_root
// accepts; tree is a descriptor of that tree, 0 when it is to be opened here. The
// caller is alone in a mount namespace of its own, or says by private that the tree's
// mounts are to be no peers of the host's, and by above the same of the mount below it.
func OpenRoot(dir string, tree int, private, above bool) (*Root, error) {
	r := &Root{fd: -1, dev: -1, null: -1, place: dir == "/"}
	var err error
	if r.place {
		r.fd, err = unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		err = wrap("open", dir, err)
	} else {
		r.fd, err = bindRoot(dir, tree, private, above)
	}
	if err != nil {
		return nil, err
	}
	if r.dev, err = unix.Open("/dev", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return nil, wrap("open", "/dev", err)
	}
	if r.null, err = openNull(r.dev); err != nil {
		return nil, err
	}
	return r, nil
}

// bindRoot mounts the tree of dir in place.
func bindRoot(dir string, tree int, private, above bool) (_ int, err error) {
	if tree == 0 {
		if tree, err = unix.OpenTree(unix.AT_FDCWD, dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE); err != nil {
			return -1, wrap("open_tree", dir, err)
		}
	}
	if is, err := isDir(tree); err != nil || !is {
		return -1, wrap("open root", dir, unix.ENOTDIR)
	}
	if private {
		if err := setattr(tree, true, &unix.MountAttr{Propagation: unix.MS_PRIVATE}); err != nil {
			return -1, wrap("make private", dir, err)
		}
	}
	if above {
		if err := privateAbove(dir); err != nil {
			return -1, err
		}
	}
	err = unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
	if err == unix.EACCES { // not for us to pass; before the pivot any place will do
		err = unix.MoveMount(tree, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH)
	}
	return tree, wrap("move_mount", dir, err)
}

// privateAbove makes the mount that dir lies on private: pivot_root(2) wants that, and
// the host is not to see what is mounted on it.
func privateAbove(dir string) error {
	private := unix.MountAttr{Propagation: unix.MS_PRIVATE}
	for {
		err := unix.MountSetattr(unix.AT_FDCWD, dir, 0, &private)
		if err != unix.EINVAL || dir == "/" { // EINVAL: nothing is mounted right here
			return wrap("make private the mount of", dir, err)
		}
		dir = path.Dir(dir)
	}
}

// openNull opens /dev/null and checks that it is the device 1:3 and nothing put
// in its place (CVE-2025-31133).
func openNull(dev int) (int, error) {
	fd, err := unix.Openat(dev, "null", unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, wrap("open", "/dev/null", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, wrap("fstat", "/dev/null", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != unix.Mkdev(1, 3) {
		return -1, wrap("check device 1:3 of", "/dev/null", unix.ENODEV)
	}
	return fd, nil
}

// resolve opens p inside the root. Magic links (/proc/PID/root and the like)
// are never followed: they lead outside.
func (r *Root) resolve(p string, flags uint64) (int, error) { return resolveIn(r.fd, p, flags) }

func resolveIn(dir int, p string, flags uint64) (int, error) {
	how := unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(dir, p, &how)
		// EAGAIN: a rename raced with a ".." or a link; the kernel asks to try again.
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
}

// mkdirAll opens the directory p, making what is missing with mode 0755.
func (r *Root) mkdirAll(p string) (int, error) {
	fd, err := r.resolve(p, unix.O_PATH|unix.O_DIRECTORY)
	if err != unix.ENOENT || p == "/" {
		return fd, err
	}
	if r.place && !r.covered(path.Dir(p)) {
		return -1, err
	}
	return r.makeDir(p)
}

// ordinaryDir is mkdirAll where p itself must be no link.
func (r *Root) ordinaryDir(p string) (int, error) {
	if r.place { // where nothing may be made
		return r.resolve(p, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	}
	return r.makeDir(p)
}

// makeDir makes the directory p, unless it is there, and opens it, no link.
func (r *Root) makeDir(p string) (int, error) {
	parent, err := r.mkdirAll(path.Dir(p))
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	if err := unix.Mkdirat(parent, path.Base(p), 0o755); err != nil && err != unix.EEXIST {
		return -1, err
	}
	return openBeneath(parent, path.Base(p), unix.O_PATH|unix.O_DIRECTORY)
}

// covered says whether p lies on a mount made for this container: with the
// host's own "/" as root, only there may anything be created.
func (r *Root) covered(p string) bool {
	fd, err := r.resolve(p, unix.O_PATH|unix.O_DIRECTORY)
	if err == unix.ENOENT && p != "/" {
		return r.covered(path.Dir(p))
	}
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && st.Type == unix.TMPFS_MAGIC && st.Flags&unix.ST_RDONLY == 0
}

// openBeneath opens the single name inside dir, following no link at all.
func openBeneath(dir int, name string, flags uint64) (int, error) {
	return unix.Openat2(dir, name, &unix.OpenHow{
		Flags:   flags | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
}

// target opens the place p for a mount, as a directory or a file, and creates
// it when it is missing.
func (r *Root) target(p string, dir bool) (int, error) {
	p = path.Clean("/" + p)
	if dir {
		return r.mkdirAll(p)
	}
	fd, err := r.resolve(p, unix.O_PATH)
	if err != unix.ENOENT {
		return fd, err
	}
	if r.place && !r.covered(path.Dir(p)) {
		return -1, err
	}
	parent, err := r.mkdirAll(path.Dir(p))
	if err != nil {
		return -1, err
	}
	defer unix.Close(parent)
	file, err := unix.Openat(parent, path.Base(p), unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err == nil {
		unix.Close(file)
	} else if err != unix.EEXIST {
		return -1, err
	}
	return openBeneath(parent, path.Base(p), unix.O_PATH)
}

// MkdirAll makes the directory p, and those above it, unless it is there.
func (r *Root) MkdirAll(p string) error {
	fd, err := r.mkdirAll(path.Clean("/" + p))
	if err != nil {
		return wrap("mkdir", p, err)
	}
	return unix.Close(fd)
}

// Workdir makes the directory p with mode 0700 and "tmp" in it, and opens it. One that
// is there is only opened.
func (r *Root) Workdir(p string, there bool) (int, error) {
	if there {
		fd, err := r.resolve(p, unix.O_RDONLY|unix.O_DIRECTORY)
		return fd, wrap("open", p, err)
	}
	parent, err := r.mkdirAll(path.Dir(p))
	if err != nil {
		return -1, wrap("mkdir", path.Dir(p), err)
	}
	defer unix.Close(parent)
	fd, err := makeWorkdir(parent, path.Base(p))
	return fd, wrap("make", p, err)
}

// MakeWorkdir does the same on the host: the directory name in parent, for owner.
func MakeWorkdir(parent *os.File, name string, owner Owner) (*os.File, error) {
	defer runtime.KeepAlive(parent)
	fd, err := makeWorkdir(int(parent.Fd()), name)
	if err != nil {
		return nil, wrap("make", name, err)
	}
	dir := os.NewFile(uintptr(fd), name)
	if os.Geteuid() == 0 {
		if err = unix.Fchownat(fd, "tmp", int(owner.UID), int(owner.GID), unix.AT_SYMLINK_NOFOLLOW); err == nil {
			err = unix.Fchown(fd, int(owner.UID), int(owner.GID))
		}
	}
	if err != nil {
		return nil, errors.Join(wrap("chown", name, err), dir.Close(), RemoveAll(parent, name))
	}
	return dir, nil
}

func makeWorkdir(parent int, name string) (int, error) {
	if err := unix.Mkdirat(parent, name, 0o700); err != nil {
		return -1, err
	}
	fd, err := openBeneath(parent, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return -1, err
	}
	if err := unix.Mkdirat(fd, "tmp", 0o700); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Symlink makes the link p to target; an existing p stays as it is.
func (r *Root) Symlink(target, p string) error {
	parent, err := r.mkdirAll(path.Dir(p))
	if err != nil {
		return wrap("mkdir", path.Dir(p), err)
	}
	defer unix.Close(parent)
	if err := unix.Symlinkat(target, parent, path.Base(p)); err != nil && err != unix.EEXIST {
		return wrap("symlink", p, err)
	}
	return nil
}

// Chdir makes the root the working directory.
func (r *Root) Chdir() error { return wrap("fchdir", "root", unix.Fchdir(r.fd)) }

// Pivot makes the root the process's root and lets go of the old one. With the
// host's "/" as root there is nothing to pivot to.
func (r *Root) Pivot() error {
	defer r.close()
	if r.place {
		return nil
	}
	if err := unix.Fchdir(r.fd); err != nil {
		return wrap("fchdir", "root", err)
	}
	old, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return wrap("open", "/", err)
	}
	defer unix.Close(old)
	// Both arguments "." stack the old root on top of the new one, so that no
	// directory for it is needed inside the container; pivot_root(2), NOTES.
	if err := unix.PivotRoot(".", "."); err != nil {
		return wrap("pivot_root", ".", err)
	}
	// The old root must not send unmounts back to the host. By descriptor: "." is the
	// new root here, which may have mounts that are to stay shared.
	if err := setattr(old, true, &unix.MountAttr{Propagation: unix.MS_SLAVE}); err != nil {
		return wrap("make a slave of", "old root", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return wrap("umount", "old root", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return wrap("chdir", "/", err)
	}
	return nil
}

// Chroot makes the root the process's root and leaves the mounts where they are.
func (r *Root) Chroot() error {
	defer r.close()
	if err := r.Chdir(); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return wrap("chroot", ".", err)
	}
	return wrap("chdir", "/", unix.Chdir("/"))
}

func (r *Root) close() {
	for _, fd := range []int{r.fd, r.dev, r.null} {
		unix.Close(fd)
	}
	for _, k := range r.kernel {
		unix.Close(k.fd)
	}
}

func wrap(op, p string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: p, Err: err}
}
