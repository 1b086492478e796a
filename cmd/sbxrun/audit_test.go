// Tests of the commands for auditors: explain, diff, check.

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
		{[]string{wide}, 0, wide + ":2:10: warning: wider: limits.wall"},
		{[]string{"--require", "wider", wide}, 1, "wider"},
		{[]string{"--require", "all", wide}, 1, "wider"},
		{[]string{broken}, 1, broken + ":2:10: error: invalid"},
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
}

// What code scanning services ask of SARIF 2.1.0: each result has its rule, a text, and
// a file with a line.
func TestSarifHasWhatCodeScanningNeeds(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "wide policy.yaml", "level: L5\nlimits: {wall: 1m}\n")
	write(t, dir, "broken.yaml", "level: L5\nlimits: {wal: 1m}\n")
	write(t, dir, "empty.yaml", "")
	if err := os.Mkdir(filepath.Join(dir, "bundle"), 0o755); err != nil {
		t.Fatal(err)
	}
	if o := call(t, "spec", "--bundle", filepath.Join(dir, "bundle")); o.exit != 0 {
		t.Fatal(o)
	}
	var known []string
	for _, r := range spec.Rules() {
		known = append(known, r.ID)
	}
	for _, tc := range []struct {
		arg, uri, rule string
		line, column   int
	}{
		{"wide policy.yaml", "wide%20policy.yaml", "wider", 2, 10},
		{"broken.yaml", "broken.yaml", "invalid", 2, 10},
		{"empty.yaml", "empty.yaml", "invalid", 1, 0},
		{"bundle", "bundle/config.json", "host-root", 0, 2},
		{filepath.Join(dir, "broken.yaml"), "file://" + filepath.Join(dir, "broken.yaml"), "invalid", 2, 10},
	} {
		cmd := exec.Command(sbxrun, "check", "--sarif", tc.arg)
		cmd.Dir = dir
		o := finishCommand(t, cmd)
		var log map[string]any
		if err := json.Unmarshal([]byte(o.stdout), &log); err != nil {
			t.Fatalf("%s: %v in %+v", tc.arg, err, o)
		}
		at := func(v any, path ...any) any {
			for _, p := range path {
				switch c := v.(type) {
				case map[string]any:
					v = c[fmt.Sprint(p)]
				case []any:
					i, ok := p.(int)
					if !ok || i >= len(c) {
						return nil
					}
					v = c[i]
				default:
					return nil
				}
			}
			return v
		}
		if log["version"] != "2.1.0" || log["$schema"] == "" || at(log, "runs", 0, "tool", "driver", "name") != "sbxrun" {
			t.Errorf("%s: frame of %s", tc.arg, o.stdout)
		}
		if n := len(at(log, "runs", 0, "tool", "driver", "rules").([]any)); n != len(known) {
			t.Errorf("%s: %d rules are described", tc.arg, n)
		}
		results, _ := at(log, "runs", 0, "results").([]any)
		hit := false
		for _, r := range results {
			id, _ := at(r, "ruleId").(string)
			text, _ := at(r, "message", "text").(string)
			level, _ := at(r, "level").(string)
			uri, _ := at(r, "locations", 0, "physicalLocation", "artifactLocation", "uri").(string)
			line, _ := at(r, "locations", 0, "physicalLocation", "region", "startLine").(float64)
			column, _ := at(r, "locations", 0, "physicalLocation", "region", "startColumn").(float64)
			if !slices.Contains(known, id) || text == "" || !slices.Contains([]string{"error", "warning", "note"}, level) || uri != tc.uri || line < 1 {
				t.Errorf("%s: result %v", tc.arg, r)
			}
			hit = hit || id == tc.rule && (tc.line == 0 || int(line) == tc.line) && int(column) == tc.column
		}
		if !hit {
			t.Errorf("%s: no %s at %d:%d in %s", tc.arg, tc.rule, tc.line, tc.column, o.stdout)
		}
	}
}

