// This file owns the mounts of a container's root: file systems, binds, masks,
// read-only paths and devices, all made detached and then moved onto a target
// that was opened by descriptor, so that no path is looked up twice.

package rootfs

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Mount is one entry of config.json's mounts, decoded (OCI runtime-spec, config.md#mounts).
type Mount struct {
	Source, Target, Type string
	Options              []string // of the file system: "size=64m", "newinstance"
	Bind, Recursive      bool
	Set, Clear           uint64 // MOUNT_ATTR_* of this mount
	RecSet, RecClear     uint64 // MOUNT_ATTR_* of it and everything below (rro and the like)
	Propagation          uint64 // MS_SHARED, MS_SLAVE, MS_PRIVATE, MS_UNBINDABLE or 0
	RecPropagation       bool
	Tree                 int  // descriptor of the detached tree to mount; 0: made from Source
	Remount              bool // change what is mounted at Target
	CopyUp               bool // a tmpfs that starts with what Target holds
}

// Mount makes m inside the root.
func (r *Root) Mount(m Mount) error {
	if m.Remount {
		return r.remount(m)
	}
	m.keepMode(r)
	tree, dir, err := m.detached()
	if err != nil {
		return err
	}
	defer unix.Close(tree)
	target, err := r.mountTarget(m, dir)
	if err != nil {
		return err
	}
	defer unix.Close(target)
	if m.CopyUp {
		if err := copyUp(target, tree); err != nil {
			return wrap("copy up", m.Target, err)
		}
	}
	if err := r.put(tree, target, m.Target); err != nil {
		return wrap("move_mount", m.Target, err)
	}
	if m.Propagation == 0 {
		return nil
	}
	// Propagation is set once the mount is in place: before, it would not join
	// the target's peer group.
	attr := unix.MountAttr{Propagation: m.Propagation}
	return wrap("set propagation of", m.Target, setattr(tree, m.RecPropagation, &attr))
}

// mountTarget opens the place for m. For /proc and /sys that is no link, which an image
// could have lead anywhere inside: masks and read-only paths would miss them
// (CVE-2021-30465's kin).
func (r *Root) mountTarget(m Mount, dir bool) (int, error) {
	if m.Type != "proc" && m.Type != "sysfs" {
		fd, err := r.target(m.Target, dir)
		return fd, wrap("open mount target", m.Target, err)
	}
	fd, err := r.ordinaryDir(path.Clean("/" + m.Target))
	if err == unix.ELOOP || err == unix.ENOTDIR {
		return -1, wrap("filesystem "+m.Type+" must be mounted on ordinary directory, not", m.Target, unix.ENOTDIR)
	}
	return fd, wrap("open mount target", m.Target, err)
}

// kernelTree is a mount of the kernel's own files.
type kernelTree struct {
	target string
	fd     int
}

// put mounts tree on target, which p named. A tree of the kernel's files is kept, for
// what is to be hidden in it: whoever shares the root's directory could move the mount
// and put another directory in its place.
func (r *Root) put(tree, target int, p string) error {
	if err := move(tree, target); err != nil {
		return err
	}
	p = path.Clean("/" + p)
	r.kernel = slices.DeleteFunc(r.kernel, func(k kernelTree) bool {
		covered := beneath(k.target, p)
		if covered {
			unix.Close(k.fd)
		}
		return covered
	})
	var st unix.Statfs_t
	if err := unix.Fstatfs(tree, &st); err != nil {
		return err
	}
	if st.Type != unix.PROC_SUPER_MAGIC && st.Type != unix.SYSFS_MAGIC {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(tree), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		r.kernel = append(r.kernel, kernelTree{p, fd})
	}
	return err
}

// hiding opens p to be masked or made read-only: in the tree of the kernel's files that
// was mounted there, if one was, wherever that is by now.
func (r *Root) hiding(p string) (int, error) {
	p = path.Clean("/" + p)
	for _, k := range slices.Backward(r.kernel) {
		if beneath(p, k.target) {
			return resolveIn(k.fd, "/"+strings.TrimPrefix(p, k.target), unix.O_PATH)
		}
	}
	return r.resolve(p, unix.O_PATH)
}

