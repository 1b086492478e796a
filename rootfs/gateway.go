// This file owns the file gateway: how the host copies files into and out of a
// directory that hostile code may change at any moment. Names are data. Everything
// happens beneath one directory descriptor, follows no link, and takes regular
// files only (CVE-2018-15664, CVE-2024-28185, CVE-2024-28189).

package rootfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// What the gateway refuses, for errors.Is; each comes in an *fs.PathError.
var (
	ErrName       = errors.New("not an acceptable file name")
	ErrLink       = errors.New("a symbolic link is in the way")
	ErrNotRegular = errors.New("not a regular file with one name")
	ErrTooBig     = errors.New("larger than allowed")
	ErrTooMany    = errors.New("more files than allowed")
	ErrOutside    = errors.New("leads out of the directory")
)

// Owner is whose file rights the gateway acts with: those of the program. In a
// tmpfs of a user namespace, nobody else can even create a file (EOVERFLOW).
type Owner struct{ UID, GID uint32 }

// Caps bound what one gateway copies. Zero values take the defaults.
type Caps struct {
	FileSize int64 // bytes of one file, default 64 MiB
	Files    int   // copies in all, default 1024
}

const (
	defaultFileSize = 64 << 20
	defaultFiles    = 1024
	maxName         = 4096
	maxComponent    = 255
	maxDepth        = 64
)

// Gateway copies files beneath one directory. It is not for concurrent use.
type Gateway struct {
	dir   *os.File
	owner Owner
	caps  Caps
	files int

	executable bool // the file opened last is, for its owner
}

// OpenGateway makes a gateway to dir, a directory opened for reading, which stays
// the caller's. A kernel without openat2 (before Linux 5.6) is refused.
func OpenGateway(dir *os.File, owner Owner, caps Caps) (*Gateway, error) {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the file gateway: %w", err)
	}
	g := &Gateway{dir: os.NewFile(uintptr(fd), dir.Name()), owner: owner, caps: caps}
	if g.caps.FileSize <= 0 {
		g.caps.FileSize = defaultFileSize
	}
	if g.caps.Files <= 0 {
		g.caps.Files = defaultFiles
	}
	probe, err := g.open(".", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the file gateway: openat2: %w", err), g.dir.Close())
	}
	unix.Close(probe)
	return g, nil
}

// Close lets go of the directory.
func (g *Gateway) Close() error { return g.dir.Close() }

// checkName accepts relative slash-separated names without "." and "..", control
// characters, or bytes that are not UTF-8.
func checkName(name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return ErrName
	}
	parts := strings.Split(name, "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || len(p) > maxComponent {
			return ErrName
		}
	}
	if len(parts) > maxDepth {
		return ErrName
	}
	return nil
}

// open opens name beneath the directory.
func (g *Gateway) open(name string, flags uint64) (int, error) {
	return openInside(int(g.dir.Fd()), name, flags)
}

// openInside opens name beneath dir, following no link and crossing no mount.
func openInside(dir int, name string, flags uint64) (int, error) {
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{
			Flags:   flags | unix.O_CLOEXEC | unix.O_NOFOLLOW,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
		if err != unix.EAGAIN && err != unix.EINTR {
			return fd, err
		}
	}
}

// explainOpen says what an errno of open means.
func explainOpen(err error) error {
	switch err {
	case unix.ELOOP:
		return ErrLink
	case unix.EXDEV:
		return ErrOutside
	case unix.ENXIO: // a FIFO without a reader, a socket
		return ErrNotRegular
	}
	return err
}

