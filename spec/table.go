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
	Meaning   string // what it says to a person
	Mechanism string // what enforces it
	// Fields says where in config.json it stands: a path of names, with the type,
	// destination or key of a list's or map's element in brackets.
	Fields []string
	get    func(*Policy) string
	set    func(*Policy, string) error
	// wider says whether a allows more than b.
	wider func(a, b *Policy) bool
}

// Keys lists every key in the order of the layers.
func Keys() []Key { return slices.Clone(keys) }

var keys = []Key{
	duration("limits.wall", "limits", "how long the program may run, by the clock",
		"supervisor's monotonic clock, then SIGKILL", []string{"annotations[dev.sbxrun.wall]"}, func(p *Policy) *time.Duration { return &p.Limits.Wall }),
	duration("limits.cpu", "limits", "how much CPU time it may use, in whole seconds",
		"cgroup CPU count over all tasks, RLIMIT_CPU per process", []string{"process.rlimits[RLIMIT_CPU]"}, func(p *Policy) *time.Duration { return &p.Limits.CPU }),
	size("limits.memory", "limits", "how much memory all its processes may use together",
		"cgroup memory.max without swap; RLIMIT_AS with cgroup off", []string{"linux.resources.memory", "process.rlimits[RLIMIT_AS]"}, func(p *Policy) *int64 { return &p.Limits.Memory }),
	size("limits.file-size", "limits", "how large a file may grow",
		"RLIMIT_FSIZE, per file", []string{"process.rlimits[RLIMIT_FSIZE]"}, func(p *Policy) *int64 { return &p.Limits.FileSize }),
	number("limits.files", "limits", "how many files a process may have open",
		"RLIMIT_NOFILE, per process", []string{"process.rlimits[RLIMIT_NOFILE]"}, func(p *Policy) *int64 { return &p.Limits.Files }),
	size("limits.output-held", "limits", "how many bytes of a stream are ever held",
		"supervisor's buffers, per stream", []string{"annotations[dev.sbxrun.output-held]"}, func(p *Policy) *int64 { return &p.Limits.OutputHeld }),
	number("limits.output-chars", "limits", "how many characters of a stream are returned",
		"cut of the result's text, per stream", []string{"annotations[dev.sbxrun.output-chars]"}, func(p *Policy) *int64 { return &p.Limits.OutputChars }),
	toggle("limits.sweep", "limits", "whether what it leaves running is killed",
		"cgroup.kill, the PID namespace, or a walk of the process tree", []string{"annotations[dev.sbxrun.sweep]"}, func(p *Policy) *bool { return &p.Limits.Sweep }),
	toggle("environment.scrub", "environment", "whether the caller's variables are kept from it",
		"execve with PATH, LANG, HOME and TMPDIR only", []string{"annotations[dev.sbxrun.environment]", "process.env"}, func(p *Policy) *bool { return &p.Environment.Scrub }),
	{"environment.set", "environment", "variables", "variables that it gets besides",
		"execve", []string{"process.env"}, getEnv, setEnv, widerEnv},
	toggle("workdir.private", "workdir", "whether it works in a fresh directory that goes away",
		"a fresh directory, mode 0700, removed with the run", []string{"annotations[dev.sbxrun.workdir]", "process.cwd"}, func(p *Policy) *bool { return &p.Workdir.Private }),
	size("workdir.size", "workdir", "how many bytes that directory may hold in all",
		"tmpfs size, from L5; 0 is none of its own", []string{"mounts[/tmp]"}, func(p *Policy) *int64 { return &p.Workdir.Size }),
	number("workdir.inodes", "workdir", "how many files that directory may hold",
		"tmpfs nr_inodes, from L5; 0 is none of its own", []string{"mounts[/tmp]"}, func(p *Policy) *int64 { return &p.Workdir.Inodes }),
	toggle("processes.isolate", "processes", "whether it sees only its own processes",
		"user, PID, IPC, UTS, cgroup and mount namespaces, its own /proc", []string{"linux.namespaces", "linux.uidMappings", "linux.gidMappings", "mounts[/proc]"}, func(p *Policy) *bool { return &p.Processes.Isolate }),
	number("processes.max", "processes", "how many processes and threads may be alive at once",
		"cgroup pids.max (one more, for the reaper), witnessed by the monitor", []string{"linux.resources.pids", "annotations[dev.sbxrun.processes]"}, func(p *Policy) *int64 { return &p.Processes.Max }),
	duration("processes.monitor", "processes", "how often its processes are counted",
		"walk of the run's /proc entries", []string{"annotations[dev.sbxrun.monitor]"}, func(p *Policy) *time.Duration { return &p.Processes.Monitor }),
	toggle("network.isolate", "network", "whether every network is kept from it",
		"empty network namespace", []string{"linux.namespaces[network]"}, func(p *Policy) *bool { return &p.Network.Isolate }),
	toggle("filesystem.isolate", "filesystem", "whether it may change nothing but its own places",
		"read-only root, its own /dev, /dev/shm and /tmp", []string{"root.readonly", "linux.readonlyPaths", "mounts[/dev]", "mounts[/dev/shm]", "mounts[/tmp]"}, func(p *Policy) *bool { return &p.Filesystem.Isolate }),
	{"filesystem.hide", "filesystem", "paths", "places that it finds empty",
		"masks laid after every mount", []string{"linux.maskedPaths"}, getHide, setHide, widerHide},
	toggle("capabilities.drop", "capabilities", "whether it is without any privilege",
		"five empty capability sets, locked securebits", []string{"process.capabilities"}, func(p *Policy) *bool { return &p.Capabilities.Drop }),
	toggle("capabilities.no-new-privileges", "capabilities", "whether no program it starts may gain privileges",
		"PR_SET_NO_NEW_PRIVS", []string{"process.noNewPrivileges"}, func(p *Policy) *bool { return &p.Capabilities.NoNewPrivileges }),
	toggle("syscalls.filter", "syscalls", "whether system calls of known escapes are refused",
		"seccomp filter", []string{"linux.seccomp"}, func(p *Policy) *bool { return &p.Syscalls.Filter }),
	{"cgroup", "limits", "switch", "whether the run has a control group of its own",
		"control group of the run; refused where there is none", []string{"annotations[dev.sbxrun.cgroup]", "linux.resources"}, getCgroup, setCgroup, widerCgroup},
}

