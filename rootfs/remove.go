// This file owns the removal of a tree that hostile code has made: deep beyond every
// path limit, wide, with closed directories, or still growing.

package rootfs

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// removeTime bounds RemoveAll. 10^6 files take seconds.
const removeTime = 2 * time.Minute

// removeRetries bounds the passes in which nothing went: a living process may have
// exchanged what was to go.
const removeRetries = 10

// RemoveAll deletes name, a single component, and everything beneath it in the
// directory parent, with this process's own rights. It follows no link, crosses no
// mount, and needs no more descriptors and memory however deep and wide the tree is:
// what lies very deep is first moved up to the top. A name that is not there is no
// error. What can be removed is, even when something
// else, a mount point for one, cannot: the *FileError tells of that. A tree that
// grows faster than it is removed ends in ErrTimeout after two minutes. In a tmpfs of
// a user namespace, who is not mapped there cannot move what lies deep (EOVERFLOW):
// such a tree goes with its mount.
func RemoveAll(parent *os.File, name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	return RemoveAllContext(ctx, parent, name)
}

// RemoveAllContext is RemoveAll bounded by ctx instead: after its deadline the error
// is ErrTimeout, after its cancellation the cause.
func RemoveAllContext(ctx context.Context, parent *os.File, name string) error {
	if !inside(name) || strings.Contains(name, "/") {
		return fileError("remove", name, ErrName)
	}
	defer runtime.KeepAlive(parent)
	fd := int(parent.Fd())
	err := unix.Unlinkat(fd, name, 0)
	if err == unix.EISDIR {
		err = removeDir(ctx, fd, name)
	}
	return fileError("remove", name, explain(ignore(err, unix.ENOENT)))
}

// removeDir empties the directory name again and again, until it is gone, or nothing
// goes any more.
func removeDir(ctx context.Context, parent int, name string) error {
	for fruitless := 0; ; fruitless++ {
		r := remover{ctx: ctx}
		if err := r.empty(parent, name, 0); err != nil {
			return err
		}
		err := unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
		if err != unix.ENOTEMPTY {
			return err
		}
		if r.gone > 0 {
			fruitless = 0
		}
		if fruitless == removeRetries {
			return cmp.Or(r.failed, err)
		}
	}
}

// timeUp says whether ctx has ended, and how.
func timeUp(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrTimeout
	}
	return context.Cause(ctx)
}

// openDir opens the directory name in dir for reading, however closed it is.
func openDir(dir int, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY
	fd, err := openInside(dir, name, flags)
	if err == unix.EACCES {
		if err = unlock(dir, name); err == nil {
			fd, err = openInside(dir, name, flags)
		}
	}
	if err != nil {
		return nil, err
	}
	// The owner may have taken away the right to write. If that stays so, the
	// removals in it fail and tell.
	_ = unix.Fchmod(fd, 0o700)
	return os.NewFile(uintptr(fd), name), nil
}

// unlock opens a directory's mode for its owner.
func unlock(dir int, name string) error {
	at, err := openInside(dir, name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", at), 0o700)
}

// remover goes once through a tree.
type remover struct {
	ctx    context.Context
	top    int   // the tree's first directory
	gone   int   // what was removed or moved up
	failed error // the first removal that was refused
}

// empty removes what is in the directory name, which lies so many levels below top.
func (r *remover) empty(parent int, name string, level int) error {
	dir, err := openDir(parent, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	if level == 0 {
		r.top = fd
	}
	return r.each(dir, func(name string) error {
		err := remove(fd, name)
		if err != unix.ENOTEMPTY {
			return err
		}
		if level == maxDepth {
			return r.lift(fd, name)
		}
		if err := r.empty(fd, name, level+1); err != nil {
			return err
		}
		return unix.Unlinkat(fd, name, unix.AT_REMOVEDIR)
	})
}

// each calls f for the names in dir and keeps the account: what has changed under
// its hands is for the next pass, what is refused does not keep the rest.
func (r *remover) each(dir *os.File, f func(name string) error) error {
	for {
		names, err := dir.Readdirnames(256)
		for _, n := range names {
			switch err := f(n); {
			case err == nil:
				r.gone++
			case r.ctx.Err() != nil:
				return timeUp(r.ctx)
			case err != unix.ENOENT && err != unix.ENOTEMPTY && r.failed == nil:
				r.failed = fmt.Errorf("%s: %w", printable(n), explain(err))
			}
		}
		if len(names) == 0 {
			return ignoreEOF(bare(err))
		}
		if err := timeUp(r.ctx); err != nil {
			return err
		}
	}
}

// remove removes a file or an empty directory.
func remove(dir int, name string) error {
	err := unix.Unlinkat(dir, name, 0)
	if err == unix.EISDIR {
		err = unix.Unlinkat(dir, name, unix.AT_REMOVEDIR)
	}
	if err == unix.EEXIST { // POSIX allows both
		err = unix.ENOTEMPTY
	}
	return err
}

// lift moves the directory name from dir up into top under a fresh name, for this
// pass over top or the next: so no path is long and few descriptors are held. To move a
// directory takes the right to write to it, for its "..".
func (r *remover) lift(dir int, name string) error {
	fresh := ".gone-" + randomName()
	err := unix.Renameat2(dir, name, r.top, fresh, unix.RENAME_NOREPLACE)
	if err == unix.EACCES {
		if err = unlock(dir, name); err == nil {
			err = unix.Renameat2(dir, name, r.top, fresh, unix.RENAME_NOREPLACE)
		}
	}
	return err
}

func ignore(err, harmless error) error {
	if err == harmless {
		return nil
	}
	return err
}

func ignoreEOF(err error) error { return ignore(err, io.EOF) }

func randomName() string {
	var b [12]byte
	// Not crypto/rand: its initialisation would come before every init's takeover. The
	// call fills so few bytes always.
	_, _ = unix.Getrandom(b[:], 0)
	return hex.EncodeToString(b[:])
}
