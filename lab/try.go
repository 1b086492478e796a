// This file owns one try: an attack under a policy, its run, and what the host and the
// Result say of it.

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/lab/attack"
	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// try is one attack under one policy.
type try struct {
	*stage
	ctx    context.Context
	attack *Attack
	policy spec.Policy
	level  spec.Level
	matrix bool // under the preset of a level
	mark   string
	cwd    string // the caller's directory
	stdin  *os.File
	get    func(files) error // after the run; nil is nothing

	res    *runtime.Result
	took   time.Duration
	effect string // what the attack has achieved, as the host sees it; empty is nothing
	seen   string // what else is worth saying
}

// files is the working directory as the host reaches it: a run's or a session's.
type files interface {
	Put(name string, src io.Reader, perm fs.FileMode) (int64, error)
	Get(name string, dst io.Writer) (int64, error)
	List() ([]rootfs.Entry, error)
}

// prepare fits the policy and makes the caller's directory.
func (t *try) prepare() error {
	t.mark = t.stage.mark()
	if t.policy.Cgroup == spec.CgroupOn {
		t.policy.Cgroup = t.cgroup
	}
	if !t.attack.onWall {
		t.policy.Limits.Wall = time.Minute
	}
	if t.policy.Limits.CPU > 0 {
		t.policy.Limits.CPU = time.Minute
	}
	if t.attack.adjust != nil {
		t.attack.adjust(&t.policy)
	}
	if t.attack.onWall && t.policy.Limits.Wall > 0 && !t.matrix {
		t.policy.Limits.Wall = time.Second / 2 // the attack is shorter, too
	}
	t.cwd = filepath.Join(t.dir, t.mark)
	if err := os.Mkdir(t.cwd, 0o777); err != nil {
		return err
	}
	app := filepath.Join(t.cwd, t.app())
	return errors.Join(os.Chmod(t.cwd, 0o777), os.WriteFile(app, []byte(precious), 0o666), os.Chmod(app, 0o666))
}

// app is the name of a file in the caller's directory.
func (t *try) app() string { return "app.conf-" + t.mark }

// precious is what a file in the caller's directory says.
const precious = "precious"

func (t *try) close() error {
	end(t.mark)
	// A process that is dying may still add a file.
	err := os.RemoveAll(t.cwd)
	for i := 0; err != nil && i < 100; i++ {
		time.Sleep(10 * time.Millisecond)
		err = os.RemoveAll(t.cwd)
	}
	return err
}

// sh runs a script; $1 and following are args.
func (t *try) sh(script string, args ...string) error {
	return t.run(nil, append([]string{"/bin/sh", "-c", script, "attack"}, args...)...)
}

// python runs a program in Python.
func (t *try) python(program string, args ...string) error {
	path, err := exec.LookPath("python3")
	if err != nil {
		return notHere("there is no python3")
	}
	if p, err := filepath.EvalSymlinks(path); err == nil && t.policy.Filesystem.Isolate && slices.ContainsFunc(t.policy.Filesystem.Hide, func(h string) bool { return strings.HasPrefix(p, h+"/") }) {
		path = "/usr/bin/python3" // the caller's own is out of sight
	}
	if text, err := os.ReadFile(path); err == nil && len(text) > 2 && string(text[:2]) == "#!" {
		path = "/usr/bin/python3" // a shim needs the caller's home
	}
	if _, err := os.Stat(path); err != nil {
		return notHere("there is no python3 that everybody can run")
	}
	return t.run(nil, append([]string{path, "-c", program}, args...)...)
}

// helper runs a program of lab/attack.
func (t *try) helper(name string, args ...string) error {
	words := append([]string{attack.Word, name}, args...)
	if t.policy.Processes.Isolate {
		t.policy.Workdir.Private = true // no other place else that is ours can be reached in each case
	}
	if t.policy.Cgroup == spec.CgroupOff {
		t.policy.Limits.Memory = 0 // RLIMIT_AS counts what Go reserves and never uses
	}
	if !t.policy.Workdir.Private {
		return t.run(nil, append([]string{t.self}, words...)...)
	}
	if t.policy.Limits.FileSize > 0 {
		t.policy.Limits.FileSize = 64 << 20
	}
	put := func(g files) error {
		f, err := os.Open(t.self)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = g.Put("helper", f, 0o755)
		return err
	}
	return t.run(put, append([]string{"./helper"}, words...)...)
}

