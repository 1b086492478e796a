// Tests of RemoveAll on trees that hostile code makes.

package rootfs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// litter makes files and directories in a directory until it is gone.
func litter(args []string) {
	// From inside: by its path the directory would be made anew when it is gone.
	if err := os.Chdir(args[0]); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ready")
	for i := 0; ; i++ {
		name := fmt.Sprint(i)
		if err := os.MkdirAll(name+"d/e", 0o700); err != nil || os.WriteFile(name, nil, 0o600) != nil {
			if _, err := os.Lstat(args[0]); err != nil {
				return
			}
		}
		if i > 100_000 { // whatever happens, it ends
			return
		}
	}
}

// deep makes a chain of directories, far beyond what any path can name.
func deep(t *testing.T, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for i := 0; i < levels && err == nil; i++ {
		var next int
		if err = unix.Mkdirat(fd, "d", 0o755); err == nil {
			next, err = unix.Openat(fd, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		}
		unix.Close(fd)
		fd = next
	}
	must(t, err)
	unix.Close(fd)
}

// fewDescriptors runs f in a process that may open no more than programs usually may.
func fewDescriptors(t *testing.T, f func()) {
	t.Helper()
	var old unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: min(256, old.Max), Max: old.Max}))
	defer func() { must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }()
	f()
}

func TestHostileTreesAreRemoved(t *testing.T) {
	levels, files := 100_000, 100_000
	if testing.Short() {
		levels, files = 10_000, 5_000
	}
	for _, tc := range []struct {
		name  string
		plant func(t *testing.T, dir, outside string)
	}{
		{"an empty directory", func(t *testing.T, d, o string) {}},
		{"a file", func(t *testing.T, d, o string) {
			must(t, errors.Join(os.Remove(d), os.WriteFile(d, nil, 0o600)))
		}},
		{"a link", func(t *testing.T, d, o string) { must(t, errors.Join(os.Remove(d), os.Symlink(o, d))) }},
		{"a tree deeper than any path", func(t *testing.T, d, o string) { deep(t, d, levels) }},
		{"many files with names of any bytes", func(t *testing.T, d, o string) {
			for i := range files {
				must(t, os.WriteFile(fmt.Sprintf("%s/%d\n\xff\xfe\x1b[", d, i), nil, 0o600))
			}
		}},
		{"many directories with something in them", func(t *testing.T, d, o string) {
			for i := range files / 20 {
				must(t, os.MkdirAll(fmt.Sprintf("%s/%d/e/f", d, i), 0o700))
			}
		}},
		{"links to the outside", func(t *testing.T, d, o string) {
			for name, to := range map[string]string{"dir": o, "file": o + "/secret", "sub/up": "../..", "self": d} {
				must(t, os.MkdirAll(filepath.Dir(d+"/"+name), 0o755))
				must(t, os.Symlink(to, d+"/"+name))
			}
		}},
		{"a hard link to the outside", func(t *testing.T, d, o string) { must(t, os.Link(o+"/secret", d+"/f")) }},
		{"a directory that still fills", func(t *testing.T, d, o string) { helper(t, nil, "litter", d) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, outside, _ := quickBox(t)
			tc.plant(t, dir, outside)
			parent, err := os.Open(filepath.Dir(dir))
			must(t, err)
			defer parent.Close()
			start := time.Now()
			fewDescriptors(t, func() { must(t, RemoveAll(parent, "box")) })
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("still there: %v", err)
			}
			untouched(t, outside)
			t.Logf("removed in %v", time.Since(start).Round(time.Millisecond))
			must(t, RemoveAll(parent, "box")) // what is not there is no error
		})
	}
}

func TestARemovalTakesOneComponentOnly(t *testing.T) {
	dir, outside, _ := box(t)
	must(t, os.Symlink(outside, dir+"/link"))
	parent, err := os.Open(dir)
	must(t, err)
	defer parent.Close()
	for _, name := range []string{"link/secret", "../outside", "..", ".", "", "/", "link/", "a\x00"} {
		if err := RemoveAll(parent, name); !errors.Is(err, ErrName) {
			t.Errorf("%q: got %v", name, err)
		}
		untouched(t, outside)
	}
	must(t, os.Remove(dir+"/link/secret")) // as a path it leads outside
}

// removeClosed removes a tree of closed directories, which is deep enough that some
// are moved while they are.
func removeClosed(args []string) {
	chain := args[0] + "/box" + strings.Repeat("/d", maxDepth+10)
	err := os.MkdirAll(chain, 0o700)
	for i := 0; err == nil && chain != args[0]; i++ {
		err = os.Chmod(chain, os.FileMode(i%2*0o500)) // to nothing, and to reading only
		chain = filepath.Dir(chain)
	}
	parent, oerr := os.Open(args[0])
	if err = errors.Join(err, oerr); err != nil {
		fmt.Println("set up:", err)
		return
	}
	fmt.Println(RemoveAll(parent, "box"), os.Geteuid() != 0)
}

func TestClosedDirectoriesAreRemovedByTheirOwner(t *testing.T) {
	dir, _, _ := box(t)
	var attr *syscall.SysProcAttr
	if os.Geteuid() == 0 { // whom no mode stops
		open(t, dir, Owner{12345, 12345})
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	}
	if said, _ := helper(t, attr, "remove-closed", dir); said != "<nil> true" {
		t.Errorf("it said %q", said)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("still there: %v (%v)", left, err)
	}
}

// removeMounts removes a tree in the mount namespace in which it has mounts. In any
// other one, the kernel takes them away with what they are mounted on.
func removeMounts(args []string) {
	dir, outside := args[0], args[1]
	err := bind(dir, outside)
	parent, oerr := os.Open(filepath.Dir(dir))
	if err = errors.Join(err, oerr); err != nil {
		fmt.Println("set up:", err)
		return
	}
	fmt.Println(RemoveAll(parent, "box"))
}

func TestARemovalDoesNotCrossAMount(t *testing.T) {
	dir, outside, _ := box(t)
	must(t, errors.Join(os.Mkdir(dir+"/m", 0o755), os.WriteFile(dir+"/f", nil, 0o600), os.WriteFile(dir+"/own", nil, 0o600)))
	said, _ := helper(t, newNamespaces(), "remove-mounts", dir, outside)
	if !strings.HasPrefix(said, "remove box: ") || !strings.Contains(said, "device or resource busy") {
		t.Errorf("it said %q", said)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("beside the mounts there is still %v (%v)", left, err)
	}
	untouched(t, outside)
}

func TestARemovalEndsInTime(t *testing.T) {
	dir, _, _ := box(t)
	for i := range 50 {
		must(t, os.MkdirAll(fmt.Sprintf("%s/%d/d", dir, i), 0o700))
		must(t, os.WriteFile(fmt.Sprintf("%s/%d/d/f", dir, i), nil, 0o600))
	}
	parent, err := os.Open(filepath.Dir(dir))
	must(t, err)
	defer parent.Close()
	expired, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	if err := RemoveAllContext(expired, parent, "box"); !errors.Is(err, ErrTimeout) {
		t.Errorf("after the deadline: %v", err)
	}
	if left, _ := filepath.Glob(dir + "/*/d/f"); len(left) != 49 {
		t.Errorf("after the deadline it went on, until %d of 50 were left", len(left))
	}
	cause := errors.New("the caller has had enough")
	cancelled, give := context.WithCancelCause(context.Background())
	give(cause)
	if err := RemoveAllContext(cancelled, parent, "box"); !errors.Is(err, cause) {
		t.Errorf("after the cancellation: %v", err)
	}
	must(t, RemoveAll(parent, "box"))
}
