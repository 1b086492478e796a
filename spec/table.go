// This file owns the table of the policy's keys. Everything that walks a policy
// key by key (files, flags, what is wider than the preset, explain) walks this.

package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Key is one key of a policy: how it is read, written and compared.
type Key struct {
	Name      string // "limits.wall"
	Layer     string
	Type      string // "duration", "size", "count", "switch", "paths", "variables"
	Mechanism string // what enforces it
	get       func(*Policy) string
	set       func(*Policy, string) error
	// wider says whether a allows more than b.
	wider func(a, b *Policy) bool
}

// Keys lists every key in the order of the layers.
func Keys() []Key { return slices.Clone(keys) }

var keys = []Key{
	duration("limits.wall", "limits", "supervisor's monotonic clock, then SIGKILL", func(p *Policy) *time.Duration { return &p.Limits.Wall }),
	duration("limits.cpu", "limits", "RLIMIT_CPU per process, cgroup CPU count for the run", func(p *Policy) *time.Duration { return &p.Limits.CPU }),
	size("limits.memory", "limits", "cgroup memory.max without swap; RLIMIT_AS with cgroup off", func(p *Policy) *int64 { return &p.Limits.Memory }),
	size("limits.file-size", "limits", "RLIMIT_FSIZE, per file", func(p *Policy) *int64 { return &p.Limits.FileSize }),
	number("limits.files", "limits", "RLIMIT_NOFILE, per process", func(p *Policy) *int64 { return &p.Limits.Files }),
	size("limits.output-held", "limits", "supervisor's buffers, per stream", func(p *Policy) *int64 { return &p.Limits.OutputHeld }),
	number("limits.output-chars", "limits", "cut of the result's text, per stream", func(p *Policy) *int64 { return &p.Limits.OutputChars }),
	toggle("limits.sweep", "limits", "cgroup.kill, the PID namespace, or a walk of the process tree", func(p *Policy) *bool { return &p.Limits.Sweep }),
	toggle("environment.scrub", "environment", "execve with PATH, LANG, HOME and TMPDIR only", func(p *Policy) *bool { return &p.Environment.Scrub }),
	{"environment.set", "environment", "variables", "execve", getEnv, setEnv, widerEnv},
	toggle("workdir.private", "workdir", "a fresh directory, mode 0700", func(p *Policy) *bool { return &p.Workdir.Private }),
	size("workdir.size", "workdir", "tmpfs size, from L5", func(p *Policy) *int64 { return &p.Workdir.Size }),
	number("workdir.inodes", "workdir", "tmpfs nr_inodes, from L5", func(p *Policy) *int64 { return &p.Workdir.Inodes }),
	toggle("processes.isolate", "processes", "user, PID, IPC, UTS, cgroup and mount namespaces, own /proc", func(p *Policy) *bool { return &p.Processes.Isolate }),
	number("processes.max", "processes", "cgroup pids.max, witnessed by the monitor", func(p *Policy) *int64 { return &p.Processes.Max }),
	{"processes.monitor", "processes", "duration", "walk of the run's /proc entries", getMonitor, setMonitor, never},
	toggle("network.isolate", "network", "empty network namespace", func(p *Policy) *bool { return &p.Network.Isolate }),
	toggle("filesystem.isolate", "filesystem", "read-only root, own /dev, /dev/shm and /tmp", func(p *Policy) *bool { return &p.Filesystem.Isolate }),
	{"filesystem.hide", "filesystem", "paths", "masks laid after every mount", getHide, setHide, widerHide},
	toggle("capabilities.drop", "capabilities", "five empty capability sets, locked securebits", func(p *Policy) *bool { return &p.Capabilities.Drop }),
	toggle("capabilities.no-new-privileges", "capabilities", "PR_SET_NO_NEW_PRIVS", func(p *Policy) *bool { return &p.Capabilities.NoNewPrivileges }),
	toggle("syscalls.filter", "syscalls", "seccomp filter", func(p *Policy) *bool { return &p.Syscalls.Filter }),
	{"cgroup", "limits", "switch", "control group of the run", getCgroup, setCgroup, widerCgroup},
}

func never(_, _ *Policy) bool { return false }

// more compares limits, of which 0 is none.
func more(a, b int64) bool { return b != 0 && (a == 0 || a > b) }

func duration(name, layer, mechanism string, at func(*Policy) *time.Duration) Key {
	return Key{name, layer, "duration", mechanism,
		func(p *Policy) string { return at(p).String() },
		func(p *Policy, s string) (err error) { return assign(at(p), s, parseDuration) },
		func(a, b *Policy) bool { return more(int64(*at(a)), int64(*at(b))) }}
}

