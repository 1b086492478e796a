// This file owns FromSpec: the policy that a compiled config.json holds.

package spec

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// ErrNotCompiled says that a config.json was not made by Compile.
var ErrNotCompiled = errors.New("the config was not compiled from a policy")

// IsCompiled says whether Compile made the config.
func IsCompiled(sp *specs.Spec) bool { return sp.Annotations[keyFormat] != "" }

// FromSpec reads the policy back. What OCI has a field for is read from the field,
// because the field is what is enforced. A config that was edited is read as the
// policy that it is now; when no policy compiles to it, that is an error which names
// the field.
func FromSpec(sp *specs.Spec) (Policy, error) {
	var p Policy
	switch f := sp.Annotations[keyFormat]; {
	case f == "":
		return p, ErrNotCompiled
	case f != format:
		return p, fmt.Errorf("annotations: format %q is not known, this sbxrun writes %q", f, format)
	case sp.Root == nil || sp.Process == nil || sp.Linux == nil:
		return p, fmt.Errorf("root, process or linux is missing")
	}
	for _, read := range []func(*specs.Spec) error{p.fromAnnotations, p.fromProcess, p.fromResources, p.fromNamespaces, p.fromFilesystem} {
		if err := read(sp); err != nil {
			return Policy{}, err
		}
	}
	if err := p.Validate(); err != nil {
		return Policy{}, err
	}
	if err := p.unchanged(sp); err != nil {
		return Policy{}, err
	}
	return p, nil
}

func (p *Policy) fromAnnotations(sp *specs.Spec) error {
	a := sp.Annotations
	level, err := ParseLevel(a[keyLevel])
	if err != nil {
		return fmt.Errorf("annotation %s: %w", keyLevel, err)
	}
	p.Level = level
	for _, row := range []struct{ key, name string }{
		{keyWall, "limits.wall"}, {keyHeld, "limits.output-held"}, {keyChars, "limits.output-chars"},
		{keySweep, "limits.sweep"}, {keyCgroup, "cgroup"},
	} {
		if err := p.Set(row.name, a[row.key]); err != nil {
			return fmt.Errorf("annotation %s: %w", row.key, err)
		}
	}
	if m, ok := a[keyMonitor]; ok {
		if err := p.Set("processes.monitor", m); err != nil {
			return fmt.Errorf("annotation %s: %w", keyMonitor, err)
		}
	}
	switch a[keyScrub] {
	case "scrub", "inherit":
		p.Environment.Scrub = a[keyScrub] == "scrub"
	default:
		return fmt.Errorf("annotation %s: %q is neither scrub nor inherit", keyScrub, a[keyScrub])
	}
	return p.fromVariables(sp)
}

// fromVariables reads the variables and the working directory, and checks that
// the process has what the annotations say.
func (p *Policy) fromVariables(sp *specs.Spec) error {
	for key, value := range sp.Annotations {
		name, ok := strings.CutPrefix(key, keySet)
		if !ok {
			continue
		}
		if err := setEnv(p, name+"="+value); err != nil {
			return fmt.Errorf("annotation %s: %w", key, err)
		}
		if !slices.Contains(sp.Process.Env, name+"="+value) {
			return fmt.Errorf("annotation %s contradicts process.env", key)
		}
	}
	if w, ok := sp.Annotations[keyWorkdir]; ok {
		if w != WorkdirPath || sp.Process.Cwd != WorkdirPath {
			return fmt.Errorf("annotation %s: %q contradicts process.cwd %q", keyWorkdir, w, sp.Process.Cwd)
		}
		p.Workdir.Private = true
	}
	return nil
}

func (p *Policy) fromProcess(sp *specs.Spec) error {
	pr := sp.Process
	for _, l := range pr.Rlimits {
		if l.Soft > 1<<62 || l.Hard > 1<<62 {
			return fmt.Errorf("process.rlimits: %s is out of range", l.Type)
		}
		switch l.Type {
		case "RLIMIT_CPU":
			if l.Soft > uint64(maxTime/time.Second) {
				return fmt.Errorf("process.rlimits: RLIMIT_CPU is out of range")
			}
			p.Limits.CPU = time.Duration(l.Soft) * time.Second
		case "RLIMIT_FSIZE":
			p.Limits.FileSize = int64(l.Soft)
		case "RLIMIT_NOFILE":
			p.Limits.Files = int64(l.Soft)
		case "RLIMIT_AS":
			p.Limits.Memory = int64(l.Soft)
		}
	}
	c := pr.Capabilities
	p.Capabilities.NoNewPrivileges = pr.NoNewPrivileges
	p.Capabilities.Drop = c != nil && len(c.Bounding)+len(c.Effective)+len(c.Permitted)+len(c.Inheritable)+len(c.Ambient) == 0
	p.Syscalls.Filter = sp.Linux.Seccomp != nil
	return nil
}

