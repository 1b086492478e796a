// This file owns the tests of what the reaper does, by running the real image.

package sbxinit_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

func TestReaperSaysHowTheProgramEnded(t *testing.T) {
	ends := []struct {
		script string
		status syscall.WaitStatus
	}{
		{"exit 0", 0},
		{"exit 42", 42 << 8},
		{"exit 255", 255 << 8},
		{"kill -KILL $$", syscall.WaitStatus(unix.SIGKILL)},
		{"ulimit -c 0; kill -ABRT $$", syscall.WaitStatus(unix.SIGABRT)},
		{"kill -TERM $$", syscall.WaitStatus(unix.SIGTERM)},
		{"(kill -STOP $$; kill -CONT $$) & wait; exit 7", 7 << 8},
	}
	for _, where := range anywhere {
		for _, end := range ends {
			t.Run(where.name+"/"+end.script, func(t *testing.T) {
				c := start(t, setup{sys: where.sys()}, "/bin/sh", "sh", "-c", end.script)
				if s := c.expect(t, sbxinit.FrameStarted); where.name == ownTree.name && s.value != 2 {
					t.Errorf("the program is PID %d, want 2", s.value)
				}
				if x := c.expect(t, sbxinit.FrameExited); syscall.WaitStatus(x.value) != end.status {
					t.Errorf("status %#x, want %#x", x.value, end.status)
				}
				c.channel.Close()
				c.ended(t, 0)
			})
		}
	}
}

func TestReaperSaysWhyTheProgramCannotBeExecuted(t *testing.T) {
	dir := t.TempDir()
	file := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("neither a script nor an image"), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, errno := range map[string]syscall.Errno{
		filepath.Join(dir, "absent"):    unix.ENOENT,
		file("plain", 0o644):            unix.EACCES,
		dir:                             unix.EACCES,
		file("noise", 0o755):            unix.ENOEXEC,
		filepath.Join(dir, "noise/sub"): unix.ENOTDIR,
		"":                              unix.ENOENT,
	} {
		for _, where := range anywhere {
			t.Run(where.name+"/"+errno.Error(), func(t *testing.T) {
				c := start(t, setup{sys: where.sys()}, path, "program")
				if f := c.expect(t, sbxinit.FrameExecFailed); syscall.Errno(f.value) != errno {
					t.Errorf("errno %v, want %v", syscall.Errno(f.value), errno)
				}
				c.expect(t, 0)
				c.ended(t, 127)
			})
		}
	}
}

// output runs a program to its end, with a pipe as its stdout, and returns what it
// wrote. The reaper still lives when the pipe ends.
func output(t *testing.T, s setup, path string, argv ...string) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s.out = w
	c := start(t, s, path, argv...)
	w.Close()
	c.expect(t, sbxinit.FrameStarted)
	if err := r.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatalf("reading the program's output: %v (got %q)", err, b)
	}
	if x := c.expect(t, sbxinit.FrameExited); x.value != 0 {
		t.Fatalf("status %#x after %q", x.value, b)
	}
	if hold(t, c.Pid).dead(0) {
		t.Error("the reaper is dead before the supervisor let go")
	}
	return string(b)
}

func TestReaperPassesArgumentsAndEnvironment(t *testing.T) {
	args := []string{"", "a b", "line\nline", "\xff", strings.Repeat("x", 5_000)}
	env := []string{"A=1", "A=2", "EMPTY=", "no equals sign"}
	got := output(t, setup{env: env}, self(), append([]string{helperName, "show"}, args...)...)
	if want := fmt.Sprintf("%q %q", args, strings.Join(env, "\x00")+"\x00"); got != want {
		t.Errorf("the program sees\n%s\nwant\n%s", got, want)
	}
}

// The detour leaves it the image as descriptor 5 without close-on-exec, too.
func TestReaperKeepsTheCallersStateFromTheProgram(t *testing.T) {
	via := []string{self(), helperName, "careless"}
	script := "grep -E '^Sig(Blk|Ign)' /proc/self/status; ls /proc/self/fd; trap 'exit 0' TERM; kill -TERM $$; exit 1"
	got := output(t, setup{via: via}, "/bin/sh", "sh", "-c", script)
	none := "\t0000000000000000\n"
	if want := "SigBlk:" + none + "SigIgn:" + none + "0\n1\n2\n3\n"; got != want {
		t.Errorf("the program sees\n%s\nwant\n%s(3 is the listing's own)", got, want)
	}
}

