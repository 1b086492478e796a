// This file owns the device rules: what every container may use whatever its
// rules say, and which rules the library's BPF filter expresses truly.

package cgroup

import (
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// defaultDevices are those that every OCI container has, whatever its rules:
// null, zero, full, random, urandom, tty, ptmx and the pty slaves, and mknod of
// all. https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#default-devices
func defaultDevices() (rules []specs.LinuxDeviceCgroup) {
	allow := func(kind string, major, minor int64, access string) {
		rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: access})
	}
	allow("c", -1, -1, "m")
	allow("b", -1, -1, "m")
	for _, d := range [][2]int64{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}, {136, -1}} {
		allow("c", d[0], d[1], "rwm")
	}
	return rules
}

// filterable prepares rules for the library's BPF filter, which dereferences
// omitted numbers, knows no empty type, and lets an open for reading and writing
// through a rule that allows one of them: such a rule is refused here.
func filterable(rules []specs.LinuxDeviceCgroup) ([]specs.LinuxDeviceCgroup, error) {
	rules = append(slices.Clone(rules), defaultDevices()...)
	anyNumber := int64(-1)
	for i := range rules {
		r := &rules[i]
		if r.Allow && strings.Contains(r.Access, "r") != strings.Contains(r.Access, "w") {
			return nil, unsupported("devices", "a rule that allows only one of reading and writing cannot be enforced on cgroup v2")
		}
		if r.Major == nil {
			r.Major = &anyNumber
		}
		if r.Minor == nil {
			r.Minor = &anyNumber
		}
		if r.Type == "" {
			r.Type = "a"
		}
	}
	return rules, nil
}