// run runs the program and checks that it ran.
func (t *try) run(put func(files) error, argv ...string) (err error) {
	started := time.Now()
	if t.warm {
		err = t.runWarm(put, argv)
	} else {
		err = t.runCold(put, argv)
	}
	t.took = time.Since(started)
	if err != nil {
		return err
	}
	if t.res.Reason == runtime.Internal || t.res.Reason == runtime.Unavailable {
		return fmt.Errorf("the attack did not run: %s", t.res.Reason)
	}
	return nil
}

func (t *try) runCold(put func(files) error, argv []string) error {
	env := append(os.Environ(), canaryName+"="+t.canary)
	cwd := t.cwd
	if t.policy.Filesystem.Isolate {
		cwd = "/" // the caller's is out of sight; a private one takes its place
	}
	sp, err := spec.Compile(t.policy, runtime.ThisHost(), spec.Process{Args: argv, Env: env, Cwd: cwd})
	if err != nil {
		return err
	}
	opt := runtime.Options{Stdin: t.stdin}
	if put != nil {
		opt.Put = func(g *rootfs.Gateway) error { return put(g) }
	}
	if t.get != nil {
		opt.Get = func(g *rootfs.Gateway) error { return t.get(g) }
	}
	t.res, err = runtime.Run(t.ctx, sp, opt)
	return err
}

// errCold says that the host changed after an init was prepared, which then rightly was
// not used.
var errCold = errors.New("no prepared init was used")

// runWarm runs the program in a session, in an init that was prepared before anything
// was known of it.
func (t *try) runWarm(put func(files) error, argv []string) (err error) {
	if !t.policy.Workdir.Private {
		return notHere("a session needs a private working directory")
	}
	s, err := runtime.NewSession(t.policy, runtime.SessionOptions{Warm: 1})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	for end := time.Now().Add(time.Minute); s.Waiting() == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if put != nil {
		if err := put(s); err != nil {
			return err
		}
	}
	cmd, warm := runtime.Command{Args: argv}, false
	if t.stdin != nil { // a nil *os.File is a reader, too
		cmd.Stdin = t.stdin
	}
	cmd.Watch = func(n runtime.Notice) { warm = warm || n.Event == "started" && n.Warm }
	if t.res, err = s.Run(t.ctx, cmd); err != nil {
		return err
	}
	if !warm {
		return errCold
	}
	if t.get != nil {
		return t.get(s)
	}
	return nil
}

// How long the host waits between two looks: what it looks for stays until it was seen.
const firstPause, lastPause = 8 * time.Millisecond, 100 * time.Millisecond

// held runs the program in run and calls look with its pid once it is ready; then it is
// let go.
func (t *try) held(look func(pid int), run func() error) error {
	return t.heldAs(attack.Ready, func(pid int) bool { look(pid); return true }, run)
}

// heldAs lets the program go, by ending its stdin, once look says of a process with that
// name that it has seen enough.
func (t *try) heldAs(name string, look func(pid int) bool, run func() error) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	t.stdin = r
	done := make(chan error, 1)
	go func() { done <- run() }()
	looked := false
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		select {
		case err := <-done:
			r.Close()
			if !looked {
				w.Close()
			}
			return err
		case <-time.After(pause):
		}
		if looked {
			continue
		}
		if pids := named(below(t.mark), name); len(pids) > 0 && look(pids[0]) {
			looked = true
			w.Close()
		}
	}
}

// crowdTime bounds the wait for a crowd to gather.
const crowdTime = 40 * time.Second

