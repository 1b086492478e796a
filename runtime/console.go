// This file owns terminals outside the container: handing the master to whoever
// asked for it, or passing it through in the foreground.

package runtime

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// consoleStep gives the arguments of OpConsole.
func consoleStep(p *specs.Process) []uint64 {
	nums := []uint64{0, 0, uint64(p.User.UID)}
	if size := p.ConsoleSize; size != nil {
		nums[0], nums[1] = uint64(size.Width), uint64(size.Height)
	}
	return nums
}

// sendTerminal hands the terminal's master to the AF_UNIX socket, as runc's
// --console-socket does: the descriptor by SCM_RIGHTS, its name as payload.
func sendTerminal(socket string, master *os.File) error {
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return fmt.Errorf("connect to the console socket: %w", err)
	}
	defer conn.Close()
	// Whoever listens may hang; the container is not made then.
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return fmt.Errorf("send the terminal: %w", err)
	}
	if _, _, err := conn.WriteMsgUnix([]byte("/dev/ptmx"), unix.UnixRights(int(master.Fd())), nil); err != nil {
		return fmt.Errorf("send the terminal: %w", err)
	}
	return nil
}

// proxy passes a terminal through to sbxrun's own until the container's side is
// closed. When stdin is a terminal it is in raw mode meanwhile and its size is kept
// equal. The function it returns waits for the rest of the output.
func proxy(master *os.File) (finish func(), err error) {
	restore := func() {}
	stdin := int(os.Stdin.Fd())
	if old, err := unix.IoctlGetTermios(stdin, unix.TCGETS); err == nil {
		raw := *old
		raw.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
		raw.Oflag &^= unix.OPOST
		raw.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
		raw.Cflag = raw.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
		raw.Cc[unix.VMIN], raw.Cc[unix.VTIME] = 1, 0
		if err := unix.IoctlSetTermios(stdin, unix.TCSETS, &raw); err != nil {
			return nil, fmt.Errorf("set the terminal to raw mode: %w", err)
		}
		restore = func() { _ = unix.IoctlSetTermios(stdin, unix.TCSETS, old) } // nothing more can be done
		followSize(stdin, int(master.Fd()))
	}
	done := make(chan struct{})
	go func() { _, _ = io.Copy(master, os.Stdin) }() // ends with the process: a read of stdin cannot be called off
	go func() {
		defer close(done)
		// The master reports EIO when the last slave is closed: the end, not an error.
		_, _ = io.Copy(os.Stdout, master)
	}()
	return func() { <-done; restore() }, nil
}

// followSize copies the size of one terminal to another, now and at each change.
func followSize(from, to int) {
	resize := func() {
		if size, err := unix.IoctlGetWinsize(from, unix.TIOCGWINSZ); err == nil {
			_ = unix.IoctlSetWinsize(to, unix.TIOCSWINSZ, size) // the program keeps the old size
		}
	}
	resize()
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, unix.SIGWINCH)
	go func() {
		for range changes {
			resize()
		}
	}()
}

// checkConsole says whether a console socket and the process suit each other.
func checkConsole(p *specs.Process, socket string, detached bool) error {
	terminal := p != nil && p.Terminal
	switch {
	case terminal && detached && socket == "":
		return errors.New("process.terminal: without --console-socket nobody could use the terminal")
	case socket != "" && !detached:
		return errors.New("--console-socket: in the foreground the terminal is the caller's")
	case socket != "" && !terminal:
		return errors.New("--console-socket: the process has no terminal, see process.terminal")
	}
	return nil
}
