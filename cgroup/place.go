// This file owns where groups are made: below which parent, and how the leaf
// comes into being beside a hundred others that come and go.

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/cgroups/v3/cgroup2"
	"golang.org/x/sys/unix"
)

const (
	shared     = "sbxrun"     // parent of the groups in the default place
	supervisor = "supervisor" // where the caller steps aside in a delegated group
	patience   = 5 * time.Second
)

var (
	probes atomic.Int64 // makes the names of Probe's groups unique
	moving sync.Mutex   // one step aside at a time
)

// checkID refuses a name that would leave its parent. The caller has the rules
// for ids; these are the kernel's.
func checkID(id string) error {
	if id == "" || id == "." || strings.Contains(id, "..") || strings.ContainsAny(id, "/\n\x00") || len(id) > unix.NAME_MAX {
		return fmt.Errorf("cgroup: %q is no name for a group", id)
	}
	return nil
}

// checkPath refuses a cgroupsPath that leaves the mount point or is meant for systemd.
func checkPath(path string) error {
	if strings.Count(path, ":") == 2 && !strings.HasPrefix(path, "/") {
		return fmt.Errorf("cgroupsPath %q is a systemd path, it needs --systemd-cgroup", path)
	}
	if slices.Contains(strings.Split(path, "/"), "..") || strings.ContainsAny(path, "\n\x00") || filepath.Clean("/"+path) == "/" {
		return fmt.Errorf("cgroupsPath %q is no path of a group", path)
	}
	return nil
}

// groupPath is the leaf's path below the mount point. An absolute cgroupsPath
// starts there, a relative one and the default place at the parent.
func groupPath(parent, path, id string) string {
	switch {
	case path == "":
		return filepath.Join(parent, shared, id)
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	}
	return filepath.Join(parent, path)
}

// makeLeaf makes a directory and its parents; it reports whether it made one. A leaf
// that exists is an error, unless it is empty. Then it is adopted if adopt says so,
// else made anew: its limits and counters are of a run that is over. The kernel
// removes none with a process or a group below.
// The last run of the shared parent removes it, so the parent may vanish under
// us: that is tried again.
func makeLeaf(dir string, adopt bool) (bool, error) {
	end := time.Now().Add(patience)
	for {
		err := os.MkdirAll(filepath.Dir(dir), 0o755)
		if err == nil {
			if err = os.Mkdir(dir, 0o755); err == nil {
				return true, nil
			}
			if errors.Is(err, fs.ErrExist) {
				if adopt && len(words(filepath.Join(dir, "cgroup.procs"))) == 0 {
					return false, nil
				}
				if left := unix.Rmdir(dir); adopt || left != nil && !gone(left) {
					return false, fmt.Errorf("it is in use: %w", err)
				}
			}
		}
		vanished := errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrExist)
		if !vanished || time.Now().After(end) {
			return false, err
		}
		time.Sleep(100 * time.Microsecond)
	}
}

// parent says below which group of the unified hierarchy the leaf goes. Where
// controllers must be enabled for it the rule of v2 bites that a group with
// processes (and this one is in its own) can have none for its children; the
// hierarchy's real root alone is exempt.
func (h *hierarchy) parent(own string, controllers bool) (string, error) {
	if !controllers || h.isRoot(own) {
		return own, nil
	}
	above := filepath.Dir(own)
	up := own != "/" && h.mayUse(above)
	if up && (os.Geteuid() == 0 || filepath.Base(own) == supervisor) {
		return above, nil // as runc does
	}
	aside, err := h.stepAside(own)
	if aside {
		return own, err
	}
	if up {
		return above, nil
	}
	if err == nil {
		err = fmt.Errorf("%w: the group holds other processes than this one", unix.EBUSY)
	}
	return "", missing("memory", h.mount+own, err)
}

// isRoot says whether the group is the machine's, which alone has no events.
func (h *hierarchy) isRoot(group string) bool {
	_, err := os.Stat(filepath.Join(h.mount, group, "cgroup.events"))
	return errors.Is(err, fs.ErrNotExist)
}

// mayUse says whether this user can make groups below and place processes there.
func (h *hierarchy) mayUse(group string) bool {
	dir := filepath.Join(h.mount, group)
	return unix.Access(dir, unix.W_OK) == nil && unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) == nil
}

// stepAside moves this process into a child of its own group, so that the group
// can have controllers for its children. Only where it is alone there: other
// processes are not ours to move. It reports false where it is not alone.
func (h *hierarchy) stepAside(own string) (bool, error) {
	moving.Lock()
	defer moving.Unlock()
	dir := filepath.Join(h.mount, own)
	procs := words(filepath.Join(dir, "cgroup.procs"))
	if len(procs) == 0 {
		return true, nil // another goroutine did it
	}
	self := strconv.Itoa(os.Getpid())
	if len(procs) != 1 || procs[0] != self {
		return false, nil
	}
	child := filepath.Join(dir, supervisor)
	if err := os.Mkdir(child, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	if err := writeFile(filepath.Join(child, "cgroup.procs"), self); err != nil {
		return false, err
	}
	return true, nil
}

// enable makes a controller available to the leaf: one by one, because the kernel
// takes all of a line or none, and only where the parent has not got it: every
// write waits for the dying groups of its tree.
func (h *hierarchy) enable(leaf *cgroup2.Manager, group, controller string) error {
	parent := filepath.Join(h.mount, filepath.Dir(group))
	if slices.Contains(words(filepath.Join(parent, "cgroup.subtree_control")), controller) {
		return nil
	}
	err := leaf.ToggleControllers([]string{controller}, cgroup2.Enable)
	for i := 0; i < 20 && errors.Is(err, unix.EBUSY); i++ {
		time.Sleep(time.Millisecond) // a process that has just moved away still counts for a moment
		err = leaf.ToggleControllers([]string{controller}, cgroup2.Enable)
	}
	if err != nil {
		return missing(controller, parent, err)
	}
	return nil
}

// writeFile writes to a file of a group. Unlike os.WriteFile it never asks to
// create: on cgroupfs that turns "no such file" into "permission denied".
func writeFile(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	if err != nil {
		err = fmt.Errorf("%w (value %q)", err, value)
	}
	return errors.Join(err, f.Close())
}
