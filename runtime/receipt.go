// This file owns the receipt: for each layer what the policy asked for and what
// was in force. It is written from the plan that init performed, not from hope.

package runtime

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// receipt lists the mechanisms. With an error nothing was in force.
func (r *run) receipt(err error) []Receipt {
	p := r.policy
	ran := err == nil || r.report != nil || r.stop != nil
	var out []Receipt
	add := func(layer, mechanism, requested string, on bool) {
		rec := Receipt{Layer: layer, Mechanism: mechanism, Requested: requested, InForce: requested}
		switch {
		case !on:
			rec.Requested, rec.InForce = "off", "off"
		case !ran:
			rec.InForce = "nothing ran"
		}
		out = append(out, rec)
	}
	l := p.Limits
	add("limits", "wall clock", l.Wall.String(), l.Wall > 0)
	add("limits", "RLIMIT_CPU", l.CPU.String(), l.CPU > 0)
	add("limits", r.memoryMechanism(), fmt.Sprintf("%d bytes", l.Memory), l.Memory > 0)
	add("limits", "RLIMIT_FSIZE", fmt.Sprintf("%d bytes", l.FileSize), l.FileSize > 0)
	add("limits", "RLIMIT_NOFILE", fmt.Sprint(l.Files), l.Files > 0)
	add("limits", "output cap", fmt.Sprintf("%d characters of %d bytes held", l.OutputChars, l.OutputHeld), l.OutputChars > 0)
	add("limits", "sweep", "on", l.Sweep)
	add("environment", "scrubbed environment", "on", p.Environment.Scrub)
	add("workdir", "private directory", r.workdirMechanism(), p.Workdir.Private)
	add("processes", "namespaces", r.namespaces(), p.Processes.Isolate)
	add("processes", r.capMechanism(), fmt.Sprintf("%d tasks", p.Processes.Max), p.Processes.Max > 0)
	add("network", "network namespace", "empty", p.Network.Isolate)
	add("filesystem", "read-only root, masks", fmt.Sprintf("%d paths hidden", len(p.Filesystem.Hide)), p.Filesystem.Isolate)
	add("capabilities", "five empty sets", "on", p.Capabilities.Drop)
	add("capabilities", "no_new_privs", "on", p.Capabilities.NoNewPrivileges)
	add("syscalls", "seccomp filter", "on", p.Syscalls.Filter)
	return out
}

func (r *run) memoryMechanism() string {
	if r.group != nil {
		return "cgroup memory"
	}
	return "RLIMIT_AS"
}

func (r *run) workdirMechanism() string {
	if r.plan != nil && r.plan.inside {
		return fmt.Sprintf("tmpfs of %d bytes, %d files", r.policy.Workdir.Size, r.policy.Workdir.Inodes)
	}
	return "host directory, mode 0700, size not bounded"
}

func (r *run) capMechanism() string {
	if r.group != nil {
		return "cgroup pids, monitor"
	}
	return "monitor"
}

func (r *run) namespaces() string {
	if r.plan == nil {
		return "user pid ipc uts mount cgroup"
	}
	var names []string
	for _, n := range namespaceTable {
		if n.flag != unix.CLONE_NEWNET && (r.plan.has(n.flag) || n.flag == unix.CLONE_NEWCGROUP && r.plan.cgroupNS) {
			names = append(names, strings.TrimSuffix(n.name, " namespace"))
		}
	}
	return strings.Join(names, " ")
}
