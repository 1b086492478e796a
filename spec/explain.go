// This file owns Explain: what a policy, or a config.json that nobody compiled,
// lets a program do, layer by layer.

package spec

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Explanation says what a program may do, as data.
type Explanation struct {
	Subject string `json:"subject"`
	// Compiled says that the config is a policy's. A foreign one has no supervisor.
	Compiled bool `json:"compiled"`
	// Level is the policy's; of a foreign config the highest whose layers it has in
	// full, as far as OCI has fields for them.
	Level   Level          `json:"level"`
	Digest  string         `json:"digest"`
	Wider   []string       `json:"wider"`   // keys that allow more than the level's preset
	Answers []Answer       `json:"answers"` // of a policy only
	Layers  []LayerInForce `json:"layers"`
	// Start are the steps of init that belong to no layer: they start the program.
	Start []string `json:"start"`
}

// Answer is a question that a reader has, and what the policy makes of it.
type Answer struct {
	Question string `json:"question"`
	Answer   string `json:"answer"`
}

// LayerInForce is one layer as the config has it.
type LayerInForce struct {
	Layer      string    `json:"layer"`
	From       Level     `json:"from"`     // the level that adds it
	InForce    string    `json:"in_force"` // "on", "partly", "off"
	Allowed    []string  `json:"allowed"`
	NotAllowed []string  `json:"not_allowed"`
	Remains    []string  `json:"not_stopped"` // what the layer does not stop
	Missing    []string  `json:"missing"`     // what the layer would need
	Settings   []Setting `json:"settings"`
	Steps      []string  `json:"steps"` // of init, where the layer is in force
}

// Setting is one key with what enforces it.
type Setting struct {
	Key       string   `json:"key"`
	Meaning   string   `json:"meaning"`
	Value     string   `json:"value"` // empty where no policy says it
	Source    string   `json:"source"`
	Wider     bool     `json:"wider"`
	Mechanism string   `json:"mechanism"`
	Fields    []string `json:"fields"` // "process.rlimits[RLIMIT_CPU] = {…}"
}

// Encode writes a config as a file: the one text that a config has.
func Encode(sp *specs.Spec) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "\t")
	if err := enc.Encode(sp); err != nil {
		return nil, fmt.Errorf("write the config: %w", err)
	}
	return b.Bytes(), nil
}

// Digest is the SHA-256 of what Encode writes: neither the order of a config's keys
// nor its formatting shows.
func Digest(sp *specs.Spec) (string, error) {
	text, err := Encode(sp)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("sha256:%x", sha256.Sum256(text)), nil
}

// anyProgram stands for the program where none is given.
var anyProgram = Process{Args: []string{"program"}}

// Explain explains a policy on a host. origin says for keys where their value comes
// from, as File.Origin does; the others come from the preset.
func Explain(subject string, p Policy, host Host, origin map[string]string) (*Explanation, error) {
	sp, err := Compile(p, host, anyProgram)
	if err != nil {
		return nil, err
	}
	e, err := explain(subject, sp, &p, origin)
	if err != nil {
		return nil, err
	}
	e.Answers = p.answers(host)
	return e, nil
}

// ExplainSpec explains a config.json. One that was compiled is read as its policy.
func ExplainSpec(subject string, sp *specs.Spec) (*Explanation, error) {
	if !IsCompiled(sp) {
		return explain(subject, sp, nil, nil)
	}
	p, err := FromSpec(sp)
	if err != nil {
		return nil, err
	}
	e, err := explain(subject, sp, &p, nil)
	if err != nil {
		return nil, err
	}
	preset := Preset(p.Level)
	for _, l := range e.Layers {
		for i := range l.Settings {
			if k, _ := find(l.Settings[i].Key); k.get(&p) != k.get(&preset) {
				l.Settings[i].Source = "config.json"
			}
		}
	}
	host, err := p.hostOf(sp)
	e.Answers = p.answers(host)
	return e, err
}

