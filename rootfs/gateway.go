// This file owns the file gateway: how the host copies files into and out of a
// directory that hostile code may change at any moment. Names are data. Everything
// happens beneath one directory descriptor, follows no link, and takes regular
// files only (CVE-2018-15664, CVE-2024-28185, CVE-2024-28189).

package rootfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// What the gateway refuses, for errors.Is; each comes in a *FileError.
var (
	ErrName       = errors.New("not an acceptable file name")
	ErrLink       = errors.New("a symbolic link is in the way")
	ErrNotRegular = errors.New("not a regular file with one name")
	ErrOwner      = errors.New("belongs to another user")
	ErrTooBig     = errors.New("larger than allowed")
	ErrTooMany    = errors.New("more files or levels than allowed")
	ErrOutside    = errors.New("leads out of the directory")
	ErrTimeout    = errors.New("took longer than allowed")
)

// FileError is what went wrong with one name, as fs.PathError is with a path. Names
// come from hostile code: its text is one line and cannot drive a terminal.
type FileError struct {
	Op   string // "put", "get", "write", "list" or "remove"
	Name string // as it was given, any bytes
	Err  error
}

func (e *FileError) Error() string {
	name := e.Name
	if len(name) > 80 {
		name = name[:80] + "…"
	}
	return e.Op + " " + printable(name) + ": " + e.Err.Error()
}

// Unwrap gives the cause: one of the errors above or an errno.
func (e *FileError) Unwrap() error { return e.Err }

func fileError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &FileError{op, name, err}
}

// Caps bound what goes through one gateway. Zero values take the defaults.
type Caps struct {
	FileSize  int64         // bytes of one file, default 64 MiB
	TotalSize int64         // bytes of all copies, default 1 GiB or FileSize
	Files     int           // copies, and entries of one listing, default 10 000
	Time      time.Duration // of one copy or listing, default one minute
}

func (c *Caps) defaults() {
	c.FileSize = cmp.Or(max(c.FileSize, 0), 64<<20)
	c.TotalSize = cmp.Or(max(c.TotalSize, 0), max(1<<30, c.FileSize))
	c.Files = cmp.Or(max(c.Files, 0), 10_000)
	c.Time = cmp.Or(max(c.Time, 0), time.Minute)
}

const (
	maxName      = 4096 // PATH_MAX
	maxComponent = 255  // NAME_MAX
	maxDepth     = 64   // components of a name
)

// Gateway copies files beneath one directory. It is not for concurrent use; two
// gateways to one directory are.
type Gateway struct {
	dir   *os.File
	owner Owner
	other bool // the owner is not this process
	caps  Caps
	files int   // copies so far
	total int64 // their bytes
	buf   []byte
}

// OpenGateway makes a gateway to dir, an open directory, which stays the caller's.
// Refused are a kernel without openat2 (before Linux 5.6), and an owner that this
// process cannot act for: only root can act for another.
func OpenGateway(dir *os.File, owner Owner, caps Caps) (*Gateway, error) {
	fd, err := unix.FcntlInt(dir.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the file gateway: duplicate %s: %w", dir.Name(), err)
	}
	g := &Gateway{dir: os.NewFile(uintptr(fd), dir.Name()), owner: owner, caps: caps}
	g.caps.defaults()
	if g.other, err = foreign(owner); err == nil {
		err = probe(fd)
	}
	if err != nil {
		g.Close()
		return nil, fmt.Errorf("open the file gateway to %s: %w", dir.Name(), err)
	}
	return g, nil
}

// probe asks for openat2, without which nothing here would be safe.
func probe(dir int) error {
	fd, err := openInside(dir, ".", unix.O_PATH|unix.O_DIRECTORY)
	if err == unix.ENOSYS {
		return fmt.Errorf("openat2: %w (Linux 5.6 or newer is needed)", err)
	}
	if err != nil {
		return fmt.Errorf("openat2: %w", err)
	}
	return unix.Close(fd)
}

// Close lets go of the directory.
func (g *Gateway) Close() error { return g.dir.Close() }

// inside accepts names that stay beneath a directory: relative, slash-separated,
// without empty, "." and ".." components.
func inside(name string) bool {
	parts := strings.Split(name, "/")
	for _, p := range parts {
		if p == "" || p == "." || p == ".." || len(p) > maxComponent {
			return false
		}
	}
	return len(name) < maxName && len(parts) <= maxDepth && strings.IndexByte(name, 0) < 0
}

// plain accepts names in UTF-8 without control characters. The host makes no others.
func plain(name string) bool {
	return utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
}

