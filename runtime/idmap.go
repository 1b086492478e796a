// This file owns the id maps of a user namespace that others than clone's own caller
// have to write: after joining other namespaces first, or for an ordinary user, who
// may map only himself; newuidmap and newgidmap do more for him as /etc/subuid and
// /etc/subgid allow (user_namespaces(7), newuidmap(1)).

package runtime

import (
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// mapsLater says whether the maps of the container's new user namespace must be
// written once it is there.
func (b *blueprint) mapsLater() bool {
	return b.clone&unix.CLONE_NEWUSER != 0 && (len(b.joins) > 0 || needsHelpers(b.spec.Linux))
}

// needsHelpers says whether the caller is an ordinary user who maps more than himself.
func needsHelpers(l *specs.Linux) bool {
	self := func(ids []specs.LinuxIDMapping, id int) bool {
		return len(ids) == 1 && ids[0].Size == 1 && ids[0].HostID == uint32(id)
	}
	return os.Geteuid() != 0 && (!self(l.UIDMappings, os.Geteuid()) || !self(l.GIDMappings, os.Getegid()))
}

// writeMappings maps the ids of the user namespace that pid is in.
func writeMappings(pid int, l *specs.Linux) error {
	for _, side := range []struct {
		file, helper string
		ids          []specs.LinuxIDMapping
	}{{"gid_map", "newgidmap", l.GIDMappings}, {"uid_map", "newuidmap", l.UIDMappings}} {
		if needsHelpers(l) {
			args := []string{fmt.Sprint(pid)}
			for _, m := range side.ids {
				args = append(args, fmt.Sprint(m.ContainerID), fmt.Sprint(m.HostID), fmt.Sprint(m.Size))
			}
			if out, err := exec.Command(side.helper, args...).CombinedOutput(); err != nil {
				return &UnavailableError{Layer: "processes", Mechanism: "user namespace with more ids than the user's own",
					Err: fmt.Errorf("%s: %w: %s", side.helper, err, strings.TrimSpace(string(out))), Remedy: "install uidmap and give the user ranges in /etc/subuid and /etc/subgid"}
			}
			continue
		}
		var text strings.Builder
		for _, m := range side.ids {
			fmt.Fprintln(&text, m.ContainerID, m.HostID, m.Size)
		}
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/%s", pid, side.file), []byte(text.String()), 0); err != nil {
			return fmt.Errorf("map the container's ids: %w", err)
		}
	}
	return nil
}
