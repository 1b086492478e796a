// This file owns handing a filter's listener to the agent that answers for the calls
// with SCMP_ACT_NOTIFY (OCI runtime-spec, config-linux.md#seccomp, seccomp_unotify(2)).

package runtime

import (
	"encoding/json"
	"fmt"
	"net"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// listener gives the function that passes the listener of the process pid on to the
// socket that the config names.
func (c *Container) listener(pid int) func(fd int) error {
	return func(fd int) error {
		s := c.record.Config.Linux.Seccomp
		if s == nil || s.ListenerPath == "" {
			return fmt.Errorf("linux.seccomp.listenerPath: missing")
		}
		if err := c.passListener(s, pid, fd); err != nil {
			return fmt.Errorf("linux.seccomp.listenerPath: %w", err)
		}
		return nil
	}
}

func (c *Container) passListener(s *specs.LinuxSeccomp, pid, fd int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open init: %w", err)
	}
	defer unix.Close(pidfd)
	ours, err := unix.PidfdGetfd(pidfd, fd, 0)
	if err != nil {
		return fmt.Errorf("fetch the listener from init: %w", err)
	}
	defer unix.Close(ours)
	state := c.hookState(c.record.Status)
	text, err := json.Marshal(specs.ContainerProcessState{
		Version: specs.Version, Fds: []string{specs.SeccompFdName}, Pid: pid, Metadata: s.ListenerMetadata, State: state,
	})
	if err != nil {
		return fmt.Errorf("encode the state: %w", err)
	}
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.ListenerPath, Net: "unix"})
	if err != nil {
		return fmt.Errorf("failed to connect with seccomp agent: %w", err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil { // an agent that hangs
		return err
	}
	_, _, err = conn.WriteMsgUnix(text, unix.UnixRights(ours), nil)
	return err
}
