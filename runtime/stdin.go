// This file owns what a program under a policy reads as its stdin.

package runtime

import (
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"

	"golang.org/x/sys/unix"
)

// openStdin makes a descriptor of what the program is to read; done lets go of ours, and
// nothing is read after it. What is neither a pipe nor /dev/null goes through a pipe: the
// program could change a file by its descriptor (fchmod), open it anew for writing
// (/proc/self/fd/0) past every read-only mount, steer a terminal, and call out of its
// network namespace by a socket.
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
		case err != nil:
			return nil, nil, fmt.Errorf("look at stdin: %w", err)
		case harmless(f):
			return f, func() {}, nil
		}
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, nil, fmt.Errorf("duplicate stdin: %w", err)
		}
		own = os.NewFile(uintptr(fd), f.Name())
	}
	stdin, w, err := os.Pipe()
	if err != nil {
		own.Close() // nil says that it is none
		return nil, nil, fmt.Errorf("make the stdin pipe: %w", err)
	}
	if own == nil {
		go func() {
			_, _ = io.Copy(w, r) // a program may read as much as it likes
			w.Close()
		}()
		return stdin, func() { stdin.Close() }, nil
	}
	end, stop, err := os.Pipe()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make the stdin pipe: %w", err), own.Close(), stdin.Close(), w.Close())
	}
	go relayStdin(w, own, end)
	return stdin, func() { stdin.Close(); stop.Close() }, nil
}

// harmless says whether f is /dev/null or a pipe without a name.
func harmless(f *os.File) bool {
	var st unix.Stat_t
	var fs unix.Statfs_t
	if unix.Fstat(int(f.Fd()), &st) != nil || unix.Fstatfs(int(f.Fd()), &fs) != nil {
		return false
	}
	return st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev == unix.Mkdev(1, 3) || fs.Type == unix.PIPEFS_MAGIC
}

// relayStdin copies as much as the program reads until r ends or end is closed: who
// types later types for somebody else.
func relayStdin(w, r, end *os.File) {
	defer func() { w.Close(); r.Close(); end.Close() }()
	// In the background a read of the terminal would stop the supervisor, and its clock
	// with it. On a thread that blocks the signal, it is an error.
	goruntime.LockOSThread() // which ends with the goroutine
	block := unix.Sigset_t{}
	block.Val[0] = 1 << (unix.SIGTTIN - 1)
	if unix.PthreadSigmask(unix.SIG_BLOCK, &block, nil) != nil {
		return
	}
	buf := make([]byte, 32<<10)
	fds := []unix.PollFd{{Fd: int32(r.Fd()), Events: unix.POLLIN}, {Fd: int32(end.Fd()), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(fds, -1); err == unix.EINTR {
			continue
		} else if err != nil || fds[1].Revents != 0 {
			return
		}
		n, err := unix.Read(int(r.Fd()), buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if n <= 0 || err != nil {
			return
		}
		if _, err := w.Write(buf[:n]); err != nil {
			return
		}
	}
}
