// This file owns the look into the gateway's directory: what lies there, as data.

package rootfs

import (
	"cmp"
	"io/fs"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Entry is one thing in the directory, at the moment it was looked at.
type Entry struct {
	Name    string      // beneath the directory, slash-separated, any bytes: as Get takes it
	Size    int64       // apparent size in bytes
	Mode    fs.FileMode // type and permissions
	ModTime time.Time
	changed time.Time // which a program cannot choose
	// Err says why a directory's content is not listed: closed, a mount (ErrOutside),
	// too deep (ErrTooMany), exchanged for a link meanwhile (ErrLink).
	Err error
}

// Printable is the name for people and for JSON. One that is not printable UTF-8, or
// has a quote or a backslash, is quoted as in Go, so that no two names are printed alike.
func (e Entry) Printable() string { return printable(e.Name) }

func printable(name string) string {
	if q := strconv.Quote(name); name == "" || q[1:len(q)-1] != name {
		return q
	}
	return name
}

// List gives everything beneath the directory, sorted by name, links and devices too;
// what a link leads to is not looked at. Beyond the cap on files or time, or 16 MiB of
// names, it gives what it has seen, with ErrTooMany or ErrTimeout.
func (g *Gateway) List() (entries []Entry, err error) {
	start := time.Now()
	room := 16 << 20
	err = g.asOwner(func() error {
		return walk(int(g.dir.Fd()), func(e Entry) error {
			if room -= len(e.Name); len(entries) >= g.caps.Files || room < 0 {
				return ErrTooMany
			}
			if time.Since(start) > g.caps.Time {
				return ErrTimeout
			}
			entries = append(entries, e)
			return nil
		})
	})
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Name, b.Name) })
	return entries, fileError("list", ".", err)
}

// Stat looks at one name, following no link. What it says may have changed since.
func (g *Gateway) Stat(name string) (e Entry, err error) {
	if !inside(name) {
		return e, fileError("stat", name, ErrName)
	}
	err = g.asOwner(func() error {
		at, err := openInside(int(g.dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW)
		if err != nil {
			return explain(err)
		}
		defer unix.Close(at)
		var st unix.Stat_t
		err = unix.Fstat(at, &st)
		e = Entry{Name: name, Size: st.Size, Mode: fileMode(st.Mode), ModTime: time.Unix(st.Mtim.Unix())}
		return err
	})
	return e, fileError("stat", name, err)
}

// HasFileOfSize says whether a regular file of exactly that size, changed since then,
// lies beneath dir, as far as a bounded look tells.
func HasFileOfSize(dir *os.File, size int64, since time.Time) bool {
	defer runtime.KeepAlive(dir)
	found, looked := false, 0
	_ = walk(int(dir.Fd()), func(e Entry) error { // what cannot be looked at is not found
		found = e.Mode.IsRegular() && e.Size == size && !e.changed.Before(since)
		if looked++; found || looked > 5000 {
			return fs.SkipAll
		}
		return nil
	})
	return found
}

// walk visits everything beneath dir, a directory before what is in it, until visit
// returns an error. It holds one descriptor for each of maxDepth levels.
func walk(dir int, visit func(Entry) error) error {
	fd, err := openInside(dir, ".", unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		return explain(err)
	}
	return walkIn(fd, "", visit)
}

// walkIn visits what is in the directory fd, which it closes.
func walkIn(fd int, prefix string, visit func(Entry) error) error {
	f := os.NewFile(uintptr(fd), prefix)
	defer f.Close()
	for {
		names, err := f.Readdirnames(256)
		for _, n := range names {
			if err := walkEntry(fd, prefix, n, visit); err != nil {
				return err
			}
		}
		if len(names) == 0 {
			return ignoreEOF(bare(err))
		}
	}
}

// walkEntry visits one thing, unless it is gone meanwhile, and what is in it.
func walkEntry(dir int, prefix, name string, visit func(Entry) error) error {
	var st unix.Stat_t
	err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		return visit(Entry{Name: prefix + name, Mode: fs.ModeIrregular, Err: err})
	}
	e := Entry{Name: prefix + name, Size: st.Size, Mode: fileMode(st.Mode), ModTime: time.Unix(st.Mtim.Unix()), changed: time.Unix(st.Ctim.Unix())}
	if !e.Mode.IsDir() {
		return visit(e)
	}
	if strings.Count(prefix, "/") >= maxDepth-1 {
		e.Err = ErrTooMany
		return visit(e)
	}
	fd, err := openInside(dir, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.ENOENT {
		return nil
	}
	if err != nil {
		e.Err = explain(err)
		return visit(e)
	}
	if err := visit(e); err != nil {
		unix.Close(fd)
		return err
	}
	return walkIn(fd, e.Name+"/", visit)
}

// fileMode is the kernel's mode in Go's terms.
func fileMode(mode uint32) fs.FileMode {
	m := fs.FileMode(mode & 0o777)
	switch mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFDIR:
		m |= fs.ModeDir
	case unix.S_IFLNK:
		m |= fs.ModeSymlink
	case unix.S_IFIFO:
		m |= fs.ModeNamedPipe
	case unix.S_IFSOCK:
		m |= fs.ModeSocket
	case unix.S_IFBLK:
		m |= fs.ModeDevice
	case unix.S_IFCHR:
		m |= fs.ModeDevice | fs.ModeCharDevice
	default:
		m |= fs.ModeIrregular
	}
	if mode&unix.S_ISUID != 0 {
		m |= fs.ModeSetuid
	}
	if mode&unix.S_ISGID != 0 {
		m |= fs.ModeSetgid
	}
	if mode&unix.S_ISVTX != 0 {
		m |= fs.ModeSticky
	}
	return m
}