func explain(subject string, sp *specs.Spec, p *Policy, origin map[string]string) (*Explanation, error) {
	config, err := tree(sp)
	if err != nil {
		return nil, err
	}
	e := &Explanation{Subject: subject, Compiled: p != nil, Wider: []string{}, Answers: []Answer{}, Start: []string{}}
	if e.Digest, err = Digest(sp); err != nil {
		return nil, err
	}
	if p != nil {
		e.Level, e.Wider, e.Start = p.Level, append(e.Wider, p.Wider()...), startSteps
	} else {
		e.Level = LevelOf(sp)
	}
	for i := range layers {
		l := layers[i].inForce(sp, p)
		for _, k := range keys {
			if k.Layer == l.Layer {
				l.Settings = append(l.Settings, k.setting(config, p, origin))
			}
		}
		e.Layers = append(e.Layers, l)
	}
	return e, nil
}

// inForce looks at what the config, or its policy, has of the layer.
func (l *layer) inForce(sp *specs.Spec, p *Policy) LayerInForce {
	out := LayerInForce{Layer: l.name, From: l.from, InForce: "off", Allowed: sentences(l.open, sp), NotAllowed: []string{}, Remains: []string{}, Missing: []string{}, Settings: []Setting{}, Steps: []string{}}
	some := false
	for _, n := range l.needs {
		switch {
		case n.has(sp):
			some = some || !n.negative
		default:
			out.Missing = append(out.Missing, filled(n.say, n.what, sp))
		}
	}
	if p != nil {
		some = slices.ContainsFunc(keys, func(k Key) bool { return k.Layer == l.name && k.wider(&Policy{}, p) })
	}
	switch {
	case p != nil && l.on(p):
		out.Missing = []string{}
		fallthrough
	case p == nil && len(out.Missing) == 0:
		out.InForce, out.Allowed, out.NotAllowed, out.Remains = "on", sentences(l.allowed, sp), l.denied, sentences(l.remains, sp)
		if p == nil && l.foreign != nil {
			out.NotAllowed = l.foreign
		}
	case some:
		out.InForce = "partly"
	}
	if p != nil && out.InForce != "off" {
		out.Steps = sentences(l.steps, sp)
	}
	return out
}

// LevelOf is the highest level whose layers, and those of the levels below it, the
// config has in full. What OCI has no field for is left out of account.
func LevelOf(sp *specs.Spec) Level {
	level := L5
	for _, l := range layers {
		for _, n := range l.needs {
			if !n.supervised && !n.has(sp) {
				level = min(level, l.from-1)
			}
		}
	}
	return level
}

func (k *Key) setting(config any, p *Policy, origin map[string]string) Setting {
	s := Setting{Key: k.Name, Meaning: k.Meaning, Mechanism: k.Mechanism, Fields: []string{}, Source: "not in the config"}
	for _, f := range k.Fields {
		if v := field(config, f); v != "" {
			s.Fields = append(s.Fields, f+" = "+v)
			s.Source = "config.json"
		}
	}
	if p == nil {
		return s
	}
	preset := Preset(p.Level)
	s.Value, s.Wider = k.get(p), k.wider(p, &preset)
	switch {
	case origin[k.Name] != "":
		s.Source = origin[k.Name]
	case s.Value == k.get(&Policy{}):
		s.Source = "default"
	default:
		s.Source = "preset " + p.Level.String()
	}
	return s
}

// firstUnused is the first id that no distribution hands out (systemd's documentation
// of uid ranges); a config that maps to one was compiled by root.
const firstUnused = 1 << 31

