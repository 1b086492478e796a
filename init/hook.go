// This file owns the hooks that run inside the container: createContainer before
// pivot_root, startContainer right before the program (OCI runtime-spec,
// config.md#posix-platform-hooks). Those of the runtime's namespaces are the
// runtime's business; init only waits for them.

package sbxinit

import (
	"errors"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// awaitHooks lets the runtime call the hooks that want the namespaces made but the
// host's files still in sight.
func (s *state) awaitHooks(Step) error {
	if err := writeFull(ChannelFD, []byte{FrameHooks}); err != nil {
		return call("sendmsg", "channel", err)
	}
	return call("read", "channel", receiveGo())
}

// hookOutput bounds what of a hook's output an error repeats.
const hookOutput = 1024

// hook runs one hook and waits for its end.
func (s *state) hook(st Step) error {
	state, path, rest := st.Strs[0], st.Strs[1], st.Strs[2:]
	n := min(int(st.Nums[0]), len(rest))
	args, env := rest[:n], rest[n:]
	if len(args) == 0 {
		args = []string{path}
	}
	if s.root != nil {
		if err := s.root.Chdir(); err != nil { // before the pivot, as runc does
			return err
		}
	}
	stdin, err := scratch(state)
	if err != nil {
		return err
	}
	defer unix.Close(stdin)
	output, err := scratch("")
	if err != nil {
		return err
	}
	defer unix.Close(output)
	pidfd := -1
	pid, err := syscall.ForkExec(path, args, &syscall.ProcAttr{
		Env: env, Files: []uintptr{uintptr(stdin), uintptr(output), uintptr(output)},
		Sys: &syscall.SysProcAttr{Setpgid: true, PidFD: &pidfd},
	})
	if err != nil {
		return call("execute hook", path, err)
	}
	if pidfd >= 0 {
		defer unix.Close(pidfd)
	}
	return awaitHook(path, pid, pidfd, int(st.Nums[1]), output)
}

// awaitHook waits for the hook at most ms milliseconds, 0 being for ever.
func awaitHook(path string, pid, pidfd, ms, output int) error {
	late := false
	if ms > 0 && pidfd >= 0 {
		n := 0
		err := error(unix.EINTR)
		for err == unix.EINTR {
			n, err = unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, ms)
		}
		if late = err == nil && n == 0; late {
			_ = unix.Kill(-pid, unix.SIGKILL) // its group; what counts is the wait below
		}
	}
	var ws unix.WaitStatus
	for {
		if _, err := unix.Wait4(pid, &ws, 0, nil); err != unix.EINTR {
			break
		}
	}
	switch {
	case late:
		return errors.New("error running hook " + path + ": it ran past specified timeout of " + strconv.Itoa(ms) + " ms")
	case ws.Signaled():
		return errors.New("error running hook " + path + ": " + ws.Signal().String() + said(output))
	case ws.ExitStatus() != 0:
		return errors.New("error running hook " + path + ": exit status " + strconv.Itoa(ws.ExitStatus()) + said(output))
	}
	return nil
}

// scratch makes a file in memory with the text, to be read from its start.
func scratch(text string) (int, error) {
	fd, err := unix.MemfdCreate("hook", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, call("memfd_create", "hook", err)
	}
	for b := []byte(text); len(b) > 0; {
		n, err := unix.Write(fd, b)
		if err != nil {
			unix.Close(fd)
			return -1, call("write", "hook", err)
		}
		b = b[n:]
	}
	_, err = unix.Seek(fd, 0, unix.SEEK_SET)
	return fd, call("lseek", "hook", err)
}

// said is what the hook wrote, for an error.
func said(output int) string {
	b := make([]byte, hookOutput)
	n, err := unix.Pread(output, b, 0)
	if n <= 0 || err != nil {
		return ""
	}
	return ", output: " + strings.TrimSpace(string(b[:n]))
}
