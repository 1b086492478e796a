// Tests of what a program can do with the descriptor that is its stdin.

package runtime

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAStdinIsAPipeOrNull(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func(name string) (in, out *os.File) {
		f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f, f
	}
	for _, tc := range []struct {
		name    string
		open    func() (in, out *os.File)
		through bool // another descriptor than the caller's
	}{
		{"a socket", func() (in, out *os.File) {
			fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				t.Fatal(err)
			}
			return os.NewFile(uintptr(fds[0]), "in"), os.NewFile(uintptr(fds[1]), "out")
		}, true},
		{"a terminal", func() (in, out *os.File) {
			master, _ := open("/dev/ptmx")
			if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
				t.Fatal(err)
			}
			fd, err := unix.IoctlRetInt(int(master.Fd()), unix.TIOCGPTPEER)
			if err != nil {
				t.Skip(err)
			}
			return os.NewFile(uintptr(fd), "slave"), master
		}, true},
		{"a FIFO with a name", func() (in, out *os.File) { return open(fifo) }, true},
		{"a pipe", func() (in, out *os.File) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			return r, w
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in, out := tc.open()
			defer in.Close()
			defer out.Close()
			stdin, done, err := openStdin(in)
			if err != nil {
				t.Fatal(err)
			}
			if !harmless(stdin) || (stdin != in) != tc.through {
				t.Errorf("it is %s, through a pipe: %v", stdin.Name(), stdin != in)
			}
			if _, err := out.WriteString("hello\n"); err != nil {
				t.Fatal(err)
			}
			text := make([]byte, 10)
			if n, err := stdin.Read(text); err != nil || string(text[:n]) != "hello\n" {
				t.Errorf("read %q, %v", text[:n], err)
			}
			done()
			// What comes now is for somebody else.
			if _, err := out.WriteString("later\n"); err != nil {
				t.Fatal(err)
			}
			if n, err := in.Read(text); err != nil || string(text[:n]) != "later\n" {
				t.Errorf("read %q, %v", text[:n], err)
			}
		})
	}
}
