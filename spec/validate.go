// This file owns what a policy must not say: contradictions, values without sense.

package spec

import (
	"fmt"
	"math"
	"path"
	"slices"
	"strings"
	"time"
)

// The least values with which a program can start at all.
const (
	minFiles  = 8
	minMemory = 4 * mib
	maxCount  = math.MaxInt32
	maxTime   = 365 * 24 * time.Hour
)

// Validate refuses a policy that contradicts itself or cannot be enforced, naming
// the key.
func (p Policy) Validate() error {
	if p.Level < L0 || p.Level > L5 {
		return fmt.Errorf("level: there is no level %d", int(p.Level))
	}
	if p.Cgroup != CgroupOn && p.Cgroup != CgroupOff {
		return fmt.Errorf("cgroup: %q is neither on nor off", p.Cgroup)
	}
	for _, check := range []func() error{p.checkLayers, p.checkRanges, p.checkLists} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// checkLayers looks at what one key needs of another.
func (p *Policy) checkLayers() error {
	isolated := p.Processes.Isolate
	for _, c := range []struct {
		wrong bool
		say   string
	}{
		{p.Network.Isolate && !isolated, "network.isolate: needs processes.isolate"},
		{p.Filesystem.Isolate && !isolated, "filesystem.isolate: needs processes.isolate"},
		{p.Capabilities.Drop && !isolated, "capabilities.drop: needs processes.isolate"},
		{p.Syscalls.Filter && !p.Capabilities.NoNewPrivileges, "syscalls.filter: needs capabilities.no-new-privileges"},
		{len(p.Filesystem.Hide) > 0 && !p.Filesystem.Isolate, "filesystem.hide: needs filesystem.isolate"},
		{p.Workdir.Size > 0 && !p.boundedWorkdir(), "workdir.size: needs workdir.private and filesystem.isolate"},
		{p.Workdir.Inodes > 0 && !p.boundedWorkdir(), "workdir.inodes: needs workdir.private and filesystem.isolate"},
		{isolated && p.Processes.Monitor == 0, "processes.monitor: must be more than 0 with processes.isolate"},
		{p.Processes.Max > 0 && p.Processes.Monitor == 0, "processes.monitor: must be more than 0 with processes.max"},
		{p.Limits.OutputHeld == 0, "limits.output-held: must be more than 0, the supervisor's memory is bounded always"},
	} {
		if c.wrong {
			return fmt.Errorf("%s", c.say)
		}
	}
	return nil
}

func (p *Policy) boundedWorkdir() bool { return p.Workdir.Private && p.Filesystem.Isolate }

// checkRanges looks at each value by itself.
func (p *Policy) checkRanges() error {
	l := p.Limits
	for _, d := range []struct {
		key   string
		value time.Duration
	}{{"limits.wall", l.Wall}, {"limits.cpu", l.CPU}, {"processes.monitor", p.Processes.Monitor}} {
		if d.value < 0 || d.value > maxTime {
			return fmt.Errorf("%s: %v is out of range", d.key, d.value)
		}
	}
	if l.CPU%time.Second != 0 {
		return fmt.Errorf("limits.cpu: %v is not a whole number of seconds, which RLIMIT_CPU counts", l.CPU)
	}
	if m := p.Processes.Monitor; m > 0 && m < time.Millisecond || m > time.Second {
		return fmt.Errorf("processes.monitor: %v is not between 1ms and 1s", m)
	}
	for _, n := range []struct {
		key             string
		value, low, top int64
	}{
		{"limits.memory", l.Memory, minMemory, math.MaxInt64 / 2},
		{"limits.file-size", l.FileSize, 1, math.MaxInt64 / 2},
		{"limits.files", l.Files, minFiles, maxCount},
		{"limits.output-held", l.OutputHeld, kib, 1 << 30},
		{"limits.output-chars", l.OutputChars, 10, l.OutputHeld},
		{"workdir.size", p.Workdir.Size, 4 * kib, math.MaxInt64 / 2},
		{"workdir.inodes", p.Workdir.Inodes, 8, maxCount},
		{"processes.max", p.Processes.Max, 1, 1 << 20},
	} {
		if n.value != 0 && (n.value < n.low || n.value > n.top) {
			return fmt.Errorf("%s: %d is not between %d and %d", n.key, n.value, n.low, n.top)
		}
	}
	return nil
}

func (p *Policy) checkLists() error {
	for _, h := range p.Filesystem.Hide {
		if err := checkHide(h); err != nil {
			return fmt.Errorf("filesystem.hide: %w", err)
		}
	}
	if sorted := slices.Sorted(slices.Values(p.Filesystem.Hide)); len(slices.Compact(sorted)) != len(p.Filesystem.Hide) {
		return fmt.Errorf("filesystem.hide: a path is listed twice")
	}
	for k, v := range p.Environment.Set {
		if err := checkEnv(k, v); err != nil {
			return fmt.Errorf("environment.set: %w", err)
		}
	}
	return nil
}

// needed are places without which nothing runs, or which the sandbox itself fills.
var needed = []string{"/proc", "/dev", "/tmp", WorkdirPath}

func checkHide(h string) error {
	switch {
	case !path.IsAbs(h) || path.Clean(h) != h || h == "/":
		return fmt.Errorf("%q is not a clean absolute path below /", h)
	case strings.ContainsAny(h, "\x00\n,"):
		return fmt.Errorf("%q contains a character that a path here must not", h)
	}
	for _, n := range needed {
		if h == n || strings.HasPrefix(n, h+"/") || h == WorkdirPath || strings.HasPrefix(h, WorkdirPath+"/") {
			return fmt.Errorf("%q cannot be hidden, the program needs it", h)
		}
	}
	return nil
}

func checkEnv(k, v string) error {
	if k == "" || strings.ContainsAny(k, "=\x00") || strings.Contains(v, "\x00") {
		return fmt.Errorf("%q is not a variable's name and value", k+"="+v)
	}
	return nil
}
