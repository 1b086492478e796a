// Tests of a root whose directory somebody else changes, from another mount namespace.

package rootfs

import (
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// inOwnMounts calls f on a thread that is alone in a mount namespace.
func inOwnMounts(t *testing.T, f func() error) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes a mount namespace for a thread")
	}
	failed := make(chan error)
	go func() {
		goruntime.LockOSThread() // the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = f()
		}
		failed <- err
	}()
	must(t, <-failed)
}

func TestMasksFollowAMountThatIsMoved(t *testing.T) {
	tests := map[string]struct {
		hide func(*Root) error
		safe func(fd int) bool
	}{
		"a masked file is empty": {
			func(r *Root) error { return r.Mask("/proc/version", false) },
			func(fd int) bool {
				n, err := unix.Read(fd, make([]byte, 1))
				return n == 0 && err == nil
			},
		},
		"a read-only path is not written to": {
			func(r *Root) error { return r.ReadonlyPath("/proc") },
			func(fd int) bool {
				var st unix.Statfs_t
				return unix.Fstatfs(fd, &st) == nil && st.Flags&unix.ST_RDONLY != 0
			},
		},
		"a file below a read-only path is masked": {
			func(r *Root) error {
				if err := r.ReadonlyPath("/proc"); err != nil {
					return err
				}
				return r.Mask("/proc/version", false)
			},
			func(fd int) bool {
				n, err := unix.Read(fd, make([]byte, 1))
				return n == 0 && err == nil
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			proc := filepath.Join(dir, "proc")
			move, moved := make(chan bool), make(chan error)
			go func() { // in the mount namespace of the tests
				<-move
				if err := os.Rename(proc, filepath.Join(dir, "elsewhere")); err != nil {
					moved <- err
					return
				}
				moved <- os.Mkdir(proc, 0o755)
			}()
			inOwnMounts(t, func() error {
				r, err := OpenRoot(dir, 0, true, true)
				if err != nil {
					return err
				}
				defer r.close()
				if err := r.Mount(Mount{Source: "proc", Target: "/proc", Type: "proc"}); err != nil {
					return err
				}
				close(move)
				if err := <-moved; err != nil {
					return err
				}
				if err := tt.hide(r); err != nil {
					return err
				}
				fd, err := r.resolve("/elsewhere/version", unix.O_RDONLY)
				if err != nil {
					return err
				}
				defer unix.Close(fd)
				if !tt.safe(fd) {
					t.Error("it is not hidden where the mount is now")
				}
				return nil
			})
		})
	}
}

func TestTheKernelsFilesAreNotMountedAtTheEndOfALink(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "elsewhere"), 0o755))
	must(t, os.Symlink("elsewhere", filepath.Join(dir, "proc")))
	inOwnMounts(t, func() error {
		r, err := OpenRoot(dir, 0, true, true)
		if err != nil {
			return err
		}
		defer r.close()
		err = r.Mount(Mount{Source: "proc", Target: "/proc", Type: "proc"})
		if err == nil || !strings.Contains(err.Error(), "ordinary directory") {
			t.Errorf("mounted: %v", err)
		}
		return nil
	})
}
