// Tests of sessions: what lasts, what does not, and what is left.

package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// sessionPolicy is the preset with room for slow machines, and without a group where
// an ordinary user has none.
func sessionPolicy(level spec.Level) spec.Policy {
	p := spec.Preset(level)
	p.Limits.Wall, p.Limits.CPU = time.Minute, time.Minute
	if os.Geteuid() != 0 {
		p.Cgroup = spec.CgroupOff
	}
	return p
}

func newSession(t *testing.T, p spec.Policy, warm int) *runtime.Session {
	t.Helper()
	s, err := runtime.NewSession(p, runtime.SessionOptions{Warm: warm})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// shell runs a script, in a prepared init if there are any, and wants it to exit with 0.
func shell(t *testing.T, s *runtime.Session, warm bool, script string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); warm && s.Waiting() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no init was prepared")
		}
	}
	started := false
	res, err := s.Run(context.Background(), runtime.Command{
		Args: []string{"/bin/sh", "-c", script}, Stdin: strings.NewReader("input\n"),
		Watch: func(n runtime.Notice) { started = started || n.Event == "started" && n.Warm == warm },
	})
	if err != nil || res.Reason != runtime.Exited || *res.ExitCode != 0 {
		t.Fatalf("%q: %v %s %v %+v", script, err, res.Reason, res.Evidence, res.Stderr)
	}
	if !started {
		t.Errorf("warm %v: no notice said so", warm)
	}
	return res.Stdout.Text
}

func TestWhatAProgramLeavesTheNextOneFinds(t *testing.T) {
	for _, level := range []spec.Level{spec.L2, spec.L3, spec.L4, spec.L5} {
		for _, warm := range []int{0, 1} {
			t.Run(fmt.Sprint(level, " with ", warm, " prepared"), func(t *testing.T) {
				s := newSession(t, sessionPolicy(level), warm)
				shell(t, s, warm > 0, "echo one >f; echo $$ >$TMPDIR/pid; umask")
				if out := shell(t, s, warm > 0, "cat f; cat; pwd; test -e $TMPDIR/pid"); !strings.HasPrefix(out, "one\ninput\n/tmp/") {
					t.Errorf("%q", out)
				}
				if n, err := s.Put("dir/in", strings.NewReader("from outside"), 0o600); n != 12 || err != nil {
					t.Error(n, err)
				}
				if out := shell(t, s, warm > 0, "cat dir/in"); out != "from outside" {
					t.Errorf("%q", out)
				}
				var b bytes.Buffer
				if _, err := s.Get("f", &b); err != nil || b.String() != "one\n" {
					t.Error(b.String(), err)
				}
				if err := s.Remove("dir"); err != nil {
					t.Error(err)
				}
				if entries, err := s.List(); err != nil || len(entries) != 3 {
					t.Error(entries, err)
				}
				if err := s.Reset(); err != nil {
					t.Error(err)
				}
				if entries, err := s.List(); err != nil || len(entries) != 1 {
					t.Error(entries, err)
				}
				shell(t, s, warm > 0, "test ! -e f")
			})
		}
	}
}

func TestAnOldFileOfTheSizeLimitSpoilsNoLaterVerdict(t *testing.T) {
	s := newSession(t, sessionPolicy(spec.L5), 0)
	shell(t, s, false, "truncate -s 10485760 big; touch -d 2099-01-01 big")
	res, err := s.Run(context.Background(), runtime.Command{Args: []string{"/bin/sh", "-c", "exit 7"}})
	if err != nil || res.Reason != runtime.Exited || len(res.LimitsHit) > 0 {
		t.Errorf("%v: %s %v", err, res.Reason, res.LimitsHit)
	}
}