func TestReaperMakesTheProgramLeadASession(t *testing.T) {
	got := output(t, setup{}, "/bin/sh", "sh", "-c", "read -r a b c d pgrp sid rest </proc/self/stat; echo $a $pgrp $sid; exit 0")
	f := strings.Fields(got)
	if len(f) != 3 || f[0] != f[1] || f[1] != f[2] {
		t.Errorf("pid, group and session are %q, want three times the same", got)
	}
}

func TestReaperReportsTheProgramsUsage(t *testing.T) {
	c := start(t, setup{}, self(), helperName, "burn")
	c.expect(t, sbxinit.FrameStarted)
	u := c.expect(t, sbxinit.FrameExited).usage
	if cpu := time.Duration(u.Utime.Nano() + u.Stime.Nano()); cpu < 200*time.Millisecond || cpu > 2*time.Second {
		t.Errorf("CPU time %v, want a little over 0.2 s", cpu)
	}
	if u.Maxrss < 500 || u.Maxrss > 200_000 {
		t.Errorf("peak memory %d KiB is not plausible", u.Maxrss)
	}
}

// orphans starts a program that makes n orphans, says so, and waits to be killed.
func orphans(t *testing.T, n int) (*child, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	script := fmt.Sprintf("i=0; while [ $i -lt %d ]; do ( : & ); i=$((i+1)); done; echo done; exec sleep 1000", n)
	c := start(t, setup{out: w, sys: ownTree.sys()}, "/bin/sh", "sh", "-c", script)
	c.expect(t, sbxinit.FrameStarted)
	return c, r
}

func TestReaperLeavesNoZombiesOfTenThousandOrphans(t *testing.T) {
	c, r := orphans(t, 10_000)
	done := make(chan error, 1)
	go func() {
		_, err := io.ReadFull(r, make([]byte, len("done\n")))
		done <- err
	}()
	most := 0
	for running := true; running; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			running = false
		case <-time.After(5 * time.Millisecond):
			most = max(most, len(children(t, c.Pid)))
		}
	}
	t.Log("most children of the reaper at a time:", most)
	if most > 1000 { // a busy machine may well keep the reaper waiting for a while
		t.Errorf("%d children of the reaper at a time", most)
	}
	until(t, "only the program is left", func() bool { return len(children(t, c.Pid)) == 1 })
}

func TestReaperClearsAPileOfZombies(t *testing.T) {
	const n = 1000 // several rounds of the reaper
	c, r := orphans(t, n)
	if err := c.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(r, make([]byte, len("done\n"))); err != nil {
		t.Fatal(err)
	}
	pile := len(children(t, c.Pid))
	t.Log("children while the reaper stood still:", pile)
	if pile < n/2 {
		t.Errorf("only %d zombies while the reaper stood still", pile)
	}
	if err := c.Signal(unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(t, "only the program is left", func() bool { return len(children(t, c.Pid)) == 1 })
}

func TestReaperReportsOnceThoughThePIDComesAgain(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to choose the next pid (ns_last_pid)")
	}
	// A daemon outlives the program, makes pid 2 anew and leaves it to the reaper. In
	// a session of its own, as the number of a living one is not given out.
	script := `setsid sh -c 'while kill -0 2 2>/dev/null; do :; done
		echo 1 >/proc/sys/kernel/ns_last_pid
		sh -c "while kill -0 $$ 2>/dev/null; do :; done; echo \$\$; exit 9" &
		exit 0' & exit 3`
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := start(t, setup{out: w, sys: ownTree.sys(), env: []string{"PATH=/bin:/usr/bin"}}, "/bin/sh", "sh", "-c", script)
	w.Close()
	c.expect(t, sbxinit.FrameStarted)
	if x := c.expect(t, sbxinit.FrameExited); x.value != 3<<8 {
		t.Errorf("status %#x, want exit 3", x.value)
	}
	if b, err := io.ReadAll(r); string(b) != "2\n" {
		t.Fatalf("the second pid 2 did not come about: %q, %v", b, err)
	}
	until(t, "everything is reaped", func() bool { return len(children(t, c.Pid)) == 0 })
	if err := c.shutdown(); err != nil {
		t.Fatal(err)
	}
	c.expect(t, 0)
	c.ended(t, 0)
}

