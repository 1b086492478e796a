// Tests of containers with a policy that engines drive by create and start: the
// policy's annotations keep their force.

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
)

// newGuarded compiles a policy for the command into a bundle.
func newGuarded(t *testing.T, flags []string, argv ...string) *engine {
	t.Helper()
	needRoot(t)
	e := &engine{t: t, root: filepath.Join(t.TempDir(), "state"), bundle: filepath.Join(t.TempDir(), "bundle")}
	args := append(append([]string{"compile", "-o", e.bundle}, flags...), "--")
	if o := call(t, append(args, argv...)...); o.exit != 0 {
		t.Fatalf("compile: %+v", o)
	}
	return e
}

// subreaper makes this process the one that waits for orphans, as a shim is.
var subreaper = sync.OnceValue(func() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })

// reap waits for the container's first process, as a shim does.
func reap(t *testing.T, pid int) unix.WaitStatus {
	t.Helper()
	var ws unix.WaitStatus
	for {
		got, err := unix.Wait4(pid, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if got != pid {
			t.Fatalf("wait for %d: %d %v", pid, got, err)
		}
		return ws
	}
}

// verdict is the Result that state shows.
func (e *engine) verdict(id string) *runtime.Result {
	e.t.Helper()
	var st struct {
		Status string
		Result *runtime.Result
	}
	if err := json.Unmarshal([]byte(e.ok("state", id).stdout), &st); err != nil {
		e.t.Fatal(err)
	}
	if st.Result == nil {
		e.t.Fatalf("%s has no result, it is %s", id, st.Status)
	}
	return st.Result
}

func TestAPolicyKeepsItsForceThroughCreateAndStart(t *testing.T) {
	for _, c := range []struct {
		name   string
		flags  []string
		script string
		reason runtime.Reason
		status int
	}{
		{"an exit code arrives", []string{"--level", "L5"}, "exit 3", runtime.Exited, 3},
		{"a signal arrives", []string{"--level", "L5"}, "kill -USR1 $$", runtime.Signaled, 128 + int(unix.SIGUSR1)},
		{"the wall clock stops a loop", []string{"--level", "L5", "--wall", "300ms"}, "while :; do :; done", runtime.WallClock, 137},
		{"below the namespaces too", []string{"--level", "L1", "--wall", "300ms"}, "while :; do :; done", runtime.WallClock, 137},
		{"the process cap stops a bomb", append([]string{"--level", "L3"}, slow...), "f() { f | f & }; f; sleep 100", runtime.Processes, 137},
		{"a leftover is swept", append([]string{"--level", "L1"}, slow...), "setsid sleep 1000 & exit 4", runtime.Exited, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newGuarded(t, c.flags, "/bin/sh", "-c", c.script)
			if err := subreaper(); err != nil {
				t.Fatal(err)
			}
			before := lookAround(t)
			pidFile := filepath.Join(t.TempDir(), "pid")
			e.ok("create", "--bundle", e.bundle, "--pid-file", pidFile, "guarded")
			e.is("guarded", "created")
			text, _ := os.ReadFile(pidFile)
			pid, err := strconv.Atoi(string(text))
			if err != nil {
				t.Fatal(err)
			}
			e.ok("start", "guarded")
			if ws := reap(t, pid); ws.ExitStatus() != c.status {
				t.Errorf("its parent sees %v, want %d", ws, c.status)
			}
			if res := e.verdict("guarded"); res.Reason != c.reason {
				t.Errorf("the result says %+v", res)
			}
			e.ok("delete", "guarded")
			nothingLeft(t, before)
		})
	}
}

func TestTheOutputOfAGuardedContainerIsCapped(t *testing.T) {
	e := newGuarded(t, append([]string{"--level", "L5", "--output-held", "100KB"}, slow...), "/bin/sh", "-c", "echo first; head -c 1000000 /dev/zero | tr '\\0' x; echo; echo last")
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "out")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := e.command("create", "--bundle", e.bundle, "talker")
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	_, pid := e.status("talker")
	e.ok("start", "talker")
	reap(t, pid)
	text, _ := os.ReadFile(out)
	if s := string(text); len(s) > 110_000 || !strings.HasPrefix(s, "first\n") || !strings.HasSuffix(s, "last\n") || !strings.Contains(s, "bytes omitted") {
		t.Errorf("%d bytes: %.40q … %q", len(s), s, s[max(0, len(s)-40):])
	}
	if res := e.verdict("talker"); res.Stdout.TotalBytes != 1_000_012 {
		t.Errorf("%+v", res.Stdout.TotalBytes)
	}
	e.ok("delete", "talker")
}

