// This file owns what the rules of Check look for in mounts, capabilities, devices
// and namespaces.

package spec

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// below gives the rest of p beneath dir, and whether it is there or dir itself.
func below(p, dir string) (string, bool) {
	if dir == "/" || p == dir {
		return strings.TrimPrefix(p, strings.TrimSuffix(dir, "/")), true
	}
	return strings.TrimPrefix(p, dir), strings.HasPrefix(p, dir+"/")
}

func hiddenShown(sp *specs.Spec) (out []hit) {
	if sp.Root == nil {
		return nil
	}
	for i, m := range sp.Mounts {
		if !isBind(m) || !path.IsAbs(m.Source) {
			continue
		}
		source := path.Clean(m.Source)
		for _, masked := range maskedPaths(sp) {
			hidden := path.Join(sp.Root.Path, masked) // on the host
			shown := path0(m.Destination)
			if rest, ok := below(hidden, source); ok {
				shown = path.Join(shown, rest)
			} else if _, ok := below(source, hidden); !ok {
				continue
			}
			if !slices.ContainsFunc(maskedPaths(sp), func(mask string) bool { _, ok := below(shown, path0(mask)); return ok }) {
				out = append(out, hit{pointer("mounts", i), fmt.Sprintf("%s is hidden, %s shows it again at %s", masked, m.Source, shown)})
			}
		}
	}
	return out
}

func socketMounted(sp *specs.Spec) (out []hit) {
	for i, m := range sp.Mounts {
		s := path0(m.Source)
		if isBind(m) && (strings.HasSuffix(s, ".sock") || slices.Contains([]string{"/run", "/var/run", "/var", "/run/docker", "/run/containerd", "/run/podman", "/run/dbus", "/run/systemd"}, s)) {
			out = append(out, hit{pointer("mounts", i), s + " is mounted at " + m.Destination + "; read-only does not keep a socket from being used"})
		}
	}
	return out
}

func systemMounted(sp *specs.Spec) (out []hit) {
	system := []string{"/", "/etc", "/proc", "/sys", "/dev", "/root", "/home", "/boot", "/usr", "/bin", "/lib", "/var/lib", "/var/lib/docker", "/var/lib/containerd"}
	for i, m := range sp.Mounts {
		s := path0(m.Source)
		ownProc := s == path0(m.Destination) && s == "/sys" && !writable(m) // as rootless engines do
		if isBind(m) && slices.Contains(system, s) && !ownProc {
			out = append(out, hit{pointer("mounts", i), s + " of the host is mounted at " + m.Destination})
		}
	}
	return out
}

// confines says which namespace keeps a capability from the host.
var confines = map[string]specs.LinuxNamespaceType{
	"CAP_NET_ADMIN": specs.NetworkNamespace, "CAP_NET_RAW": specs.NetworkNamespace, "CAP_NET_BIND_SERVICE": specs.NetworkNamespace,
	"CAP_KILL": specs.PIDNamespace, "CAP_SYS_BOOT": specs.PIDNamespace, "CAP_IPC_OWNER": specs.IPCNamespace,
	"CAP_SYS_ADMIN": specs.UserNamespace, "CAP_SYS_PTRACE": specs.UserNamespace, "CAP_DAC_READ_SEARCH": specs.UserNamespace,
	"CAP_SYS_MODULE": specs.UserNamespace, "CAP_SYS_RAWIO": specs.UserNamespace, "CAP_SYS_TIME": specs.UserNamespace,
	"CAP_BPF": specs.UserNamespace, "CAP_PERFMON": specs.UserNamespace, "CAP_SYSLOG": specs.UserNamespace, "CAP_MAC_ADMIN": specs.UserNamespace,
}

func capabilityUnconfined(sp *specs.Spec) (out []hit) {
	for _, c := range capabilitiesOf(sp) {
		if ns, ok := confines[c]; ok && !ownNamespace(sp, ns) {
			out = append(out, hit{"/process/capabilities", fmt.Sprintf("%s without an own %s namespace holds on the host", c, ns)})
		}
	}
	return out
}

