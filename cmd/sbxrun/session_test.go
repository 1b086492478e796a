// Tests of "sbxrun session" doing what it is for, with real processes.

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sbxrun/sbxrun/runtime"
)

// sessions is a state directory of sessions of one user.
type sessions struct {
	t    testing.TB
	root string
	as   *syscall.Credential // nil is this user
	dir  string              // where the commands run
}

// newSessions makes one; when the test ends, every session in it does.
func newSessions(t testing.TB) *sessions {
	t.Helper()
	s := &sessions{t: t, root: filepath.Join(t.TempDir(), "state"), dir: t.TempDir()}
	t.Cleanup(func() {
		s.call("rm", "--all")
		if pids := s.holders(); len(pids) > 0 {
			t.Errorf("processes hold sessions still: %v", pids)
		}
	})
	return s
}

func (s *sessions) command(args ...string) *exec.Cmd {
	cmd := exec.Command(sbxrun, append([]string{"--root", s.root, "session"}, args...)...)
	cmd.Dir = s.dir
	if s.as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	}
	return cmd
}

func (s *sessions) call(args ...string) outcome {
	s.t.Helper()
	return finishCommand(s.t, s.command(args...))
}

// works is call for what must work, and gives its output.
func (s *sessions) works(args ...string) string {
	s.t.Helper()
	o := s.call(args...)
	if o.exit != 0 {
		s.t.Fatalf("session %q: %+v", args, o)
	}
	return o.stdout
}

// refuses is call for what must be refused with these words.
func (s *sessions) refuses(words string, args ...string) {
	s.t.Helper()
	if o := s.call(args...); o.exit != 125 || !strings.Contains(o.stderr, words) {
		s.t.Errorf("session %q: %+v, want a refusal with %q", args, o, words)
	}
}

// create makes a session with room for slow machines.
func (s *sessions) create(id string, flags ...string) {
	s.t.Helper()
	args := append([]string{"create", "--id", id, "--wall", "120s", "--cpu", "100s"}, flags...)
	if s.as != nil {
		args = append(args, "--cgroup", "off", "--memory", "0")
	}
	if out := s.works(args...); out != id+"\n" {
		s.t.Fatalf("create printed %q", out)
	}
}

func (s *sessions) sh(id, script string) string {
	s.t.Helper()
	return s.works("run", id, "--", "/bin/sh", "-c", script)
}

// status gives "list"'s word on a session, "" when it is not there.
func (s *sessions) status(id string) (st sessionStatus) {
	s.t.Helper()
	var all []sessionStatus
	if err := json.Unmarshal([]byte(s.works("list", "--json")), &all); err != nil {
		s.t.Fatal(err)
	}
	for _, e := range all {
		if e.ID == id {
			return e
		}
	}
	return st
}

// pid is the process that holds a session.
func (s *sessions) pid(id string) int {
	s.t.Helper()
	r, err := readRecord(filepath.Join(s.root, "sessions", id))
	if err != nil || r.Pid <= 1 {
		s.t.Fatalf("no pid of %s: %v", id, err)
	}
	return r.Pid
}

