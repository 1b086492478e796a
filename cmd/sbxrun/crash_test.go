// Tests of what is left where SIGKILL takes the command, a supervisor or an init, at
// each of their steps and at any moment.

package main

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// steps are the calls by which sbxrun, its supervisor and init change anything.
const steps = "mkdirat,renameat,unlinkat,rmdir,flock,bind,connect,write,sendmsg,sendto,clone,clone3,execve,mount,umount2,move_mount,pivot_root"

// accident is a command that is cut short, on an engine of its own.
type accident struct {
	name    string
	flags   []string   // of the policy, nil is a container without
	program string     // the default sleeps
	before  [][]string // commands that are let alone
	args    []string   // the command; "ID" is the container
	after   [][]string // commands that meet what it left
}

var (
	createIt = []string{"create", "--bundle", "BUNDLE", "ID"}
	runIt    = []string{"run", "--bundle", "BUNDLE", "ID"}
	startIt  = []string{"start", "ID"}
	guarded  = append([]string{"--level", "L3", "--memory", "64MiB"}, slow...)

	accidents = []accident{
		{name: "create", args: createIt, after: [][]string{startIt}},
		{name: "start", before: [][]string{createIt}, args: startIt},
		{name: "run", program: "exit 3", args: runIt},
		{name: "exec", before: [][]string{createIt, startIt}, args: []string{"exec", "--detach", "ID", "/bin/sleep", "MARK"}},
		{name: "delete", before: [][]string{createIt, startIt}, args: []string{"delete", "--force", "ID"}},
		{name: "create under a policy", flags: guarded, args: createIt, after: [][]string{startIt}},
		{name: "start under a policy", flags: guarded, before: [][]string{createIt}, args: startIt},
		{name: "delete under a policy", flags: guarded, before: [][]string{createIt, startIt}, args: []string{"delete", "--force", "ID"}},
		{name: "run under a policy", flags: guarded, program: "exit 3", args: runIt},
		{name: "run at L5", flags: append([]string{"--level", "L5"}, slow...), program: "exit 3", args: runIt},
	}
)

// scene is one accident about to happen.
type scene struct {
	*engine
	accident
	id, mark string // names of this one alone
}

var scenes = 0

func (a accident) scene(t *testing.T) *scene {
	t.Helper()
	s := &scene{accident: a}
	scenes++
	s.id = fmt.Sprintf("crash-%d-%d", os.Getpid(), scenes)
	s.mark = fmt.Sprintf("%d.%d", 70_000+scenes, os.Getpid())
	script := a.program
	if script == "" {
		script = "sleep " + s.mark + "; exit 1" // a shell that stays beside its child
	}
	if a.flags != nil {
		s.engine = newGuarded(t, a.flags, "/bin/sh", "-c", script)
	} else {
		s.engine = newEngine(t, script)
	}
	for _, args := range s.before {
		s.ok(s.fill(args)...)
	}
	return s
}

// fill puts the names in.
func (s *scene) fill(args []string) []string {
	args = slices.Clone(args)
	for i := range args {
		args[i] = strings.NewReplacer("ID", s.id, "BUNDLE", s.bundle, "MARK", s.mark).Replace(args[i])
	}
	return args
}

// traced runs the command under strace, which outlives it as long as it has processes.
func (s *scene) traced(calls, inject string) (log string, o outcome) {
	log = filepath.Join(s.t.TempDir(), "strace")
	args := []string{"-DDD", "-f", "-o", log, "-e", "trace=" + calls, "-e", "signal=none"}
	if inject != "" {
		args = append(args, "--inject="+inject)
	}
	cmd := s.command(s.fill(s.args)...)
	cmd.Args = append(append(append([]string{"strace"}, args...), sbxrun), cmd.Args[1:]...)
	path, err := exec.LookPath("strace")
	if err != nil {
		s.t.Fatal(err)
	}
	cmd.Path, cmd.Err = path, nil
	// Files: what a container inherits must not be waited for.
	said := filepath.Join(s.t.TempDir(), "said")
	out, err := os.Create(said)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	hang := time.AfterFunc(2*time.Minute, func() { s.t.Errorf("%v hangs", cmd.Args); _ = cmd.Process.Kill() })
	defer hang.Stop()
	_ = cmd.Wait()
	text, err := os.ReadFile(said)
	if err != nil {
		s.t.Fatal(err)
	}
	return log, outcome{cmd.ProcessState.ExitCode(), string(text), ""}
}

