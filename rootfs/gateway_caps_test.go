// Tests of the gateway's caps, names, and listing, and of the kernel it needs.

package rootfs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestCapsHold(t *testing.T) {
	dir, _, _ := box(t)
	must(t, os.WriteFile(dir+"/f", make([]byte, 60), 0o600))
	full := func(n int) io.Reader { return bytes.NewReader(make([]byte, n)) }
	for _, tc := range []struct {
		name string
		caps Caps
		then []func(*Gateway) error
		want error // of the last; those before must work
	}{
		{"one file", Caps{FileSize: 50}, []func(*Gateway) error{
			func(g *Gateway) error { _, err := g.Put("a", full(50), 0o600); return err },
			func(g *Gateway) error { _, err := g.Put("a", full(51), 0o600); return err },
		}, ErrTooBig},
		{"one file out", Caps{FileSize: 59}, []func(*Gateway) error{
			func(g *Gateway) error { _, err := g.Get("f", io.Discard); return err },
		}, ErrTooBig},
		{"all bytes in", Caps{TotalSize: 100}, []func(*Gateway) error{
			func(g *Gateway) error { _, err := g.Put("a", full(60), 0o600); return err },
			func(g *Gateway) error { _, err := g.Get("a", io.Discard); return err },
		}, ErrTooBig},
		{"all bytes out", Caps{TotalSize: 100}, []func(*Gateway) error{
			func(g *Gateway) error { _, err := g.Get("f", io.Discard); return err },
			func(g *Gateway) error { _, err := g.Put("a", full(41), 0o600); return err },
		}, ErrTooBig},
		{"copies", Caps{Files: 2}, []func(*Gateway) error{
			func(g *Gateway) error { _, err := g.Put("a", full(1), 0o600); return err },
			func(g *Gateway) error { _, err := g.Get("f", io.Discard); return err },
			func(g *Gateway) error { _, err := g.Get("f", io.Discard); return err },
		}, ErrTooMany},
		{"time", Caps{Time: time.Nanosecond}, []func(*Gateway) error{
			func(g *Gateway) error { _, err := g.Put("a", endless{}, 0o600); return err },
		}, ErrTimeout},
		{"no overflow", Caps{FileSize: math.MaxInt64, TotalSize: math.MaxInt64}, []func(*Gateway) error{
			func(g *Gateway) error { _, err := g.Put("a", full(1), 0o600); return err },
			func(g *Gateway) error { return errors.Join(g.Close(), io.EOF) },
		}, io.EOF},
	} {
		t.Run(tc.name, func(t *testing.T) {
			g := gateway(t, dir, Owner{}, tc.caps)
			for i, f := range tc.then {
				if err := f(g); i < len(tc.then)-1 && err != nil {
					t.Errorf("step %d: %v", i, err)
				} else if i == len(tc.then)-1 && !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
			}
			if left, _ := filepath.Glob(dir + "/.*"); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// endless gives nothing, for ever.
type endless struct{}

func (endless) Read([]byte) (int, error) { return 0, nil }

// failing is a source that ends as it is told to.
type failing func()

func (f failing) Read([]byte) (int, error) { f(); return 0, unix.EIO }

func TestASourceThatFailsLeavesNothing(t *testing.T) {
	dir, _, g := box(t)
	if n, err := g.Put("f", io.MultiReader(strings.NewReader("begun"), failing(func() {})), 0o600); n != 0 || !errors.Is(err, unix.EIO) {
		t.Errorf("got %d, %v", n, err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic of a source was swallowed")
			}
		}()
		_, _ = g.Put("f", failing(func() { panic("at the disco") }), 0o600)
	}()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNamesThatLeadAstrayAreRefused(t *testing.T) {
	names := []string{"", ".", "..", "/", "/etc/passwd", "a/", "/a", "a//b", "./a", "a/.", "a/..", "../a", "a/../b", "a\x00b",
		strings.Repeat("x", 256), "a/" + strings.Repeat("x", 256), strings.Repeat("a/", 64) + "a", strings.Repeat(strings.Repeat("x", 250)+"/", 17) + "a"}
	for _, name := range append(names, "bad\xff", "new\nline", "\x1b[2J", "\u009b", "\x7f") {
		dir, outside, g := box(t)
		_, err := g.Put(name, strings.NewReader("x"), 0o600)
		if !errors.Is(err, ErrName) {
			t.Errorf("put %q: got %v", name, err)
		} else if strings.ContainsFunc(err.Error(), func(r rune) bool { return r < ' ' || r == utf8.RuneError }) {
			t.Errorf("the text of the error can drive a terminal: %q", err)
		}
		if _, err := g.Get(name, io.Discard); slices.Contains(names, name) != errors.Is(err, ErrName) {
			t.Errorf("get %q: got %v", name, err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 0 {
			t.Errorf("%q: there is now %v", name, left)
		}
		untouched(t, outside)
	}
}

func FuzzNamesStayInside(f *testing.F) {
	for _, n := range []string{"a", "a/b", "..", "../x", "/etc/passwd", "a/../../b", "", ".", "a\x00b", "a/", "//", "\xff", "a\nb", strings.Repeat("a/", 100)} {
		f.Add(n)
	}
	f.Fuzz(func(t *testing.T, name string) {
		dir, outside, g := box(t)
		_, err := g.Put(name, strings.NewReader("x"), 0o600)
		if good := inside(name) && plain(name); good != (err == nil) {
			t.Errorf("put %q: %v", name, err)
		}
		if err == nil {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != "x" {
				t.Errorf("%q was put elsewhere: %v", name, err)
			}
			if entries, err := g.List(); err != nil || entries[len(entries)-1].Name != name {
				t.Errorf("%q is listed as %v (%v)", name, entries, err)
			}
		}
		if _, gerr := g.Get(name, io.Discard); (gerr == nil) != (err == nil) {
			t.Errorf("put and get of %q differ: %v, %v", name, err, gerr)
		}
		if text := (Entry{Name: name}).Printable(); !utf8.ValidString(text) || !plain(text) {
			t.Errorf("%q is printed as %q", name, text)
		}
		untouched(t, outside)
	})
}

func TestAListingShowsEverythingAndFollowsNothing(t *testing.T) {
	dir, outside, g := box(t)
	odd := "odd\xff\n\x1b[2J"
	must(t, errors.Join(os.MkdirAll(dir+"/d/e", 0o750), os.WriteFile(dir+"/d/e/f", []byte("12345"), 0o640),
		os.Symlink(outside, dir+"/link"), unix.Mkfifo(dir+"/p", 0o600), os.WriteFile(dir+"/"+odd, []byte("odd"), 0o600),
		os.Mkdir(dir+"/closed", 0)))
	defer os.Chmod(dir+"/closed", 0o700)
	entries, err := g.List()
	must(t, err)
	got := map[string]Entry{}
	for _, e := range entries {
		got[e.Name] = e
	}
	for name, want := range map[string]fs.FileMode{"d": fs.ModeDir | 0o750, "d/e": fs.ModeDir | 0o750, "d/e/f": 0o640,
		"link": fs.ModeSymlink | 0o777, "p": fs.ModeNamedPipe | 0o600, odd: 0o600, "closed": fs.ModeDir} {
		if e, ok := got[name]; !ok || e.Mode != want {
			t.Errorf("%q is %v, want %v", name, e.Mode, want)
		}
	}
	if f := got["d/e/f"]; len(got) != 7 || f.Size != 5 || time.Since(f.ModTime).Abs() > time.Hour {
		t.Errorf("listed %+v", entries)
	}
	if !slices.IsSortedFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) }) {
		t.Errorf("not sorted: %v", entries)
	}
	if err := got["closed"].Err; os.Geteuid() != 0 && !errors.Is(err, fs.ErrPermission) {
		t.Errorf("of the closed directory it says %v", err)
	}
	// An odd name comes out by its bytes and is shown without harm.
	var out bytes.Buffer
	if _, err := g.Get(odd, &out); err != nil || out.String() != "odd" {
		t.Errorf("get: %q, %v", out.String(), err)
	}
	if text := got[odd].Printable(); text != `"odd\xff\n\x1b[2J"` || got["d/e/f"].Printable() != "d/e/f" {
		t.Errorf("printed as %s", text)
	}
	if _, err := json.Marshal(got[odd].Printable()); err != nil {
		t.Error(err)
	}
}

func TestAListingIsBounded(t *testing.T) {
	dir, _, _ := box(t)
	for i := range 20 {
		must(t, os.WriteFile(fmt.Sprintf("%s/%d", dir, i), nil, 0o600))
	}
	if entries, err := gateway(t, dir, Owner{}, Caps{Files: 10}).List(); !errors.Is(err, ErrTooMany) || len(entries) != 10 {
		t.Errorf("listed %d, %v", len(entries), err)
	}
	if _, err := gateway(t, dir, Owner{}, Caps{Time: 1}).List(); !errors.Is(err, ErrTimeout) {
		t.Errorf("got %v", err)
	}
	deep(t, dir, 100)
	entries, err := gateway(t, dir, Owner{}, Caps{}).List()
	must(t, err)
	if last := entries[len(entries)-1]; strings.Count(last.Name, "/") != maxDepth-1 || !errors.Is(last.Err, ErrTooMany) {
		t.Errorf("the last is %+v", last)
	}
}

func TestAFileOfASizeIsFound(t *testing.T) {
	dir, outside, _ := box(t)
	must(t, errors.Join(os.Mkdir(dir+"/d", 0o700), os.WriteFile(dir+"/d/f", make([]byte, 77), 0o600), os.Symlink(outside, dir+"/l")))
	f, err := os.Open(dir)
	must(t, err)
	defer f.Close()
	if !HasFileOfSize(f, 77, time.Time{}) || HasFileOfSize(f, 78, time.Time{}) || HasFileOfSize(f, int64(len(secret)), time.Time{}) {
		t.Error("wrong")
	}
}

// withoutOpenat2 makes this process see a kernel before Linux 5.6.
func withoutOpenat2(args []string) {
	const load, equal, ret = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K
	filter := []unix.SockFilter{
		{Code: load}, {Code: equal, K: unix.SYS_OPENAT2, Jf: 1},
		{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)}, {Code: ret, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	dir, err := os.Open(args[0])
	if err == nil {
		err = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	}
	if err == nil {
		_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
		if e != 0 {
			err = e
		}
	}
	if err != nil {
		fmt.Println("set up:", err)
		return
	}
	_, err = OpenGateway(dir, Owner{}, Caps{})
	fmt.Println(err, "|", RemoveAll(dir, "d"))
}

func TestAKernelWithoutOpenat2IsRefused(t *testing.T) {
	dir, _, _ := box(t)
	must(t, os.Mkdir(dir+"/d", 0o700))
	said, _ := helper(t, nil, "no-openat2", dir)
	opened, removed, _ := strings.Cut(said, " | ")
	if want := "openat2: function not implemented (Linux 5.6 or newer is needed)"; !strings.HasSuffix(opened, want) {
		t.Errorf("open said %q, want %q", opened, want)
	}
	if want := "remove d: function not implemented"; removed != want {
		t.Errorf("remove said %q, want %q", removed, want)
	}
	f, err := os.Open("/dev/null")
	must(t, err)
	defer f.Close()
	if _, err := OpenGateway(f, Owner{}, Caps{}); !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("a gateway to /dev/null: %v", err)
	}
}