// more compares limits, of which 0 is none.
func more(a, b int64) bool { return b != 0 && (a == 0 || a > b) }

func duration(name, layer, meaning, mechanism string, fields []string, at func(*Policy) *time.Duration) Key {
	return Key{name, layer, "duration", meaning, mechanism, fields,
		func(p *Policy) string { return at(p).String() },
		func(p *Policy, s string) (err error) { return assign(at(p), s, parseDuration) },
		func(a, b *Policy) bool { return more(int64(*at(a)), int64(*at(b))) }}
}

func size(name, layer, meaning, mechanism string, fields []string, at func(*Policy) *int64) Key {
	k := number(name, layer, meaning, mechanism, fields, at)
	k.Type = "size"
	k.get = func(p *Policy) string { return formatSize(*at(p)) }
	k.set = func(p *Policy, s string) error { return assign(at(p), s, parseSize) }
	return k
}

func number(name, layer, meaning, mechanism string, fields []string, at func(*Policy) *int64) Key {
	return Key{name, layer, "count", meaning, mechanism, fields,
		func(p *Policy) string { return formatCount(*at(p)) },
		func(p *Policy, s string) error { return assign(at(p), s, parseCount) },
		func(a, b *Policy) bool { return more(*at(a), *at(b)) }}
}

func toggle(name, layer, meaning, mechanism string, fields []string, at func(*Policy) *bool) Key {
	return Key{name, layer, "switch", meaning, mechanism, fields,
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

func getCgroup(p *Policy) string          { return string(p.Cgroup) }
func setCgroup(p *Policy, s string) error { return assign(&p.Cgroup, s, parseCgroup) }
func widerCgroup(a, b *Policy) bool       { return a.Cgroup == CgroupOff && b.Cgroup == CgroupOn }
func getHide(p *Policy) string            { return strings.Join(p.Filesystem.Hide, ",") }

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

// widerEnv holds when a sets a variable that b does not set like that.
func widerEnv(a, b *Policy) bool {
	for k, v := range a.Environment.Set {
		if other, ok := b.Environment.Set[k]; !ok || other != v {
			return true
		}
	}
	return false
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
	if best := Nearest(name, known); best != "" {
		return fmt.Errorf("unknown key %q, did you mean %q?", name, best)
	}
	return fmt.Errorf("unknown key %q", name)
}

// Nearest gives that of the known names which somebody may have meant, "" when none is
// near.
func Nearest(name string, known []string) string {
	best, distance := "", (len(name)+2)/3+1
	if len(name) < 2 {
		return ""
	}
	for _, k := range known {
		if d := editDistance(name, k); d < distance && d < len(k) {
			best, distance = k, d
		}
	}
	return best
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
