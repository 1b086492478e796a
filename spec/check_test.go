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
	if fs := Check([]byte(clean)); len(fs) != 0 {
		t.Fatalf("the clean config has findings: %+v", fs)
	}
	for _, r := range Rules() {
		if r.Bad == "" && r.ID != RuleWider {
			t.Errorf("%s has no example", r.ID)
		}
		if r.Bad == "" {
			continue
		}
		fs := Check(patched(t, r.Bad))
		if !slices.Contains(found(fs), r.ID) {
			t.Errorf("%s does not find its bad example: %+v", r.ID, fs)
		}
		if fs := Check(patched(t, r.Good)); slices.Contains(found(fs), r.ID) {
			t.Errorf("%s finds its good example: %+v", r.ID, fs)
		}
	}
}

func TestTheRuleForWiderKeysNamesTheLine(t *testing.T) {
	f, err := LoadPolicy("p.yaml", files(map[string]string{"p.yaml": "level: L5\nlimits:\n  cpu: 1s\n  wall: 9s\n"}))
	if err != nil {
		t.Fatal(err)
	}
	fs := CheckPolicy(f)
	if len(fs) != 1 || fs[0].Place != "p.yaml:4" || fs[0].Rule != RuleWider {
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
		golden(t, stem+".check.txt", FindingsText(file, Check(text)))
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