// follow lets the commands come that meet what the accident left.
func (s *scene) follow() {
	for _, args := range s.after {
		s.do(s.fill(args)...) // there may be nothing to start any more
	}
}

// step is the nth time that one thread makes a call.
type step struct {
	call string
	n    int
}

func (s step) String() string { return fmt.Sprintf("%s.%d", s.call, s.n) }

// stepsIn lists the steps that some thread made.
func stepsIn(t *testing.T, log string) (out []step) {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	made, seen := map[string]int{}, map[step]bool{}
	for line := range strings.Lines(string(text)) {
		pid, rest, _ := strings.Cut(line, " ")
		call, _, ok := strings.Cut(strings.TrimSpace(rest), "(")
		if !ok || strings.Contains(call, " ") {
			continue // the end of a call that was interrupted, or of a process
		}
		made[pid+call]++
		if s := (step{call, made[pid+call]}); !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}

// aftermath looks at what the accident left and cleans up as a person would.
func (s *scene) aftermath(at string) {
	t := s.t
	t.Helper()
	s.limited(at)
	for _, args := range [][]string{{"list"}, {"list", "--format", "json"}, {"delete", "--force", s.id}, {"session", "gc"}} {
		if o := s.do(args...); o.exit != 0 {
			t.Errorf("%s: %v: %+v", at, args, o)
		}
	}
	if o := s.do("list", "-q"); o.stdout != "" {
		t.Errorf("%s: there is still %q", at, o.stdout)
	}
	childless(t, at)
	if pids := alive("sleep " + s.mark); len(pids) > 0 {
		t.Errorf("%s: processes live: %v", at, pids)
	}
	if left, _ := filepath.Glob(s.root + "/*"); len(left) > 0 && !slices.Equal(left, []string{s.root + "/sessions"}) {
		t.Errorf("%s: left in the state directory: %v", at, left)
	}
	if left, _ := filepath.Glob(os.TempDir() + "/sbxrun-*" + s.id + "*"); len(left) > 0 {
		t.Errorf("%s: left: %v", at, left)
	}
	if left := groupsNamed(s.id); len(left) > 0 {
		t.Errorf("%s: control groups are left: %v", at, left)
		for _, dir := range left {
			_ = unix.Rmdir(dir)
		}
	}
}

// limited sees that whatever runs of the container is in a group of its own.
func (s *scene) limited(at string) {
	for _, pid := range alive("sleep " + s.mark) {
		groups, err := os.ReadFile("/proc/" + pid + "/cgroup")
		if text, _ := os.ReadFile("/proc/" + pid + "/cmdline"); err != nil || !strings.HasSuffix(strings.TrimRight(string(text), "\x00"), s.mark) || strings.Contains(string(text), "sbxrun") {
			continue // it ended meanwhile, or is the command
		}
		if !strings.Contains(string(groups), s.id) {
			s.t.Errorf("%s: process %s runs outside the container's group: %s", at, pid, groups)
		}
	}
}

// childless waits until every process is gone that the accident made: its orphans are
// this process's children.
func childless(t *testing.T, at string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); err == unix.ECHILD {
			return
		} else if pid > 0 {
			continue
		}
		if time.Now().After(end) {
			t.Fatalf("%s: processes live on: %v", at, descendants())
		}
	}
}

