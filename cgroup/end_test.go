// This file owns the tests of how a group is stopped and ends.

package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestKillEndsEveryKindOfProcess(t *testing.T) {
	stop := func(t *testing.T, _ *Group, p *program) {
		if err := p.cmd.Process.Signal(unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	freeze := func(t *testing.T, g *Group, _ *program) {
		if err := g.Freeze(); err != nil {
			t.Fatal(err)
		}
	}
	leaderless := func(t *testing.T, _ *Group, p *program) {
		until(t, "the end of its first thread", func() bool { return isZombie(p.cmd.Process.Pid) })
	}
	left := func(t *testing.T, g *Group, p *program) { // for the root of its hierarchy
		if d := g.unified(); d != nil {
			if err := writeFile(g.state.Mount+"/cgroup.procs", strconv.Itoa(p.cmd.Process.Pid)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		kind, helper string
		make         func(*testing.T, *Group, *program)
	}{
		{"waiting", "wait", nil}, {"spinning", "spin", nil}, {"stopped", "wait", stop}, {"frozen", "wait", freeze},
		{"forking", "forker", nil}, {"without its first thread", "leaderless", leaderless}, {"gone from the unified group", "wait", left},
	} {
		t.Run(c.kind, func(t *testing.T) {
			g := group(t, memory(256))
			if c.kind == "gone from the unified group" && len(g.state.V1) == 0 {
				t.Skip("on pure v2 what leaves the group is out of it")
			}
			p := run(t, g, c.helper)
			if c.make != nil {
				c.make(t, g, p)
			}
			if err := g.Kill(); err != nil {
				t.Fatal(err)
			}
			if left, err := g.Procs(); len(left) > 0 || err != nil {
				t.Errorf("left after the kill: %v, %v", left, err)
			}
			if s := p.signal(); s != unix.SIGKILL {
				t.Errorf("ended by %v, want SIGKILL", s)
			}
		})
	}
}

func TestKillWithoutCgroupKillEndsAForkingGroup(t *testing.T) {
	g := group(t, memory(256))
	p := run(t, g, "forker")
	until(t, "children", func() bool { list, _ := g.Procs(); return len(list) > 20 })
	err := wait(killTime, func() (bool, error) {
		for _, d := range g.dirs {
			d.signal()
		}
		return g.empty()
	})
	if err != nil {
		t.Fatal(err)
	}
	p.signal()
}

func TestKillFileEndsTheGroup(t *testing.T) {
	g := group(t, nil)
	f, err := g.KillFile()
	if err != nil {
		t.Fatal(err)
	}
	if f == nil {
		t.Skip("no cgroup.kill here (v1 only, or a kernel before 5.14)")
	}
	defer f.Close()
	p := run(t, g, "wait")
	if _, err := f.WriteString("1"); err != nil {
		t.Fatal(err)
	}
	if s := p.signal(); s != unix.SIGKILL {
		t.Errorf("ended by %v, want SIGKILL", s)
	}
}

func TestFreezeHoldsTheProgramUntilThaw(t *testing.T) {
	g := group(t, nil)
	run(t, g, "spin").goOn()
	usage := func() time.Duration {
		d, err := g.CPUUsage()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	until(t, "CPU time", func() bool { return usage() > 20*time.Millisecond })
	if err := g.Freeze(); err != nil {
		t.Fatal(err)
	}
	if on, err := g.Frozen(); !on || err != nil {
		t.Errorf("Frozen = %v, %v", on, err)
	}
	was := usage()
	for end := time.Now().Add(50 * time.Millisecond); time.Now().Before(end); {
	}
	if now := usage(); now-was > 5*time.Millisecond {
		t.Errorf("a frozen program used %v", now-was)
	}
	if err := g.Thaw(); err != nil {
		t.Fatal(err)
	}
	until(t, "more CPU time", func() bool { return usage() > was+20*time.Millisecond })
}

func TestDeleteWaitsForTheLastProcess(t *testing.T) {
	needRoot(t)
	g, err := Create("", name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	p := run(t, g, "wait")
	deleted := make(chan error)
	go func() { deleted <- g.Delete() }()
	select {
	case err := <-deleted:
		t.Fatalf("deleted with a living process: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	p.cmd.Process.Kill()
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
}

func TestDeleteTakesTheGroupsBelow(t *testing.T) {
	needRoot(t)
	g, err := Create("", name(), memory(64))
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range g.dirs {
		if err := os.MkdirAll(d.path+"/a/b/c", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path := g.dirs[0].path
	if err := g.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", path, err)
	}
}

func TestGroupsThatLieVeryDeepAreEndedWithFewDescriptors(t *testing.T) {
	needRoot(t)
	g, err := Create("", name(), memory(64))
	if err != nil {
		t.Fatal(err)
	}
	const deep = 300
	d := g.dirs[0]
	at, _, err := enter(d.file, ".")
	if err != nil {
		t.Fatal(err)
	}
	for range deep {
		if err := unix.Mkdirat(int(at.Fd()), "below", 0o755); err != nil {
			t.Fatal(err)
		}
		next, _, err := enter(at, "below")
		if err != nil {
			t.Fatal(err)
		}
		at.Close()
		at = next
	}
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- cmd.Wait() }()
	fd, err := unix.Openat(int(at.Fd()), "cgroup.procs", unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(fd, []byte(strconv.Itoa(cmd.Process.Pid))); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	at.Close()

	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 100, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	err = errors.Join(g.Kill(), g.Delete())
	if back := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil || back != nil {
		t.Fatal(err, back)
	}
	if err := <-ended; err == nil {
		t.Error("the process at the bottom ended by itself")
	}
	if _, err := os.Stat(d.path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s: %v", d.path, err)
	}
}

func TestKillSparesACallerOfEnter(t *testing.T) {
	g := group(t, nil)
	err := g.Enter(func() error { // this process is among those listed now, on v1
		for _, d := range g.dirs {
			d.signal()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
