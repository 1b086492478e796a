// Tests of the file gateway: every hostile kind of file, first read by a careless
// copy to show that the fault is real, then refused.

package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "exchange":
			exchange(os.Args[2], os.Args[3])
		case "litter":
			litter(os.Args[2])
		case "tmpfs":
			tmpfsChild()
		}
	}
	os.Exit(m.Run())
}

const secret = "the secret of the host"

// box is a directory that hostile code owns, beside a secret that it does not.
func box(t testing.TB) (dir, outside string, g *Gateway) {
	t.Helper()
	base := t.TempDir()
	dir, outside = filepath.Join(base, "box"), filepath.Join(base, "outside")
	for _, d := range []string{dir, outside} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte(secret), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if g, err = OpenGateway(f, Owner{}, Caps{FileSize: 1 << 20, Files: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return dir, outside, g
}

// careless is how a copy is written by somebody who trusts names.
func careless(dir, name string) ([]byte, error) { return os.ReadFile(filepath.Join(dir, name)) }

func TestNothingButOwnRegularFilesComesOut(t *testing.T) {
	for _, tc := range []struct {
		name  string
		plant func(dir, outside string) error
		file  string
		want  error
		leaks bool // a careless copy gets the secret
	}{
		{"a link to a file outside", func(d, o string) error { return os.Symlink(o+"/secret", d+"/f") }, "f", ErrLink, true},
		{"a link to a magic file", func(d, o string) error { return os.Symlink("/proc/self/environ", d+"/f") }, "f", ErrLink, false},
		{"a link in the middle", func(d, o string) error { return os.Symlink(o, d+"/f") }, "f/secret", ErrLink, true},
		{"a link to dots in the middle", func(d, o string) error { return os.Symlink("../outside", d+"/f") }, "f/secret", ErrLink, true},
		{"a hard link to a file outside", func(d, o string) error { return os.Link(o+"/secret", d+"/f") }, "f", ErrNotRegular, true},
		{"a directory", func(d, o string) error { return os.Mkdir(d+"/f", 0o700) }, "f", ErrNotRegular, false},
		{"a socket", func(d, o string) error { return unix.Mknod(d+"/f", unix.S_IFSOCK|0o600, 0) }, "f", ErrNotRegular, false},
		{"a FIFO, without waiting for its writer", func(d, o string) error { return unix.Mkfifo(d+"/f", 0o600) }, "f", ErrNotRegular, false},
		{"a sparse file of 1 TiB", func(d, o string) error {
			if err := os.WriteFile(d+"/f", nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(d+"/f", 1<<40)
		}, "f", ErrTooBig, false},
		{"a path through dots", func(d, o string) error { return nil }, "../outside/secret", ErrName, true},
		{"nothing", func(d, o string) error { return nil }, "f", fs.ErrNotExist, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, outside, g := box(t)
			if err := tc.plant(dir, outside); err != nil {
				t.Fatal(err)
			}
			if tc.leaks {
				if got, err := careless(dir, tc.file); err != nil || string(got) != secret {
					t.Fatalf("a careless copy got %q (%v): the fault is not real", got, err)
				}
			}
			var out bytes.Buffer
			_, err := g.Get(tc.file, &out)
			if !errors.Is(err, tc.want) || out.Len() > 0 {
				t.Errorf("got %q and %v, want nothing and %v", out.String(), err, tc.want)
			}
			host := filepath.Join(outside, "copy")
			if _, err := g.GetFile(tc.file, host); !errors.Is(err, tc.want) {
				t.Errorf("GetFile: got %v, want %v", err, tc.want)
			}
			if left, _ := os.ReadDir(outside); len(left) != 1 {
				t.Errorf("something is left on the host: %v", left)
			}
		})
	}
}

func TestADeviceIsNotRead(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mknod of a device needs root")
	}
	dir, _, g := box(t)
	if err := unix.Mknod(dir+"/f", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Get("f", &bytes.Buffer{}); !errors.Is(err, ErrNotRegular) {
		t.Errorf("got %v", err)
	}
}

func TestFilesGoInAndOut(t *testing.T) {
	dir, outside, g := box(t)
	for _, name := range []string{"a", "sub/deeper/b", "ümläut", "with space", strings.Repeat("x", 255)} {
		want := "content of " + name
		if n, err := g.Put(name, strings.NewReader(want), 0o640); err != nil || n != int64(len(want)) {
			t.Fatalf("put %q: %d, %v", name, n, err)
		}
		var got bytes.Buffer
		if _, err := g.Get(name, &got); err != nil || got.String() != want {
			t.Errorf("get %q: %q, %v", name, got.String(), err)
		}
	}
	if _, err := g.Put("a", strings.NewReader("new"), 0o600); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(dir + "/a"); string(text) != "new" {
		t.Errorf("the old content stayed: %q", text)
	}
	st, err := os.Stat(dir + "/sub")
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("a made directory has mode %v (%v)", st.Mode(), err)
	}
	// On the host a planted link is replaced, never written through.
	link := filepath.Join(outside, "link")
	if err := os.Symlink("secret", link); err != nil {
		t.Fatal(err)
	}
	if _, err := g.GetFile("a", link); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(outside + "/secret"); string(text) != secret {
		t.Errorf("written through a link: %q", text)
	}
}

func TestNothingGoesInThroughALink(t *testing.T) {
	for _, tc := range []struct {
		name, target, put string
		want              error
	}{
		{"a link at the end", "secret", "f", ErrLink},
		{"a link in the middle", ".", "f/new", unix.ENOTDIR},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, outside, g := box(t)
			if err := os.Symlink(filepath.Join(outside, tc.target), dir+"/f"); err != nil {
				t.Fatal(err)
			}
			if _, err := g.Put(tc.put, strings.NewReader("overwritten"), 0o600); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			text, _ := os.ReadFile(outside + "/secret")
			if left, _ := os.ReadDir(outside); len(left) != 1 || string(text) != secret {
				t.Errorf("outside there is now %v with %q", left, text)
			}
		})
	}
}

