// This file owns the terminal of a container: a pseudo-terminal of its own devpts
// becomes stdin, stdout, stderr and the controlling terminal, and /dev/console.

package sbxinit

import (
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/rootfs"
)

func (s *state) console(st Step) error {
	master, err := s.root.OpenTerminal()
	if err != nil {
		return err
	}
	return s.attach(master, st, s.root.BindConsole)
}

// terminal is a further one: init stands inside the container already.
func (s *state) terminal(st Step) error {
	master, err := rootfs.OpenOwnTerminal()
	if err != nil {
		return err
	}
	return s.attach(master, st, func(int) error { return nil })
}

// attach makes the slave of master this process's terminal, after bind had it.
func (s *state) attach(master int, st Step, bind func(slave int) error) error {
	s.handFD = master
	if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
		return call("TIOCSPTLCK", "terminal", err)
	}
	// By descriptor: a path below /dev/pts could be another thing by now.
	slave, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(master), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if e != 0 {
		return call("TIOCGPTPEER", "terminal", e)
	}
	if w, h := uint16(st.Nums[0]), uint16(st.Nums[1]); w|h != 0 {
		size := unix.Winsize{Row: h, Col: w}
		if err := unix.IoctlSetWinsize(master, unix.TIOCSWINSZ, &size); err != nil {
			return call("TIOCSWINSZ", "terminal", err)
		}
	}
	if err := unix.Fchown(int(slave), int(st.Nums[2]), -1); err != nil {
		return call("fchown", "terminal", err)
	}
	if err := bind(int(slave)); err != nil {
		return err
	}
	for fd := range 3 {
		if err := unix.Dup3(int(slave), fd, 0); err != nil {
			return call("dup3", "terminal", err)
		}
	}
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, slave, unix.TIOCSCTTY, 0); e != 0 {
		return call("TIOCSCTTY", "terminal", e)
	}
	return call("close", "terminal", unix.Close(int(slave)))
}
