package cgroup

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

func TestMemoryBeyondTheLimitIsKilledAndCounted(t *testing.T) {
	g := group(t, memory(32))
	p := run(t, g, "eat", "200")
	p.goOn()
	if s := p.signal(); s != unix.SIGKILL {
		t.Errorf("the eater ended by %v, want SIGKILL", s)
	}
	e, err := g.Evidence()
	if err != nil {
		t.Fatal(err)
	}
	if e.OOMKills < 1 || e.OOMEvents < 1 {
		t.Errorf("kill is not in the evidence: %+v", e)
	}
	if e.MemoryLimit != 32<<20 || e.MemoryPeak > 33<<20 || (e.MemoryPeak < 16<<20 && g.has("memory.peak", "memory.max_usage_in_bytes")) {
		t.Errorf("limit and peak are not near 32 MiB: %+v", e)
	}
	if n, err := g.OOMKills(); n != e.OOMKills || err != nil {
		t.Errorf("OOMKills = %d, %v, the evidence says %d", n, err, e.OOMKills)
	}
}

// has says whether the kernel has one of the files.
func (g *Group) has(files ...string) bool {
	return slices.ContainsFunc(files, func(f string) bool {
		_, err := os.Stat(filepath.Join(g.of("memory").path, f))
		return err == nil
	})
}

func TestMemoryKillTakesTheWholeGroupOnV2(t *testing.T) {
	g := group(t, memory(48))
	if !pureV2(t) {
		t.Skip("memory.oom.group is of cgroup v2, this host has the memory controller on v1")
	}
	p := run(t, g, "parent", "200")
	p.goOn()
	if s := p.signal(); s != unix.SIGKILL {
		t.Errorf("the parent of the eater ended by %v, want SIGKILL", s)
	}
	until(t, "the end of the eater and its parent", func() bool { done, err := g.empty(); return done && err == nil })
}

func TestForkBeyondTheProcessLimitIsRefusedAndCounted(t *testing.T) {
	g := group(t, pids(20))
	p := run(t, g, "fork")
	if err := g.Arm(); err != nil {
		t.Fatal(err)
	}
	if n, err := g.PidsHit(); n != 0 || err != nil {
		t.Fatalf("PidsHit before = %d, %v", n, err)
	}
	p.goOn()
	if got := p.line(); !strings.HasSuffix(got, " true") {
		t.Errorf("the forks ended with %q, want EAGAIN", got)
	}
	e, err := g.Evidence()
	if err != nil {
		t.Fatal(err)
	}
	if e.PidsMax < 1 || e.PidsCurrent > 20 || e.PidsCurrent < 10 {
		t.Errorf("refusal is not in the evidence: %+v", e)
	}
	if n, err := g.PidsHit(); n < 1 || err != nil {
		t.Errorf("PidsHit = %d, %v", n, err)
	}
}

func TestLimitOfProcessesHoldsOnlyOnceArmed(t *testing.T) {
	g := group(t, pids(1))
	run(t, g, "wait") // a Go program does not start under a limit of 1
	if err := g.Arm(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(g.of("pids").path, "pids.max"))
	if got := strings.TrimSpace(string(b)); got != "1" || err != nil {
		t.Errorf("pids.max = %q, %v", got, err)
	}
}

func TestProcessIsBornInEveryGroup(t *testing.T) {
	g := group(t, memory(64))
	before := where(t, "self")
	p := run(t, g, "wait")
	at := where(t, strconv.Itoa(p.cmd.Process.Pid))
	if at.unified != g.state.Unified {
		t.Errorf("unified: born in %q, want %q", at.unified, g.state.Unified)
	}
	for name, want := range g.state.V1 {
		if at.v1[name] != want {
			t.Errorf("%s: born in %q, want %q", name, at.v1[name], want)
		}
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, th := range threads { // nothing of this process is left in there
		now := where(t, filepath.Join("self/task", th.Name()))
		for name, want := range before.v1 {
			if now.v1[name] != want {
				t.Errorf("%s: thread %s of the caller is in %q, was in %q", name, th.Name(), now.v1[name], want)
			}
		}
	}
}

func TestAddMovesAWaitingProcess(t *testing.T) {
	g := group(t, memory(64))
	other := group(t, nil)
	p := run(t, other, "wait")
	if err := g.Add(p.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	at := where(t, strconv.Itoa(p.cmd.Process.Pid))
	for name, want := range g.state.V1 {
		if at.v1[name] != want {
			t.Errorf("%s: moved to %q, want %q", name, at.v1[name], want)
		}
	}
}

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
		{"forking", "forker", nil}, {"without its first thread", "leaderless", nil}, {"gone from the unified group", "wait", left},
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

func TestGroupIsFoundAgainFromItsState(t *testing.T) {
	g := group(t, pids(1))
	p := run(t, g, "wait")
	text, err := json.Marshal(g.State())
	if err != nil {
		t.Fatal(err)
	}
	var s State
	if err := json.Unmarshal(text, &s); err != nil {
		t.Fatal(err)
	}
	again, err := Load(s)
	if err != nil {
		t.Fatal(err)
	}
	if list, err := again.Procs(); !slices.Equal(list, []int{p.cmd.Process.Pid}) || err != nil {
		t.Errorf("Procs = %v, %v", list, err)
	}
	if err := errors.Join(again.Arm(), again.Kill()); err != nil {
		t.Fatal(err)
	}
	p.signal()
	if err := again.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Load of a group that is gone: %v", err)
	}
}

func TestAHundredGroupsComeAndGoAtOnce(t *testing.T) {
	needRoot(t)
	for range 3 { // between the rounds the parent is gone
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				g, err := Create("", name(), memory(16))
				if err != nil {
					t.Error(err)
					return
				}
				if err := g.Delete(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	g, err := Create("", name(), nil)
	if err != nil {
		t.Fatal(err)
	}
	parent := filepath.Dir(g.dirs[0].path)
	others, _ := filepath.Glob(parent + "/*/cgroup.procs")
	if err := g.Delete(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(parent); len(others) <= 1 && !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the shared parent %s is left: %v", parent, err)
	}
}

// The last group of the shared parent takes the parent along; here that happens
// all the time.
func TestLeafIsMadeWhileItsParentVanishes(t *testing.T) {
	g := group(t, nil)
	parent := filepath.Join(g.dirs[0].path, "parent")
	stop := make(chan bool)
	var remover sync.WaitGroup
	remover.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				unix.Rmdir(parent)
			}
		}
	})
	for range 3000 {
		leaf := filepath.Join(parent, "leaf")
		if _, err := makeLeaf(leaf, false); err != nil {
			t.Error(err)
			break
		}
		if err := unix.Rmdir(leaf); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	remover.Wait()
}

