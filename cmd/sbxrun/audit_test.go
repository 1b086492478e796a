// Tests of the commands for auditors: explain, diff, check.

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sbxrun/sbxrun/spec"
)

// write puts a file into a directory of the test and gives its name.
func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestExplainTakesLevelsFilesBundlesAndConfigs(t *testing.T) {
	dir := t.TempDir()
	policy := write(t, dir, "p.yaml", "level: L4\nlimits: {wall: 9s}\n")
	bundle := filepath.Join(dir, "b")
	if o := call(t, "compile", "--policy", policy, "-o", bundle, "--", "/bin/true"); o.exit != 0 {
		t.Fatal(o)
	}
	foreign := filepath.Join(dir, "f")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if o := call(t, "spec", "--bundle", foreign); o.exit != 0 {
		t.Fatal(o)
	}
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"L3"}, "L3: a policy of level L3"},
		{nil, "L5: a policy of level L5"},
		{[]string{policy}, policy + ":2"},
		{[]string{"--cpu", "7s", policy}, "flag --cpu"},
		{[]string{bundle}, "config.json"},
		{[]string{filepath.Join(bundle, "config.json")}, "9s"},
		{[]string{foreign}, "not made by sbxrun (so no wall clock, output cap, sweep), amounts to L0"},
		{[]string{"--markdown", "L1"}, "| `limits.wall` | 1.5s | preset L1 |"},
	} {
		o := call(t, append([]string{"explain"}, tc.args...)...)
		if o.exit != 0 || !strings.Contains(o.stdout, tc.want) || strings.Contains(o.stdout, "\x1b") {
			t.Errorf("explain %v: exit %d, want %q in\n%s%s", tc.args, o.exit, tc.want, o.stdout, o.stderr)
		}
	}
	var e spec.Explanation
	if o := call(t, "explain", "--json", "L2"); json.Unmarshal([]byte(o.stdout), &e) != nil || e.Level != spec.L2 || len(e.Layers) != 8 {
		t.Errorf("explain --json: %+v", o)
	}
}

func TestDiffExits(t *testing.T) {
	dir := t.TempDir()
	narrow := write(t, dir, "narrow.yaml", "limits: {wall: 1s}")
	same := write(t, dir, "same.json", `{"limits": {"wall": "1000ms"}}`)
	wide := write(t, dir, "wide.yaml", "limits: {wall: 1m}")
	for _, tc := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{narrow, same}, 0, ""},
		{[]string{narrow, wide}, 1, "limits.wall: B allows more"},
		{[]string{wide, narrow}, 1, "limits.wall: A allows more"},
		{[]string{"--exit-wider", wide, narrow}, 0, "A allows more"},
		{[]string{"--exit-wider", narrow, wide}, 1, "B allows more"},
		{[]string{"L5", "L4"}, 1, "syscalls.filter: B allows more"},
		{[]string{narrow}, 2, ""},
		{[]string{narrow, filepath.Join(dir, "none")}, 2, ""},
		{[]string{"--nonsense", narrow, wide}, 2, ""},
	} {
		o := call(t, append([]string{"diff"}, tc.args...)...)
		if o.exit != tc.exit || !strings.Contains(o.stdout, tc.want) || tc.exit == 2 && strings.Count(o.stderr, "\n") != 1 {
			t.Errorf("diff %v: %+v, want exit %d with %q", tc.args, o, tc.exit, tc.want)
		}
	}
}

func TestCheckExitsAndNamesThePlace(t *testing.T) {
	dir := t.TempDir()
	wide := write(t, dir, "wide.yaml", "level: L5\nlimits: {wall: 1m}\n")
	broken := write(t, dir, "broken.yaml", "level: L5\nlimits: {wal: 1m}\n")
	foreign := filepath.Join(dir, "f")
	if err := os.Mkdir(foreign, 0o755); err != nil {
		t.Fatal(err)
	}
	if o := call(t, "spec", "--bundle", foreign); o.exit != 0 {
		t.Fatal(o)
	}
	config := filepath.Join(foreign, "config.json")
	for _, tc := range []struct {
		args []string
		exit int
		want string
	}{
		{[]string{"L5"}, 0, ""},
		{[]string{wide}, 0, wide + ":2: warning: wider: limits.wall"},
		{[]string{"--require", "wider", wide}, 1, "wider"},
		{[]string{"--require", "all", wide}, 1, "wider"},
		{[]string{broken}, 1, broken + ":2: error: invalid"},
		{[]string{config}, 0, "config.json#/linux/uidMappings: warning: host-root"},
		{[]string{"--require", "host-root,no-limit", config}, 1, "no-limit"},
		{[]string{"--require", "nonsense", config}, 2, ""},
		{[]string{filepath.Join(dir, "none")}, 2, ""},
	} {
		o := call(t, append([]string{"check"}, tc.args...)...)
		if o.exit != tc.exit || !strings.Contains(o.stdout, tc.want) {
			t.Errorf("check %v: %+v, want exit %d with %q", tc.args, o, tc.exit, tc.want)
		}
	}
	var log struct {
		Version string
		Runs    []struct {
			Results []struct {
				RuleID    string
				Locations []struct {
					PhysicalLocation struct{ Region struct{ StartLine int } }
				}
			}
		}
	}
	o := call(t, "check", "--sarif", wide)
	if err := json.Unmarshal([]byte(o.stdout), &log); err != nil || log.Version != "2.1.0" || log.Runs[0].Results[0].RuleID != "wider" || log.Runs[0].Results[0].Locations[0].PhysicalLocation.Region.StartLine != 2 {
		t.Errorf("check --sarif: %v in %s", err, o.stdout)
	}
}

func TestTheDigestOfCompileIsThatOfTheRun(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	bundle, result := filepath.Join(dir, "b"), filepath.Join(dir, "r.json")
	compiled := call(t, "compile", "--level", "L5", "-o", bundle, "--", "/bin/true")
	again := call(t, "compile", "--level", "L5", "--digest", "--", "/bin/true")
	if compiled.exit != 0 || !strings.HasPrefix(compiled.stdout, "sha256:") || again.stdout != compiled.stdout {
		t.Fatalf("%+v, then %+v", compiled, again)
	}
	if o := call(t, "run", "--result", result, bundle); o.exit != 0 {
		t.Fatal(o)
	}
	text, err := os.ReadFile(result)
	if err != nil || !strings.Contains(string(text), `"digest":"`+strings.TrimSpace(compiled.stdout)+`"`) {
		t.Errorf("%v: the Result lacks %s: %s", err, compiled.stdout, text)
	}
}
