// Tests of the way from a policy to config.json and back.

package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var (
	rootHost = Host{RunID: 1 << 31, Arch: "amd64"}
	userHost = Host{UID: 1000, GID: 1000, Arch: "arm64"}
	program  = Process{Args: []string{"/bin/sh", "-c", "true"}, Env: []string{"A=1", "HOME=/home/x"}}
)

func levels() []Level { return []Level{L0, L1, L2, L3, L4, L5} }

// generated is a random policy that is valid.
func generated(r *rand.Rand) Policy {
	for {
		p := Preset(Level(r.IntN(6)))
		for range r.IntN(6) {
			mutate(r, &p)
		}
		if p.Validate() == nil {
			return p
		}
	}
}

func mutate(r *rand.Rand, p *Policy) {
	k := keys[r.IntN(len(keys))]
	values := map[string][]string{
		"duration": {"5ms", "20ms", "1s", "3s", "1m", "1500ms", "0s"}, "size": {"0", "4MiB", "1GiB", "123456", "10MB"},
		"count": {"0", "8", "64", "1000"}, "switch": {"true", "false"}, "paths": {"/a", "/etc/passwd", "/opt/x"},
		"variables": {"A=1", "B=", "C=x=y", "HOME=/else"},
	}[k.Type]
	_ = k.set(p, values[r.IntN(len(values))]) // a refused value leaves the policy as it was
}

func TestAPolicyComesBackFromItsConfig(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for i := range 10000 {
		p := generated(r)
		host := []Host{rootHost, userHost}[i%2]
		sp, err := Compile(p, host, program)
		if err != nil {
			t.Fatalf("compile %+v: %v", p, err)
		}
		text, err := json.Marshal(sp)
		if err != nil {
			t.Fatal(err)
		}
		var read specs.Spec
		if err := json.Unmarshal(text, &read); err != nil {
			t.Fatal(err)
		}
		back, err := FromSpec(&read)
		if err != nil {
			t.Fatalf("read back %+v: %v", p, err)
		}
		if !reflect.DeepEqual(p, back) {
			t.Fatalf("policy %d:\n%+v\ncame back as\n%+v", i, p, back)
		}
		sameExplained(t, p, host, &read)
		again, _ := Compile(back, host, program)
		if text2, _ := json.Marshal(again); !bytes.Equal(text, text2) {
			t.Fatalf("policy %d does not compile to the same bytes twice", i)
		}
	}
}

// sameExplained sees that explain says the same of the policy and of its config.
func sameExplained(t *testing.T, p Policy, host Host, sp *specs.Spec) {
	t.Helper()
	one, err := Explain("x", p, host, nil)
	if err != nil {
		t.Fatal(err)
	}
	two, err := ExplainSpec("x", sp)
	if err != nil {
		t.Fatalf("explain %+v: %v", p, err)
	}
	values := func(e *Explanation) (out []string) {
		out = append(out, fmt.Sprint(e.Level, e.Wider, e.Answers))
		for _, l := range e.Layers {
			out = append(out, fmt.Sprint(l.Layer, l.InForce, l.Missing))
			for _, s := range l.Settings {
				out = append(out, fmt.Sprint(s.Key, "=", s.Value, s.Wider))
			}
		}
		return out
	}
	if a, b := values(one), values(two); !slices.Equal(a, b) {
		t.Fatalf("the policy is explained as\n%q\nits config as\n%q", a, b)
	}
}

// leaf is a field of Policy that holds a value and no further fields.
type leaf struct {
	name  string
	index []int
}

func leaves(typ reflect.Type, name string, at []int) (out []leaf) {
	for i := range typ.NumField() {
		f, index := typ.Field(i), append(slices.Clone(at), i)
		if f.Type.Kind() == reflect.Struct {
			out = append(out, leaves(f.Type, name+f.Name+".", index)...)
		} else {
			out = append(out, leaf{name + f.Name, index})
		}
	}
	return out
}