// holders are the processes that hold sessions of this state directory.
func (s *sessions) holders() (pids []int) {
	for _, p := range alive(holderName) {
		files, _ := filepath.Glob("/proc/" + p + "/fd/*")
		for _, f := range files {
			if to, _ := os.Readlink(f); strings.HasPrefix(to, s.root+"/") {
				var pid int
				fmt.Sscan(p, &pid)
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}

// await waits for a condition that must come.
func await(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// ended says whether a process is gone, or waits for nothing but its parent.
func ended(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(text), ") Z ")
}

// asEach runs the test as root and as an ordinary user.
func asEach(t *testing.T, test func(t *testing.T, s *sessions)) {
	if os.Geteuid() == 0 {
		t.Run("root", func(t *testing.T) { test(t, newSessions(t)) })
	}
	t.Run("ordinary user", func(t *testing.T) {
		s := newSessions(t)
		if os.Geteuid() == 0 {
			s.as = &syscall.Credential{Uid: 12345, Gid: 12345}
			for _, dir := range []string{filepath.Dir(s.root), s.dir} {
				for d := dir; strings.Contains(d, "Test"); d = filepath.Dir(d) {
					if err := os.Chmod(d, 0o755); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.Chown(dir, 12345, 12345); err != nil {
					t.Fatal(err)
				}
			}
		}
		test(t, s)
	})
}

func TestASessionKeepsFilesForTheNextRun(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		for _, level := range []string{"L2", "L3", "L5"} {
			before := lookAround(t)
			s.create("a", "--level", level)
			s.sh("a", "echo left >f; mkdir d; printf '#!/bin/sh\necho run' >d/x; chmod 755 d/x")
			if out := s.sh("a", "cat f; d/x"); out != "left\nrun\n" {
				t.Errorf("%s: the next run found %q", level, out)
			}
			if out := s.works("get", "a", "f", "-"); out != "left\n" {
				t.Errorf("%s: got %q", level, out)
			}
			s.works("get", "a", "d/x", "prog")
			if st, err := os.Stat(filepath.Join(s.dir, "prog")); err != nil || st.Mode() != 0o700 {
				t.Errorf("%s: a program came out as %v (%v)", level, st, err)
			}
			s.works("put", "a", "prog", "again")
			if out := s.sh("a", "./again"); out != "run\n" {
				t.Errorf("%s: a program went in and says %q", level, out)
			}
			s.works("rm-file", "a", "d", "again")
			if out := s.works("ls", "a"); strings.Contains(out, "again") || strings.Contains(out, "d/x") || !strings.Contains(out, " f\n") {
				t.Errorf("%s: there is %q", level, out)
			}
			s.refuses("invalid container ID format", "rm", "b/../a")
			s.works("rm", "a")
			s.refuses(`there is no session "a"`, "rm", "a")
			nothingLeft(t, before)
		}
	})
}

func TestASessionRunIsLikeCode(t *testing.T) {
	needProgram(t, "python3")
	asEach(t, func(t *testing.T, s *sessions) {
		s.create("a")
		if err := os.WriteFile(filepath.Join(s.dir, "p.py"), []byte("import sys\nprint(open('in').read(), sys.argv[1:])\nopen('out', 'w').write('o')\nsys.exit(3)"), 0o644); err != nil {
			t.Fatal(err)
		}
		if o := s.call("run", "--in", "p.py:in", "--out", "out", "a", "p.py", "x"); o.exit != 3 || !strings.Contains(o.stdout, "import sys") || !strings.HasSuffix(o.stdout, "['x']\n") {
			t.Errorf("%+v", o)
		}
		if text, _ := os.ReadFile(filepath.Join(s.dir, "out")); string(text) != "o" {
			t.Errorf("out is %q", text)
		}
		cmd := s.command("run", "--lang", "python", "a", "-")
		cmd.Stdin = strings.NewReader("print(6*7)")
		if o := finishCommand(t, cmd); o.stdout != "42\n" || o.exit != 0 {
			t.Errorf("%+v", o)
		}
		cmd = s.command("run", "--stdin", "a", "--", "/bin/cat")
		cmd.Stdin = strings.NewReader("to cat")
		if o := finishCommand(t, cmd); o.stdout != "to cat" || o.exit != 0 {
			t.Errorf("%+v", o)
		}
		if o := s.call("run", "--wall", "100ms", "a", "--", "/bin/sleep", "60"); o.exit != 137 || o.stderr != "sbxrun: wall_clock: killed after 100ms of wall clock\n" {
			t.Errorf("%+v", o)
		}
		o := s.call("run", "--json", "a", "--", "/bin/sh", "-c", `printf '\377'; exit 4`)
		if res := o.verdict(t); o.exit != 4 || res.Reason != runtime.Exited || *res.ExitCode != 4 || res.Stdout.TotalBytes != 1 {
			t.Errorf("%+v", o)
		}
		o = s.call("run", "--json", "--wall", "1h", "a", "--", "/bin/true")
		if res := o.verdict(t); o.exit != 125 || res.Reason != runtime.Unavailable || !strings.Contains(res.Error.Message, "wider than the session's policy") {
			t.Errorf("B7: a request widened the policy: %+v", o)
		}
		odd := "odd\xff\n"
		if o := s.call("run", "a", "--", "/bin/sh", "-c", `printf %s "$1" >"$1"`, "sh", odd); o.exit != 0 {
			t.Errorf("%+v", o)
		}
		if out := s.works("get", "a", odd, "-"); out != odd {
			t.Errorf("by an odd name %q came", out)
		}
		s.refuses("needs a private working directory", "create", "--level", "L1")
		s.refuses("there is no session", "run", "nobody", "--", "true")
		s.refuses("invalid container ID format", "run", "../a", "--", "true")
	})
}

func TestTheOutputOfASessionRunComesLive(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	s.create("a")
	cmd := s.command("run", "a", "--", "/bin/sh", "-c", "echo first; until [ -e go ]; do sleep 0.05; done; echo second")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	n, err := out.Read(buf)
	if string(buf[:n]) != "first\n" {
		t.Fatalf("read %q, %v", buf[:n], err)
	}
	if st := s.status("a"); st.State != "running" || st.Idle != 0 {
		t.Errorf("list says %+v", st)
	}
	// Files go in while the program runs.
	put := s.command("put", "a", "-", "go")
	put.Stdin = strings.NewReader("")
	if o := finishCommand(t, put); o.exit != 0 {
		t.Errorf("%+v", o)
	}
	if n, _ := out.Read(buf); string(buf[:n]) != "second\n" || cmd.Wait() != nil {
		t.Errorf("then %q", buf[:n])
	}
}

func TestASessionsLimitsHoldOverItsRuns(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		s.create("a", "--level", "L5", "--workdir-size", "4MiB")
		for i := range 2 { // each within the limits
			s.call("run", "a", "--", "/bin/sh", "-c", fmt.Sprintf("head -c 3000000 /dev/zero >f%d", i))
		}
		if out := s.sh("a", "cat f0 f1 | wc -c"); len(out) < 7 || strings.TrimSpace(out) > "4194304" {
			t.Errorf("%s bytes went into 4 MiB", out)
		}
		put := s.command("put", "a", "-", "more")
		put.Stdin = bytes.NewReader(make([]byte, 3<<20))
		if o := finishCommand(t, put); o.exit != 125 || !strings.Contains(o.stderr, "no space left") {
			t.Errorf("put: %+v", o)
		}
		if out := s.works("ls", "a"); strings.Contains(out, "more") || strings.Contains(out, ".sbxrun") {
			t.Errorf("the failed put left %q", out)
		}
		s.create("b", "--level", "L5")
		const make3000 = `i=0; while [ $i -lt 3000 ]; do : >$1$i || exit 1; i=$((i+1)); done`
		first := s.call("run", "b", "--", "/bin/sh", "-c", make3000, "sh", "x").exit
		if second := s.call("run", "b", "--", "/bin/sh", "-c", make3000, "sh", "y").exit; first != 0 || second == 0 {
			t.Errorf("6 000 files went into 4 096: exits %d and %d", first, second)
		}
	})
}