// asOwner runs f with the owner's file rights. Another thread id must not leak into
// the rest of the program: a thread whose ids cannot be put back is thrown away.
func (g *Gateway) asOwner(f func() error) error {
	if os.Geteuid() != 0 || g.owner == (Owner{}) {
		return f()
	}
	done := make(chan error, 1)
	go func() {
		// The thread is locked and, because it is never unlocked, ends with this goroutine.
		runtime.LockOSThread()
		if err := setFSIDs(g.owner); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// setFSIDs changes this thread's ids for file access. The calls return the old id
// and never fail visibly, so the change is checked by asking for an impossible one.
func setFSIDs(o Owner) error {
	// Groups of root would open what the program cannot.
	if _, _, e := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); e != 0 {
		return fmt.Errorf("setgroups: %w", e)
	}
	for _, id := range []struct {
		call uintptr
		want uint32
		name string
	}{{unix.SYS_SETFSGID, o.GID, "setfsgid"}, {unix.SYS_SETFSUID, o.UID, "setfsuid"}} {
		unix.RawSyscall(id.call, uintptr(id.want), 0, 0)
		if now, _, _ := unix.RawSyscall(id.call, ^uintptr(0), 0, 0); uint32(now) != id.want {
			return fmt.Errorf("%s %d: %w", id.name, id.want, unix.EPERM)
		}
	}
	return nil
}

// Put writes src to name, with missing directories made with mode 0700. The file is
// complete when it appears; a regular file of that name is replaced. It returns
// the number of bytes.
func (g *Gateway) Put(name string, src io.Reader, perm fs.FileMode) (n int64, err error) {
	if err := checkName(name); err != nil {
		return 0, wrap("put", printable(name), err)
	}
	if err := g.count(); err != nil {
		return 0, wrap("put", name, err)
	}
	err = g.asOwner(func() error {
		dir, err := g.mkdirs(path.Dir(name))
		if err != nil {
			return err
		}
		defer unix.Close(dir)
		n, err = g.create(dir, path.Base(name), src, perm)
		return err
	})
	return n, wrap("put", name, err)
}

func (g *Gateway) count() error {
	if g.files++; g.files > g.caps.Files {
		return ErrTooMany
	}
	return nil
}

// mkdirs opens the directory, making what is missing, one component at a time.
func (g *Gateway) mkdirs(dir string) (int, error) {
	fd, err := g.open(".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil || dir == "." {
		return fd, err
	}
	for _, name := range strings.Split(dir, "/") {
		if err := unix.Mkdirat(fd, name, 0o700); err != nil && err != unix.EEXIST {
			unix.Close(fd)
			return -1, err
		}
		next, err := openInside(fd, name, unix.O_RDONLY|unix.O_DIRECTORY)
		unix.Close(fd)
		if err != nil {
			return -1, explainOpen(err)
		}
		fd = next
	}
	return fd, nil
}

// create writes a file under a random name and renames it. The name that is asked
// for is never opened: a link planted there is replaced or refused, not followed.
// Should the random name be taken away meanwhile, the data stays in a file that
// nobody finds.
func (g *Gateway) create(dir int, name string, src io.Reader, perm fs.FileMode) (int64, error) {
	var st unix.Stat_t
	switch err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return 0, ErrLink
	case err == nil && st.Mode&unix.S_IFMT != unix.S_IFREG:
		return 0, ErrNotRegular
	case err != nil && err != unix.ENOENT:
		return 0, err
	}
	temp := ".sbxrun-" + randomName()
	fd, err := unix.Openat(dir, temp, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_WRONLY|unix.O_CLOEXEC, uint32(perm.Perm()))
	if err != nil {
		return 0, err
	}
	f := os.NewFile(uintptr(fd), name)
	if err := f.Chmod(perm.Perm()); err != nil { // the umask may have taken away anything
		return 0, errors.Join(bare(err), f.Close(), ignoreMissing(unix.Unlinkat(dir, temp, 0)))
	}
	n, err := io.Copy(f, io.LimitReader(src, g.caps.FileSize+1))
	if err == nil && n > g.caps.FileSize {
		err = ErrTooBig
	}
	if err = errors.Join(bare(err), bare(f.Close())); err == nil {
		err = unix.Renameat(dir, temp, dir, name)
	}
	if err != nil {
		return 0, errors.Join(err, ignoreMissing(unix.Unlinkat(dir, temp, 0)))
	}
	return n, nil
}