func TestUpdateMovesTheLimitBothWays(t *testing.T) {
	g := group(t, memory(64))
	for _, mib := range []int64{256, 32, -1, 128} {
		res := memory(mib)
		want := mib << 20
		if mib < 0 {
			*res.Memory.Limit, want = -1, 0
			*res.Memory.Swap = -1
		}
		if err := g.Update(res); err != nil {
			t.Fatalf("to %d MiB: %v", mib, err)
		}
		if e, err := g.Evidence(); e.MemoryLimit != want || err != nil {
			t.Errorf("limit = %d, %v, want %d", e.MemoryLimit, err, want)
		}
	}
	low := int64(1)
	yes := true
	run(t, g, "wait")
	if err := g.Update(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &low, CheckBeforeUpdate: &yes}}); err == nil {
		t.Error("a limit below what is used was set, despite checkBeforeUpdate")
	}
}

func TestFailedCreateLeavesNothing(t *testing.T) {
	needRoot(t)
	big, id := "99999", name()
	for _, res := range []*specs.LinuxResources{
		{CPU: &specs.LinuxCPU{Cpus: big}},
		{Network: &specs.LinuxNetwork{ClassID: new(uint32)}, Pids: &specs.LinuxPids{}},
		{HugepageLimits: []specs.LinuxHugepageLimit{{Pagesize: "3MB"}}},
		{Unified: map[string]string{"../x": "1"}},
		{Unified: map[string]string{"nonsense.max": "1"}},
	} {
		if g, err := Create("", id, res); err == nil {
			t.Errorf("made with %+v", res)
			g.Delete()
		}
	}
	out, _ := filepath.Glob("/sys/fs/cgroup/*/sbxrun/" + id)
	more, _ := filepath.Glob("/sys/fs/cgroup/sbxrun/" + id)
	if len(out)+len(more) > 0 {
		t.Errorf("left: %v %v", out, more)
	}
}

func TestIdsAndPathsThatLeaveTheirPlaceAreRefused(t *testing.T) {
	for _, id := range []string{"", ".", "..", "a/b", "../a", "a\x00b", "a\nb", strings.Repeat("x", 300)} {
		if _, err := Create("", id, nil); err == nil {
			t.Errorf("id %q is taken", id)
		}
	}
	for _, path := range []string{"/", "//", "/a/../b", "..", "system.slice:sbx:1", "/a\x00"} {
		if _, err := Create(path, "x", nil); err == nil {
			t.Errorf("cgroupsPath %q is taken", path)
		}
	}
}

func TestGroupOfAnotherIsNotTakenOver(t *testing.T) {
	needRoot(t)
	base := "/" + name()
	t.Cleanup(func() { // parents of a cgroupsPath stay, for others may have made them
		dirs, _ := filepath.Glob("/sys/fs/cgroup/*" + base)
		for _, d := range append(dirs, "/sys/fs/cgroup"+base) {
			unix.Rmdir(d)
		}
	})
	g := ended(t, base+"/c", nil)
	run(t, g, "wait")
	if _, err := Create(base+"/c", "x", nil); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a group with a process was adopted: %v", err)
	}
	h, _ := machine()
	for name := range h.v1 {
		if g.state.V1[name] == "" {
			t.Errorf("with a cgroupsPath the group takes no part in %s", name)
		}
	}
}

func TestReadingACounterDoesNotAllocate(t *testing.T) {
	g := group(t, memory(64))
	n := testing.AllocsPerRun(100, func() {
		if _, err := g.PidsHit(); err != nil {
			t.Fatal(err)
		}
		if _, err := g.CPUUsage(); err != nil {
			t.Fatal(err)
		}
		if _, err := g.OOMKills(); err != nil {
			t.Fatal(err)
		}
	})
	if n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDeviceRulesDenyAllButTheDefaults(t *testing.T) {
	needRoot(t)
	g, err := Create("", name(), &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}}})
	if err != nil {
		if pureV2(t) && errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EINVAL) {
			t.Skipf("this kernel has no device filters: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Delete()); err != nil {
			t.Error(err)
		}
	})
	kmsg := filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mknod(kmsg, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 11))); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/dev/zero": "<nil>", kmsg: "open " + kmsg + ": operation not permitted"} {
		p := run(t, g, "device", path)
		p.goOn()
		if got := p.line(); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

func TestProbeFindsWhatCreateFinds(t *testing.T) {
	needRoot(t)
	if err := Probe(); err != nil {
		t.Error(err)
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