func TestAGuardedContainerDiesWithItsSupervisor(t *testing.T) {
	for _, started := range []bool{false, true} {
		e := newGuarded(t, append([]string{"--level", "L5"}, slow...), "/bin/sleep", "1000")
		if err := subreaper(); err != nil {
			t.Fatal(err)
		}
		before := lookAround(t)
		e.ok("create", "--bundle", e.bundle, "orphan")
		_, pid := e.status("orphan")
		if started {
			e.ok("start", "orphan")
		}
		text, err := os.ReadFile(filepath.Join(e.root, "orphan", "state.json"))
		if err != nil {
			t.Fatal(err)
		}
		var record struct{ Supervisor struct{ Pid int } }
		if err := json.Unmarshal(text, &record); err != nil || record.Supervisor.Pid == 0 {
			t.Fatalf("%v: %s", err, text)
		}
		if err := unix.Kill(record.Supervisor.Pid, unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		reap(t, pid)
		reap(t, record.Supervisor.Pid)
		e.is("orphan", "stopped")
		e.ok("delete", "orphan")
		nothingLeft(t, before)
	}
}

func TestAGuardedContainerTakesSignalsPausesAndDeletes(t *testing.T) {
	e := newGuarded(t, append([]string{"--level", "L5"}, slow...), "/bin/sh", "-c", "trap 'exit 9' TERM; echo up; while :; do sleep 0.1; done")
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	before := lookAround(t)
	out := filepath.Join(t.TempDir(), "out")
	file, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	create := func(id string) int {
		cmd := e.command("run", "--detach", "--bundle", e.bundle, id)
		cmd.Stdout, cmd.Stderr = file, file
		if err := cmd.Run(); err != nil {
			t.Fatal(err)
		}
		_, pid := e.status(id)
		return pid
	}
	pid := create("first")
	waitFor(t, "the program", func() bool { text, _ := os.ReadFile(out); return strings.Contains(string(text), "up") })
	e.ok("pause", "first")
	e.is("first", "paused")
	e.ok("resume", "first")
	if o := e.do("exec", "first", "/bin/echo", "inside"); o.stdout != "inside\n" {
		t.Errorf("exec: %+v", o)
	}
	e.ok("kill", "first", "TERM")
	if ws := reap(t, pid); ws.ExitStatus() != 9 {
		t.Errorf("%v", ws)
	}
	e.ok("delete", "first")
	pid = create("second")
	e.ok("delete", "--force", "second")
	reap(t, pid)
	e.ok("create", "--bundle", e.bundle, "third")
	_, pid = e.status("third")
	e.ok("delete", "--force", "third")
	reap(t, pid)
	nothingLeft(t, before)
}

func TestWhatAPolicyCannotHaveIsRefusedAtCreate(t *testing.T) {
	e := newGuarded(t, nil, "/no/such/program")
	before := lookAround(t)
	for _, args := range [][]string{
		{"create", "--bundle", e.bundle, "--console-socket", "/tmp/none", "refused"},
		{"create", "--bundle", e.bundle, "--preserve-fds", "1", "refused"},
	} {
		if o := e.do(args...); o.exit != 1 || !strings.Contains(o.stdout, "has no terminal") && !strings.Contains(o.stdout, "under a policy") && !strings.Contains(o.stdout, "not open") {
			t.Errorf("%v: %+v", args, o)
		}
	}
	e.ok("create", "--bundle", e.bundle, "missing")
	if o := e.do("start", "missing"); o.exit != 1 || !strings.Contains(o.stderr, "no such file") {
		t.Errorf("start: %+v", o)
	}
	waitFor(t, "the end", func() bool { s, _ := e.status("missing"); return s == "stopped" })
	e.ok("delete", "missing")
	nothingLeft(t, before)
}
