// This file owns the tests of limits, evidence, birth and finding a group again.

package cgroup

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

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
	if e.MemoryLimit != 32<<20 || e.MemoryPeak > 33<<20 || (e.MemoryPeak < 16<<20 && g.hasFile("memory.peak", "memory.max_usage_in_bytes")) {
		t.Errorf("limit and peak are not near 32 MiB: %+v", e)
	}
	if n, err := g.OOMKills(); n != e.OOMKills || err != nil {
		t.Errorf("OOMKills = %d, %v, the evidence says %d", n, err, e.OOMKills)
	}
}

// hasFile says whether the kernel has one of the files.
func (g *Group) hasFile(files ...string) bool {
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
	var m *Missing
	if err := g.Update(&specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: ptr(uint64(512))}}); !errors.As(err, &m) || m.Controller != "cpu" {
		t.Errorf("a limit of a controller that the group has not got: %v", err)
	}
	low := int64(1)
	yes := true
	run(t, g, "wait")
	if err := g.Update(&specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &low, CheckBeforeUpdate: &yes}}); err == nil {
		t.Error("a limit below what is used was set, despite checkBeforeUpdate")
	}
}

func TestAWholeGroupTakesEveryLimitLater(t *testing.T) {
	needRoot(t)
	h, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	g, err := CreateWhole("", name(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Delete()); err != nil {
			t.Error(err)
		}
	})
	run(t, g, "wait")
	for controller, res := range map[string]*specs.LinuxResources{
		"cpu":    {CPU: &specs.LinuxCPU{Shares: ptr(uint64(512)), Quota: ptr(int64(50000)), Period: ptr(uint64(100000))}},
		"cpuset": {CPU: &specs.LinuxCPU{Cpus: "0"}},
		"memory": memory(64),
		"pids":   pids(10),
	} {
		if !h.onV1(controller) && !h.offers(controller) {
			t.Logf("no %s on this machine", controller)
			continue
		}
		if err := g.Update(res); err != nil {
			t.Errorf("%s: %v", controller, err)
		}
	}
	for _, name := range []string{"cpu", "cpuset", "blkio"} {
		if _, in := g.Dir(name); h.onV1(name) && !in {
			t.Errorf("not in the hierarchy of %s", name)
		}
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
			_ = g.Delete()
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

// BenchmarkGroup is what a run pays for its group, the start of a program in it
// included.
func BenchmarkGroup(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("must be root to make groups")
	}
	res := memory(64)
	res.Pids = pids(64).Pids
	for b.Loop() {
		g, err := Create("", name(), res)
		if err != nil {
			b.Fatal(err)
		}
		cmd := exec.Command("true")
		if g.FD() >= 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: g.FD()}
		}
		if err := errors.Join(g.Enter(cmd.Start), g.Arm(), cmd.Wait(), g.Kill(), g.Delete()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkStart is the same start without a group.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