// A field that no key sets, and so no test generates, would be outside of everything
// that is proved here.
func TestEveryFieldOfAPolicyIsGenerated(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	seen := map[string]map[string]bool{}
	all := leaves(reflect.TypeFor[Policy](), "", nil)
	for range 10000 {
		p := generated(r)
		for _, l := range all {
			if seen[l.name] == nil {
				seen[l.name] = map[string]bool{}
			}
			seen[l.name][fmt.Sprint(reflect.ValueOf(p).FieldByIndex(l.index))] = true
		}
	}
	if len(all) != len(keys)+1 { // and the level
		t.Errorf("a policy has %d fields and %d keys", len(all), len(keys))
	}
	for _, l := range all {
		// Beside those of the presets, which alone differ in most.
		presets := map[string]bool{}
		for _, level := range levels() {
			presets[fmt.Sprint(reflect.ValueOf(Preset(level)).FieldByIndex(l.index))] = true
		}
		kind := reflect.ValueOf(Policy{}).FieldByIndex(l.index).Kind()
		if n := len(seen[l.name]); n < 2 || kind != reflect.Bool && kind != reflect.String && l.name != "Level" && n <= len(presets) {
			t.Errorf("%s has only the values %v", l.name, seen[l.name])
		}
	}
}

// change gives a field another value, whatever that means.
func change(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(!v.Bool())
	case reflect.Int, reflect.Int64:
		v.SetInt(v.Int() + 1)
	case reflect.String:
		v.SetString(map[string]string{"on": "off", "off": "on"}[v.String()])
	case reflect.Slice:
		v.Set(reflect.Append(v, reflect.ValueOf("/added")))
	case reflect.Map:
		v.Set(reflect.ValueOf(map[string]string{"ADDED": "1"}))
	default:
		panic("a kind of field that nobody thought of: " + v.Kind().String())
	}
}

func TestDiffFindsAChangeOfEveryField(t *testing.T) {
	for _, level := range levels() {
		for _, l := range leaves(reflect.TypeFor[Policy](), "", nil) {
			a, b := Preset(level), Preset(level)
			b.Filesystem.Hide = slices.Clone(b.Filesystem.Hide)
			change(reflect.ValueOf(&b).Elem().FieldByIndex(l.index))
			if d := Diff(a, b); len(d) != 1 {
				t.Errorf("%v: a change of %s gives %+v", level, l.name, d)
			}
		}
	}
}