// beneath says whether p is dir or lies below it; both are clean.
func beneath(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

// keepMode lets a tmpfs without a mode of its own have that of the directory it covers,
// as with runc.
func (m *Mount) keepMode(r *Root) {
	if m.Type != "tmpfs" || m.Bind || slices.ContainsFunc(m.Options, func(o string) bool { return strings.HasPrefix(o, "mode=") }) {
		return
	}
	fd, err := r.resolve(m.Target, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return // not there yet
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil {
		m.Options = append(slices.Clone(m.Options), "mode="+strconv.FormatUint(uint64(st.Mode&0o7777), 8))
	}
}

// remount changes a mount that is there: its own attributes, and unless it is a bind
// the file system's options.
func (r *Root) remount(m Mount) error {
	target, err := r.resolve(m.Target, unix.O_PATH)
	if err != nil {
		return wrap("open mount target", m.Target, err)
	}
	defer unix.Close(target)
	if !m.Bind && len(m.Options) > 0 {
		fs, err := unix.Fspick(target, "", unix.FSPICK_CLOEXEC|unix.FSPICK_EMPTY_PATH)
		if err != nil {
			return wrap("fspick", m.Target, err)
		}
		defer unix.Close(fs)
		if err := configure(fs, m.Type, m.Options); err != nil {
			return err
		}
		if err := unix.FsconfigReconfigure(fs); err != nil {
			return wrap("remount", m.Target, err)
		}
	}
	return wrap("mount_setattr", m.Target, m.restrict(target))
}

// OpenTree makes a bind's source ready to be mounted elsewhere. With a user namespace,
// or 0, the tree's owners are mapped by it (an id-mapped mount), all below too if it is
// recursive or only the mount itself.
func (m *Mount) OpenTree(propagation uint64, users int, recursive bool) (int, error) {
	tree, err := m.openTree()
	if err != nil {
		return -1, err
	}
	// Not a peer of the host's mount, unless the container is to be one.
	if propagation != unix.MS_SHARED {
		err = setattr(tree, true, &unix.MountAttr{Propagation: propagation})
	}
	if err == nil && users > 0 {
		err = setattr(tree, recursive, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_IDMAP, Userns_fd: uint64(users)})
	}
	if err != nil {
		unix.Close(tree)
		return -1, wrap("prepare bind of", m.Source, err)
	}
	return tree, nil
}

func (m *Mount) openTree() (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC)
	if m.Recursive {
		flags |= unix.AT_RECURSIVE
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, m.Source, flags)
	return tree, wrap("open_tree", m.Source, err)
}

// detached makes the mount without a place. dir says whether its root is a directory.
func (m *Mount) detached() (tree int, dir bool, err error) {
	if !m.Bind {
		tree, err = newFS(m.Type, m.Source, m.Options, m.Set)
		return tree, true, err
	}
	if tree = m.Tree; tree == 0 {
		if tree, err = m.openTree(); err != nil {
			return -1, false, err
		}
	}
	if err = m.restrict(tree); err == nil {
		dir, err = isDir(tree)
	}
	if err != nil {
		unix.Close(tree)
		return -1, false, wrap("prepare bind of", m.Source, err)
	}
	return tree, dir, nil
}

func (m *Mount) restrict(tree int) error {
	if m.Set|m.Clear != 0 {
		if err := setattr(tree, false, &unix.MountAttr{Attr_set: m.Set, Attr_clr: m.Clear}); err != nil {
			return err
		}
	}
	if m.RecSet|m.RecClear != 0 {
		return setattr(tree, true, &unix.MountAttr{Attr_set: m.RecSet, Attr_clr: m.RecClear})
	}
	return nil
}

// newFS makes a file system instance and a detached mount of it.
func newFS(typ, source string, options []string, attr uint64) (int, error) {
	fs, err := unix.Fsopen(typ, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, wrap("fsopen", typ, err)
	}
	defer unix.Close(fs)
	if source != "" {
		if err := unix.FsconfigSetString(fs, "source", source); err != nil {
			return -1, wrap("fsconfig source of", typ, err)
		}
	}
	if err := configure(fs, typ, options); err != nil {
		return -1, err
	}
	if err := unix.FsconfigCreate(fs); err != nil {
		return -1, wrap("mount", typ, err)
	}
	tree, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, int(attr))
	return tree, wrap("fsmount", typ, err)
}