func TestCapsHold(t *testing.T) {
	dir, _, g := box(t)
	if _, err := g.Put("big", bytes.NewReader(make([]byte, 1<<20+1)), 0o600); !errors.Is(err, ErrTooBig) {
		t.Errorf("put: got %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	g.caps.Files = g.files + 1
	if _, err := g.Put("one", strings.NewReader("1"), 0o600); err != nil {
		t.Error(err)
	}
	if _, err := g.Put("two", strings.NewReader("2"), 0o600); !errors.Is(err, ErrTooMany) {
		t.Errorf("got %v", err)
	}
}

func FuzzNamesStayInside(f *testing.F) {
	for _, n := range []string{"a", "a/b", "..", "../x", "/etc/passwd", "a/../../b", "", ".", "a\x00b", "a/", "//", "\xff", "a\nb", strings.Repeat("a/", 100)} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, name string) {
		dir, outside, g := box(t)
		if _, err := g.Put(name, strings.NewReader("x"), 0o600); err == nil {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "x" {
				t.Errorf("%q was put elsewhere: %v", name, err)
			}
		} else if checkName(name) == nil && !errors.Is(err, unix.ENAMETOOLONG) {
			t.Errorf("%q: %v", name, err)
		}
		if left, _ := os.ReadDir(outside); len(left) != 1 {
			t.Errorf("%q: outside there is now %v", name, left)
		}
	})
}

// exchange swaps a directory and a link to the outside as fast as it can.
func exchange(dir, outside string) {
	if err := os.Symlink(outside, dir+"/link"); err != nil {
		os.Exit(3)
	}
	fmt.Println("ready")
	for {
		_ = unix.Renameat2(unix.AT_FDCWD, dir+"/link", unix.AT_FDCWD, dir+"/sub", unix.RENAME_EXCHANGE)
	}
}

// helper starts this binary as a hostile process and waits until it is at work.
func helper(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

func TestARaceOfRenamesNeverLeadsOutside(t *testing.T) {
	dir, outside, g := box(t)
	if err := os.Mkdir(dir+"/sub", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/sub/secret", []byte("own"), 0o600); err != nil {
		t.Fatal(err)
	}
	helper(t, "exchange", dir, outside)
	copies := 50_000
	if testing.Short() {
		copies = 5_000
	}
	leaked, got, put := 0, 0, 0
	for i := range copies {
		if text, err := careless(dir, "sub/secret"); err == nil && string(text) == secret {
			leaked++
		}
		var out bytes.Buffer
		if _, err := g.Get("sub/secret", &out); err == nil {
			got++
		}
		if strings.Contains(out.String(), "host") {
			t.Fatalf("copy %d read %q", i, out.String())
		}
		if _, err := g.Put("sub/new", strings.NewReader("x"), 0o600); err == nil {
			put++
		}
	}
	if left, _ := os.ReadDir(outside); len(left) != 1 {
		t.Errorf("outside there is now %v", left)
	}
	if leaked == 0 || got == 0 || put == 0 {
		t.Errorf("the race proves nothing: %d careless copies leaked, %d gets and %d puts worked", leaked, got, put)
	}
	t.Logf("of %d copies %d careless ones leaked; %d gets and %d puts worked", copies, leaked, got, put)
}

// tmpfsChild is inside root of a user namespace: it mounts a tmpfs on its argument
// and waits for the end of its stdin.
func tmpfsChild() {
	if err := unix.Mount("tmpfs", os.Args[2], "tmpfs", 0, "mode=0700"); err != nil {
		fmt.Println(err)
		os.Exit(3)
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1))
	os.Exit(0)
}

