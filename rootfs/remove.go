// This file owns the removal of a tree that hostile code has made: deep beyond every
// path limit, wide, with closed directories, or still growing.

package rootfs

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// removeRounds bounds the attempts on a directory that keeps growing.
const removeRounds = 100

// RemoveAll deletes name and everything beneath it in the directory parent. It
// follows no link, crosses no mount, and needs the same few descriptors however
// deep the tree is: a directory within a directory is first moved up to the top.
// A name that is not there is no error.
func RemoveAll(parent *os.File, name string) error {
	fd := int(parent.Fd())
	err := unix.Unlinkat(fd, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return wrap("remove", name, err)
	}
	top, err := openDir(fd, name)
	if err != nil {
		return wrap("remove", name, err)
	}
	defer top.Close()
	for range removeRounds {
		if err = flatten(top); err != nil {
			break
		}
		if err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err != unix.ENOTEMPTY && err != unix.EEXIST {
			break
		}
	}
	return wrap("remove", name, err)
}

// openDir opens the directory name in dir for reading, however closed it is.
func openDir(dir int, name string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC | unix.O_NOFOLLOW,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(dir, name, &how)
	if err == unix.EACCES {
		if err = unlock(dir, name); err == nil {
			fd, err = unix.Openat2(dir, name, &how)
		}
	}
	if err != nil {
		return nil, err
	}
	// The owner may have taken away the right to write: without it nothing goes.
	if err := unix.Fchmod(fd, 0o700); err != nil && err != unix.EPERM {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), name), nil
}

// unlock opens a directory's mode for its owner.
func unlock(dir int, name string) error {
	at, err := openBeneath(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW)
	if err != nil {
		return err
	}
	defer unix.Close(at)
	return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", at), 0o700, 0)
}

// flatten empties top: files go, and what is in a directory in it is moved up into
// top before that directory goes. So no tree is ever deeper than one level here.
func flatten(top *os.File) error {
	for {
		if _, err := top.Seek(0, 0); err != nil {
			return bare(err)
		}
		names, err := top.Readdirnames(4096)
		if len(names) == 0 {
			return ignoreEOF(err)
		}
		for _, n := range names {
			if err := removeEntry(top, n); err != nil {
				return fmt.Errorf("%.80q: %w", n, err)
			}
		}
	}
}

// removeEntry removes one entry of top, moving up what is in it.
func removeEntry(top *os.File, name string) error {
	fd := int(top.Fd())
	err := unix.Unlinkat(fd, name, 0)
	if err == nil || err == unix.ENOENT {
		return nil
	}
	if err != unix.EISDIR && err != unix.EPERM {
		return err
	}
	for range removeRounds {
		if err = unix.Unlinkat(fd, name, unix.AT_REMOVEDIR); err == nil || err == unix.ENOENT {
			return nil
		}
		if err != unix.ENOTEMPTY && err != unix.EEXIST && err != unix.EACCES {
			return err
		}
		if err = hoist(fd, name); err != nil {
			return err
		}
	}
	return err
}

// hoist unlinks the files in the directory name and moves its directories up.
func hoist(top int, name string) error {
	dir, err := openDir(top, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	fd := int(dir.Fd())
	for {
		if _, err := dir.Seek(0, 0); err != nil {
			return bare(err)
		}
		names, err := dir.Readdirnames(4096)
		if len(names) == 0 {
			return ignoreEOF(err)
		}
		for _, n := range names {
			err := unix.Unlinkat(fd, n, 0)
			if err == unix.EISDIR || err == unix.EPERM {
				if err = unix.Unlinkat(fd, n, unix.AT_REMOVEDIR); err == unix.ENOTEMPTY || err == unix.EEXIST {
					err = lift(fd, n, top)
				}
			}
			if err != nil && err != unix.ENOENT {
				return err
			}
		}
	}
}

// lift moves the directory name from dir up into top under a fresh name. To move a
// directory takes the right to write to it, for its "..".
func lift(dir int, name string, top int) error {
	fresh := ".gone-" + randomName()
	err := unix.Renameat2(dir, name, top, fresh, unix.RENAME_NOREPLACE)
	if err == unix.EACCES {
		if err = unlock(dir, name); err == nil {
			err = unix.Renameat2(dir, name, top, fresh, unix.RENAME_NOREPLACE)
		}
	}
	return err
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

func randomName() string {
	var b [12]byte
	// Not crypto/rand: its initialisation would come before every init's takeover. The
	// call fills so few bytes always.
	_, _ = unix.Getrandom(b[:], 0)
	return hex.EncodeToString(b[:])
}
