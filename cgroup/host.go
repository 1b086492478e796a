// This file owns the picture of the machine: which control group hierarchies are
// mounted, where, and in which group of each this process stands.

package cgroup

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/cgroups/v3"
	"golang.org/x/sys/unix"
)

// hierarchy is one mounted tree of groups.
type hierarchy struct {
	mount string // mount point; of v1 always DIR/CONTROLLER, as containerd/cgroups expects
	root  string // the group that the mount point shows, "/" unless bind mounted
}

// host is every hierarchy of this mount namespace. A pure v2 machine has only
// unified, a pure v1 machine only v1, a hybrid one both.
type host struct {
	unified *hierarchy
	v1      map[string]hierarchy // by controller; a named hierarchy by its name
}

// machine reads the mounts once per process: they do not change under a run.
var machine = sync.OnceValues(func() (*host, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read the cgroup mounts: %w", err)
	}
	defer f.Close()
	h, err := parseMounts(f, mountedAs)
	if err != nil {
		return nil, fmt.Errorf("read the cgroup mounts: %w", err)
	}
	if h.unified == nil && len(h.v1) == 0 {
		return nil, &Missing{Controller: "memory", Path: "/sys/fs/cgroup", Remedy: remedyMount,
			Err: errors.New("no cgroup file system is mounted")}
	}
	return h, nil
})

// mountedAs says whether the path shows a file system of the kind: a mount in
// mountinfo may lie hidden beneath another one.
func mountedAs(path string, magic int64) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == magic
}

// parseMounts reads proc_pid_mountinfo(5). Of several mounts of one hierarchy
// the one below /sys/fs/cgroup wins, else the first.
func parseMounts(r io.Reader, live func(path string, magic int64) bool) (*host, error) {
	h := &host{v1: map[string]hierarchy{}}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		front, back, _ := strings.Cut(lines.Text(), " - ")
		place, kind := strings.Fields(front), strings.Fields(back)
		if len(place) < 6 || len(kind) < 3 {
			continue
		}
		at := hierarchy{mount: unescape(place[4]), root: unescape(place[3])}
		standard := strings.HasPrefix(at.mount, "/sys/fs/cgroup")
		switch {
		case kind[0] == "cgroup2" && (h.unified == nil || standard) && live(at.mount, unix.CGROUP2_SUPER_MAGIC):
			h.unified = &at
		case kind[0] == "cgroup":
			for _, name := range strings.Split(kind[2], ",") {
				name = strings.TrimPrefix(name, "name=")
				// Co-mounted controllers (cpu,cpuacct) have a link for each.
				own := hierarchy{mount: filepath.Join(filepath.Dir(at.mount), name), root: at.root}
				if _, have := h.v1[name]; (!have || standard) && name != "rw" && live(own.mount, unix.CGROUP_SUPER_MAGIC) {
					h.v1[name] = own
				}
			}
		}
	}
	return h, lines.Err()
}

// unescape undoes mountinfo's octal escapes (space, tab, newline, backslash).
func unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// below turns a group's name as /proc/PID/cgroup tells it into a path below the
// mount point. A group that the mount does not show counts as its root.
func (h hierarchy) below(group string) string {
	if h.root == "/" {
		if strings.HasPrefix(group, "/..") {
			return "/"
		}
		return filepath.Clean("/" + group)
	}
	if rest, ok := strings.CutPrefix(group, h.root); ok && (rest == "" || rest[0] == '/') {
		return filepath.Clean("/" + rest)
	}
	return "/"
}

// standing is where a thread is: the group in each hierarchy, below its mount.
type standing struct {
	unified string
	v1      map[string]string
}

// stands reads a cgroup file of proc. It is read anew each time: this package
// and others move processes.
func (h *host) stands(file string) (standing, error) {
	v1, unified, err := cgroups.ParseCgroupFileUnified(file)
	if err != nil {
		return standing{}, fmt.Errorf("read own group: %w", err)
	}
	s := standing{v1: map[string]string{}}
	if h.unified != nil {
		s.unified = h.unified.below(unified)
	}
	for name, group := range v1 {
		name = strings.TrimPrefix(name, "name=")
		if at, ok := h.v1[name]; ok {
			s.v1[name] = at.below(group)
		}
	}
	return s, nil
}

// v1Name is what v1 calls a controller of v2.
func v1Name(controller string) string {
	if controller == "io" {
		return "blkio"
	}
	return controller
}

// onV1 says whether a v1 hierarchy holds the controller.
func (h *host) onV1(controller string) bool {
	_, ok := h.v1[v1Name(controller)]
	return ok
}

// offers says whether the unified hierarchy has the controller. Device rules are
// a BPF program there and need none.
func (h *host) offers(controller string) bool {
	if h.unified == nil {
		return false
	}
	return controller == "devices" || slices.Contains(words(filepath.Join(h.unified.mount, "cgroup.controllers")), controller)
}

// words reads a file of space-separated names; an unreadable one has none.
func words(file string) []string {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	return strings.Fields(string(b))
}