func TestTwoSessionsDoNotSeeEachOther(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		for _, level := range []string{"L3", "L5"} {
			s.create("a", "--level", level)
			s.create("b", "--level", level)
			s.sh("a", "printf the-sec >f; echo ret >>f; chmod 777 . f")
			cmd := s.command("run", "a", "--", "/bin/sh", "-c", "ipcmk -M 64 >/dev/null; wc -l </proc/sysvipc/shm; cat f; exec sleep 77.7")
			out, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			own := make([]byte, len("2\nthe-secret\n"))
			if _, err := io.ReadFull(out, own); err != nil || string(own) != "2\nthe-secret\n" {
				t.Fatalf("%s: it sees of its own %q (%v)", level, own, err)
			}
			seen := s.sh("b", "wc -l </proc/sysvipc/shm; cat /proc/[0-9]*/cmdline; ls; ls /tmp/work; s=the-sec; grep -rs ${s}ret /tmp/work /tmp/sbxrun-*; true")
			if !strings.HasPrefix(seen, "1\n") || strings.Contains(seen, "77.7") || level == "L5" && strings.Contains(seen, "the-secret") {
				t.Errorf("%s: the other session is seen: %q", level, seen)
			}
			s.works("rm", "a", "b")
			cmd.Wait()
		}
	})
}