// schema loads the JSON schema that the runtime-spec module carries.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/opencontainers/runtime-spec").Output()
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft4) // the files beside config-schema.json do not say
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "schema", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatal("no schema found", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// Some references there lack the slash that a JSON pointer starts with.
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(bytes.ReplaceAll(text, []byte("#definitions"), []byte("#/definitions"))))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.AddResource("https://oci/"+filepath.Base(name), doc); err != nil {
			t.Fatal(err)
		}
	}
	s, err := c.Compile("https://oci/config-schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEveryCompiledConfigMatchesTheOCISchema(t *testing.T) {
	s := schema(t)
	check := func(sp *specs.Spec) error {
		text, _ := json.Marshal(sp)
		v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
	r := rand.New(rand.NewPCG(5, 6))
	var policies []Policy
	for _, l := range levels() {
		policies = append(policies, Preset(l))
	}
	for range 200 {
		policies = append(policies, generated(r))
	}
	for _, p := range policies {
		sp, err := Compile(p, rootHost, program)
		if err != nil {
			t.Fatal(err)
		}
		if err := check(sp); err != nil {
			t.Errorf("%+v: %v", p, err)
		}
	}
	broken, _ := Compile(Preset(L5), rootHost, program)
	broken.Linux.Namespaces[0].Type = "nonsense"
	if check(broken) == nil {
		t.Error("the schema accepts a namespace of type nonsense, so it proves nothing")
	}
}

func TestEachLevelIsTheOneBelowPlusALayer(t *testing.T) {
	for _, l := range levels()[1:] {
		p := Preset(l)
		below := Preset(l - 1)
		below.Level = l
		if w := p.Wider(); len(w) != 0 {
			t.Errorf("%v is wider than itself in %v", l, w)
		}
		if w := below.Wider(); len(w) == 0 {
			t.Errorf("%v allows nothing that %v does not", l-1, l)
		}
		for _, k := range keys {
			if k.wider(&p, &below) {
				t.Errorf("%s: %v allows more than %v", k.Name, l, l-1)
			}
		}
	}
}

func TestTheLayersShowInTheConfig(t *testing.T) {
	for _, l := range levels() {
		sp, err := Compile(Preset(l), rootHost, program)
		if err != nil {
			t.Fatal(err)
		}
		var types []string
		for _, n := range sp.Linux.Namespaces {
			types = append(types, string(n.Type))
		}
		for _, c := range []struct {
			from Level
			what string
			is   bool
		}{
			{L1, "RLIMIT_CPU is set", slices.Contains(sp.Process.Rlimits, specs.POSIXRlimit{Type: "RLIMIT_CPU", Soft: 2, Hard: 3})},
			{L1, "the memory limit is set", sp.Linux.Resources != nil && *sp.Linux.Resources.Memory.Limit == 256*mib && *sp.Linux.Resources.Memory.Swap == 256*mib},
			{L2, "the caller's environment is gone", !slices.Contains(sp.Process.Env, "A=1")},
			{L2, "the working directory is private", sp.Process.Cwd == WorkdirPath && slices.Contains(sp.Process.Env, "HOME="+WorkdirPath)},
			{L3, "there is a PID namespace", slices.Contains(types, "pid")},
			{L3, "host root is not inside root", len(sp.Linux.UIDMappings) == 1 && sp.Linux.UIDMappings[0].HostID == rootHost.RunID},
			{L3, "pids.max leaves room for the reaper", sp.Linux.Resources != nil && sp.Linux.Resources.Pids != nil && *sp.Linux.Resources.Pids.Limit == 17},
			{L4, "there is a network namespace", slices.Contains(types, "network")},
			{L5, "the root is read-only", sp.Root.Readonly},
			{L5, "no capability is left", sp.Process.Capabilities != nil && len(sp.Process.Capabilities.Bounding) == 0},
			{L5, "there are no new privileges", sp.Process.NoNewPrivileges},
			{L5, "there is a filter", sp.Linux.Seccomp != nil},
			{L5, "homes are masked", slices.Contains(sp.Linux.MaskedPaths, "/home")},
		} {
			if c.is != (l >= c.from) {
				t.Errorf("%v: %q is %v, the layer starts at %v", l, c.what, c.is, c.from)
			}
		}
	}
}

func TestAChangedConfigIsReadAsWhatItEnforces(t *testing.T) {
	for _, tc := range []struct {
		name    string
		change  func(*specs.Spec)
		refused string // part of the error, empty when the policy just is another
		wider   string
	}{
		{"a taken-out network namespace shows as wider", func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[:6] }, "", "network.isolate"},
		{"a raised memory limit shows as wider", func(s *specs.Spec) { *s.Linux.Resources.Memory.Limit, *s.Linux.Resources.Memory.Swap = 1<<30, 1<<30 }, "", "limits.memory"},
		{"a kept capability is refused", func(s *specs.Spec) { s.Process.Capabilities.Bounding = []string{"CAP_CHOWN"} }, "process.capabilities", ""},
		{"an emptied filter is refused", func(s *specs.Spec) { s.Linux.Seccomp.Syscalls = nil }, "linux.seccomp", ""},
		{"a limit that can be raised again is refused", func(s *specs.Spec) { s.Process.Rlimits[1].Hard *= 2 }, "process.rlimits", ""},
		{"a mount taken out is refused", func(s *specs.Spec) { s.Mounts = s.Mounts[1:] }, "mounts", ""},
		{"a mount put in is refused", func(s *specs.Spec) {
			s.Mounts = append(s.Mounts, specs.Mount{Destination: "/mnt", Type: "bind", Source: "/", Options: []string{"rbind"}})
		}, "mounts", ""},
		{"a mask of the kernel taken out is refused", func(s *specs.Spec) { s.Linux.MaskedPaths = s.Linux.MaskedPaths[1:] }, "linux.maskedPaths", ""},
		{"a variable put in is refused", func(s *specs.Spec) { s.Process.Env = append(s.Process.Env, "LD_PRELOAD=/x") }, "process.env", ""},
		{"an OOM killer switched off is refused", func(s *specs.Spec) { yes := true; s.Linux.Resources.Memory.DisableOOMKiller = &yes }, "linux.resources.memory.disableOOMKiller", ""},
		{"a hook is refused", func(s *specs.Spec) { s.Hooks = &specs.Hooks{Poststop: []specs.Hook{{Path: "/x"}}} }, "hooks", ""},
		{"more ids are refused", func(s *specs.Spec) { s.Linux.UIDMappings[0].Size = 2 }, "linux.uidMappings", ""},
		{"a removed filter shows as wider", func(s *specs.Spec) { s.Linux.Seccomp = nil }, "", "syscalls.filter"},
		{"swap beside the memory limit is refused", func(s *specs.Spec) { *s.Linux.Resources.Memory.Swap = 1 << 30 }, "memory.swap", ""},
		{"a hidden path that is not masked is refused", func(s *specs.Spec) { s.Linux.MaskedPaths = nil }, "not among linux.maskedPaths", ""},
		{"half of the namespaces is refused", func(s *specs.Spec) { s.Linux.Namespaces = s.Linux.Namespaces[1:] }, "belong together", ""},
		{"a namespace by path is refused", func(s *specs.Spec) { s.Linux.Namespaces[1].Path = "/proc/1/ns/pid" }, "by path", ""},
		{"another directory than the private one is refused", func(s *specs.Spec) { s.Process.Cwd = "/root" }, "contradicts process.cwd", ""},
		{"a format from the future is refused", func(s *specs.Spec) { s.Annotations[keyFormat] = "9" }, "format", ""},
		{"a broken annotation is refused", func(s *specs.Spec) { s.Annotations[keyWall] = "soon" }, keyWall, ""},
		{"a missing annotation is refused", func(s *specs.Spec) { delete(s.Annotations, keyCgroup) }, keyCgroup, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sp, err := Compile(Preset(L5), rootHost, program)
			if err != nil {
				t.Fatal(err)
			}
			tc.change(sp)
			p, err := FromSpec(sp)
			if tc.refused != "" {
				if err == nil || !strings.Contains(err.Error(), tc.refused) {
					t.Fatalf("got %v, want an error with %q", err, tc.refused)
				}
				return
			}
			if err != nil || !slices.Contains(p.Wider(), tc.wider) {
				t.Fatalf("wider in %v (%v), want %s", p.Wider(), err, tc.wider)
			}
		})
	}
	if _, err := FromSpec(&specs.Spec{}); !errors.Is(err, ErrNotCompiled) {
		t.Errorf("a foreign config gives %v", err)
	}
}

