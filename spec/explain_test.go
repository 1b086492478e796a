// Tests of what a reader is told about a policy or a config.

package spec

import (
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestExplainSaysOfEachLevelItsOwnLayersAndNoMore(t *testing.T) {
	for _, level := range levels() {
		e, err := Explain("x", Preset(level), rootHost, nil)
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for _, l := range e.Layers {
			if (l.InForce == "on") != (level >= l.From) {
				t.Errorf("%v: %s is %s", level, l.Layer, l.InForce)
			}
			seen += len(l.Settings)
		}
		if seen != len(keys) {
			t.Errorf("%v: %d of %d keys are explained", level, seen, len(keys))
		}
	}
}

// A foreign config that has all that a level's compiled one has must amount to it.
func TestACompiledConfigWithoutItsAnnotationsAmountsToItsLevel(t *testing.T) {
	for _, level := range levels() {
		sp, err := Compile(Preset(level), rootHost, program)
		if err != nil {
			t.Fatal(err)
		}
		sp.Annotations = nil
		if level >= L2 {
			sp.Process.Env = []string{envPath}
		}
		if got := LevelOf(sp); got != level {
			t.Errorf("%v without annotations amounts to %v", level, got)
		}
	}
}

func TestEachThingTakenOutLowersTheLevelAndIsNamed(t *testing.T) {
	for _, tc := range []struct {
		name, layer, missing string
		level                Level
		change               func(*specs.Spec)
	}{
		{"the memory limit", "limits", "memory limit", L0, func(s *specs.Spec) { s.Linux.Resources.Memory = nil }},
		{"the PID namespace", "processes", "pid namespace", L2, func(s *specs.Spec) {
			s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(n specs.LinuxNamespace) bool { return n.Type == "pid" })
		}},
		{"the mapping to an unused id", "processes", "host id 0", L2, func(s *specs.Spec) { s.Linux.UIDMappings[0].HostID = 0 }},
		{"an own network namespace", "network", "network namespace", L3, func(s *specs.Spec) { s.Linux.Namespaces[6].Path = "/proc/1/ns/net" }},
		{"the read-only root", "filesystem", "read-only root", L4, func(s *specs.Spec) { s.Root.Readonly = false }},
		{"a filter's rule", "syscalls", "calls that lead to known escapes: io_uring_setup, bpf", L4, func(s *specs.Spec) { s.Linux.Seccomp.Syscalls = s.Linux.Seccomp.Syscalls[3:] }},
		{"no new privileges", "capabilities", "no new privileges", L4, func(s *specs.Spec) { s.Process.NoNewPrivileges = false }},
	} {
		sp, err := Compile(Preset(L5), rootHost, program)
		if err != nil {
			t.Fatal(err)
		}
		sp.Annotations, sp.Process.Env = nil, nil
		tc.change(sp)
		e, err := ExplainSpec("x", sp)
		if err != nil {
			t.Fatal(err)
		}
		if e.Level != tc.level {
			t.Errorf("without %s it amounts to %v, want %v", tc.name, e.Level, tc.level)
		}
		for _, l := range e.Layers {
			if l.Layer == tc.layer && !strings.Contains(strings.Join(l.Missing, "\n"), tc.missing) {
				t.Errorf("without %s: missing is %q", tc.name, l.Missing)
			}
		}
	}
}

func TestExplainSaysWhereAValueCameFrom(t *testing.T) {
	f, err := LoadPolicy("dir/p.yaml", files(map[string]string{
		"dir/p.yaml":    "extends: base.yaml\nvars: {D: /srv/x}\nlimits:\n  wall: 9s\n",
		"dir/base.yaml": "level: L5\nvars: {D: /srv/y}\nfilesystem: {hide: ['${D}/keys']}\n",
	}))
	if err != nil {
		t.Fatal(err)
	}
	f.Origin["processes.max"] = "flag --procs"
	e, err := Explain("p", f.Policy, rootHost, f.Origin)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string][2]string{
		"limits.wall": {"9s", "dir/p.yaml:4:3"}, "filesystem.hide": {"/srv/x/keys", "dir/base.yaml:3:14"}, "processes.max": {"16", "flag --procs"},
		"limits.cpu": {"2s", "preset L5"}, "environment.set": {"", "default"},
	} {
		for _, l := range e.Layers {
			for _, s := range l.Settings {
				if s.Key == key && (s.Value != want[0] || s.Source != want[1]) {
					t.Errorf("%s is %q from %q, want %q", key, s.Value, s.Source, want)
				}
			}
		}
	}
}

