// This file owns bind mounts whose source the runtime opens instead of init: those
// whose owners are mapped, and in a user namespace those of real root, where init has
// no right to pass the directories above (mount_setattr(2), ID-mapped mounts).

package runtime

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/rootfs"
)

// sourceTree is a bind's source, and how its owners are mapped.
type sourceTree struct {
	mount      rootfs.Mount
	uids, gids []specs.LinuxIDMapping
	mapped     bool                     // the owners are mapped
	recursive  bool                     // on mounts below, too
	open       func() (*os.File, error) // who has the tree, nil when it is opened by mount's source
}

// mappingOf reads what an entry of mounts says of its owners' ids. A mapping of its
// own comes first, the container's is for "idmap" without one.
func (b *blueprint) mappingOf(m specs.Mount, field string) (t sourceTree, err error) {
	t.uids, t.gids, t.recursive = m.UIDMappings, m.GIDMappings, slices.Contains(m.Options, "ridmap")
	t.mapped = t.recursive || len(t.uids)+len(t.gids) > 0 || slices.Contains(m.Options, "idmap")
	if !t.mapped {
		return t, nil
	}
	if len(t.uids)+len(t.gids) == 0 {
		t.uids, t.gids = b.spec.Linux.UIDMappings, b.spec.Linux.GIDMappings
	}
	switch {
	case len(t.uids) == 0 || len(t.gids) == 0:
		return t, fmt.Errorf("%s.uidMappings and gidMappings: an id-mapped mount needs both", field)
	case m.Type != "bind" && !slices.Contains(m.Options, "bind") && !slices.Contains(m.Options, "rbind"):
		return t, fmt.Errorf("%s: only a bind mount can be id-mapped", field)
	}
	return t, nil
}

// handTree gives the number of the descriptor under which init will find m's source,
// 0 when it is to open it itself.
func (b *blueprint) handTree(m rootfs.Mount, t sourceTree) int {
	if !m.Bind || m.Remount || !t.mapped && (!b.has(unix.CLONE_NEWUSER) || os.Geteuid() != 0) {
		return 0
	}
	t.mount = m
	return b.addTree(t)
}

// addTree gives the number of the descriptor under which init will find t.
func (b *blueprint) addTree(t sourceTree) int {
	b.trees = append(b.trees, t)
	return sbxinit.FirstFree + b.kept + len(b.trees) - 1
}

// openTrees opens the sources, in the order of their numbers. The caller closes them.
func (b *blueprint) openTrees() (files []*os.File, err error) {
	propagation := uint64(unix.MS_SLAVE)
	switch b.spec.Linux.RootfsPropagation {
	case "shared", "rshared":
		propagation = unix.MS_SHARED
	case "private", "rprivate":
		propagation = unix.MS_PRIVATE
	}
	for _, t := range b.trees {
		if t.open != nil {
			f, err := t.open()
			if err != nil {
				return files, fmt.Errorf("mount the session's directory: %w", err)
			}
			files = append(files, f)
			continue
		}
		users := 0
		if t.mapped {
			ns, err := userNamespace(t.uids, t.gids)
			if err != nil {
				return files, fmt.Errorf("mounts: map the ids of %s: %w", t.mount.Source, err)
			}
			defer ns.Close()
			users = int(ns.Fd())
		}
		fd, err := t.mount.OpenTree(propagation, users, t.recursive)
		if err != nil {
			return files, fmt.Errorf("mounts: %w", err)
		}
		files = append(files, os.NewFile(uintptr(fd), t.mount.Source))
	}
	return files, nil
}

// userNamespace makes a user namespace of which only the mapping is of use. An init
// that waits for a plan holds it open until we do.
func userNamespace(uids, gids []specs.LinuxIDMapping) (_ *os.File, err error) {
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	defer theirs.Close()
	p, err := os.StartProcess("/proc/self/exe", []string{sbxinit.Name}, &os.ProcAttr{
		Env: []string{}, Files: []*os.File{nil, nil, nil, theirs},
		Sys: &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER, UidMappings: idMap(uids), GidMappings: idMap(gids)},
	})
	if err != nil {
		return nil, fmt.Errorf("make a user namespace: %w", err)
	}
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/user", p.Pid))
	kill := p.Kill()
	_, wait := p.Wait()
	if err = errors.Join(err, kill, wait); err != nil && ns != nil {
		ns.Close()
	}
	return ns, err
}
