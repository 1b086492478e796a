// This file owns mounts of type "cgroup": what the container sees of the control
// groups, which is as many mounts as the host has hierarchies.

package runtime

import (
	"fmt"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/rootfs"
)

// hierarchy is a mounted hierarchy of the host.
type hierarchy struct {
	name    string // last element of its mount point
	unified bool
	options []string // that select its controllers
}

// cgroupMounts gives the mounts that a mount of type "cgroup" stands for. On pure v2
// it is one mount; else a small tmpfs with one mount for each hierarchy. readonly
// says that the tmpfs has to be made read-only after the mounts in it.
func cgroupMounts(m rootfs.Mount) (mounts []rootfs.Mount, readonly bool, err error) {
	hierarchies, pure, err := hostHierarchies()
	if err != nil {
		return nil, false, err
	}
	one := func(target string, h hierarchy) rootfs.Mount {
		out := m
		out.Target, out.Type, out.Source, out.Options = target, "cgroup", "cgroup", h.options
		if h.unified {
			out.Type, out.Options = "cgroup2", nil
		}
		return out
	}
	if pure {
		return []rootfs.Mount{one(m.Target, hierarchy{unified: true})}, false, nil
	}
	const ro = unix.MOUNT_ATTR_RDONLY
	dir := m
	dir.Type, dir.Source, dir.Options, dir.Set = "tmpfs", "tmpfs", []string{"mode=755", "size=64k"}, m.Set&^ro
	mounts = append(mounts, dir)
	for _, h := range hierarchies {
		mounts = append(mounts, one(path.Join(m.Target, h.name), h))
	}
	return mounts, m.Set&ro != 0, nil
}

// hostHierarchies reads what is mounted below /sys/fs/cgroup, proc_pid_mountinfo(5).
func hostHierarchies() (list []hierarchy, pure bool, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, false, fmt.Errorf("find the control groups: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		before, after, ok := strings.Cut(line, " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if !ok || len(f) < 5 || len(g) < 3 || !strings.HasPrefix(f[4], "/sys/fs/cgroup") {
			continue
		}
		switch g[0] {
		case "cgroup2":
			pure = pure || f[4] == "/sys/fs/cgroup"
			list = append(list, hierarchy{name: path.Base(f[4]), unified: true})
		case "cgroup":
			h := hierarchy{name: path.Base(f[4])}
			for _, o := range strings.Split(g[2], ",") {
				// What follows the state of the super block selects the controllers.
				if o != "rw" && o != "ro" && o != "clone_children" && !strings.HasPrefix(o, "release_agent=") {
					h.options = append(h.options, o)
				}
			}
			list = append(list, h)
		}
	}
	if len(list) == 0 {
		return nil, false, fmt.Errorf("find the control groups: none are mounted at /sys/fs/cgroup")
	}
	return list, pure, nil
}
