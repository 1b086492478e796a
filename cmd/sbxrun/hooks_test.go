// Tests of hooks: which run when, where, with what, and what a failure does.

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// hookScript notes one line for each call: kind, status, whether the pid lives, whether
// the mount namespace is the host's, and its own directory.
const hookScript = `#!/bin/busybox sh
state=$(/bin/busybox cat)
field() { echo "$state" | /bin/busybox sed -n "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/p"; }
echo "$1 $(field status) $(field id) pid=$(field pid) ns=$(/bin/busybox readlink /proc/self/ns/mnt) at=$(/bin/busybox pwd) x=$X" >>$2/log
exit $3
`

// hook makes a hook that notes its call in dir and exits with code.
func hook(script, kind, dir, code string) map[string]any {
	return map[string]any{"path": script, "args": []string{"hook", kind, dir, code}, "env": []string{"X=" + kind}}
}

// withHooks gives e's bundle a hook of each kind. The container shares the directory
// of the log; fails names kinds whose hook fails.
func withHooks(t *testing.T, e *engine, fails ...string) (log string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "hook")
	if err := os.WriteFile(script, []byte(hookScript), 0o755); err != nil {
		t.Fatal(err)
	}
	edit(t, e.bundle, func(c map[string]any) {
		hooks := map[string]any{}
		for _, kind := range []string{"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"} {
			code := "0"
			if slices.Contains(fails, kind) {
				code = "7"
			}
			h := hook(script, kind, dir, code)
			if kind == "startContainer" { // its path is one inside
				h = hook("/hooks/hook", kind, "/hooks", code)
			}
			hooks[kind] = []any{h}
		}
		c["hooks"] = hooks
		c["mounts"] = append(c["mounts"].([]any), map[string]any{"destination": "/hooks", "source": dir, "type": "bind", "options": []string{"bind"}})
	})
	return filepath.Join(dir, "log")
}

// kinds are the first words of the log's lines.
func kinds(t *testing.T, log string) (out []string) {
	t.Helper()
	text, _ := os.ReadFile(log)
	for line := range strings.Lines(string(text)) {
		out = append(out, strings.Fields(line)[0])
	}
	return out
}

func TestHooksRunWhenAndWhereTheSpecificationSays(t *testing.T) {
	e := newEngine(t, "while :; do sleep 1; done")
	log := withHooks(t, e)
	before := lookAround(t)
	created := []string{"prestart", "createRuntime", "createContainer"}
	e.ok("create", "--bundle", e.bundle, "hooked")
	if got := kinds(t, log); !slices.Equal(got, created) {
		t.Errorf("create ran %v", got)
	}
	_, pid := e.status("hooked")
	e.ok("start", "hooked")
	started := append(created, "startContainer", "poststart")
	if got := kinds(t, log); !slices.Equal(got, started) {
		t.Errorf("start ran %v", got)
	}
	e.ok("delete", "--force", "hooked")
	if got := kinds(t, log); !slices.Equal(got, append(started, "poststop")) {
		t.Errorf("delete ran %v", got)
	}
	host, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(log)
	lines := strings.Split(string(text), "\n")
	for i, want := range []struct {
		status, at string
		inside     bool
	}{
		{"creating", e.bundle, false}, {"creating", e.bundle, false}, {"creating", filepath.Join(e.bundle, "rootfs"), true},
		{"created", "/", true}, {"running", e.bundle, false}, {"stopped", e.bundle, false},
	} {
		f := strings.Fields(lines[i])
		if f[1] != want.status || f[2] != "hooked" || f[5] != "at="+want.at || (f[4] != "ns="+host) != want.inside || f[6] != "x="+f[0] {
			t.Errorf("hook %d: %q, want %+v (the host's namespace is %s)", i, lines[i], want, host)
		}
		if hasPid := f[3] == "pid="+jsonText(pid); hasPid != (want.status != "stopped") {
			t.Errorf("hook %d: %q, the container is process %d", i, lines[i], pid)
		}
	}
	nothingLeft(t, before)
}

func jsonText(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

func TestAHookThatFailsUndoesTheContainerBeforeStartOnly(t *testing.T) {
	for _, c := range []struct {
		kind string
		ran  []string
	}{
		{"prestart", []string{"prestart", "poststop"}},
		{"createRuntime", []string{"prestart", "createRuntime", "poststop"}},
		{"createContainer", []string{"prestart", "createRuntime", "createContainer", "poststop"}},
	} {
		t.Run(c.kind+" undoes it", func(t *testing.T) {
			e := newEngine(t, "true")
			log := withHooks(t, e, c.kind)
			before := lookAround(t)
			for _, command := range []string{"create", "run"} {
				_ = os.Remove(log)
				o := e.do(command, "--bundle", e.bundle, "undone")
				if said := o.stderr + o.stdout; o.exit == 0 || !strings.Contains(said, "exit status 7") {
					t.Errorf("%s: %+v", command, o)
				}
				if got := kinds(t, log); !slices.Equal(got, c.ran) {
					t.Errorf("%s ran %v, want %v", command, got, c.ran)
				}
				if o := e.do("state", "undone"); o.exit == 0 {
					t.Errorf("%s left a container", command)
				}
			}
			nothingLeft(t, before)
		})
	}
	for _, kind := range []string{"poststart", "poststop"} {
		t.Run(kind+" is a warning", func(t *testing.T) {
			e := newEngine(t, "exit 3")
			log := withHooks(t, e, kind)
			if o := e.do("run", "--bundle", e.bundle, "warned"); o.exit != 3 || !strings.Contains(o.stderr, kind) {
				t.Errorf("%+v", o)
			}
			if got := kinds(t, log); len(got) != 6 {
				t.Errorf("ran %v", got)
			}
		})
	}
	t.Run("startContainer keeps the program from running", func(t *testing.T) {
		e := newEngine(t, "echo ran")
		withHooks(t, e, "startContainer")
		if o := e.do("run", "--bundle", e.bundle, "unstarted"); o.exit == 0 || o.stdout != "" || !strings.Contains(o.stderr, "exit status 7") {
			t.Errorf("%+v", o)
		}
	})
}

func TestAHookHasItsTimeAndNoMore(t *testing.T) {
	for _, kind := range []string{"createRuntime", "createContainer"} {
		t.Run(kind, func(t *testing.T) {
			e := newEngine(t, "true")
			edit(t, e.bundle, func(c map[string]any) {
				c["hooks"] = map[string]any{kind: []any{map[string]any{"path": "/bin/sh", "args": []string{"sh", "-c", "sleep 1000 & sleep 1000"}, "timeout": 1}}}
			})
			before := lookAround(t)
			if o := e.do("create", "--bundle", e.bundle, "late"); o.exit == 0 || !strings.Contains(o.stdout, "past specified timeout") {
				t.Errorf("%+v", o)
			}
			nothingLeft(t, before)
		})
	}
}

func TestAHookMayAskForTheState(t *testing.T) {
	e := newEngine(t, "true")
	answer := filepath.Join(t.TempDir(), "answer")
	edit(t, e.bundle, func(c map[string]any) {
		c["hooks"] = map[string]any{"createRuntime": []any{map[string]any{"path": "/bin/sh", "timeout": 10,
			"args": []string{"sh", "-c", sbxrun + " --root " + e.root + " state asked >" + answer}}}}
	})
	e.ok("create", "--bundle", e.bundle, "asked")
	text, _ := os.ReadFile(answer)
	if !strings.Contains(string(text), `"status": "creating"`) {
		t.Errorf("the hook read %q", text)
	}
	e.ok("delete", "--force", "asked")
}
