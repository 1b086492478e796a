// This file owns what a program under a policy reads as its stdin.

package runtime

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// openStdin makes a descriptor of what the program is to read; done lets go of ours. A
// regular file goes through a pipe: the program could change it by its descriptor
// (fchmod), and open it anew for writing (/proc/self/fd/0), past every read-only mount.
func openStdin(r io.Reader) (stdin *os.File, done func(), err error) {
	if r == nil {
		f, err := os.Open(os.DevNull)
		return f, func() { f.Close() }, err
	}
	var own *os.File // the caller may close his before all is read
	if f, ok := r.(*os.File); ok {
		st, err := f.Stat()
		switch {
		case err == nil && st.IsDir():
			return nil, nil, errors.New("stdin is a directory, which would be a way out")
		case err != nil || !st.Mode().IsRegular():
			return f, func() {}, nil
		}
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("duplicate stdin: %w", err)
		}
		own = os.NewFile(uintptr(fd), f.Name())
		r = own
	}
	stdin, w, err := os.Pipe()
	if err != nil {
		own.Close() // nil says that it is none
		return nil, nil, fmt.Errorf("make the stdin pipe: %w", err)
	}
	go func() {
		_, _ = io.Copy(w, r) // a program may read as much as it likes
		w.Close()
		own.Close()
	}()
	return stdin, func() { stdin.Close() }, nil
}