// The same policy must be the same bytes, whoever compiles it, in what surroundings.
func TestCompileIsTheSameInEverySurrounding(t *testing.T) {
	dir := t.TempDir()
	policy := write(t, dir, "p.yaml", "extends: base.yaml\nvars: {DATA: /srv/x}\nenvironment: {set: {B: '2', A: '1', C: <&>}}\n")
	write(t, dir, "base.yaml", "level: L5\nfilesystem: {hide: ['${DATA}/keys', /home, /root]}\n")
	compile := func(level, umask, cwd string, env ...string) string {
		args := []string{"--level", level}
		if level == "" {
			args = []string{"--policy", policy}
		}
		cmd := exec.Command("sh", append([]string{"-c", "umask " + umask + `; exec "$0" compile "$@"`, sbxrun}, append(args, "--", "/bin/true")...)...)
		cmd.Dir, cmd.Env = cwd, env
		o := finishCommand(t, cmd)
		if o.exit != 0 || o.stdout == "" {
			t.Fatal(o)
		}
		return o.stdout
	}
	for _, level := range []string{"", "L2", "L3", "L4", "L5"} { // below L2 the environment is a part of it
		first := compile(level, "022", "/", "PATH=/bin", "GOMAXPROCS=1")
		for range 3 {
			if again := compile(level, "077", dir, "PATH=/usr/bin:/bin", "LANG=de_DE.UTF-8", "LC_ALL=tr_TR.UTF-8", "TZ=Asia/Tokyo", "HOME=/x", "SECRET=1", "GOMAXPROCS=7", "TMPDIR=/y"); again != first {
				t.Errorf("%s: other surroundings, other bytes:\n%s\n%s", level, first, again)
			}
		}
	}
}

func TestTheDigestIsWhatSha256sumSays(t *testing.T) {
	dir := t.TempDir()
	bundle := filepath.Join(dir, "b")
	digest := strings.TrimSpace(call(t, "compile", "-o", bundle, "--env", "A=<&>", "--", "/bin/echo", "<ü>").stdout)
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if want := fmt.Sprintf("sha256:%x", sha256.Sum256(text)); digest != want {
		t.Errorf("compile says %s, sha256sum %s", digest, want)
	}
	if o := call(t, "explain", bundle); !strings.Contains(o.stdout, digest) {
		t.Errorf("explain has another digest than %s: %s", digest, o.stdout)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err != nil {
		t.Fatal(err)
	}
	if o := call(t, "explain", write(t, dir, "compact.json", compact.String())); !strings.Contains(o.stdout, digest) {
		t.Errorf("formatting shows in the digest: %s", o.stdout)
	}
}

// Whatever somebody points the three commands at, the answer is one line that helps.
func TestWhatIsNoPolicyIsToldInOneLine(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o700); err != nil {
		t.Fatal(err)
	}
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	huge := write(t, dir, "huge", "")
	if err := os.Truncate(huge, 1<<40); err != nil {
		t.Fatal(err)
	}
	long := write(t, dir, "long.yaml", "environment: {set: {A: "+strings.Repeat("a", 2<<20)+"}}")
	deep := write(t, dir, "deep.yaml", strings.Repeat("[", 20000))
	binary := write(t, dir, "binary", "\x7fELF\x00\x01\x02\xff")
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink(loop, loop); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		arg, want string
		finding   bool // for check
	}{
		{filepath.Join(dir, "none"), "no such file", false},
		{"", "no such file", false},
		{empty, "is a directory without a config.json", false},
		{fifo, "is not a regular file", false},
		{"/dev/zero", "is not a regular file", false},
		{loop, "too many levels of symbolic links", false},
		{huge, "larger than 16 MiB", false},
		{long, "larger than", true},
		{deep, "not YAML", true},
		{binary, "not YAML", true},
		{write(t, dir, "list.yaml", "- a\n"), "list.yaml:1:1: ", true},
		{write(t, dir, "key.yaml", "limits: {wal: 1s}"), `did you mean "limits.wall"?`, true},
		{write(t, dir, "key2.yaml", "limit: {wall: 1s}"), `did you mean "limits"?`, true},
		{write(t, dir, "unclosed.yaml", "limits: {wall: 1s\nlevel: L5\n"), "not YAML", true},
		{write(t, dir, "comma.json", "{\"ociVersion\": \"1.0.2\",}"), "invalid character", true},
		{write(t, dir, "cr.yaml", "level: L7\r\n"), "L7", true},
	} {
		if o := call(t, "explain", tc.arg); o.exit != exitRefused || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, tc.want) || len(o.stderr) > 400 {
			t.Errorf("explain %s: %+v, want %q", tc.arg, o, tc.want)
		}
		if o := call(t, "diff", "L5", tc.arg); o.exit != exitNotAsked || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, tc.want) {
			t.Errorf("diff L5 %s: %+v, want %q", tc.arg, o, tc.want)
		}
		o := call(t, "check", tc.arg)
		if tc.finding && (o.exit != exitFound || o.stderr != "" || !strings.Contains(o.stdout, "error: invalid: ") || !strings.Contains(o.stdout, filepath.Base(tc.arg))) {
			t.Errorf("check %s: %+v", tc.arg, o)
		}
		if !tc.finding && (o.exit != exitNotAsked || !strings.Contains(o.stderr, tc.want)) {
			t.Errorf("check %s: %+v", tc.arg, o)
		}
	}
}