func ignoreMissing(err error) error {
	if err == unix.ENOENT {
		return nil
	}
	return err
}

// Get copies the regular file name to dst and returns the number of bytes. A file
// with a second name (hard link), another owner's, a sparse file whose apparent size
// is beyond the cap, and everything that is not a regular file is refused.
func (g *Gateway) Get(name string, dst io.Writer) (n int64, err error) {
	if err := checkName(name); err != nil {
		return 0, wrap("get", printable(name), err)
	}
	if err := g.count(); err != nil {
		return 0, wrap("get", name, err)
	}
	var f *os.File
	err = g.asOwner(func() (err error) {
		f, err = g.regular(name)
		return err
	})
	if err != nil {
		return 0, wrap("get", name, err)
	}
	defer f.Close()
	n, err = io.Copy(dst, io.LimitReader(f, g.caps.FileSize))
	if err == nil {
		// It may have grown since: one byte more is one too many.
		var more [1]byte
		if k, _ := f.Read(more[:]); k > 0 {
			err = ErrTooBig
		}
	}
	return n, wrap("get", name, bare(err))
}

// regular opens name for reading and checks what was opened, never the name again.
func (g *Gateway) regular(name string) (*os.File, error) {
	// O_PATH first: to open a device or a FIFO for reading may already have effects.
	at, err := g.open(name, unix.O_PATH)
	if err != nil {
		return nil, explainOpen(err)
	}
	defer unix.Close(at)
	var before, after unix.Stat_t
	if err := unix.Fstat(at, &before); err != nil {
		return nil, err
	}
	if before.Mode&unix.S_IFMT == unix.S_IFLNK {
		return nil, ErrLink
	}
	if before.Mode&unix.S_IFMT != unix.S_IFREG || before.Nlink != 1 {
		return nil, ErrNotRegular
	}
	fd, err := g.open(name, unix.O_RDONLY|unix.O_NONBLOCK) // never wait for a FIFO's writer
	if err != nil {
		return nil, explainOpen(err)
	}
	f := os.NewFile(uintptr(fd), name)
	err = unix.Fstat(fd, &after)
	switch {
	case err != nil:
	case after.Mode&unix.S_IFMT != unix.S_IFREG || after.Nlink != 1:
		err = ErrNotRegular
	case after.Uid != g.owner.UID && g.owner != (Owner{}):
		err = unix.EACCES
	case after.Size > g.caps.FileSize:
		err = ErrTooBig
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	g.executable = after.Mode&0o100 != 0
	return f, nil
}

// GetFile copies the regular file name to the host's file dst. On the host, too,
// nothing is written through a link: a new file is made in dst's directory and
// renamed into place, with mode 0600, or 0700 for what its owner may execute. On an
// error nothing is left.
func (g *Gateway) GetFile(name, dst string) (int64, error) {
	f, err := os.CreateTemp(path.Dir(dst), ".sbxrun-*") // O_EXCL, 0600
	if err != nil {
		return 0, err
	}
	n, err := g.Get(name, f)
	if err == nil && g.executable {
		err = f.Chmod(0o700)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), dst)
	}
	if err != nil {
		return 0, errors.Join(err, os.Remove(f.Name()))
	}
	return n, nil
}

// HasFileOfSize says whether a regular file of exactly that size lies beneath dir, as
// far as a bounded look tells.
func HasFileOfSize(dir *os.File, size int64) bool {
	root, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	if err != nil {
		return false
	}
	defer root.Close()
	found, looked := false, 0
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if looked++; looked > 5000 || strings.Count(name, "/") > maxDepth {
			return fs.SkipAll
		}
		if err != nil || !d.Type().IsRegular() {
			return nil // what cannot be looked at is not found
		}
		if st, err := d.Info(); err == nil && st.Size() == size {
			found = true
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// bare takes the path off an error, which wrap puts on again.
func bare(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// printable keeps an unacceptable name readable on one line.
func printable(name string) string {
	if len(name) > 80 {
		name = name[:80] + "…"
	}
	return fmt.Sprintf("%q", name)
}
