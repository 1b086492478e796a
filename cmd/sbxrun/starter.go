// This file owns the config.json that "sbxrun spec" starts a bundle with. It is
// the one that people know from runc.

package main

import (
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// starterSpec is a shell in "rootfs" with the namespaces, mounts and masks that
// engines use. For an ordinary user it has a user namespace and leaves out what
// such a user cannot do.
func starterSpec(rootless bool) *specs.Spec {
	caps := []string{"CAP_AUDIT_WRITE", "CAP_KILL", "CAP_NET_BIND_SERVICE"}
	sp := &specs.Spec{
		Version:  specs.Version,
		Root:     &specs.Root{Path: "rootfs", Readonly: true},
		Hostname: "sbxrun",
		Process: &specs.Process{
			Terminal: true,
			Args:     []string{"sh"},
			Env:      []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm"},
			Cwd:      "/", NoNewPrivileges: true,
			Capabilities: &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:      []specs.POSIXRlimit{{Type: "RLIMIT_NOFILE", Hard: 1024, Soft: 1024}},
		},
		Mounts: starterMounts(rootless),
		Linux: &specs.Linux{
			MaskedPaths: []string{"/proc/acpi", "/proc/asound", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
				"/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/sys/firmware", "/proc/scsi"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			Resources:     &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
		},
	}
	types := []specs.LinuxNamespaceType{specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil { // as runc: v1 groups are shown by binds
		types = append(types, specs.CgroupNamespace)
	}
	if rootless {
		types = append(types, specs.UserNamespace)
		sp.Linux.Resources = nil
		sp.Linux.UIDMappings = []specs.LinuxIDMapping{{HostID: uint32(os.Geteuid()), Size: 1}}
		sp.Linux.GIDMappings = []specs.LinuxIDMapping{{HostID: uint32(os.Getegid()), Size: 1}}
	} else {
		types = append(types, specs.NetworkNamespace)
	}
	for _, t := range types {
		sp.Linux.Namespaces = append(sp.Linux.Namespaces, specs.LinuxNamespace{Type: t})
	}
	return sp
}

func starterMounts(rootless bool) []specs.Mount {
	mounts := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: []string{"nosuid", "noexec", "nodev", "mode=1777", "size=65536k"}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup", Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
	}
	if !rootless {
		return mounts
	}
	// Group 5 is not mapped, and sysfs belongs to the host's network namespace.
	mounts[2].Options = mounts[2].Options[:5]
	mounts[5] = specs.Mount{Destination: "/sys", Type: "none", Source: "/sys", Options: []string{"rbind", "nosuid", "noexec", "nodev", "ro"}}
	return mounts
}