// configure sets the options of a file system.
func configure(fs int, typ string, options []string) (err error) {
	for _, o := range options {
		if key, value, ok := strings.Cut(o, "="); ok {
			err = unix.FsconfigSetString(fs, key, value)
		} else {
			err = unix.FsconfigSetFlag(fs, o)
		}
		if err != nil {
			return wrap("fsconfig "+o+" of", typ, err)
		}
	}
	return nil
}

func move(tree, target int) error {
	return unix.MoveMount(tree, "", target, "", unix.MOVE_MOUNT_F_EMPTY_PATH|unix.MOVE_MOUNT_T_EMPTY_PATH)
}

func setattr(fd int, recursive bool, attr *unix.MountAttr) error {
	flags := uint(unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return unix.MountSetattr(fd, "", flags, attr)
}

func isDir(fd int) (bool, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, err
}

// clone makes a detached bind of what fd names.
func clone(fd int, recursive bool) (int, error) {
	flags := uint(unix.OPEN_TREE_CLONE | unix.OPEN_TREE_CLOEXEC | unix.AT_EMPTY_PATH)
	if recursive {
		flags |= unix.AT_RECURSIVE
	}
	return unix.OpenTree(fd, "", flags)
}

// Mask hides p: a directory becomes an empty one, a file /dev/null. The empty
// directory is read-only, or with discard takes writes that go nowhere. A p that
// does not exist is left alone.
func (r *Root) Mask(p string, discard bool) error {
	target, err := r.hiding(p)
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return nil
	}
	if err != nil {
		return wrap("open", p, err)
	}
	defer unix.Close(target)
	dir, err := isDir(target)
	if err != nil {
		return wrap("fstat", p, err)
	}
	var tree int
	switch {
	case !dir:
		tree, err = r.nullMask()
	case discard:
		tree, err = newFS("tmpfs", "", []string{"size=1m", "nr_inodes=256", "mode=0755"}, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	default:
		tree, err = newFS("tmpfs", "", []string{"size=0", "nr_inodes=1", "mode=0755"}, unix.MOUNT_ATTR_RDONLY|unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	}
	if err != nil {
		return wrap("make mask of", p, err)
	}
	defer unix.Close(tree)
	return wrap("mask", p, r.put(tree, target, p))
}

// nullMask is a bind of the host's /dev/null. Read-only, it still reads and writes as a
// device does, but nobody inside changes the mode or the owner of the host's node.
func (r *Root) nullMask() (int, error) {
	tree, err := clone(r.null, false)
	if err != nil {
		return -1, err
	}
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC}
	if err = asDevice(tree); err == nil {
		err = setattr(tree, false, &attr)
	}
	if err != nil {
		unix.Close(tree)
		return -1, err
	}
	return tree, nil
}

// asDevice lets the node that is bound be a device again below a root where none is.
func asDevice(tree int) error {
	var st unix.Statfs_t
	if err := unix.Fstatfs(tree, &st); err != nil || st.Flags&unix.ST_NODEV == 0 {
		return err
	}
	return setattr(tree, false, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_NODEV})
}

// ReadonlyPath makes p and everything below it read-only. A missing p is left alone.
func (r *Root) ReadonlyPath(p string) error {
	target, err := r.hiding(p)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return wrap("open", p, err)
	}
	defer unix.Close(target)
	tree, err := clone(target, true)
	if err != nil {
		return wrap("open_tree", p, err)
	}
	defer unix.Close(tree)
	if err := setattr(tree, true, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return wrap("make read-only", p, err)
	}
	return wrap("move_mount", p, r.put(tree, target, p))
}