// The race detector is what sees a directory that is closed under an init.
func TestAResetWaitsForInitsThatAreBeingPrepared(t *testing.T) {
	policy := spec.Preset(spec.L2)
	if os.Geteuid() != 0 {
		policy.Cgroup = spec.CgroupOff
	}
	s, err := runtime.NewSession(policy, runtime.SessionOptions{Warm: 2})
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := s.Reset(); err != nil {
			t.Error(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func TestASessionIsBounded(t *testing.T) {
	p := sessionPolicy(spec.L5)
	p.Workdir.Size, p.Workdir.Inodes, p.Limits.FileSize = 1<<20, 20, 0
	s := newSession(t, p, 0)
	shell(t, s, false, "head -c 600000 /dev/zero >a")
	shell(t, s, false, "! head -c 600000 /dev/zero >b; rm b")
	shell(t, s, false, "for i in $(seq 30); do touch f$i || exit 0; done; exit 1")
	if _, err := s.Put("more", strings.NewReader("x"), 0o600); err == nil {
		t.Error("a file came in though there is no inode left")
	}
}

func TestAHostileDirectoryIsNoWayOut(t *testing.T) {
	s := newSession(t, sessionPolicy(spec.L5), 1)
	// Its place cannot be taken, and what is in it is data.
	shell(t, s, true, "! mv /tmp/work /tmp/elsewhere 2>/dev/null; rm -rf tmp; ln -s /etc tmp; ln -s /etc/passwd link; mkfifo pipe")
	shell(t, s, true, "cd /; test -L /tmp/work/tmp")
	for _, name := range []string{"link", "pipe", "tmp/passwd", "../etc/passwd", "/etc/passwd", "", "a\x00b"} {
		if _, err := s.Get(name, &bytes.Buffer{}); err == nil {
			t.Errorf("%q was read", name)
		}
		var at *rootfs.FileError
		if err := s.Remove(name); name != "link" && name != "pipe" && !errors.As(err, &at) {
			t.Errorf("%q was removed: %v", name, err)
		}
	}
	if _, err := s.Put("tmp/x", strings.NewReader("x"), 0o600); !errors.Is(err, rootfs.ErrLink) {
		t.Error(err)
	}
}

func TestSessionsDoNotSeeEachOther(t *testing.T) {
	a, b := newSession(t, sessionPolicy(spec.L5), 0), newSession(t, sessionPolicy(spec.L5), 0)
	shell(t, a, false, "echo secret >f; echo secret >/tmp/f; echo secret >/dev/shm/f")
	shell(t, b, false, "test ! -e f && test ! -e /tmp/f && test ! -e /dev/shm/f")
	shell(t, a, false, "test -e f && test ! -e /tmp/f && test ! -e /dev/shm/f")
}

func TestCommandsOfOneSessionWaitForEachOther(t *testing.T) {
	s := newSession(t, sessionPolicy(spec.L5), 2)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			res, err := s.Run(context.Background(), runtime.Command{Args: []string{"/bin/sh", "-c", "mkdir lock || exit 9; rmdir lock"}})
			if err != nil || res.Reason != runtime.Exited || *res.ExitCode != 0 {
				t.Error(err, res.Reason, res.Stderr)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if res, err := s.Run(ctx, runtime.Command{Args: []string{"/bin/true"}}); !errors.Is(err, context.Canceled) || res.Reason != runtime.Canceled {
		t.Error(err, res.Reason)
	}
}

func TestACommandOnlyNarrows(t *testing.T) {
	p := sessionPolicy(spec.L5)
	s := newSession(t, p, 1)
	if _, err := s.Run(context.Background(), runtime.Command{Args: []string{"/bin/true"}, Wall: p.Limits.Wall + 1}); !errors.Is(err, runtime.ErrWider) {
		t.Error(err)
	}
	res, err := s.Run(context.Background(), runtime.Command{Args: []string{"/bin/sleep", "50"}, Wall: 100 * time.Millisecond})
	if err != nil || res.Reason != runtime.WallClock {
		t.Error(err, res.Reason)
	}
}

func TestOutputComesWhileTheProgramRuns(t *testing.T) {
	s := newSession(t, sessionPolicy(spec.L5), 0)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	in, feed, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan *runtime.Result)
	go func() {
		res, _ := s.Run(context.Background(), runtime.Command{Args: []string{"/bin/sh", "-c", "echo ready; read line; echo $line"}, Stdin: in, Stdout: w})
		done <- res
	}()
	var b [6]byte
	if n, err := r.Read(b[:]); string(b[:n]) != "ready\n" {
		t.Fatal(string(b[:n]), err)
	}
	fmt.Fprintln(feed, "go")
	if res := <-done; res.Stdout.Text != "ready\ngo\n" {
		t.Errorf("%+v", res)
	}
	for _, f := range []*os.File{w, in, feed} {
		f.Close()
	}
}

func TestClosingEndsWhatRuns(t *testing.T) {
	s := newSession(t, sessionPolicy(spec.L5), 1)
	started, done := make(chan bool, 8), make(chan *runtime.Result)
	go func() {
		res, _ := s.Run(context.Background(), runtime.Command{Args: []string{"/bin/sleep", "50"}, Watch: func(runtime.Notice) { started <- true }})
		done <- res
	}()
	<-started
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if res := <-done; res.Reason != runtime.Canceled {
		t.Error(res.Reason)
	}
	if _, err := s.Run(context.Background(), runtime.Command{Args: []string{"/bin/true"}}); !errors.Is(err, runtime.ErrClosed) {
		t.Error(err)
	}
	if _, err := s.List(); !errors.Is(err, runtime.ErrClosed) {
		t.Error(err)
	}
}

// A prepared init has hidden what was there. A hidden file that was replaced since is
// another one, which only a new init hides.
func TestAPreparedInitThatHidWhatIsGoneIsNotUsed(t *testing.T) {
	dir, err := os.MkdirTemp("/usr/local", "sbxrun-test-") // other directories are hidden or empty inside
	if err != nil {
		t.Skip("only root has a place that L5 shows:", err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	key, fresh := filepath.Join(dir, "key"), filepath.Join(dir, "fresh")
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(key, "old secret")
	p := sessionPolicy(spec.L5)
	p.Filesystem.Hide = append(p.Filesystem.Hide, key)
	s := newSession(t, p, 1)
	if out := shell(t, s, true, "cat "+key); out != "" {
		t.Error(out)
	}
	for end := time.Now().Add(time.Minute); s.Waiting() == 0 && time.Now().Before(end); time.Sleep(time.Millisecond) {
	}
	write(fresh, "new secret")
	if err := os.Rename(fresh, key); err != nil {
		t.Fatal(err)
	}
	if out := shell(t, s, false, "cat "+key); out != "" {
		t.Error("a prepared init showed", out)
	}
}

func TestASessionNeedsADirectoryOfItsOwn(t *testing.T) {
	if _, err := runtime.NewSession(spec.Preset(spec.L1), runtime.SessionOptions{}); err == nil || !strings.Contains(err.Error(), "private working directory") {
		t.Error(err)
	}
	if _, err := runtime.NewSession(spec.Preset(spec.L5), runtime.SessionOptions{Warm: runtime.MaxWarm + 1}); err == nil {
		t.Error("too many prepared inits")
	}
	if _, err := runtime.NewSession(spec.Preset(spec.L5), runtime.SessionOptions{ID: "../x"}); !errors.Is(err, runtime.ErrID) {
		t.Error(err)
	}
}
