// This file owns the levels: their names and their presets.

package spec

import (
	"fmt"
	"slices"
	"time"
)

// The values of the presets, from L1 on unless said otherwise.
const (
	kib = 1 << 10
	mib = 1 << 20

	defaultHeld = 8 * mib
)

var defaultHide = []string{
	// What people keep: keys, tokens, histories.
	"/root", "/home",
	// Sockets of services: engines, buses, agents. A path is the only way to them
	// once the network is gone.
	"/run", "/var/run",
	// What others left in shared places, and what is mounted by hand.
	"/var/tmp", "/mnt", "/media", "/srv",
	// Secrets and state of the system itself.
	"/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers", "/etc/ssl/private", "/boot",
	"/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/log", "/var/spool", "/var/mail", "/var/backups",
}

// Preset gives the policy of a level. Each is the one below plus one layer.
func Preset(level Level) Policy {
	p := Policy{Level: level, Cgroup: CgroupOff, Limits: Limits{Wall: 4 * time.Second, OutputHeld: defaultHeld}}
	if level >= L1 {
		p.Cgroup = CgroupOn
		p.Limits = Limits{
			Wall: 1500 * time.Millisecond, CPU: 2 * time.Second, Memory: 256 * mib, FileSize: 10 * mib,
			Files: 64, OutputHeld: defaultHeld, OutputChars: 8000, Sweep: true,
		}
	}
	if level >= L2 {
		p.Environment.Scrub = true
		p.Workdir.Private = true
	}
	if level >= L3 {
		p.Processes = Processes{Isolate: true, Max: 16, Monitor: 5 * time.Millisecond}
	}
	if level >= L4 {
		p.Network.Isolate = true
	}
	if level >= L5 {
		p.Workdir.Size, p.Workdir.Inodes = 64*mib, 4096
		p.Filesystem = Filesystem{Isolate: true, Hide: slices.Clone(defaultHide)}
		p.Capabilities = Capabilities{Drop: true, NoNewPrivileges: true}
		p.Syscalls.Filter = true
	}
	return p
}

// ParseLevel reads "L0" to "L5".
func ParseLevel(s string) (Level, error) {
	if len(s) == 2 && s[0] == 'L' && s[1] >= '0' && s[1] <= '5' {
		return Level(s[1] - '0'), nil
	}
	return 0, fmt.Errorf("level %q is none of L0, L1, L2, L3, L4, L5", s)
}

// String is the level's name, "L0" to "L5".
func (l Level) String() string { return fmt.Sprintf("L%d", int(l)) }

// NoLevel stands in the Result of a request that never came to have a policy.
const NoLevel Level = -1

// MarshalText gives the name, "none" for NoLevel; a number that is no level is an error.
func (l Level) MarshalText() ([]byte, error) {
	if l == NoLevel {
		return []byte("none"), nil
	}
	if l < L0 || l > L5 {
		return nil, fmt.Errorf("there is no level %d", int(l))
	}
	return []byte(l.String()), nil
}

// UnmarshalText reads the name.
func (l *Level) UnmarshalText(b []byte) (err error) {
	if string(b) == "none" {
		*l = NoLevel
		return nil
	}
	*l, err = ParseLevel(string(b))
	return err
}
