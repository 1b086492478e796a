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

// pidfd opens the container's first process, for certain: -1 when it is gone or
// its number belongs to another process now.
func (c *Container) pidfd() int {
	if c.record.Pid <= 0 || c.record.Boot != c.store.boot {
		return -1
	}
	fd, err := unix.PidfdOpen(c.record.Pid, 0)
	if err != nil {
		return -1
	}
	if st, ok := readStat(c.record.Pid); !ok || st.start != c.record.StartTime || st.state == 'Z' || st.state == 'X' {
		unix.Close(fd)
		return -1
	}
	return fd
}

// Status says what the container does at this moment.
func (c *Container) Status() specs.ContainerState {
	fd := c.pidfd()
	if fd < 0 {
		return specs.StateStopped
	}
	unix.Close(fd)
	if c.record.Status == specs.StateCreating {
		return specs.StateCreating
	}
	if g := c.group(); g != nil {
		defer g.Close()
		if frozen, err := g.Frozen(); err == nil && frozen {
			return Paused
		}
	}
	if c.waiting() {
		return specs.StateCreated
	}
	return specs.StateRunning
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