// crowd counts the processes of the run with that name until there are enough, or no
// more come, and then ends its stdin.
func (t *try) gather(enough int, name string, run func() error) (most int, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	t.stdin = r
	started := time.Now()
	err = t.while(func() {
		most = max(most, len(named(below(t.mark), name)))
		if w != nil && (most >= enough || time.Since(started) > crowdTime) {
			w.Close()
			w = nil
		}
	}, run)
	if w != nil {
		w.Close()
	}
	return most, errors.Join(err, r.Close())
}

// while calls look again and again as long as run takes.
func (t *try) while(look func(), run func() error) error {
	done := make(chan error, 1)
	go func() { done <- run() }()
	for pause := firstPause; ; pause = min(pause*3/2, lastPause) {
		select {
		case err := <-done:
			return err
		case <-time.After(pause):
			look()
		}
	}
}

// got notes an effect.
func (t *try) got(format string, args ...any) { t.effect = fmt.Sprintf(format, args...) }

// ended checks that the verdict is one of these: an attack that was ended by something
// else was not stopped by what is under test.
func (t *try) ended(reasons ...runtime.Reason) error {
	if !slices.Contains(reasons, t.res.Reason) {
		return fmt.Errorf("the verdict is %s, not %v: %v %s", t.res.Reason, reasons, t.res.Evidence, lastLine(t.res.Stderr.Text))
	}
	if t.res.TimedOut != (t.res.Reason == runtime.WallClock) || t.res.OOM != (t.res.Reason == runtime.OOM) || (t.res.Reason == runtime.Exited) != (t.res.ExitCode != nil && t.res.Signal == "") && t.res.Reason == runtime.Exited {
		return fmt.Errorf("the verdict contradicts itself: %s, timed out %v, oom %v, signal %q", t.res.Reason, t.res.TimedOut, t.res.OOM, t.res.Signal)
	}
	return nil
}

// limited is ended for attacks on a limit: by the limit when the attack was stopped,
// by themselves else.
func (t *try) limited(by ...runtime.Reason) error {
	if t.effect != "" {
		return t.ended(append(by, runtime.Exited)...)
	}
	return t.ended(by...)
}

// evidence says what was seen when nothing came of the attack.
func (t *try) evidence() string {
	if t.seen != "" {
		return t.seen
	}
	if t.res == nil {
		return ""
	}
	if t.res.Reason != runtime.Exited && len(t.res.Evidence) > 0 {
		return t.res.Evidence[0].Source + ": " + t.res.Evidence[0].Detail
	}
	if l := lastLine(t.res.Stderr.Text); l != "" {
		return l
	}
	return lastLine(t.res.Stdout.Text)
}

// lastLine is the end of a text, for evidence. Names of this machine are left out.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	l := lines[len(lines)-1]
	if len(l) > 160 {
		l = l[:80] + " … " + l[len(l)-60:]
	}
	return l
}

// acted names what stopped the attack: the limit that the Result names, else the first
// of the attack's barriers that is up.
func (t *try) acted() (layer, mechanism string) {
	if t.res != nil {
		for _, hit := range t.res.LimitsHit {
			if slices.Contains(t.attack.By, hit) {
				return layerOf(hit)
			}
		}
	}
	for _, key := range t.attack.By {
		if v, err := t.policy.Get(key); err == nil && v != "false" && v != "0" && v != "0s" && v != "" && v != "off" {
			return layerOf(key)
		}
		if key == always {
			return "always", t.attack.mechanism
		}
	}
	return "", ""
}

// always stands among an attack's barriers for what no policy switches off.
const always = "always"

func layerOf(key string) (string, string) {
	for _, k := range spec.Keys() {
		if k.Name == key {
			return k.Layer, k.Mechanism
		}
	}
	return "", ""
}

// lives says whether a process lives on: a zombie does not, nor one that was killed and
// only waits for a processor to die on.
func lives(pid int) bool {
	s := status(pid, "State")
	pending, _ := strconv.ParseUint(status(pid, "SigPnd"), 16, 64)
	return s != "" && s[0] != 'Z' && s[0] != 'X' && pending&(1<<(unix.SIGKILL-1)) == 0
}