// descendants are this process's, each with its command line.
func descendants() (out []string) {
	todo := []string{"self"}
	for len(todo) > 0 {
		files, _ := filepath.Glob("/proc/" + todo[0] + "/task/*/children")
		todo = todo[1:]
		for _, f := range files {
			text, _ := os.ReadFile(f)
			for _, pid := range strings.Fields(string(text)) {
				line, _ := os.ReadFile("/proc/" + pid + "/cmdline")
				out = append(out, pid+" "+strings.ReplaceAll(string(line), "\x00", " "))
				todo = append(todo, pid)
			}
		}
	}
	return out
}

// groupsNamed lists the control groups that have the id in their name.
func groupsNamed(id string) (out []string) {
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.Contains(d.Name(), id) {
			out = append(out, p)
		}
		return nil // groups of others come and go
	})
	return out
}

// chosen are the steps at which something happens: all, one that is named, or a few of
// them from first to last.
func chosen(variable, name string, all []step, few int) (out []step) {
	want := os.Getenv(variable)
	if want == "all" {
		return all
	}
	for _, s := range all {
		if want == name+":"+s.String() {
			return []step{s}
		}
	}
	if few = min(few, len(all)); want == "" {
		for i := range few {
			out = append(out, all[i*len(all)/few])
		}
	}
	return out
}

// notSlow skips what takes minutes in an emulated machine.
func notSlow(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("every one of the many runs takes seconds on a slow machine")
	}
}

// SBXRUN_TEST_STEPS=all is the long form, "create under a policy:flock.1" one step.
func TestAProcessThatIsKilledAtAnyStepLeavesNothing(t *testing.T) {
	needRoot(t)
	needProgram(t, "strace")
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	notSlow(t)
	const few = 3
	for _, a := range accidents {
		t.Run(a.name, func(t *testing.T) {
			before := lookAround(t)
			s := a.scene(t)
			log, _ := s.traced(steps, "")
			s.follow()
			s.aftermath(a.name)
			all := stepsIn(t, log)
			some := chosen("SBXRUN_TEST_STEPS", a.name, all, few)
			t.Logf("killed at %v of %d steps", some, len(all))
			for _, step := range some {
				s := a.scene(t)
				s.traced(steps, fmt.Sprintf("%s:signal=KILL:when=%d", step.call, step.n))
				s.follow()
				s.aftermath(a.name + ":" + step.String())
			}
			nothingLeft(t, before)
		})
	}
}

// SBXRUN_TEST_MOMENTS=1000 is the long form.
func TestAProcessThatIsKilledAtAnyMomentLeavesNothing(t *testing.T) {
	needRoot(t)
	notSlow(t)
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	before := lookAround(t)
	victims := map[string]int{}
	for i := range moments(t, "SBXRUN_TEST_MOMENTS", 30) {
		a := accidents[rand.N(len(accidents))]
		s := a.scene(t)
		cmd := s.command(s.fill(s.args)...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		wait := rand.N(60 * time.Millisecond)
		time.Sleep(wait) // any moment
		at := fmt.Sprintf("%d: %s after %v", i, a.name, wait)
		if all := descendants(); len(all) > 0 {
			pid, line, _ := strings.Cut(all[rand.N(len(all))], " ")
			victims[strings.Fields(line + " -")[0]]++
			at += ", killed " + line
			if n, err := strconv.Atoi(pid); err == nil {
				_ = unix.Kill(n, unix.SIGKILL) // nobody else waits for them: the number is theirs still
			}
		}
		// A command of which another process was killed ends by itself.
		gone := time.AfterFunc(time.Minute, func() { t.Errorf("%s: the command hangs", at); _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		gone.Stop()
		s.follow()
		s.aftermath(at)
	}
	t.Logf("killed: %v", victims)
	nothingLeft(t, before)
}

// moments is how often something is done: few times, or as often as the variable says.
func moments(t *testing.T, variable string, few int) int {
	t.Helper()
	if text := os.Getenv(variable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		return n
	}

	return few
}