// openInside opens name beneath dir, following no link and crossing no mount.
func openInside(dir int, name string, flags uint64) (int, error) {
	if planted("link-followed") {
		return unix.Openat(dir, name, int(flags)|unix.O_CLOEXEC, 0)
	}
	for {
		fd, err := unix.Openat2(dir, name, &unix.OpenHow{
			Flags:   flags | unix.O_CLOEXEC,
			Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
		})
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// explain says what an errno of this file's calls means.
func explain(err error) error {
	switch err {
	case unix.ELOOP:
		return ErrLink
	case unix.EXDEV:
		return ErrOutside
	case unix.EISDIR: // a directory appeared where a file was to go
		return ErrNotRegular
	}
	return err
}

// Put writes src to name, with missing directories made with mode 0700 (they stay,
// should the rest fail). The file is complete when it appears; a regular file of
// that name is replaced, everything else refused. Names must be UTF-8 without
// control characters. It returns the number of bytes, 0 on an error. How long src
// may block is the caller's.
func (g *Gateway) Put(name string, src io.Reader, perm fs.FileMode) (n int64, err error) {
	defer func() { err = fileError("put", name, err) }()
	if !inside(name) || !plain(name) {
		return 0, ErrName
	}
	if err := g.count(); err != nil {
		return 0, err
	}
	var s *staged
	err = g.asOwner(func() error {
		dir, err := g.mkdirs(path.Dir(name))
		if err == nil {
			s, err = stage(dir, path.Base(name), perm)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	// Only the file's names need the owner. src is foreign code and runs as ever.
	return g.fill(s, src, g.asOwner)
}

// fill copies src to s and gives it its name, or removes it.
func (g *Gateway) fill(s *staged, src io.Reader, as func(func() error) error) (n int64, err error) {
	err = errUnfinished // it stays that when src panics
	defer func() {
		if err = as(func() error { return s.finish(err) }); err != nil {
			n = 0
		}
	}()
	return g.copy(s.file, src)
}

var errUnfinished = errors.New("the copy was not finished")

func (g *Gateway) count() error {
	if g.files >= g.caps.Files {
		return ErrTooMany
	}
	g.files++
	return nil
}

// mkdirs opens the directory, making what is missing, one component at a time. One
// that is moved away meanwhile is still the program's, wherever it lies.
func (g *Gateway) mkdirs(dir string) (int, error) {
	fd, err := openInside(int(g.dir.Fd()), ".", unix.O_PATH|unix.O_DIRECTORY)
	if err != nil || dir == "." {
		return fd, err
	}
	for name := range strings.SplitSeq(dir, "/") {
		next := -1
		if err = unix.Mkdirat(fd, name, 0o700); err == nil || err == unix.EEXIST {
			next, err = openInside(fd, name, unix.O_PATH|unix.O_DIRECTORY)
		}
		unix.Close(fd)
		if err != nil {
			return -1, explain(err)
		}
		fd = next
	}
	return fd, nil
}

// staged is a file on its way into a directory, under a random name until finished.
// Should that name be taken away meanwhile, the data stays where nobody finds it.
type staged struct {
	dir        int
	temp, name string
	file       *os.File
	perm       fs.FileMode
}

// settle waits until nobody has the file open for writing: a process that this one was
// forking meanwhile, for another run, has a copy of each descriptor until its execve, and
// the program could not be executed so long (ETXTBSY). A read lease is refused till then.
func (s *staged) settle() error {
	fd, err := unix.Openat(s.dir, s.temp, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return explain(err)
	}
	defer unix.Close(fd) // ends the lease
	for end := time.Now().Add(settleTime); ; time.Sleep(100 * time.Microsecond) {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK)
		if err != unix.EAGAIN || time.Now().After(end) {
			return nil // a file system without leases, or a writer that is none of ours
		}
	}
}

// settleTime bounds that wait; a fork takes a few milliseconds.
const settleTime = time.Second

// stage makes the file that will be name in dir, and takes dir over. The name itself
// is never opened: what is planted there is refused, or later replaced, not followed.
func stage(dir int, name string, perm fs.FileMode) (*staged, error) {
	s := &staged{dir: dir, temp: ".sbxrun-" + randomName(), name: name, perm: perm.Perm()}
	err := replaceable(dir, name)
	fd := -1
	if err == nil {
		fd, err = unix.Openat(dir, s.temp, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_WRONLY|unix.O_CLOEXEC, uint32(perm.Perm()))
	}
	if err != nil {
		unix.Close(dir)
		return nil, err
	}
	s.file = os.NewFile(uintptr(fd), name)
	if err := s.file.Chmod(perm.Perm()); err != nil { // the umask may have taken away anything
		return nil, s.finish(bare(err))
	}
	return s, nil
}

// replaceable says whether nothing or a regular file is at name.
func replaceable(dir int, name string) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	switch {
	case err != nil:
		return ignore(err, unix.ENOENT)
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return ErrLink
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return ErrNotRegular
	}
	return nil
}

// finish gives the file its name, or removes it after an error.
func (s *staged) finish(err error) error {
	defer unix.Close(s.dir)
	if closed := s.file.Close(); err == nil {
		err = bare(closed)
	}
	if err == nil && s.perm&0o111 != 0 {
		err = s.settle()
	}
	if err == nil {
		err = explain(unix.Renameat(s.dir, s.temp, s.dir, s.name))
	}
	if err == nil {
		return nil
	}
	if left := unix.Unlinkat(s.dir, s.temp, 0); left != nil && left != unix.ENOENT {
		return fmt.Errorf("%w; the temporary file %s stays: %w", err, s.temp, left)
	}
	return err
}

// Get copies the regular file name to dst and returns the number of bytes written,
// which on an error is not the whole file. Refused are a file with a second name
// (a hard link to something hidden), another owner's, one whose apparent size is
// beyond the caps however sparse it is, and everything that is not a regular file.
// Nothing of those is read, nor does it block. Names may be any bytes.
func (g *Gateway) Get(name string, dst io.Writer) (n int64, err error) {
	defer func() { err = fileError("get", name, err) }()
	f, _, err := g.regular(name)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return g.copy(dst, f)
}

// GetFile copies the regular file name to the host's file dst, by the rules of Get.
// The directory of dst is opened once, links in its path followed. In it, the file
// is complete when it appears and has mode 0600, or 0700 if its owner may execute it
// inside; a regular file is replaced, a link and everything else refused. On an
// error nothing is left.
func (g *Gateway) GetFile(name, dst string) (n int64, err error) {
	f, perm, err := g.regular(name)
	if err != nil {
		return 0, fileError("get", name, err)
	}
	defer f.Close()
	parent, base := path.Split(dst)
	if !inside(base) {
		return 0, fileError("write", dst, ErrName)
	}
	dir, err := unix.Open(cmp.Or(parent, "."), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fileError("write", dst, err)
	}
	s, err := stage(dir, base, perm)
	if err != nil {
		return 0, fileError("write", dst, err)
	}
	n, err = g.fill(s, f, func(finish func() error) error { return finish() })
	return n, fileError("get", name, err)
}

// regular counts a copy and opens its file for reading. The second result is the
// mode for a copy on the host.
func (g *Gateway) regular(name string) (f *os.File, perm fs.FileMode, err error) {
	if !inside(name) {
		return nil, 0, ErrName
	}
	if err := g.count(); err != nil {
		return nil, 0, err
	}
	err = g.asOwner(func() (err error) {
		f, perm, err = g.openRegular(name)
		return err
	})
	return f, perm, err
}

// openRegular opens the name once, as a mere handle, since to open a device or a
// FIFO may already have effects. What was checked is then what is read: the name is
// not looked up again.
func (g *Gateway) openRegular(name string) (*os.File, fs.FileMode, error) {
	at, err := openInside(int(g.dir.Fd()), name, unix.O_PATH)
	if err != nil {
		return nil, 0, explain(err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil {
		return nil, 0, err
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG || st.Nlink != 1:
		return nil, 0, ErrNotRegular
	case g.owner != (Owner{}) && st.Uid != g.owner.UID:
		return nil, 0, ErrOwner
	case st.Size > g.room():
		return nil, 0, ErrTooBig
	}
	// O_NONBLOCK: a lease of the program would hold the opening up for 45 s.
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", at), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	return os.NewFile(uintptr(fd), name), 0o600 | fs.FileMode(st.Mode&0o100), nil
}

// room is how many bytes the next file may have.
func (g *Gateway) room() int64 { return min(g.caps.FileSize, g.caps.TotalSize-g.total) }

// copy moves src to dst. The caps hold at every piece: a file may grow while it is
// read. Not one byte beyond them is written.
func (g *Gateway) copy(dst io.Writer, src io.Reader) (n int64, err error) {
	if g.buf == nil {
		g.buf = make([]byte, 64<<10)
	}
	room := g.room()
	for start := time.Now(); time.Since(start) <= g.caps.Time; {
		// One byte more than there is room for tells a full file from a bigger one.
		k, rerr := src.Read(g.buf[:min(int64(len(g.buf))-1, room-n)+1])
		if int64(k) > room-n {
			return n, ErrTooBig
		}
		w, werr := dst.Write(g.buf[:k])
		n, g.total = n+int64(w), g.total+int64(w)
		switch {
		case werr != nil:
			return n, bare(werr)
		case rerr == io.EOF:
			return n, nil
		case rerr != nil:
			return n, bare(rerr)
		}
	}
	return n, ErrTimeout
}

// bare takes the path off an error: a FileError names the file.
func bare(err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}

// Remove removes the file name, or a directory with everything in it, by the rules of
// RemoveAll and with the owner's rights. A name that is not there is an error.
func (g *Gateway) Remove(name string) (err error) {
	defer func() { err = fileError("remove", name, err) }()
	if !inside(name) {
		return ErrName
	}
	return g.asOwner(func() error {
		fd, err := openInside(int(g.dir.Fd()), path.Dir(name), unix.O_PATH|unix.O_DIRECTORY)
		if err != nil {
			return explain(err)
		}
		defer unix.Close(fd)
		err = remove(fd, path.Base(name))
		if err == unix.ENOTEMPTY {
			ctx, cancel := context.WithTimeout(context.Background(), g.caps.Time)
			defer cancel()
			err = removeDir(ctx, fd, path.Base(name))
		}
		return explain(err)
	})
}
