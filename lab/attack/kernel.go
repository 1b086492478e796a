// Programs that take hold of a kernel interface and stand still: the host sees what they
// hold. As in held.go the last argument is the mark.

package attack

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	register(
		attack{"A13", "packet", "MARK", "opens a packet socket, which sees what passes", packet},
		attack{"A13", "vsock", "MARK", "opens a socket to the hypervisor", vsock},
		attack{"A15", "own-users", "MARK", "makes a user namespace, in which it is root", ownUsers},
		attack{"A15", "trace", "PID MARK", "traces a process", trace},
		attack{"A16", "io-uring", "MARK", "makes an io_uring", ioUring},
		attack{"A16", "userfaultfd", "MARK", "makes a userfaultfd", userfaultfd},
		attack{"A17", "leave-key", "NAME", "leaves a key in the user's keyring", leaveKey},
		attack{"A17", "session-key", "NAME", "reads a key of the session keyring", sessionKey},
	)
}

// hold keeps a descriptor, if it was had, until the host has looked.
func hold(what string, fd int, err error) {
	saw(what, err)
	if err == nil {
		ready()
		unix.Close(fd)
	}
}

func packet([]string) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, int(binary.BigEndian.Uint16([]byte{0, unix.ETH_P_ALL})))
	hold("packet socket", fd, err)
}

func vsock([]string) {
	fd, err := unix.Socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0)
	hold("vsock", fd, err)
}

func ownUsers(args []string) {
	cmd := self("idle", arg(args, 0))
	cmd.Stdin = os.Stdin
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	saw("clone with CLONE_NEWUSER", cmd.Run())
}

func ioUring([]string) {
	var params [120]byte
	fd, _, e := unix.Syscall(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params)), 0)
	hold("io_uring_setup", int(fd), asError(e))
}

// asError is nil for no error, as an errno in an interface never is.
func asError(e syscall.Errno) error {
	if e == 0 {
		return nil
	}
	return e
}

func userfaultfd([]string) {
	const userModeOnly = 1 // UFFD_USER_MODE_ONLY, what everybody may have since 5.11
	fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly, 0, 0)
	hold("userfaultfd", int(fd), asError(e))
}

func trace(args []string) {
	runtime.LockOSThread() // the thread is the tracer
	err := unix.PtraceAttach(number(arg(args, 0)))
	saw(fmt.Sprintf("ptrace as %d", os.Getuid()), err)
	if err == nil {
		ready()
	}
}

func leaveKey(args []string) {
	_, err := unix.AddKey("user", arg(args, 0), []byte("left"), unix.KEY_SPEC_USER_KEYRING)
	saw("add_key", err)
}

func sessionKey(args []string) {
	id, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", arg(args, 0), 0)
	text := make([]byte, 256)
	n := 0
	if err == nil {
		n, err = unix.KeyctlBuffer(unix.KEYCTL_READ, id, text, 0)
	}
	saw("keyctl", err)
	if err == nil {
		fmt.Printf("%s\n", text[:min(n, len(text))])
	}
}