func TestPoliciesAndConfigsComeFromStdin(t *testing.T) {
	config := call(t, "compile", "--level", "L4", "--", "/bin/true").stdout
	for _, tc := range []struct {
		stdin string
		args  []string
		exit  int
		want  string
	}{
		{config, []string{"explain", "-"}, 0, "a policy of level L4"},
		{"level: L2\n", []string{"explain", "-"}, 0, "a policy of level L2"},
		{config, []string{"diff", "L4", "-"}, 0, ""},
		{config, []string{"diff", "-", "L5"}, 1, "filesystem.isolate: A allows more"},
		{"limits: {wall: 9s}\n", []string{"check", "-"}, 0, "-:1:10: warning: wider"},
		{"limits: {wal: 9s}\n", []string{"check", "-"}, 1, "-:1:10: error: invalid"},
		{"", []string{"check", "-"}, 1, "the policy is empty"},
	} {
		cmd := exec.Command(sbxrun, tc.args...)
		cmd.Stdin = strings.NewReader(tc.stdin)
		if o := finishCommand(t, cmd); o.exit != tc.exit || !strings.Contains(o.stdout, tc.want) {
			t.Errorf("%v: %+v, want exit %d with %q", tc.args, o, tc.exit, tc.want)
		}
	}
	if o := call(t, "diff", "-", "-"); o.exit != exitNotAsked || !strings.Contains(o.stderr, "not both") {
		t.Errorf("diff - -: %+v", o)
	}
}

// On a terminal there are colours, unless somebody does not want them, and no line is
// longer than it is wide; a pipe gets neither.
func TestOnATerminalLinesFitAndColoursObey(t *testing.T) {
	needProgram(t, "script")
	on := func(set, env string, args ...string) string {
		line := fmt.Sprintf("%s; %s '%s' %s", set, env, sbxrun, strings.Join(args, " "))
		cmd := exec.Command("script", "-qec", line, "/dev/null")
		cmd.Env = append(os.Environ(), "TERM=xterm", "NO_COLOR=", "SHELL=/bin/sh")
		return strings.ReplaceAll(finishCommand(t, cmd).stdout, "\r\n", "\n")
	}
	piped := call(t, "explain", "L5").stdout
	for _, width := range []int{30, 80, 120} {
		text := on(fmt.Sprintf("stty cols %d", width), "", "explain", "L5")
		if !strings.Contains(text, "\x1b[1m") {
			t.Errorf("%d columns: no colours", width)
		}
		for line := range strings.Lines(text) {
			if n := columns(strings.TrimSuffix(line, "\n")); n > width {
				t.Errorf("%d columns: a line of %d: %q", width, n, line)
			}
		}
	}
	for _, env := range []string{"NO_COLOR=1", "TERM=dumb"} {
		if text := on("stty cols 4000", env, "explain", "L5"); text != piped {
			t.Errorf("%s: a wide terminal gets other text than a pipe:\n%s", env, text)
		}
	}
}

// A reader that has seen enough, as head(1), is no failure of the command's own; but
// output that is lost otherwise is.
func TestOutputThatCannotBeWritten(t *testing.T) {
	for _, args := range [][]string{{"explain", "L5"}, {"explain", "--json", "L5"}, {"explain", "--markdown", "L5"}, {"diff", "L0", "L5"}, {"compile", "--", "/bin/true"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(sbxrun, args...)
		var stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = full, &stderr
		err = cmd.Run()
		full.Close()
		if err == nil || !strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("%v >/dev/full: %v, stderr %q", args, err, stderr.String())
		}
		o := finishCommand(t, exec.Command("bash", append([]string{"-c", `"$0" "$@" | true; exit ${PIPESTATUS[0]}`, sbxrun}, args...)...))
		if o.stderr != "" {
			t.Errorf("%v | true: %+v", args, o)
		}
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
