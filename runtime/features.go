// This file owns what "sbxrun features" says: which parts of the OCI runtime-spec are
// implemented (features.md). It is read from the tables that implement them.

package runtime

import (
	"maps"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/opencontainers/runtime-spec/specs-go/features"

	"github.com/sbxrun/sbxrun/spec"
)

// Features lists what is implemented. version is sbxrun's own.
func Features(version string) features.Features {
	yes, no := true, false
	return features.Features{
		OCIVersionMin: "1.0.0",
		OCIVersionMax: specs.Version,
		Hooks:         hookKinds(),
		MountOptions:  mountOptions(),
		Linux: &features.Linux{
			Namespaces:   namespaceKinds(),
			Capabilities: spec.CapabilityNames,
			Cgroup:       &features.Cgroup{V1: &yes, V2: &yes, Systemd: &yes, SystemdUser: &yes, Rdma: &yes},
			Seccomp: &features.Seccomp{
				Enabled: &yes, Actions: names(seccompActions()), Operators: operators(), Archs: archs(),
				KnownFlags: names(filterFlags()), SupportedFlags: names(filterFlags()),
			},
			Apparmor: &features.Apparmor{Enabled: &yes}, Selinux: &features.Selinux{Enabled: &yes},
			IntelRdt: &features.IntelRdt{Enabled: &no}, MemoryPolicy: nil,
			MountExtensions: &features.MountExtensions{IDMap: &features.IDMap{Enabled: &yes}},
			NetDevices:      &features.NetDevices{Enabled: &no},
		},
		Annotations: map[string]string{
			"dev.sbxrun.version":            version,
			"dev.sbxrun.checkpoint.enabled": "false",
		},
		PotentiallyUnsafeConfigAnnotations: []string{"dev.sbxrun."},
	}
}

func names[K ~string, V any](m map[K]V) (out []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, string(k))
	}
	return out
}

func hookKinds() (out []string) {
	for _, set := range hookSets(&specs.Hooks{}) {
		out = append(out, set.kind)
	}
	return out
}

// operators are those that a filter's conditions can have.
func operators() (out []string) {
	for _, op := range []specs.LinuxSeccompOperator{specs.OpNotEqual, specs.OpLessThan, specs.OpLessEqual, specs.OpEqualTo, specs.OpGreaterEqual, specs.OpGreaterThan, specs.OpMaskedEqual} {
		if knownOperator(op) {
			out = append(out, string(op))
		}
	}
	slices.Sort(out)
	return out
}

// archs are the architectures whose calls a filter here can tell apart.
func archs() (out []string) {
	for _, a := range machine(goarch) {
		out = append(out, string(a.name))
	}
	slices.Sort(out)
	return out
}

func namespaceKinds() []string { return names(cloneFlags) }

// mountOptions are those that are not a file system's own.
func mountOptions() []string {
	known := map[string]bool{"bind": true, "rbind": true, "remount": true, "tmpcopyup": true, "idmap": true, "ridmap": true}
	for o := range attrOptions {
		known[o], known["r"+o] = true, true
	}
	for o := range propagationOptions {
		known[o], known["r"+o] = true, true
	}
	for o := range noOptions {
		known[o] = true
	}
	// The kernel's own, for the superblock.
	for _, o := range []string{"sync", "dirsync", "lazytime", "mand"} {
		known[o] = true
	}
	return names(known)
}