func TestPolicyFiles(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       func(*Policy)
		err        string
	}{
		{"a level alone is its preset", "level: L3", func(p *Policy) { *p = Preset(L3) }, ""},
		{"without a level it is L5", "limits: {wall: 9s}", func(p *Policy) { p.Limits.Wall = 9 * time.Second }, ""},
		{"JSON works as well", `{"level": "L5", "processes": {"max": 4}}`, func(p *Policy) { p.Processes.Max = 4 }, ""},
		{"sizes have units", "limits: {memory: 512MiB, file-size: 1MB}", func(p *Policy) { p.Limits.Memory, p.Limits.FileSize = 512*mib, 1e6 }, ""},
		{"a list replaces the preset's", "filesystem: {hide: [/a, /b]}", func(p *Policy) { p.Filesystem.Hide = []string{"/a", "/b"} }, ""},
		{"variables are a mapping", "environment: {set: {K: V, N: 1}}", func(p *Policy) { p.Environment.Set = map[string]string{"K": "V", "N": "1"} }, ""},
		{"the group can be switched off", "cgroup: off", func(p *Policy) { p.Cgroup = CgroupOff }, ""},
		{"comments are allowed", "# mine\nlevel: L5 # all\n", func(*Policy) {}, ""},
		{"the order of level does not matter", "limits: {wall: 9s}\nlevel: L1", func(p *Policy) { *p = Preset(L1); p.Limits.Wall = 9 * time.Second }, ""},
		{"an unknown key names the nearest", "limits: {memroy: 1GiB}", nil, `p.yaml:1:10: unknown key "limits.memroy", did you mean "limits.memory"?`},
		{"an unknown group names the nearest", "level: L5\nlimit: {wall: 1s}", nil, `p.yaml:2:1: unknown key "limit", did you mean "limits"?`},
		{"a key given twice is refused", "level: L5\nlevel: L1", nil, "p.yaml:2:1: level: given twice"},
		{"a wrong unit is refused", "limits: {wall: 9}", nil, "p.yaml:1:16: limits.wall: \"9\" is not a duration"},
		{"a negative size is refused", "limits: {memory: -1}", nil, "limits.memory"},
		{"a size beyond 63 bits is refused", "limits: {memory: 99999999999GiB}", nil, "too large"},
		{"a list where a value belongs is refused", "limits: {wall: [1s]}", nil, "p.yaml:1:16: a duration belongs here"},
		{"a value where a group belongs is refused", "limits: 3", nil, "a mapping belongs here"},
		{"nothing where a value belongs is refused", "limits: {wall: }", nil, "a duration belongs here"},
		{"an alias is refused", "limits: &x {wall: 1s}\nprocesses: *x", nil, "aliases are not allowed"},
		{"a second document is refused", "level: L5\n---\nlevel: L0", nil, "something follows"},
		{"an empty file is refused", "", nil, "empty"},
		{"a list is no policy", "[]", nil, "mapping"},
		{"what is no YAML is refused", "level: L5\nlimits: {", nil, "p.yaml:2: not YAML: did not find expected node content"},
		{"a tab is no indentation", "limits:\n\twall: 1s", nil, "p.yaml:2: not YAML: "},
		{"an unknown level is refused", "level: L9", nil, "L9"},
		{"a contradiction is refused", "level: L4\ncapabilities: {drop: true}\nprocesses: {isolate: false}", nil, "needs processes.isolate"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := ParsePolicy([]byte(tc.text), "p.yaml")
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("got %v, want one line with %q", err, tc.err)
				}
				return
			}
			want := Preset(L5)
			tc.want(&want)
			if err != nil || !reflect.DeepEqual(got, want) {
				t.Fatalf("got %+v (%v), want %+v", got, err, want)
			}
		})
	}
}