// Readonly makes the root read-only, with everything mounted below it when the
// root is the host's own "/": there the mounts below are the host's too, and device
// nodes in them, of a chroot's say, are none.
func (r *Root) Readonly() error {
	attr := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if r.place {
		attr.Attr_set |= unix.MOUNT_ATTR_NODEV
	}
	return wrap("make read-only", "/", setattr(r.fd, r.place, &attr))
}

// Device makes the node p: a bind of the host's device of the same name when
// bind is set (in a user namespace there is no mknod), else a new node.
func (r *Root) Device(p string, bind bool, mode uint32, dev uint64, uid, gid int) error {
	if bind {
		target, err := r.target(p, false)
		if err != nil {
			return wrap("open device", p, err)
		}
		defer unix.Close(target)
		tree, err := unix.OpenTree(r.dev, strings.TrimPrefix(p, "/dev/"), unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
		if err != nil {
			return wrap("open_tree", p, err)
		}
		defer unix.Close(tree)
		if err := asDevice(tree); err != nil {
			return wrap("prepare device", p, err)
		}
		return wrap("move_mount", p, move(tree, target))
	}
	parent, err := r.mkdirAll(path.Dir(p))
	if err != nil {
		return wrap("mkdir", path.Dir(p), err)
	}
	defer unix.Close(parent)
	name := path.Base(p)
	if err := unix.Mknodat(parent, name, mode, int(dev)); err != nil && err != unix.EEXIST {
		return wrap("mknod", p, err)
	}
	fd, err := openBeneath(parent, name, unix.O_PATH|unix.O_NOFOLLOW)
	if err != nil {
		return wrap("open device", p, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return wrap("fstat", p, err)
	}
	if st.Mode&unix.S_IFMT != mode&unix.S_IFMT || st.Rdev != dev {
		return wrap("check device", p, unix.EEXIST)
	}
	// The umask had its say in mknod; chmod through the descriptor's magic link.
	if err := unix.Fchmodat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), mode&0o7777, 0); err != nil {
		return wrap("chmod", p, err)
	}
	return wrap("chown", p, unix.Fchownat(fd, "", uid, gid, unix.AT_EMPTY_PATH))
}

// OpenTerminal opens a new pseudo-terminal of the container's own devpts and gives
// its master.
func (r *Root) OpenTerminal() (int, error) {
	fd, err := r.resolve("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY)
	if err != nil {
		return -1, wrap("open", "/dev/pts/ptmx", err)
	}
	return ofDevpts(fd)
}

// OpenOwnTerminal does the same in the caller's own root.
func OpenOwnTerminal() (int, error) {
	fd, err := unix.Open("/dev/pts/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, wrap("open", "/dev/pts/ptmx", err)
	}
	if fd, err = ofDevpts(fd); err != nil {
		return -1, err
	}
	return fd, wrap("fcntl", "/dev/pts/ptmx", unix.SetNonblock(fd, false))
}

// ofDevpts checks that a terminal is one and not what somebody put in its place
// (CVE-2025-52565).
func ofDevpts(fd int) (int, error) {
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil || st.Type != unix.DEVPTS_SUPER_MAGIC {
		unix.Close(fd)
		return -1, wrap("check devpts of", "/dev/pts/ptmx", unix.ENODEV)
	}
	return fd, nil
}

// BindConsole makes the terminal slave the container's /dev/console.
func (r *Root) BindConsole(slave int) error {
	target, err := r.target("/dev/console", false)
	if err != nil {
		return wrap("open", "/dev/console", err)
	}
	defer unix.Close(target)
	tree, err := clone(slave, false)
	if err != nil {
		return wrap("open_tree", "terminal", err)
	}
	defer unix.Close(tree)
	return wrap("move_mount", "/dev/console", move(tree, target))
}

// Attach makes a file system and mounts it over the root of this mount namespace, where
// nobody looks for it. Clones can be made of a mount only where it is attached.
func Attach(typ string, options []string) (tree int, err error) {
	if tree, err = newFS(typ, typ, options, unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV); err != nil {
		return -1, err
	}
	return tree, wrap("move_mount", "/", unix.MoveMount(tree, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH))
}

// Clone makes a detached mount of what tree is.
func Clone(tree int) (int, error) { return clone(tree, false) }
