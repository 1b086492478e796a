// This file owns whom sbxrun trusts on the host: its caller with no more than the
// caller's rights, and directories that nobody else can change.

package runtime

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/moby/sys/userns"
	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

// Unprivileged is an error when this process has more rights than its caller: a setuid
// sbxrun would do as root whatever anybody asks. A program's main asks first thing.
func Unprivileged() error {
	if by := sbxinit.Elevated(); by != "" {
		return fmt.Errorf("refusing to run with rights that the caller has not got (%s): remove them from the binary, and call it by sudo or as a service", by)
	}
	return nil
}

// realRoot says whether this is the machine's root, whose mistakes cost most. Root of a
// user namespace is an ordinary user.
func realRoot() bool { return os.Geteuid() == 0 && !userns.RunningInUserNS() }

// ownDirectory is an error unless the directory is this user's, and nobody else's to
// write to: a shared place may have been prepared by somebody.
func ownDirectory(name string) error {
	var st unix.Stat_t
	err := unix.Lstat(name, &st)
	if err == nil && st.Mode&unix.S_IFMT == unix.S_IFLNK && st.Uid == uint32(os.Geteuid()) {
		err = unix.Stat(name, &st) // a link of our own leads where we want
	}
	switch {
	case err != nil:
		return &os.PathError{Op: "stat", Path: name, Err: err}
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return &os.PathError{Op: "open", Path: name, Err: unix.ENOTDIR}
	case st.Uid != uint32(os.Geteuid()):
		return fmt.Errorf("%s belongs to user %d", name, st.Uid)
	case st.Mode&0o002 != 0:
		return fmt.Errorf("%s can be written by everybody", name)
	}
	return nil
}

// Shared says who else than root can change a file that root is about to obey: "" when
// nobody can, because neither it nor its directory is another's or open to others, and
// for everybody but root, who has only himself to lose.
func Shared(name string) (string, error) {
	if !realRoot() {
		return "", nil
	}
	for _, at := range []string{name, filepath.Dir(name)} {
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			return "", &os.PathError{Op: "stat", Path: at, Err: err}
		}
		sticky := st.Mode&unix.S_IFMT == unix.S_IFDIR && st.Mode&unix.S_ISVTX != 0
		switch {
		case st.Mode&unix.S_IFMT == unix.S_IFCHR: // what is written to it is not what is read
		case st.Uid != 0:
			return fmt.Sprintf("%s belongs to user %d", at, st.Uid), nil
		case st.Mode&0o002 != 0 && !sticky:
			return at + " can be written by everybody", nil
		case st.Mode&0o020 != 0 && st.Gid != 0 && !sticky:
			return fmt.Sprintf("%s can be written by group %d", at, st.Gid), nil
		}
	}
	return "", nil
}

// trustedPath says whether nobody but root can exchange a directory on the way to it.
func trustedPath(dir string) bool {
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		var st unix.Stat_t
		err := unix.Lstat(d, &st)
		switch {
		case err != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR:
			return false
		case st.Uid != 0 || st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0:
			return false
		}
		if d == "/" {
			return true
		}
	}
}
