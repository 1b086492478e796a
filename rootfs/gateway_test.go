// Tests of the file gateway: every hostile kind of file, first taken by a careless
// copy to show that the fault is real, then refused.

package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// helpers are what the test binary does instead of testing, by its first argument.
var helpers = map[string]func(args []string){
	"exchange": exchange, "litter": litter, "mounts": mounts, "tmpfs": tmpfs, "remove-mounts": removeMounts,
	"remove-closed": removeClosed, "no-openat2": withoutOpenat2, "as-another": asAnother,
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if h := helpers[os.Args[1]]; h != nil {
			h(os.Args[2:])
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// helper starts this binary as another process and waits until it is at work. What
// it says is one line.
func helper(t *testing.T, attr *syscall.SysProcAttr, args ...string) (said string, pid int) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.SysProcAttr, cmd.Stderr = attr, os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // whose end is the end of the helper
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line := make([]byte, 4096)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(line[:n])), cmd.Process.Pid
}

func untilStdinEnds() { _, _ = os.Stdin.Read(make([]byte, 1)) }

const secret = "the secret of the host"

// box is a directory that hostile code owns, beside a secret that it does not.
func box(t testing.TB) (dir, outside string, g *Gateway) {
	t.Helper()
	return boxIn(t, t.TempDir())
}

// quickBox is a box on a tmpfs, as the working directories are from L5 on, where
// there is one. On a disk 10^5 of anything take minutes.
func quickBox(t testing.TB) (dir, outside string, g *Gateway) {
	t.Helper()
	base, err := os.MkdirTemp("/dev/shm", "gateway-test-")
	if err != nil {
		return box(t)
	}
	t.Cleanup(func() { os.RemoveAll(base) })
	return boxIn(t, base)
}

func boxIn(t testing.TB, base string) (dir, outside string, g *Gateway) {
	t.Helper()
	dir, outside = filepath.Join(base, "box"), filepath.Join(base, "outside")
	for _, d := range []string{dir, outside} {
		must(t, os.Mkdir(d, 0o755))
	}
	must(t, os.WriteFile(filepath.Join(outside, "secret"), []byte(secret), 0o600))
	return dir, outside, gateway(t, dir, Owner{}, Caps{FileSize: 1 << 20, Files: 1 << 30})
}

func gateway(t testing.TB, dir string, owner Owner, caps Caps) *Gateway {
	t.Helper()
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	g, err := OpenGateway(f, owner, caps)
	must(t, err)
	t.Cleanup(func() { g.Close() })
	return g
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// untouched checks that the outside is as it was.
func untouched(t testing.TB, outside string) {
	t.Helper()
	text, err := os.ReadFile(outside + "/secret")
	left, _ := os.ReadDir(outside)
	if err != nil || string(text) != secret || len(left) != 1 {
		t.Errorf("outside there is now %v with %q (%v)", left, text, err)
	}
}

// careless is how a copy is written by somebody who trusts names; it stops at 2 MiB
// so that the tests end.
func careless(dir, name string) ([]byte, error) {
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 2<<20))
}

// What a careless copy gets.
const (
	leak    = "the secret"
	toMuch  = "more than the cap"
	another = "another file"
	waits   = "the secret, after it waited for a writer"
)

