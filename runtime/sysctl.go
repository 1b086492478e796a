// This file owns linux.sysctl: which kernel parameters belong to a namespace that
// the container has of its own. Any other would be the host's.

package runtime

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

// ipcSysctls are the parameters of an IPC namespace, namespaces(7).
var ipcSysctls = []string{
	"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem",
	"kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
}

func (b *blueprint) sysctls() error {
	for _, key := range slices.Sorted(maps.Keys(b.spec.Linux.Sysctl)) {
		name := strings.ReplaceAll(key, "/", ".")
		own := false
		switch {
		case slices.Contains(ipcSysctls, name) || strings.HasPrefix(name, "fs.mqueue."):
			own = b.has(unix.CLONE_NEWIPC)
		case strings.HasPrefix(name, "net."):
			own = b.has(unix.CLONE_NEWNET)
		case name == "kernel.domainname":
			own = b.has(unix.CLONE_NEWUTS)
		}
		if !own || strings.Contains(name, "..") {
			return fmt.Errorf("linux.sysctl: %q is not a parameter of a namespace of this container", key)
		}
		b.plan.Add(sbxinit.OpSysctl, nil, "/proc/sys/"+strings.ReplaceAll(name, ".", "/"), b.spec.Linux.Sysctl[key])
	}
	return nil
}