func TestContradictionsAreRefusedByName(t *testing.T) {
	for _, tc := range []struct {
		key    string
		change func(*Policy)
	}{
		{"network.isolate", func(p *Policy) { p.Processes.Isolate = false }},
		{"syscalls.filter", func(p *Policy) { p.Capabilities.NoNewPrivileges = false }},
		{"filesystem.hide", func(p *Policy) { p.Filesystem.Isolate = false }},
		{"filesystem.hide", func(p *Policy) { p.Filesystem.Hide = []string{"relative"} }},
		{"filesystem.hide", func(p *Policy) { p.Filesystem.Hide = []string{"/a/../b"} }},
		{"filesystem.hide", func(p *Policy) { p.Filesystem.Hide = []string{"/"} }},
		{"filesystem.hide", func(p *Policy) { p.Filesystem.Hide = []string{"/tmp"} }},
		{"filesystem.hide", func(p *Policy) { p.Filesystem.Hide = []string{"/proc"} }},
		{"filesystem.hide", func(p *Policy) { p.Filesystem.Hide = []string{"/a", "/a"} }},
		{"limits.cpu", func(p *Policy) { p.Limits.CPU = 1500 * time.Millisecond }},
		{"limits.memory", func(p *Policy) { p.Limits.Memory = 1000 }},
		{"limits.files", func(p *Policy) { p.Limits.Files = 2 }},
		{"limits.output-held", func(p *Policy) { p.Limits.OutputHeld = 0 }},
		{"limits.output-chars", func(p *Policy) { p.Limits.OutputChars = 1 << 40 }},
		{"limits.wall", func(p *Policy) { p.Limits.Wall = -1 }},
		{"processes.max", func(p *Policy) { p.Processes.Max = -3 }},
		{"processes.monitor", func(p *Policy) { p.Processes.Monitor = 0 }},
		{"environment.set", func(p *Policy) { p.Environment.Set = map[string]string{"A=B": "c"} }},
		{"environment.set", func(p *Policy) { p.Environment.Set = map[string]string{"A": "c\x00"} }},
		{"cgroup", func(p *Policy) { p.Cgroup = "maybe" }},
		{"level", func(p *Policy) { p.Level = 7 }},
	} {
		p := Preset(L5)
		tc.change(&p)
		err := p.Validate()
		if err == nil || !strings.HasPrefix(err.Error(), tc.key) {
			t.Errorf("got %v, want an error that starts with %s", err, tc.key)
		}
		if _, err := Compile(p, rootHost, program); err == nil {
			t.Errorf("%s: compiled all the same", tc.key)
		}
	}
}