func TestNothingButOwnRegularFilesComesOut(t *testing.T) {
	environ, err := os.ReadFile("/proc/self/environ")
	must(t, err)
	for _, tc := range []struct {
		name  string
		plant func(dir, outside string) error
		file  string
		want  error
		fault string // "" when even a careless copy fails
	}{
		{"a link to a file outside", func(d, o string) error { return os.Symlink(o+"/secret", d+"/f") }, "f", ErrLink, leak},
		{"a link to a magic file", func(d, o string) error { return os.Symlink("/proc/self/environ", d+"/f") }, "f", ErrLink, another},
		{"a link to a link", func(d, o string) error {
			return errors.Join(os.Symlink(o+"/secret", d+"/g"), os.Symlink("g", d+"/f"))
		}, "f", ErrLink, leak},
		{"a link in the middle", func(d, o string) error { return os.Symlink(o, d+"/f") }, "f/secret", ErrLink, leak},
		{"a link to dots in the middle", func(d, o string) error { return os.Symlink("../outside", d+"/f") }, "f/secret", ErrLink, leak},
		{"a magic link in the middle", func(d, o string) error { return os.Symlink("/proc/self/root"+o, d+"/f") }, "f/secret", ErrLink, leak},
		{"a link to a directory", func(d, o string) error { return os.Symlink(o, d+"/f") }, "f", ErrLink, ""},
		{"a hard link to a file outside", func(d, o string) error { return os.Link(o+"/secret", d+"/f") }, "f", ErrNotRegular, leak},
		{"a directory", func(d, o string) error { return os.Mkdir(d+"/f", 0o700) }, "f", ErrNotRegular, ""},
		{"a socket", func(d, o string) error { return unix.Mknod(d+"/f", unix.S_IFSOCK|0o600, 0) }, "f", ErrNotRegular, ""},
		{"a FIFO, without waiting for its writer", func(d, o string) error { return unix.Mkfifo(d+"/f", 0o600) }, "f", ErrNotRegular, waits},
		{"a sparse file of 1 TiB", func(d, o string) error {
			return errors.Join(os.WriteFile(d+"/f", nil, 0o600), os.Truncate(d+"/f", 1<<40))
		}, "f", ErrTooBig, toMuch},
		{"a path through dots", func(d, o string) error { return nil }, "../outside/secret", ErrName, leak},
		{"a file as a directory", func(d, o string) error { return os.WriteFile(d+"/f", nil, 0o600) }, "f/g", unix.ENOTDIR, ""},
		{"nothing", func(d, o string) error { return nil }, "f", fs.ErrNotExist, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, outside, g := box(t)
			must(t, tc.plant(dir, outside))
			if tc.fault == waits { // the writer in turn waits for the careless copy
				go os.WriteFile(filepath.Join(dir, tc.file), []byte(secret), 0)
			}
			got, err := careless(dir, tc.file)
			real := map[string]bool{
				"": err != nil, leak: string(got) == secret, waits: string(got) == secret,
				toMuch: len(got) > 1<<20, another: bytes.Equal(got, environ),
			}
			if !real[tc.fault] {
				t.Fatalf("the fault is not real: a careless copy got %d bytes (%v)", len(got), err)
			}
			refuses(t, g, tc.file, outside, tc.want)
		})
	}
}

// refuses checks that the file does not come out, in no way.
func refuses(t *testing.T, g *Gateway, file, outside string, want error) {
	t.Helper()
	var out bytes.Buffer
	n, err := g.Get(file, &out)
	if !errors.Is(err, want) || n != 0 || out.Len() > 0 {
		t.Errorf("got %q and %v, want nothing and %v", out.String(), err, want)
	}
	var at *FileError
	if !errors.As(err, &at) || at.Op != "get" || at.Name != file {
		t.Errorf("%#v is not a FileError of get %s", err, file)
	}
	if _, err := g.GetFile(file, filepath.Join(outside, "copy")); !errors.Is(err, want) {
		t.Errorf("GetFile: got %v, want %v", err, want)
	}
	untouched(t, outside)
}

func TestADeviceIsNotEvenOpened(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mknod of a device needs root")
	}
	dir, outside, g := box(t)
	// Opening a memory technology or tape device has effects; /dev/zero has none, but no end.
	must(t, unix.Mknod(dir+"/f", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5))))
	if got, err := careless(dir, "f"); len(got) <= 1<<20 {
		t.Skipf("devices do not work in %s: %v", dir, err)
	}
	refuses(t, g, "f", outside, ErrNotRegular)
}