// answers answers what a stranger asks first.
func (p *Policy) answers(h Host) []Answer {
	// unused is whether root starts it: then it is nobody on the host.
	unused := p.Processes.Isolate && (h.UID == 0 && h.RunID != 0 || h.UID >= firstUnused)
	return []Answer{
		{"Can it read the SSH key in a home directory?", p.readsKeys(unused)},
		{"Can it reach the network?", say(p.Network.Isolate, "its network namespace is empty; unix sockets with a path remain where they are not hidden", "as the caller can, localhost too")},
		{"Can it fork 100 processes?", p.forks()},
		{"Can it survive the run?", p.survives()},
		{"Can it run for ever?", say(p.Limits.Wall > 0, fmt.Sprintf("SIGKILL after %v of wall clock", p.Limits.Wall), "there is no wall clock")},
		{"Can it use up the memory?", p.fillsMemory()},
		{"Can it fill the disk?", p.fillsDisk()},
		{"Can it read the caller's environment?", say(p.Environment.Scrub && p.Processes.Isolate, "it gets PATH, LANG, HOME and TMPDIR with values of sbxrun's, what the policy sets, and its own /proc", map[bool]string{true: "not its own, but the caller's through the host's /proc", false: "it gets all of it"}[p.Environment.Scrub])},
		{"Can it change files of the host?", p.writes(unused)},
		{"Can it gain privileges?", p.gains()},
	}
}

// say makes an answer, whose first word it is.
func say(no bool, because, otherwise string) string {
	if no {
		return "no: " + because
	}
	return "yes: " + otherwise
}

func (p *Policy) readsKeys(unused bool) string {
	hidden := slices.Contains(p.Filesystem.Hide, "/root") && slices.Contains(p.Filesystem.Hide, "/home")
	if !hidden && unused {
		return "depends: started by root, as here, only one that everybody may read: it is an unused host user without groups; started by an ordinary user yes: it is that user, his ssh-agent too"
	}
	return say(hidden, "it finds /root and /home empty", "it reads what the caller reads")
}

func (p *Policy) forks() string {
	n := p.Processes.Max
	if n == 0 {
		return "yes: nothing caps processes"
	}
	return say(n < 100, fmt.Sprintf("at most %d tasks, threads among them, are alive at once, and the first fork beyond ends the run (one after the other they may be more)", n), fmt.Sprintf("up to %d tasks at once", n))
}

func (p *Policy) survives() string {
	stays := "; what it wrote outside its own places stays, and so does what a service of the host started for it"
	if p.Filesystem.Isolate && p.Network.Isolate {
		stays = ""
	}
	if !p.Processes.Isolate && p.Limits.Sweep {
		return "no: the sweep kills what it leaves, daemons too" + stays
	}
	return say(p.Processes.Isolate, "its PID namespace ends with the run"+stays, "what it leaves running stays")
}

func (p *Policy) fillsMemory() string {
	n := p.Limits.Memory
	if n > 0 && p.Cgroup == CgroupOff {
		return fmt.Sprintf("up to a point: %s for each process by itself", formatSize(n))
	}
	stays := "; files that it leaves in the host's /dev/shm stay in memory"
	if p.Filesystem.Isolate {
		stays = ""
	}
	return say(n > 0, formatSize(n)+" for all its processes together, without swap"+stays, "nothing limits it")
}

func (p *Policy) fillsDisk() string {
	if p.Filesystem.Isolate {
		return "no: it writes in memory only, in places that go away with the run"
	}
	if n := p.Limits.FileSize; n > 0 {
		return fmt.Sprintf("yes: a file ends at %s, but nothing but the time limits their number", formatSize(n))
	}
	return "yes: nothing limits it"
}

func (p *Policy) writes(unused bool) string {
	otherwise := "those that the caller may write"
	if unused {
		otherwise = "started by root, as here, those that everybody may write; started by an ordinary user all of that user's"
	}
	return say(p.Filesystem.Isolate, "all but its own /tmp and /dev/shm is read-only", otherwise)
}

func (p *Policy) gains() string {
	switch {
	case p.Capabilities.NoNewPrivileges && p.Capabilities.Drop:
		return "no: no capability is left and none comes back"
	case p.Processes.Isolate && !p.Syscalls.Filter:
		return "not on the host: what it has or gains holds within its user namespace; no filter stands before a fault of the kernel"
	case p.Processes.Isolate:
		return "not on the host: what it has or gains holds within its user namespace"
	}
	return "yes: by set-uid programs, as the caller can"
}