// files reads from a map.
func files(m map[string]string) func(string) ([]byte, error) {
	return func(name string) ([]byte, error) {
		text, ok := m[name]
		if !ok {
			return nil, os.ErrNotExist
		}
		return []byte(text), nil
	}
}

func TestPolicyFilesThatExtendOneAnother(t *testing.T) {
	for _, tc := range []struct {
		name, err string
		files     map[string]string
	}{
		{"a base that is missing is named", "read the policy", map[string]string{"p": "extends: q"}},
		{"a circle is refused", "p: extends itself", map[string]string{"p": "extends: q", "q": "extends: p"}},
		{"a file cannot extend itself", "p: extends itself", map[string]string{"p": "extends: p"}},
		{"the base says the level", "p:2:1: level", map[string]string{"p": "extends: q\nlevel: L1", "q": "level: L5"}},
		{"an unknown variable is named with its line", "p:1:20: filesystem.hide: ${X} is not among vars", map[string]string{"p": "filesystem: {hide: ['${X}']}"}},
		{"an error in the base has its place", `q:2:10: unknown key "limits.wal"`, map[string]string{"p": "extends: q", "q": "level: L5\nlimits: {wal: 1s}"}},
		{"a contradiction names the line of the key", "p:2:10: limits.cpu", map[string]string{"p": "level: L5\nlimits: {cpu: 1500ms}"}},
		{"a variable's value must be a path in the end", "not a clean absolute path", map[string]string{"p": "vars: {X: a}\nfilesystem: {hide: ['${X}']}"}},
	} {
		_, err := LoadPolicy("p", files(tc.files))
		if err == nil || !strings.Contains(err.Error(), tc.err) {
			t.Errorf("%s: got %v, want %q", tc.name, err, tc.err)
		}
	}
}

func TestTheDigestShowsNoFormattingAndEveryChange(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	seen := map[string]Policy{}
	for range 300 {
		p := generated(r)
		sp, err := Compile(p, rootHost, program)
		if err != nil {
			t.Fatal(err)
		}
		d, err := Digest(sp)
		if err != nil {
			t.Fatal(err)
		}
		if other, ok := seen[d]; ok && len(Diff(other, p)) > 0 {
			t.Fatalf("two policies have the digest %s:\n%+v\n%+v", d, other, p)
		}
		seen[d] = p
	}
}

func TestThePageOfTheLanguageIsFresh(t *testing.T) { golden(t, "POLICY.md", Page()) }

func TestTheManPageOfTheLanguageIsFresh(t *testing.T) {
	golden(t, "../hack/man/sbxrun-policy.5", ManPage())
}

// A stranger's questions, at every level: what explain answers is what the lab measures.
func TestTheAnswersOfEachLevel(t *testing.T) {
	questions := []string{"SSH key", "network", "fork 100", "survive", "for ever", "memory", "disk", "environment", "change files", "privileges"}
	for level, want := range map[Level]string{
		L0: "yes yes yes yes no yes yes yes yes yes", L1: "yes yes yes no no no yes yes yes yes", L2: "yes yes yes no no no yes yes yes yes",
		L3: "depends yes no no no no yes no yes not", L4: "depends no no no no no yes no yes not", L5: "no no no no no no no no no no",
	} {
		e, err := Explain("x", Preset(level), rootHost, nil)
		if err != nil || len(e.Answers) != len(questions) {
			t.Fatalf("%v: %+v (%v)", level, e, err)
		}
		for i, yes := range strings.Fields(want) {
			a := e.Answers[i]
			if !strings.Contains(a.Question, questions[i]) || !strings.HasPrefix(a.Answer, yes) {
				t.Errorf("%v: %s %s; want %s", level, a.Question, a.Answer, yes)
			}
		}
	}
	e, err := Explain("x", Preset(L3), userHost, nil)
	if err != nil || !strings.HasPrefix(e.Answers[0].Answer, "yes") {
		t.Errorf("an ordinary user's L3 program reads his key: %+v (%v)", e, err)
	}
	e, err = Explain("L3", Preset(L3), rootHost, nil)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "testdata/L3.explain.txt", e.Text(false))
}