func TestALeasedFileDoesNotHoldTheHostUp(t *testing.T) {
	dir, _, g := box(t)
	f, err := os.OpenFile(dir+"/f", os.O_RDWR|os.O_CREATE, 0o600)
	must(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Skipf("no leases here: %v", err)
	}
	start := time.Now()
	if _, err := g.Get("f", io.Discard); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("got %v, want %v", err, unix.EAGAIN)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// grower appends to a file whatever is read of it.
type grower struct {
	file *os.File
	bytes.Buffer
}

func (g *grower) Write(b []byte) (int, error) {
	if _, err := g.file.Write(b); err != nil {
		return 0, err
	}
	return g.Buffer.Write(b)
}

func TestAFileThatGrowsWhileItIsReadEndsAtTheCap(t *testing.T) {
	dir, outside, g := box(t)
	must(t, os.WriteFile(dir+"/f", make([]byte, 1000), 0o600))
	f, err := os.OpenFile(dir+"/f", os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	defer f.Close()
	trusting, err := os.Open(dir + "/f")
	must(t, err)
	defer trusting.Close()
	dst := &grower{file: f}
	if n, _ := io.CopyN(struct{ io.Writer }{dst}, trusting, 2<<20); n != 2<<20 {
		t.Fatalf("the fault is not real: a copy to the end got %d bytes", n)
	}
	must(t, os.Truncate(dir+"/f", 1000))
	dst.Reset()
	if n, err := g.Get("f", dst); !errors.Is(err, ErrTooBig) || n > 1<<20 || dst.Len() != int(n) {
		t.Errorf("got %d bytes, %d told (%v), want at most %d and %v", dst.Len(), n, err, 1<<20, ErrTooBig)
	}
	untouched(t, outside)
}

// mounts binds the outside to a directory and a file in the box, in a mount
// namespace of its own.
func mounts(args []string) {
	fmt.Println("ready", bind(args[0], args[1]))
	untilStdinEnds()
}

func bind(dir, outside string) error {
	return errors.Join(unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""),
		unix.Mount(outside, dir+"/m", "", unix.MS_BIND, ""), unix.Mount(outside+"/secret", dir+"/f", "", unix.MS_BIND, ""))
}

// tmpfs mounts one on its argument.
func tmpfs(args []string) {
	fmt.Println("ready", unix.Mount("tmpfs", args[0], "tmpfs", 0, "mode=0700"))
	untilStdinEnds()
}

// newNamespaces is a mount namespace, with a user namespace for who needs one.
func newNamespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

func TestAMountInsideIsNotCrossed(t *testing.T) {
	dir, outside, _ := box(t)
	must(t, errors.Join(os.Mkdir(dir+"/m", 0o755), os.WriteFile(dir+"/f", nil, 0o600), os.WriteFile(dir+"/own", nil, 0o600)))
	said, pid := helper(t, newNamespaces(), "mounts", dir, outside)
	if said != "ready <nil>" {
		t.Fatal(said)
	}
	seen := fmt.Sprintf("/proc/%d/root%s", pid, dir)
	g := gateway(t, seen, Owner{}, Caps{})
	for _, name := range []string{"m/secret", "f"} {
		if got, err := careless(seen, name); string(got) != secret {
			t.Fatalf("the fault is not real: a careless copy got %q (%v)", got, err)
		}
		refuses(t, g, name, outside, ErrOutside)
	}
	if _, err := g.Put("m/new", strings.NewReader("x"), 0o600); !errors.Is(err, ErrOutside) {
		t.Errorf("put: got %v", err)
	}
	entries, err := g.List()
	must(t, err)
	if i := slices.IndexFunc(entries, func(e Entry) bool { return e.Name == "m" }); len(entries) != 3 || !errors.Is(entries[i].Err, ErrOutside) {
		t.Errorf("listed %+v", entries)
	}
	untouched(t, outside)
}

func TestFilesGoInAndOut(t *testing.T) {
	dir, outside, g := box(t)
	for _, name := range []string{"a", "sub/deeper/b", "ümläut", "with space", "..a", strings.Repeat("x", 255)} {
		want := "content of " + name
		if n, err := g.Put(name, strings.NewReader(want), 0o666); err != nil || n != int64(len(want)) {
			t.Fatalf("put %q: %d, %v", name, n, err)
		}
		var got bytes.Buffer
		if n, err := g.Get(name, &got); err != nil || got.String() != want || n != int64(len(want)) {
			t.Errorf("get %q: %q, %d, %v", name, got.String(), n, err)
		}
	}
	// A hard link to the outside is replaced; what it led to stays.
	must(t, os.Link(outside+"/secret", dir+"/hard"))
	for name, content := range map[string]string{"a": "new", "hard": "new"} {
		if _, err := g.Put(name, strings.NewReader(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(dir + "/" + name); string(text) != content {
			t.Errorf("the old content stayed: %q", text)
		}
	}
	untouched(t, outside)
	for name, want := range map[string]fs.FileMode{"sub": 0o700, "sub/deeper/b": 0o666, "a": 0o600} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != want {
			t.Errorf("%s has mode %v (%v)", name, st.Mode(), err)
		}
	}
	big := make([]byte, 1<<20) // exactly the cap
	if n, err := g.Put("big", bytes.NewReader(big), 0o600); err != nil || n != 1<<20 {
		t.Errorf("put %d bytes: %d, %v", len(big), n, err)
	}
	if n, err := g.GetFile("big", filepath.Join(t.TempDir(), "big")); err != nil || n != 1<<20 {
		t.Errorf("get %d bytes: %d, %v", len(big), n, err)
	}
}

func TestOnTheHostAFileIsWholeOrNotThere(t *testing.T) {
	dir, outside, g := box(t)
	must(t, errors.Join(os.WriteFile(dir+"/f", []byte("own"), 0o644), os.WriteFile(dir+"/x", []byte("own"), 0o755)))
	host := t.TempDir()
	must(t, errors.Join(os.Symlink(outside+"/secret", host+"/link"), os.Mkdir(host+"/dir", 0o755),
		unix.Mkfifo(host+"/fifo", 0o600), os.WriteFile(host+"/old", []byte("older, and longer"), 0o644)))
	for _, tc := range []struct {
		name, file, dst string
		want            error
		mode            fs.FileMode
	}{
		{"a new file", "f", "new", nil, 0o600},
		{"a program", "x", "program", nil, 0o700},
		{"in the place of an old file", "f", "old", nil, 0o600},
		{"a planted link", "f", "link", ErrLink, 0},
		{"a directory", "f", "dir", ErrNotRegular, 0},
		{"a FIFO", "f", "fifo", ErrNotRegular, 0},
		{"no file name", "f", "dir/", ErrName, 0},
		{"dots", "f", "dir/..", ErrName, 0},
		{"a directory that is not there", "f", "none/new", fs.ErrNotExist, 0},
		{"too big a file", "big", "too-big", ErrTooBig, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			must(t, os.WriteFile(dir+"/big", make([]byte, 1<<20+1), 0o600))
			before, _ := os.ReadDir(host)
			n, err := g.GetFile(tc.file, host+"/"+tc.dst)
			if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if after, _ := os.ReadDir(host); err != nil && (len(after) != len(before) || n != 0) {
				t.Errorf("left behind: %v", after)
			}
			if st, serr := os.Lstat(host + "/" + tc.dst); err == nil && (serr != nil || st.Mode() != tc.mode || st.Size() != 3) {
				t.Errorf("made %v of %d bytes", st.Mode(), st.Size())
			}
			untouched(t, outside)
		})
	}
}

func TestNothingGoesInThroughALink(t *testing.T) {
	for _, tc := range []struct {
		name, target, put string
		want              error
	}{
		{"a link at the end", "secret", "f", ErrLink},
		{"a link to what is not there", "new", "f", ErrLink},
		{"a link in the middle", ".", "f/new", ErrLink},
		{"a link in the middle, twice", ".", "f/sub/new", ErrLink},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, outside, g := box(t)
			must(t, os.Symlink(filepath.Join(outside, tc.target), dir+"/f"))
			if _, err := g.Put(tc.put, strings.NewReader("overwritten"), 0o600); !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
			untouched(t, outside)
			// The careless way, last, since it does harm.
			must(t, os.MkdirAll(filepath.Join(outside, "sub"), 0o755))
			must(t, os.WriteFile(filepath.Join(dir, tc.put), []byte("overwritten"), 0o600))
			text, _ := os.ReadFile(outside + "/secret")
			news, _ := filepath.Glob(outside + "/*new")
			deeper, _ := filepath.Glob(outside + "/sub/new")
			if string(text) == secret && len(news)+len(deeper) == 0 {
				t.Error("the fault is not real: a careless write did no harm")
			}
		})
	}
}

func TestOnlyRegularFilesAreReplaced(t *testing.T) {
	dir, _, g := box(t)
	must(t, errors.Join(os.Mkdir(dir+"/d", 0o755), unix.Mkfifo(dir+"/p", 0o600)))
	for _, name := range []string{"d", "p"} {
		if _, err := g.Put(name, strings.NewReader("x"), 0o600); !errors.Is(err, ErrNotRegular) {
			t.Errorf("put %s: got %v", name, err)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
}