func TestRunsOfASessionComeOneAfterTheOther(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	s.create("a")
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			// Each has a main.sh of its own, and finds nobody else at work.
			name := fmt.Sprint(time.Now().UnixNano())
			cmd := s.command("run", "--lang", "sh", "a", "-")
			cmd.Stdin = strings.NewReader("mkdir busy || exit 9; sleep 0.05; rmdir busy; echo " + name)
			if out, err := cmd.Output(); err != nil || string(out) != name+"\n" {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	wg.Wait()
	cmd := s.command("run", "a", "--", "/bin/sh", "-c", "echo started; exec sleep 60")
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 8))
	s.refuses("a program is running in the session", "run", "--no-wait", "a", "--", "/bin/true")
	// Interrupted, it still gives the verdict; and the session goes on.
	cmd.Process.Signal(os.Interrupt)
	cmd.Wait()
	if cmd.ProcessState.ExitCode() != 137 {
		t.Errorf("interrupted: %v", cmd.ProcessState)
	}
	s.works("run", "--no-wait", "a", "--", "/bin/true")
}

func TestEventsAreLinesOfJSON(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		s.create("a")
		file := filepath.Join(s.dir, "events")
		s.call("run", "--events", file, "--wall", "50ms", "a", "--", "/bin/sleep", "60")
		code := exec.Command(sbxrun, "code", "--cgroup", "off", "--memory", "0", "--events", "fd:3", "--wall", "50ms", "--", "/bin/sleep", "60")
		code.SysProcAttr = s.command().SysProcAttr
		f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		code.ExtraFiles = []*os.File{f}
		finishCommand(t, code)
		text, _ := os.ReadFile(file)
		var events []string
		for line := range strings.Lines(string(text)) {
			var n runtime.Notice
			if err := json.Unmarshal([]byte(line), &n); err != nil || n.Time.IsZero() || n.Run == "" {
				t.Errorf("%q: %v", line, err)
			}
			events = append(events, strings.TrimSpace(n.Event+" "+n.Rule))
		}
		if want := []string{"started", "limit limits.wall", "stopped", "started", "limit limits.wall", "stopped"}; !slices.Equal(events, want) {
			t.Errorf("events %q, want %q", events, want)
		}
		s.refuses("descriptor 77 is not open", "run", "--events", "fd:77", "a", "--", "/bin/true")
	})
}

func TestASessionEndsWhenItWasNotUsedForItsTTL(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		before := lookAround(t)
		s.create("a", "--level", "L2", "--ttl", "1s")
		s.sh("a", "sleep 1.5; echo x >f") // a run is a use
		pid := s.pid("a")
		await(t, "the session expires", func() bool { return s.status("a").ID == "" })
		await(t, "its process ends", func() bool { return ended(pid) })
		nothingLeft(t, before)
	})
}

func TestOfTwoSessionsWithOneIDExactlyOneIsMade(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	for range 3 {
		var won, lost int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				text, err := s.command("create", "--id", "same").CombinedOutput()
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					won++
				case strings.Contains(string(text), "is there already"):
					lost++
				default:
					t.Errorf("%s", text)
				}
			})
		}
		wg.Wait()
		if won != 1 || lost != 7 {
			t.Errorf("%d won, %d lost", won, lost)
		}
		s.works("rm", "same")
	}
}
