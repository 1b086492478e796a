// This file owns the attacks on interfaces of the kernel: what a process holds (a
// descriptor, another process, a key, a terminal) is seen from the host.

package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
)

// heldBy lists what the descriptors of a process are: "anon_inode:[io_uring]",
// "socket:[123]".
func heldBy(pid int) (names []string) {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		to, _ := os.Readlink(fd)
		names = append(names, to)
	}
	return names
}

// holds lets a helper take hold of something and asks whether it has.
func (t *try) holds(what string, has func(pid int) bool, helper ...string) error {
	err := t.held(func(pid int) {
		if has(pid) {
			t.got("it holds %s", what)
		}
	}, func() error { return t.helper(helper[0], append(helper[1:], t.mark)...) })
	if err == nil {
		t.seen = saidErrno(lastLine(t.res.Stdout.Text))
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func anonymous(name string) func(int) bool {
	return func(pid int) bool { return slices.Contains(heldBy(pid), "anon_inode:["+name+"]") }
}

func ownUserNamespace(t *try) error {
	err := t.held(func(pid int) {
		own, _ := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
		parents, _ := os.Readlink(fmt.Sprintf("/proc/%s/ns/user", status(pid, "PPid")))
		if own != "" && own != parents {
			t.got("it is in %s, its parent in %s", "a namespace of its own", "another")
		}
	}, func() error { return t.helper("own-users", t.mark) })
	if err == nil {
		t.seen = saidErrno(lastLine(t.res.Stdout.Text))
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func ioUring(t *try) error {
	// 1 is for ordinary users, 2 for all (io_uring_disabled in sysctl/kernel.rst).
	if text, err := os.ReadFile("/proc/sys/kernel/io_uring_disabled"); err == nil && (text[0] == '2' || text[0] == '1' && os.Geteuid() != 0) {
		return notHere("the kernel has io_uring switched off")
	} else if _, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 0, 0, 0); e == unix.ENOSYS {
		return notHere("the kernel has no io_uring")
	}
	return t.holds("an io_uring", anonymous("io_uring"), "io-uring")
}

func stopsInCopy(t *try) error {
	if _, _, e := unix.Syscall(unix.SYS_USERFAULTFD, ^uintptr(0), 0, 0); e == unix.ENOSYS {
		return notHere("the kernel has no userfaultfd")
	}
	return t.holds("a userfaultfd", anonymous("userfaultfd"), "userfaultfd")
}

// hasFamily says whether the kernel has sockets of the kind.
func hasFamily(family, kind int) bool {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err != unix.EAFNOSUPPORT
}

// opensPacket counts if the socket is in the caller's network, of which
// /proc/net/packet is the list.
func opensPacket(t *try) error {
	if !hasFamily(unix.AF_PACKET, unix.SOCK_RAW) {
		return notHere("the kernel has no packet sockets")
	}
	return t.holds("a packet socket of the host's network", func(pid int) bool {
		text, _ := os.ReadFile("/proc/net/packet")
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); slices.Contains(heldBy(pid), "socket:["+f[len(f)-1]+"]") {
				return true
			}
		}
		return false
	}, "packet")
}

func opensVsock(t *try) error {
	if !hasFamily(unix.AF_VSOCK, unix.SOCK_STREAM) {
		return notHere("the kernel has no vsock")
	}
	return t.holds("a vsock", func(pid int) bool {
		fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		return slices.ContainsFunc(fds, func(fd string) bool {
			name := make([]byte, 32)
			n, err := unix.Getxattr(fd, "system.sockprotoname", name)
			return err == nil && string(bytes.Trim(name[:n], "\x00")) == "AF_VSOCK"
		})
	}, "vsock")
}

// victim is a process of the caller's.
func victim() (pid int, end func(), err error) {
	cmd := exec.Command("/bin/sleep", "600")
	if err := cmd.Start(); err != nil {
		return 0, nil, err
	}
	return cmd.Process.Pid, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}, nil
}

func killsBystander(t *try) error {
	pid, end, err := victim()
	if err != nil {
		return err
	}
	defer end()
	err = t.sh(`kill -KILL "$1"; :`, strconv.Itoa(pid))
	if !lives(pid) {
		t.got("the process was killed")
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func tracesBystander(t *try) error {
	// 1 is for parents only, 2 for CAP_SYS_PTRACE, 3 for nobody (LSM/Yama.rst).
	if text, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && (text[0] == '3' || text[0] != '0' && os.Geteuid() != 0) {
		return notHere("Yama lets nobody trace a process that is not a child")
	}
	pid, end, err := victim()
	if err != nil {
		return err
	}
	defer end()
	return t.holds("the process as its tracer", func(tracer int) bool {
		by, _ := strconv.Atoi(status(pid, "TracerPid"))
		return by > 0 && status(by, "Tgid") == strconv.Itoa(tracer)
	}, "trace", strconv.Itoa(pid))
}

func leavesKey(t *try) error {
	const ring = unix.KEY_SPEC_USER_KEYRING
	if _, err := unix.KeyctlSearch(ring, "user", t.mark, 0); err != unix.ENOKEY {
		return notHere(fmt.Sprintf("the user's keyring cannot be searched: %v", err))
	}
	err := t.helper("leave-key", t.mark)
	if id, found := unix.KeyctlSearch(ring, "user", t.mark, 0); found == nil {
		t.got("the key is there")
		_, _ = unix.KeyctlInt(unix.KEYCTL_UNLINK, id, ring, 0, 0)
	}
	if t.seen = "no key afterwards"; err == nil && saidErrno(t.res.Stdout.Text) != "" {
		t.seen = saidErrno(t.res.Stdout.Text)
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

// readsSessionKey is made from a thread with a session keyring of its own, which the
// program inherits unless something is done about it. A prepared init comes from another
// thread.
func readsSessionKey(t *try) error {
	if t.warm {
		return notHere("a prepared init has the keyring of the thread that made it")
	}
	done := make(chan error)
	go func() {
		goruntime.LockOSThread() // the thread ends with the goroutine
		secret := "KEY-" + t.mark
		_, err := unix.KeyctlJoinSessionKeyring(t.mark)
		if err == nil {
			_, err = unix.AddKey("user", t.mark, []byte(secret), unix.KEY_SPEC_SESSION_KEYRING)
		}
		if err != nil {
			done <- notHere(fmt.Sprintf("there is no session keyring to be had: %v", err))
			return
		}
		done <- t.printed(secret, "the key", t.helper("session-key", t.mark))
	}()
	return <-done
}

// typesForCaller gives the run a terminal as its stdin; what is typed into it can be
// read there.
func typesForCaller(t *try) error {
	master, slave, err := openTerminal()
	if err != nil {
		return err
	}
	defer master.Close()
	defer slave.Close()
	t.stdin = slave
	err = t.helper("tiocsti", t.mark)
	if n, _ := unix.IoctlGetInt(int(slave.Fd()), unix.TIOCINQ); n > 0 {
		t.got("%d byte waits in the terminal", n)
	}
	if err == nil {
		t.seen = saidErrno(lastLine(t.res.Stdout.Text))
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

// openTerminal makes a terminal that holds no line back.
func openTerminal() (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err == nil {
		var mode *unix.Termios
		if mode, err = unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err == nil {
			mode.Lflag = 0
			err = unix.IoctlSetTermios(int(slave.Fd()), unix.TCSETS, mode)
		}
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open a terminal: %w", err), master.Close())
	}
	return master, slave, nil
}
