// Tests of the rules: each finds its bad example and leaves its good one alone.

package spec

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// clean is a config that no rule finds anything in.
const clean = `{"ociVersion": "1.0.2", "root": {"path": "rootfs", "readonly": true},
 "process": {"args": ["sh"], "cwd": "/", "user": {"uid": 0, "gid": 0}, "noNewPrivileges": true, "capabilities": {}},
 "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
 "linux": {"namespaces": [{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}, {"type": "user"}, {"type": "network"}],
  "uidMappings": [{"containerID": 0, "hostID": 100000, "size": 1}], "gidMappings": [{"containerID": 0, "hostID": 100000, "size": 1}],
  "resources": {"memory": {"limit": 1000000}, "pids": {"limit": 10}},
  "maskedPaths": ["/proc/kcore", "/proc/keys"], "readonlyPaths": ["/proc/sys", "/proc/sysrq-trigger"],
  "seccomp": {"defaultAction": "SCMP_ACT_ERRNO"}}}`

// patched applies a merge patch (RFC 7396) to the clean config.
func patched(t *testing.T, patch string) []byte {
	t.Helper()
	var doc, p any
	for text, into := range map[string]*any{clean: &doc, patch: &p} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
	text, err := json.Marshal(merge(doc, p))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func merge(doc, patch any) any {
	p, ok := patch.(map[string]any)
	if !ok {
		return patch
	}
	d, ok := doc.(map[string]any)
	if !ok {
		d = map[string]any{}
	}
	for k, v := range p {
		if v == nil {
			delete(d, k)
		} else {
			d[k] = merge(d[k], v)
		}
	}
	return d
}

func found(fs []Finding) (ids []string) {
	for _, f := range fs {
		ids = append(ids, f.Rule)
	}
	return ids
}

func TestEachRuleFindsItsBadExampleAndNotItsGoodOne(t *testing.T) {
	if fs := Check("c", []byte(clean)); len(fs) != 0 {
		t.Fatalf("the clean config has findings: %+v", fs)
	}
	for _, r := range Rules() {
		if r.Bad == "" && r.ID != RuleWider {
			t.Errorf("%s has no example", r.ID)
		}
		if r.Bad == "" {
			continue
		}
		fs := Check("c", patched(t, r.Bad))
		if !slices.Contains(found(fs), r.ID) {
			t.Errorf("%s does not find its bad example: %+v", r.ID, fs)
		}
		if fs := Check("c", patched(t, r.Good)); slices.Contains(found(fs), r.ID) {
			t.Errorf("%s finds its good example: %+v", r.ID, fs)
		}
	}
}

// A finding must lead to the place in the file, and the pointer to what is there.
func TestEveryFindingHasAPlaceInItsConfig(t *testing.T) {
	for _, r := range Rules() {
		if r.Bad == "" {
			continue
		}
		text := patched(t, r.Bad)
		for _, f := range Check("dir/config.json", text) {
			if f.File != "dir/config.json" || f.Line < 1 || f.Column < 1 || f.Message == "" || f.Advice == "" {
				t.Errorf("%s: %+v", r.ID, f)
			}
		}
	}
}

func TestPlacesInConfigs(t *testing.T) {
	const text = "{\n  \"a\": 1,\n  \"b\": [ {\"c/d\": 2},\n    {\"é\": 3, \"e\": 4} ],\n  \"f\": {}\n}\n"
	for pointer, want := range map[string][2]int{
		"": {1, 1}, "/a": {2, 3}, "/A": {2, 3}, "/b": {3, 3}, "/b/0": {3, 10}, "/b/0/c~1d": {3, 11}, "/b/1": {4, 5}, "/b/1/e": {4, 14},
		"/f/missing": {5, 3}, "/missing": {1, 1}, "/a/b/c": {2, 3}, "/b/7": {3, 3},
	} {
		if line, column := locate([]byte(text), pointer); [2]int{line, column} != want {
			t.Errorf("%q is at %d:%d, want %v", pointer, line, column, want)
		}
	}
	for _, broken := range []string{"", "{", "{\"a\"", "[", "nonsense", "{\"a\": {\"b\" 3}}"} { // no panic
		locate([]byte(broken), "/a/b")
	}
}

func TestWhatIsNoConfigIsToldWithItsPlace(t *testing.T) {
	compiled, err := Compile(Preset(L5), rootHost, program)
	if err != nil {
		t.Fatal(err)
	}
	compiled.Linux.Namespaces = compiled.Linux.Namespaces[:6]
	wider, _ := Encode(compiled)
	compiled.Linux.Namespaces[1].Path = "/proc/1/ns/pid"
	edited, _ := Encode(compiled)
	lineOf := func(text []byte, word string) int {
		return strings.Count(string(text[:strings.Index(string(text), word)]), "\n") + 1
	}
	for _, tc := range []struct {
		name, text, rule, place, message string
		line                             int
	}{
		{"a comma too much", "{\n\"ociVersion\": \"1\",\n}", RuleInvalid, "", "invalid character", 3},
		{"an end too early", "{\n\"ociVersion\": \"1\"\n", RuleInvalid, "", "does not end", 3},
		{"a second object", "{\"ociVersion\": \"1\"}\n{}", RuleInvalid, "", "something follows", 2},
		{"an unknown field", "{\n\"ociVersion\": \"1\",\n\"porcess\": {}}", RuleInvalid, "", "unknown field \"porcess\"", 3},
		{"a wrong type", "{\n\"process\": {\n\"cwd\": 3}}", RuleInvalid, "/process/cwd", "process.cwd: a JSON number", 3},
		{"a namespace taken out of a compiled one", string(wider), RuleWider, "/linux/namespaces", "network.isolate", lineOf(wider, `"namespaces"`)},
		{"a path put into a compiled one", string(edited), RuleEdited, "/linux/namespaces", "by path", lineOf(edited, `"namespaces"`)},
	} {
		fs := Check("c", []byte(tc.text))
		if len(fs) != 1 || fs[0].Rule != tc.rule || !strings.HasPrefix(fs[0].Place, tc.place) || !strings.Contains(fs[0].Message, tc.message) || fs[0].Line < tc.line || fs[0].Line > tc.line+4 {
			t.Errorf("%s: %+v, want %s at %q, line %d", tc.name, fs, tc.rule, tc.place, tc.line)
		}
	}
}

func TestTheRuleForWiderKeysNamesTheLine(t *testing.T) {
	f, err := LoadPolicy("p.yaml", files(map[string]string{"p.yaml": "level: L5\nlimits:\n  cpu: 1s\n  wall: 9s\n"}))
	if err != nil {
		t.Fatal(err)
	}
	fs := CheckPolicy(f)
	if len(fs) != 1 || fs[0].Place != "p.yaml:4:3" || fs[0].Rule != RuleWider {
		t.Errorf("got %+v", fs)
	}
	if fs := CheckPolicy(&File{Policy: Preset(L5)}); len(fs) != 0 {
		t.Errorf("the preset has findings: %+v", fs)
	}
}

// The configs in testdata are what the tools write by default; hack/configs captures
// them.
func TestTheDefaultConfigsOfOtherTools(t *testing.T) {
	all, err := filepath.Glob("testdata/*.config.json")
	if err != nil || len(all) < 2 {
		t.Fatal("no captured configs", err)
	}
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var sp specs.Spec
		if err := json.Unmarshal(text, &sp); err != nil {
			t.Fatal(err)
		}
		e, err := ExplainSpec(filepath.Base(file), &sp)
		if err != nil {
			t.Fatal(err)
		}
		stem := strings.TrimSuffix(file, ".config.json")
		golden(t, stem+".explain.txt", e.Text(false))
		golden(t, stem+".check.txt", FindingsText(Check(file, text)))
	}
}

// golden compares with a file, or writes it when UPDATE is set.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what it was; look at the difference, then run with UPDATE=1\n%s", file, got)
	}
}
