// This file owns what is known of a container's first process: whether it lives,
// and whether the number still means the same process.

package runtime

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	sbxinit "github.com/sbxrun/sbxrun/init"
)

// Paused is the status of a frozen container; the specification leaves it to runtimes.
const Paused specs.ContainerState = "paused"

// readBootID tells one boot of the machine from another. Without it a state that was
// written a moment ago would be one of another boot, of which nothing lives.
var readBootID = sync.OnceValues(func() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("read the boot id: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
})

// process is a process that a number alone does not name for certain.
type process struct {
	Pid       int    `json:"pid"`
	StartTime uint64 `json:"startTime"`
}

// open gives a pidfd of it, or errGone when it has ended or the number belongs to
// another process now. With any other error nobody knows.
func (p *process) open() (int, error) {
	if p == nil || p.Pid <= 0 {
		return -1, errGone
	}
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err == unix.ESRCH {
		return -1, errGone
	}
	if err != nil {
		return -1, fmt.Errorf("pidfd_open %d: %w", p.Pid, err)
	}
	st, err := readStat(p.Pid)
	if err == nil && (st.start != p.StartTime || st.ended()) {
		err = errGone
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// pidfd opens the container's first process.
func (c *Container) pidfd() (int, error) {
	if c.record.Boot != c.store.boot {
		return -1, errGone
	}
	return (&process{c.record.Pid, c.record.StartTime}).open()
}

// openFirst is pidfd where the process must live.
func (c *Container) openFirst() (int, error) {
	fd, err := c.pidfd()
	if err == errGone {
		err = errNotRunning
	}
	return fd, err
}

// Status says what the container does at this moment.
func (c *Container) Status() (specs.ContainerState, error) {
	fd, err := c.pidfd()
	if err == errGone {
		return specs.StateStopped, nil
	}
	if err != nil {
		return "", fmt.Errorf("look at the first process of container %s: %w", c.record.ID, err)
	}
	unix.Close(fd)
	if c.record.Status == specs.StateCreating {
		return specs.StateCreating, nil
	}
	if g := c.group(); g != nil {
		defer g.Close()
		if frozen, err := g.Frozen(); err == nil && frozen {
			return Paused, nil
		}
	}
	if c.waiting() {
		return specs.StateCreated, nil
	}
	return specs.StateRunning, nil
}

// waiting says whether the first process still is an init that waits for start.
func (c *Container) waiting() bool {
	if _, err := os.Lstat(filepath.Join(c.dir, startSock)); err != nil {
		return false
	}
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(c.record.Pid) + "/cmdline")
	return err == nil && string(bytes.TrimRight(cmdline, "\x00")) == sbxinit.Name
}

// group reopens the container's control group, nil when it has none.
func (c *Container) group() *cgroup.Group {
	if c.record.Cgroup == nil || c.record.Making || c.record.Boot != c.store.boot { // of another boot: whoever is there now is a stranger
		return nil
	}
	g, err := cgroup.Load(*c.record.Cgroup)
	if err != nil {
		return nil // it went with a reboot, or by somebody's hand
	}
	return g
}

// State is what "sbxrun state" prints: the fields of the specification's state and
// those that runc adds, in runc's order, which readers have come to rely on.
type State struct {
	Version     string               `json:"ociVersion"`
	ID          string               `json:"id"`
	Pid         int                  `json:"pid"` // 0 when stopped
	Status      specs.ContainerState `json:"status"`
	Bundle      string               `json:"bundle"`
	Rootfs      string               `json:"rootfs"`
	Created     string               `json:"created"` // RFC 3339
	Annotations map[string]string    `json:"annotations,omitempty"`
	Owner       string               `json:"owner"`
	// Result is the verdict on a container with a policy that has ended.
	Result json.RawMessage `json:"result,omitempty"`
}