func deviceOpen(sp *specs.Spec) (out []hit) {
	if r := resourcesOf(sp); r != nil {
		for i, d := range r.Devices {
			all := d.Type == "" || d.Type == "a" || d.Major == nil && strings.ContainsAny(d.Access, "rw")
			memory := d.Type == "c" && d.Major != nil && *d.Major == 1 && d.Minor != nil && slices.Contains([]int64{1, 2, 4}, *d.Minor)
			if d.Allow && (all || memory || d.Type == "b" && strings.ContainsAny(d.Access, "rw")) {
				out = append(out, hit{pointer("linux", "resources", "devices", i), fmt.Sprintf("type %q with access %q is allowed", d.Type, d.Access)})
			}
		}
	}
	if sp.Linux != nil {
		for i, d := range sp.Linux.Devices {
			if d.Type == "b" || d.Type == "c" && d.Major == 1 && (d.Minor == 1 || d.Minor == 2 || d.Minor == 4) {
				out = append(out, hit{pointer("linux", "devices", i), d.Path + " is a disk or the memory of the host"})
			}
		}
	}
	return out
}

func namespaceMissing(sp *specs.Spec) (out []hit) {
	for _, t := range []specs.LinuxNamespaceType{specs.PIDNamespace, specs.NetworkNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace} {
		if !ownNamespace(sp, t) {
			out = append(out, hit{"/linux/namespaces", fmt.Sprintf("there is no %s namespace of its own", t)})
		}
	}
	return out
}

func hostRoot(sp *specs.Spec) []hit {
	if unmappedRoot(sp) || sp.Process != nil && sp.Process.User.UID != 0 && len(capabilitiesOf(sp)) == 0 && sp.Process.NoNewPrivileges {
		return nil
	}
	return []hit{{"/linux/uidMappings", "user 0 inside is user 0 of the host"}}
}

func newPrivileges(sp *specs.Spec) []hit {
	if sp.Process == nil || sp.Process.NoNewPrivileges {
		return nil
	}
	return []hit{{"/process/noNewPrivileges", "is not set"}}
}

func noFilter(sp *specs.Spec) []hit {
	if open := openCalls(sp); open != "" {
		return []hit{{"/linux/seccomp", open + " pass"}}
	}
	return nil
}

func kernelUnmasked(sp *specs.Spec) (out []hit) {
	if sp.Linux == nil {
		return nil
	}
	shut := slices.Concat(sp.Linux.MaskedPaths, sp.Linux.ReadonlyPaths)
	for _, p := range []string{"/proc/kcore", "/proc/keys", "/proc/sys", "/proc/sysrq-trigger"} {
		if !slices.Contains(shut, p) {
			out = append(out, hit{"/linux/maskedPaths", p + " is neither masked nor read-only"})
		}
	}
	return out
}

func noLimit(sp *specs.Spec) (out []hit) {
	if !hasMemory(sp) {
		out = append(out, hit{"/linux/resources/memory/limit", "memory is not bounded"})
	}
	if !hasPids(sp) {
		out = append(out, hit{"/linux/resources/pids/limit", "processes are not bounded"})
	}
	return out
}

func hookRuns(sp *specs.Spec) (out []hit) {
	if h := sp.Hooks; h != nil {
		for _, hook := range slices.Concat(h.Prestart, h.CreateRuntime, h.CreateContainer, h.StartContainer, h.Poststart, h.Poststop) { //nolint:staticcheck // prestart is deprecated and used
			out = append(out, hit{"/hooks", hook.Path})
		}
	}
	return out
}

func secretVariable(sp *specs.Spec) (out []hit) {
	if sp.Process == nil {
		return nil
	}
	for i, e := range sp.Process.Env {
		name, _, _ := strings.Cut(e, "=")
		for _, word := range []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "API_KEY", "PRIVATE_KEY", "CREDENTIAL"} {
			if strings.Contains(strings.ToUpper(name), word) {
				out = append(out, hit{pointer("process", "env", i), name + " looks like a secret"})
				break
			}
		}
	}
	return out
}

func rootWritable(sp *specs.Spec) []hit {
	if sp.Root == nil || sp.Root.Readonly {
		return nil
	}
	return []hit{{"/root/readonly", "is not set"}}
}