func TestATmpfsOfAUserNamespaceTakesFilesOfItsOwnerOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mapping another id needs root")
	}
	const id = 1<<31 + 77
	dir := t.TempDir()
	for d := dir; d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil && d == dir {
			t.Fatal(err)
		}
		if filepath.Base(filepath.Dir(d)) == "tmp" {
			break
		}
	}
	cmd := exec.Command("/proc/self/exe", "tmpfs", dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: id, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: id, Size: 1}},
		GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{}, Pdeathsig: syscall.SIGKILL,
	}
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { in.Close(); cmd.Wait() }()
	line := make([]byte, 100)
	if n, err := out.Read(line); err != nil || !strings.HasPrefix(string(line[:n]), "ready") {
		t.Fatalf("%s %v", line, err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/root%s", cmd.Process.Pid, dir))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, tc := range []struct {
		owner Owner
		want  error
	}{{Owner{}, unix.EOVERFLOW}, {Owner{id, id}, nil}} {
		g, err := OpenGateway(f, tc.owner, Caps{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := g.Put("f", strings.NewReader("x"), 0o600); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("as %+v: got %v, want %v", tc.owner, err, tc.want)
		}
		g.Close()
	}
}

func TestTheGatewayHasNoMoreRightsThanTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("acting as somebody else needs root")
	}
	dir, _, g := box(t)
	if err := os.WriteFile(dir+"/f", []byte("of root"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.owner = Owner{12345, 12345}
	for _, d := range []string{filepath.Dir(filepath.Dir(dir)), filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.Get("f", &bytes.Buffer{}); !errors.Is(err, unix.EACCES) {
		t.Errorf("get: %v", err)
	}
	if _, err := g.Put("new", strings.NewReader("x"), 0o600); !errors.Is(err, unix.EACCES) {
		t.Errorf("put: %v", err)
	}
	// The rest of the process is as it was.
	if err := os.WriteFile(dir+"/g", nil, 0o600); err != nil {
		t.Error(err)
	}
}

// litter makes files as long as its directory is there.
func litter(dir string) {
	fmt.Println("ready")
	for i := 0; i < 3000; i++ {
		_ = os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o600)
	}
	os.Exit(0)
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
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
}

func TestHostileTreesAreRemoved(t *testing.T) {
	levels, files := 20_000, 50_000
	if testing.Short() {
		levels, files = 2_000, 2_000
	}
	for _, tc := range []struct {
		name  string
		plant func(t *testing.T, dir, outside string)
	}{
		{"an empty directory", func(t *testing.T, d, o string) {}},
		{"a tree deeper than any path", func(t *testing.T, d, o string) { deep(t, d, levels) }},
		{"many files with names of any bytes", func(t *testing.T, d, o string) {
			for i := range files {
				if err := os.WriteFile(fmt.Sprintf("%s/%d\n\xff\xfe\x1b[", d, i), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"links to the outside", func(t *testing.T, d, o string) {
			for name, to := range map[string]string{"dir": o, "file": o + "/secret", "sub/up": "../..", "self": d} {
				if err := os.MkdirAll(filepath.Dir(d+"/"+name), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(to, d+"/"+name); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"closed directories", func(t *testing.T, d, o string) {
			if err := os.MkdirAll(d+"/a/b/c", 0o755); err != nil {
				t.Fatal(err)
			}
			for _, p := range []string{"/a/b/c", "/a/b", "/a", ""} {
				if err := os.Chmod(d+p, 0); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"a directory that still fills", func(t *testing.T, d, o string) { helper(t, "litter", d) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, outside, _ := box(t)
			tc.plant(t, dir, outside)
			parent, err := os.Open(filepath.Dir(dir))
			if err != nil {
				t.Fatal(err)
			}
			defer parent.Close()
			start := time.Now()
			if err := RemoveAll(parent, "box"); err != nil {
				t.Fatal(err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("still there: %v", err)
			}
			if text, _ := os.ReadFile(outside + "/secret"); string(text) != secret {
				t.Error("something outside was removed")
			}
			t.Logf("removed in %v", time.Since(start).Round(time.Millisecond))
		})
	}
}
