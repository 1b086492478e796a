// This file owns mounts of type "cgroup": what the container sees of the control
// groups, which is as many mounts as the host has hierarchies.

package runtime

import (
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/rootfs"
)

// hierarchy is a mounted hierarchy of the host.
type hierarchy struct {
	name    string // last element of its mount point
	unified bool
	options []string // that select its controllers
}

// cgroupMounts gives the mounts that a mount of type "cgroup" stands for. On pure v2
// it is one mount; else a small tmpfs with one mount for each hierarchy.
func cgroupMounts(m rootfs.Mount) (mounts []rootfs.Mount, err error) {
	hierarchies, pure, err := hostHierarchies()
	if err != nil {
		return nil, err
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
		return []rootfs.Mount{one(m.Target, hierarchy{unified: true})}, nil
	}
	mounts = append(mounts, groupTmpfs(m))
	for _, h := range hierarchies {
		mounts = append(mounts, one(path.Join(m.Target, h.name), h))
	}
	if m.Set&unix.MOUNT_ATTR_RDONLY != 0 {
		mounts = append(mounts, readonlyAgain(m))
	}
	return mounts, nil
}

// readonlyAgain makes the tmpfs of the hierarchies read-only, once they are in it.
func readonlyAgain(m rootfs.Mount) rootfs.Mount {
	return rootfs.Mount{Target: m.Target, Remount: true, Bind: true, Set: unix.MOUNT_ATTR_RDONLY}
}

// groupMount is a mount of type "cgroup" without a cgroup namespace: binds of the
// container's own group, placed in the plan once the group is there.
type groupMount struct {
	at    int // index in the plan
	mount rootfs.Mount
}

// showGroup puts the binds of the group into the plan.
func (b *blueprint) showGroup(group *cgroup.Group) error {
	if len(b.groupMounts) == 0 {
		return nil
	}
	dirOf := func(h hierarchy) (string, bool) { return h.dirOf(group) }
	if group == nil { // an ordinary user's: it is where its caller is
		own, err := ownGroups()
		if err != nil {
			return err
		}
		dirOf = func(h hierarchy) (string, bool) { return h.own(own) }
	}
	hierarchies, pure, err := hostHierarchies()
	if err != nil {
		return err
	}
	for i := len(b.groupMounts) - 1; i >= 0; i-- { // from the end, so that the indices hold
		g := b.groupMounts[i]
		if group == nil {
			g.mount.Set |= unix.MOUNT_ATTR_RDONLY
		}
		var steps sbxinit.Plan
		bind := func(source, target string) {
			m := g.mount
			m.Bind, m.Source, m.Target, m.Options = true, source, target, nil
			nums, strs := sbxinit.MountStep(m)
			steps.Add(sbxinit.OpMount, nums, strs...)
		}
		if dir, ok := dirOf(hierarchy{name: ".", unified: true}); ok && pure {
			bind(dir, g.mount.Target)
		} else {
			nums, strs := sbxinit.MountStep(groupTmpfs(g.mount))
			steps.Add(sbxinit.OpMount, nums, strs...)
			for _, h := range hierarchies {
				if dir, ok := dirOf(h); ok {
					bind(dir, path.Join(g.mount.Target, h.name))
				}
			}
			if g.mount.Set&unix.MOUNT_ATTR_RDONLY != 0 {
				nums, strs := sbxinit.MountStep(readonlyAgain(g.mount))
				steps.Add(sbxinit.OpMount, nums, strs...)
			}
		}
		b.plan = slices.Insert(b.plan, g.at, steps...)
	}
	return nil
}

// dirOf finds the group's directory in a hierarchy.
func (h hierarchy) dirOf(group *cgroup.Group) (string, bool) {
	if h.unified {
		return group.Dir("")
	}
	for _, o := range h.options {
		if dir, ok := group.Dir(strings.TrimPrefix(o, "name=")); ok {
			return dir, true
		}
	}
	return "", false
}

// ownGroups reads which groups this process is in, by controllers, "" for the unified
// hierarchy (cgroups(7), /proc/pid/cgroup).
func ownGroups() (map[string]string, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find the caller's control groups: %w", err)
	}
	groups := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if f := strings.SplitN(strings.TrimSpace(line), ":", 3); len(f) == 3 {
			for _, controller := range strings.Split(f[1], ",") {
				groups[controller] = f[2]
			}
		}
	}
	return groups, nil
}

// own finds the caller's group in a hierarchy.
func (h hierarchy) own(groups map[string]string) (string, bool) {
	for _, key := range append(slices.Clone(h.options), "") {
		if group, ok := groups[key]; ok && (key != "" || h.unified) {
			return path.Join("/sys/fs/cgroup", h.name, group), true
		}
	}
	return "", false
}

// groupTmpfs is the directory that holds the mounts of several hierarchies.
func groupTmpfs(m rootfs.Mount) rootfs.Mount {
	m.Type, m.Source, m.Options = "tmpfs", "tmpfs", []string{"mode=755", "size=64k"}
	m.Set &^= unix.MOUNT_ATTR_RDONLY // until the mounts in it are made
	return m
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