func (p *Policy) fromResources(sp *specs.Spec) error {
	r := sp.Linux.Resources
	if p.Cgroup == CgroupOff {
		if r != nil && (r.Memory != nil || r.Pids != nil) {
			return fmt.Errorf("linux.resources: contradicts annotation %s", keyCgroup)
		}
		memory, err := parseCount(sp.Annotations[keyMemory])
		if err != nil || memory != p.Limits.Memory {
			return fmt.Errorf("annotation %s contradicts RLIMIT_AS", keyMemory)
		}
		p.Processes.Max, err = parseCount(sp.Annotations[keyProcesses])
		if err != nil {
			return fmt.Errorf("annotation %s: %w", keyProcesses, err)
		}
		return nil
	}
	if p.Limits.Memory != 0 {
		return fmt.Errorf("process.rlimits: RLIMIT_AS contradicts annotation %s", keyCgroup)
	}
	if r == nil {
		return nil
	}
	if r.Memory != nil && r.Memory.Limit != nil {
		p.Limits.Memory = *r.Memory.Limit
		if s := r.Memory.Swap; s == nil || *s != p.Limits.Memory {
			return fmt.Errorf("linux.resources.memory.swap: must equal the limit, a policy's memory has no swap")
		}
	}
	if r.Pids != nil && r.Pids.Limit != nil && *r.Pids.Limit > 0 {
		p.Processes.Max = *r.Pids.Limit - ReaperTasks
		if p.Processes.Max == 0 {
			return fmt.Errorf("linux.resources.pids.limit: leaves no task for the program beside the reaper")
		}
	}
	return nil
}

func (p *Policy) fromNamespaces(sp *specs.Spec) error {
	has := map[specs.LinuxNamespaceType]bool{}
	for _, n := range sp.Linux.Namespaces {
		if n.Path != "" {
			return fmt.Errorf("linux.namespaces: a policy's run makes its own namespaces, %q is joined by path", n.Type)
		}
		has[n.Type] = true
	}
	isolating := []specs.LinuxNamespaceType{specs.UserNamespace, specs.PIDNamespace, specs.IPCNamespace, specs.UTSNamespace, specs.MountNamespace, specs.CgroupNamespace}
	count := 0
	for _, t := range isolating {
		if has[t] {
			count++
		}
	}
	if count != 0 && count != len(isolating) {
		return fmt.Errorf("linux.namespaces: user, pid, ipc, uts, mount and cgroup belong together, there are %d of 6", count)
	}
	p.Processes.Isolate, p.Network.Isolate = count > 0, has[specs.NetworkNamespace]
	return nil
}

func (p *Policy) fromFilesystem(sp *specs.Spec) error {
	p.Filesystem.Isolate = sp.Root.Readonly
	for i := 0; ; i++ {
		h, ok := sp.Annotations[keyHide+strconv.Itoa(i)]
		if !ok {
			break
		}
		if !slices.Contains(sp.Linux.MaskedPaths, h) {
			return fmt.Errorf("annotation %s%d: %s is not among linux.maskedPaths", keyHide, i, h)
		}
		p.Filesystem.Hide = append(p.Filesystem.Hide, h)
	}
	if !p.Filesystem.Isolate {
		return nil
	}
	for _, m := range sp.Mounts {
		if m.Destination != "/tmp" {
			continue
		}
		for _, o := range m.Options {
			key, value, _ := strings.Cut(o, "=")
			name, ok := map[string]string{"size": "workdir.size", "nr_inodes": "workdir.inodes"}[key]
			if !ok {
				continue
			}
			if err := p.Set(name, value); err != nil {
				return fmt.Errorf("mounts: /tmp: %s: %w", o, err)
			}
		}
	}
	return nil
}