func TestUnitsComeBack(t *testing.T) {
	for _, n := range []int64{0, 1, 1000, 1 << 10, 10 << 20, 3 << 30, 1<<62 + 1} {
		if got, err := parseSize(formatSize(n)); err != nil || got != n {
			t.Errorf("%d became %q and then %d (%v)", n, formatSize(n), got, err)
		}
	}
	for in, want := range map[string]int64{"512MiB": 512 << 20, "10MB": 10e6, "64k": 64 << 10, "7": 7, "1g": 1 << 30, "5 KiB": 5 << 10, "8B": 8} {
		if got, err := parseSize(in); err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", in, got, err, want)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	for _, s := range []string{"level: L3", `{"limits":{"wall":"2s"}}`, "a: &b [*b]", "environment: {set: {A: B}}", "filesystem:\n  hide:\n  - /x\n", "\xff", "? [a]\n: b"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParsePolicy(data, "f")
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Fatalf("more than one line: %q", err)
			}
			return
		}
		if _, err := Compile(p, rootHost, program); err != nil {
			t.Fatalf("accepted but does not compile: %v", err)
		}
	})
}

func FuzzFromSpec(f *testing.F) {
	for _, l := range levels() {
		sp, err := Compile(Preset(l), userHost, program)
		if err != nil {
			f.Fatal(err)
		}
		text, _ := json.Marshal(sp)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var sp specs.Spec
		if json.Unmarshal(data, &sp) != nil {
			return
		}
		p, err := FromSpec(&sp)
		if err == nil && p.Validate() != nil {
			t.Fatalf("an invalid policy was read: %+v", p)
		}
	})
}

func ExampleParsePolicy() {
	p, err := ParsePolicy([]byte("level: L4\nlimits:\n  wall: 10s\n  memory: 1GiB\n"), "example.yaml")
	fmt.Println(p.Level, p.Limits.Wall, err)
	fmt.Println(p.Wider())
	// Output:
	// L4 10s <nil>
	// [limits.wall limits.memory]
}