func TestReaperSparesAStrangerWithTheProgramsPID(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to choose the next pid (ns_last_pid)")
	}
	cmd := exec.Command(self())
	cmd.Args = []string{helperName, "reuse"}
	cmd.SysProcAttr = newPIDNamespace()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

func TestReaperSleepsWhenAllIsOver(t *testing.T) {
	c := start(t, setup{}, "/bin/true", "true")
	c.expect(t, sbxinit.FrameStarted)
	c.expect(t, sbxinit.FrameExited)
	proc := func(file string) string {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.Pid, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	until(t, "the reaper sleeps", func() bool { return strings.Contains(proc("stat"), ") S ") })
	before := proc("schedstat") // time on a CPU in ns, waiting for one, turns
	if err := c.channel.SetReadDeadline(time.Now().Add(300 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.channel.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, error %v, want silence", n, err)
	}
	if after := proc("schedstat"); after != before {
		t.Errorf("it ran: %q, then %q", before, after)
	}
	if name := proc("comm"); name != "sbxrun-reaper\n" {
		t.Errorf("its name is %q", name)
	}
	_, rss, _ := strings.Cut(proc("status"), "VmRSS:")
	rss, _, _ = strings.Cut(rss, "\n")
	t.Log("resident:", strings.TrimSpace(rss))
}

func TestReaperEndsWhenTheSupervisorLetsGo(t *testing.T) {
	ways := map[string]func(c *child) error{
		"close":    func(c *child) error { return c.channel.Close() },
		"shutdown": (*child).shutdown,
	}
	for _, where := range anywhere {
		for name, letGo := range ways {
			t.Run(where.name+"/"+name, func(t *testing.T) {
				c := start(t, setup{sys: where.sys()}, "/bin/sleep", "sleep", "1000")
				c.expect(t, sbxinit.FrameStarted)
				program := hold(t, children(t, c.Pid)[0])
				if err := letGo(c); err != nil {
					t.Fatal(err)
				}
				c.ended(t, 0)
				if !program.dead(patience) {
					t.Error("the program lives")
				}
			})
		}
	}
}

func TestReaperExitsWithTheStatusThatItIsTold(t *testing.T) {
	for _, where := range anywhere {
		for _, status := range []int{0, 3, 255} {
			t.Run(fmt.Sprintf("%s/%d", where.name, status), func(t *testing.T) {
				c := start(t, setup{sys: where.sys()}, "/bin/true", "true")
				c.expect(t, sbxinit.FrameStarted)
				c.expect(t, sbxinit.FrameExited)
				if _, err := c.channel.Write([]byte{byte(status)}); err != nil {
					t.Fatal(err)
				}
				c.ended(t, status)
			})
		}
	}
}

func TestReaperKillsWhatTheProgramLeftBehind(t *testing.T) {
	for _, left := range []struct {
		where  place
		script string
	}{
		{host, "sleep 1000 & exit 0"}, // in the program's group
		{ownTree, "sleep 1000 & exit 0"},
		{ownTree, "setsid sleep 1000 & until kill -0 -$! 2>/dev/null; do :; done; exit 0"},
	} {
		t.Run(left.where.name+"/"+left.script, func(t *testing.T) {
			env := []string{"PATH=/bin:/usr/bin"}
			c := start(t, setup{sys: left.where.sys(), env: env}, "/bin/sh", "sh", "-c", left.script)
			c.expect(t, sbxinit.FrameStarted)
			c.expect(t, sbxinit.FrameExited)
			var orphan []int
			until(t, "the leftover belongs to the reaper", func() bool {
				orphan = children(t, c.Pid)
				return len(orphan) == 1
			})
			leftover := hold(t, orphan[0])
			if leftover.dead(0) {
				t.Fatal("the leftover died by itself")
			}
			c.channel.Close()
			c.ended(t, 0)
			if !leftover.dead(patience) {
				t.Error("the leftover lives")
			}
		})
	}
}

func TestReaperUsesTheKillFile(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := start(t, setup{kill: w}, "/bin/sleep", "sleep", "1000")
	w.Close()
	c.expect(t, sbxinit.FrameStarted)
	c.channel.Close()
	if b, err := io.ReadAll(r); string(b) != "1" {
		t.Errorf("read %q from the kill file, error %v, want 1", b, err)
	}
	c.ended(t, 0)
}

func TestNothingOutlivesAKilledSupervisor(t *testing.T) {
	for _, where := range anywhere {
		t.Run(where.name, func(t *testing.T) {
			cmd := exec.Command(self())
			cmd.Args = []string{helperName, "supervise", where.name, "sleep 1000 & exec sleep 1000"}
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var reaper int
			if _, err := fmt.Fscan(stdout, &reaper); err != nil {
				t.Fatal(err)
			}
			program := children(t, reaper)[0]
			until(t, "the program has a child", func() bool { return len(children(t, program)) == 1 })
			all := []grip{hold(t, reaper), hold(t, program), hold(t, children(t, program)[0])}
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			for i, g := range all {
				if !g.dead(patience) {
					t.Errorf("number %d of reaper, program and child lives", i)
				}
			}
			cmd.Wait()
		})
	}
}

// A reaper that is killed reports nothing, and the program does not go on alone.
func TestProgramDiesWithItsReaper(t *testing.T) {
	for _, where := range anywhere {
		t.Run(where.name, func(t *testing.T) {
			c := start(t, setup{sys: where.sys()}, "/bin/sleep", "sleep", "1000")
			c.expect(t, sbxinit.FrameStarted)
			program := hold(t, children(t, c.Pid)[0])
			if err := c.Kill(); err != nil {
				t.Fatal(err)
			}
			c.expect(t, 0)
			if !program.dead(patience) {
				t.Error("the program lives")
			}
		})
	}
}

// Signals that end other processes do not end the reaper: from a program among the
// host's processes they would get through, to PID 1 they do not.
func TestProgramCannotEndTheReaperBySignal(t *testing.T) {
	for _, where := range anywhere {
		t.Run(where.name, func(t *testing.T) {
			script := "for s in HUP INT QUIT USR1 TERM CHLD XCPU TSTP; do kill -$s $PPID; done; exit 5"
			c := start(t, setup{sys: where.sys()}, "/bin/sh", "sh", "-c", script)
			c.expect(t, sbxinit.FrameStarted)
			if x := c.expect(t, sbxinit.FrameExited); x.value != 5<<8 {
				t.Errorf("status %#x, want exit 5", x.value)
			}
			c.channel.Close()
			c.ended(t, 0)
		})
	}
}

func TestProgramCannotTakeTheReaperOver(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to become other users")
	}
	const unused = 1 << 31
	ids := []syscall.SysProcIDMap{{HostID: unused, Size: 1}}
	insideRoot := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids,
			GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{},
		}
	}
	nobody := func() *syscall.SysProcAttr {
		return &syscall.SysProcAttr{
			Cloneflags: unix.CLONE_NEWPID,
			Credential: &syscall.Credential{Uid: 65534, Gid: 65534},
		}
	}
	program := reachable(t)
	for _, c := range []struct {
		name   string
		sys    *syscall.SysProcAttr
		mode   os.FileMode
		worked string
	}{
		{"a user without capabilities cannot", nobody(), 0o755, ""},
		{"all capabilities inside do not help with an unreadable image", insideRoot(), 0o711, ""},
		{"they do with a readable image", insideRoot(), 0o755, "ptrace process_vm_readv pidfd_getfd mem fd environ"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := output(t, setup{sys: c.sys, mode: c.mode}, program, helperName, "pry")
			if got != c.worked {
				t.Errorf("worked: %q, want %q", got, c.worked)
			}
		})
	}
}

// The two differ by what the reaper costs, its memfd and socket included.

func BenchmarkTrueAlone(b *testing.B) {
	for b.Loop() {
		p, err := os.StartProcess("/bin/true", []string{"true"}, &os.ProcAttr{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTrueUnderTheReaper(b *testing.B) {
	for b.Loop() {
		c, err := launch(setup{}, "/bin/true", "true")
		if err != nil {
			b.Fatal(err)
		}
		for range 2 {
			if _, err := c.read(); err != nil {
				b.Fatal(err)
			}
		}
		c.channel.Close()
		if _, err := c.Wait(); err != nil {
			b.Fatal(err)
		}
	}
}