func size(name, layer, mechanism string, at func(*Policy) *int64) Key {
	k := number(name, layer, mechanism, at)
	k.Type = "size"
	k.get = func(p *Policy) string { return formatSize(*at(p)) }
	k.set = func(p *Policy, s string) error { return assign(at(p), s, parseSize) }
	return k
}

func number(name, layer, mechanism string, at func(*Policy) *int64) Key {
	return Key{name, layer, "count", mechanism,
		func(p *Policy) string { return formatCount(*at(p)) },
		func(p *Policy, s string) error { return assign(at(p), s, parseCount) },
		func(a, b *Policy) bool { return more(*at(a), *at(b)) }}
}

func toggle(name, layer, mechanism string, at func(*Policy) *bool) Key {
	return Key{name, layer, "switch", mechanism,
		func(p *Policy) string { return fmt.Sprint(*at(p)) },
		func(p *Policy, s string) error { return assign(at(p), s, parseSwitch) },
		func(a, b *Policy) bool { return *at(b) && !*at(a) }}
}

// assign parses s into place, which keeps its value when s is wrong.
func assign[T any](place *T, s string, parse func(string) (T, error)) error {
	v, err := parse(s)
	if err == nil {
		*place = v
	}
	return err
}

func getMonitor(p *Policy) string          { return p.Processes.Monitor.String() }
func setMonitor(p *Policy, s string) error { return assign(&p.Processes.Monitor, s, parseDuration) }
func getCgroup(p *Policy) string           { return string(p.Cgroup) }
func setCgroup(p *Policy, s string) error  { return assign(&p.Cgroup, s, parseCgroup) }
func widerCgroup(a, b *Policy) bool        { return a.Cgroup == CgroupOff && b.Cgroup == CgroupOn }
func widerEnv(a, b *Policy) bool           { return len(a.Environment.Set) > len(b.Environment.Set) }
func getHide(p *Policy) string             { return strings.Join(p.Filesystem.Hide, ",") }

// setHide adds one path to those that are hidden.
func setHide(p *Policy, s string) error {
	if !slices.Contains(p.Filesystem.Hide, s) {
		p.Filesystem.Hide = append(slices.Clip(p.Filesystem.Hide), s)
	}
	return checkHide(s)
}

// widerHide holds when a path that b hides is not hidden by a.
func widerHide(a, b *Policy) bool {
	return slices.ContainsFunc(b.Filesystem.Hide, func(path string) bool { return !slices.Contains(a.Filesystem.Hide, path) })
}

func getEnv(p *Policy) string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(p.Environment.Set)) {
		list = append(list, k+"="+p.Environment.Set[k])
	}
	return strings.Join(list, ",")
}

// setEnv adds one variable, "K=V".
func setEnv(p *Policy, s string) error {
	k, v, ok := strings.Cut(s, "=")
	if !ok {
		return fmt.Errorf("%q is not of the form K=V", s)
	}
	if err := checkEnv(k, v); err != nil {
		return err
	}
	set := maps.Clone(p.Environment.Set)
	if set == nil {
		set = map[string]string{}
	}
	set[k] = v
	p.Environment.Set = set
	return nil
}

// Set changes one key, as a flag does. Lists grow by the value.
func (p *Policy) Set(name, value string) error {
	k, err := find(name)
	if err != nil {
		return err
	}
	return k.set(p, value)
}

// Get gives the value of one key as text.
func (p *Policy) Get(name string) (string, error) {
	k, err := find(name)
	if err != nil {
		return "", err
	}
	return k.get(p), nil
}

// Wider lists the keys whose value allows more than the preset of the level.
func (p Policy) Wider() []string {
	preset := Preset(p.Level)
	var out []string
	for _, k := range keys {
		if k.wider(&p, &preset) {
			out = append(out, k.Name)
		}
	}
	return out
}

func find(name string) (*Key, error) {
	for i := range keys {
		if keys[i].Name == name {
			return &keys[i], nil
		}
	}
	var names []string
	for _, k := range keys {
		names = append(names, k.Name)
	}
	return nil, unknown(name, names)
}

// unknown names the nearest of the known names, when one is near.
func unknown(name string, known []string) error {
	best, distance := "", len(name)/2+2
	for _, k := range known {
		if d := editDistance(name, k); d < distance {
			best, distance = k, d
		}
	}
	if best == "" {
		return fmt.Errorf("unknown key %q", name)
	}
	return fmt.Errorf("unknown key %q, did you mean %q?", name, best)
}

// editDistance counts insertions, deletions and replacements (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			next := diagonal
			if a[i] != b[j] {
				next = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}
