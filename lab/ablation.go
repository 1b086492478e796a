// This file owns the layers one by one: the policy with nothing on, and those with a
// single layer or a single mechanism.

package lab

import (
	"strings"
	"time"

	"github.com/sbxrun/sbxrun/spec"
)

// layer is one layer of a policy, which can be on alone but for what it needs.
type layer struct {
	name  string
	on    func(*spec.Policy)
	needs bool // a namespace layer: it needs processes.isolate, which is on as well
}

// layers are in the order of the levels.
var layers = []layer{
	{"none", func(*spec.Policy) {}, false},
	{"limits", func(p *spec.Policy) { full := spec.Preset(spec.L1); p.Limits, p.Cgroup = full.Limits, full.Cgroup }, false},
	{"environment", func(p *spec.Policy) { p.Environment.Scrub = true }, false},
	{"workdir", func(p *spec.Policy) { p.Workdir, p.Filesystem.Isolate = spec.Preset(spec.L5).Workdir, true }, true}, // its size is a tmpfs's
	{"processes", func(p *spec.Policy) { p.Processes, p.Cgroup = spec.Preset(spec.L3).Processes, spec.CgroupOn }, false},
	{"network", func(p *spec.Policy) { p.Network.Isolate = true }, true},
	{"filesystem", func(p *spec.Policy) { p.Filesystem = spec.Preset(spec.L5).Filesystem }, true},
	{"capabilities", func(p *spec.Policy) { p.Capabilities = spec.Preset(spec.L5).Capabilities }, true},
	{"syscalls", func(p *spec.Policy) { p.Syscalls.Filter, p.Capabilities.NoNewPrivileges = true, true }, false},
}

func layerNames() (names []string) {
	for _, l := range layers {
		names = append(names, l.name)
	}
	return names
}

// bare is the policy in which nothing is on that can be off.
func bare() spec.Policy {
	p := spec.Preset(spec.L0)
	p.Limits.Wall = 0
	return p
}

// alone is the policy with this layer only, and the process namespaces if it needs them.
func (l *layer) alone() spec.Policy {
	p := bare()
	l.on(&p)
	if l.needs {
		p.Processes.Isolate, p.Processes.Monitor = true, 5*time.Millisecond
	}
	return p
}

// finish counts the depth of defence: how many layers stop the attack alone. What a
// layer's prerequisite stops already does not count for the layer.
func (r *Row) finish() {
	if r.Alone == nil {
		return
	}
	depth := 0
	for i := range r.Alone {
		c := &r.Alone[i]
		if i > 0 && c.Verdict == Stopped {
			if r.Alone[0].Verdict == Stopped {
				c.Verdict, c.Evidence = NotHere, "it is stopped with nothing on: "+c.Evidence
			} else if layers[i].needs && c.Layer != c.Policy {
				c.Verdict, c.Evidence = NotHere, "what the layer needs stops this already: "+c.Evidence
			}
		}
		if i > 0 && c.Verdict == Stopped {
			depth++
		}
	}
	r.Depth = &depth
}

// part is a single mechanism that stops an attack, on with nothing else.
type part struct {
	name string
	on   func(*spec.Policy)
}

// keys makes a part of policy keys and values: "limits.cpu=1s processes.monitor=1s".
func keys(name, settings string) part {
	return part{name, func(p *spec.Policy) {
		for s := range strings.FieldsSeq(settings) {
			k, v, _ := strings.Cut(s, "=")
			if err := p.Set(k, v); err != nil {
				panic(err) // a test goes through all of them
			}
		}
	}}
}
