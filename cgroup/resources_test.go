// This file owns the tests of what resources mean and how counters are read.

package cgroup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func ptr[T any](v T) *T { return &v }

func never(string) bool { return false }

// TestResourcesMeanTheirV2Files lists what the library would get wrong.
func TestResourcesMeanTheirV2Files(t *testing.T) {
	mem := func(limit, swap *int64) specs.LinuxResources {
		return specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: limit, Swap: swap}}
	}
	for _, c := range []struct {
		name string
		res  specs.LinuxResources
		want string // of the settings beside the library's
	}{
		{"swap is a sum", mem(ptr(int64(100)), ptr(int64(150))), "memory.swap.max=50"},
		{"no swap", mem(ptr(int64(100)), ptr(int64(100))), "memory.swap.max=0"},
		{"unlimited swap", mem(ptr(int64(100)), ptr(int64(-1))), "memory.swap.max=max"},
		{"unlimited memory", mem(ptr(int64(-1)), ptr(int64(-1))), "memory.max=max memory.swap.max=max"},
		{"swap below memory", mem(ptr(int64(100)), ptr(int64(50))), "error at least memory.limit"},
		{"swap without memory", mem(nil, ptr(int64(50))), "error at least memory.limit"},
		{"quota without a period", specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr(int64(5000))}}, "cpu.max=5000"},
		{"no quota", specs.LinuxResources{CPU: &specs.LinuxCPU{Quota: ptr(int64(-1)), Period: ptr(uint64(100000))}}, "cpu.max=max 100000"},
		{"shares 0 are unset", specs.LinuxResources{CPU: &specs.LinuxCPU{Shares: ptr(uint64(0))}}, ""},
		{"idle and burst", specs.LinuxResources{CPU: &specs.LinuxCPU{Idle: ptr(int64(1)), Burst: ptr(uint64(7))}}, "cpu.max.burst=7 cpu.idle=1"},
		{"cpuset", specs.LinuxResources{CPU: &specs.LinuxCPU{Cpus: "0", Mems: "0"}}, "cpuset.cpus=0 cpuset.mems=0"},
		{"largest weight", specs.LinuxResources{BlockIO: &specs.LinuxBlockIO{Weight: ptr(uint16(1000))}}, "io.weight=10000"},
		{"one rdma limit of two", specs.LinuxResources{Rdma: map[string]specs.LinuxRdma{"m": {HcaObjects: ptr(uint32(3))}}}, "rdma.max=m hca_object=3"},
		{"files by name", specs.LinuxResources{Unified: map[string]string{"memory.high": "5", "cpu.weight": "3"}}, "cpu.weight=3 memory.high=5"},
		{"a name with a slash", specs.LinuxResources{Unified: map[string]string{"a.b/../../x": "5"}}, "error unified"},
		{"moving processes by name", specs.LinuxResources{Unified: map[string]string{"cgroup.procs": "1"}}, "error unified"},
		{"realtime", specs.LinuxResources{CPU: &specs.LinuxCPU{RealtimePeriod: ptr(uint64(1))}}, "error cpu.realtime"},
		{"no OOM killer", specs.LinuxResources{Memory: &specs.LinuxMemory{DisableOOMKiller: ptr(true)}}, "error memory.disableOOMKiller"},
		{"swappiness", specs.LinuxResources{Memory: &specs.LinuxMemory{Swappiness: ptr(uint64(1))}}, "error memory.swappiness"},
		{"leaf weight", specs.LinuxResources{BlockIO: &specs.LinuxBlockIO{LeafWeight: ptr(uint16(10))}}, "error blockIO.leafWeight"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, own, err := forV2(c.res, never, true)
			var got []string
			for _, s := range own {
				got = append(got, s.file+"="+s.value)
			}
			text := strings.Join(got, " ")
			if err != nil {
				text = "error " + err.Error()
			}
			if wanted, isError := strings.CutPrefix(c.want, "error "); isError {
				if err == nil || !strings.Contains(err.Error(), wanted) {
					t.Errorf("got %q, want an error with %q", text, wanted)
				}
			} else if text != c.want {
				t.Errorf("got %q, want %q", text, c.want)
			}
		})
	}
}

func TestEveryLimitDemandsItsController(t *testing.T) {
	res := &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: ptr(int64(1))}, Pids: &specs.LinuxPids{Limit: ptr(int64(1))},
		CPU:            &specs.LinuxCPU{Shares: ptr(uint64(2)), Mems: "0"},
		BlockIO:        &specs.LinuxBlockIO{Weight: ptr(uint16(10))},
		HugepageLimits: []specs.LinuxHugepageLimit{{}}, Rdma: map[string]specs.LinuxRdma{"x": {}},
		Network: &specs.LinuxNetwork{ClassID: ptr(uint32(1)), Priorities: []specs.LinuxInterfacePriority{{}}},
		Devices: []specs.LinuxDeviceCgroup{{}}, Unified: map[string]string{"misc.max": "1", "cgroup.max.depth": "1"},
	}
	want := []string{"memory", "pids", "cpu", "cpuset", "io", "hugetlb", "rdma", "net_cls", "net_prio", "devices", "misc"}
	if got := demands(res); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := demands(meant(&specs.LinuxResources{Memory: &specs.LinuxMemory{DisableOOMKiller: ptr(false)}, CPU: &specs.LinuxCPU{Shares: ptr(uint64(0))}, BlockIO: &specs.LinuxBlockIO{Weight: ptr(uint16(0))}})); len(got) > 0 {
		t.Errorf("fields that ask for nothing demand %v", got)
	}
	h := &host{v1: map[string]hierarchy{"memory": {}, "pids": {}}}
	for _, c := range want[2:] {
		var m *Missing
		if _, _, err := h.split([]string{c}, false); !errors.As(err, &m) || m.Controller != c || m.Remedy == "" {
			t.Errorf("%s is not missed: %v", c, err)
		}
	}
}

func TestCountersAreReadFromTheirLines(t *testing.T) {
	for _, c := range []struct {
		text, key string
		want      int64
		ok        bool
	}{
		{"low 0\noom 3\noom_kill 2\n", "oom_kill", 2, true}, {"low 0\noom 3\noom_kill 2\n", "oom", 3, true},
		{"42\n", "", 42, true}, {"max\n", "", 0, true}, {"max 7\n", "max", 7, true},
		{"18446744073709551615\n", "", 1<<63 - 1, true},
		{"", "", 0, false}, {"x 1\n", "y", 0, false}, {"-1\n", "", 0, false}, {"oom_kill x\n", "oom_kill", 0, false},
	} {
		if got, ok := value([]byte(c.text), c.key); got != c.want || ok != c.ok {
			t.Errorf("%q of %q = %d, %v, want %d, %v", c.key, c.text, got, ok, c.want, c.ok)
		}
	}
}

func FuzzCounter(f *testing.F) {
	f.Add([]byte("low 0\noom_kill 2\n"), "oom_kill")
	f.Fuzz(func(t *testing.T, text []byte, key string) {
		if n, ok := value(text, key); n < 0 || (!ok && n != 0) {
			t.Errorf("%d, %v", n, ok)
		}
	})
}

func TestMissingNamesControllerPlaceAndCauseOnOneLine(t *testing.T) {
	err := missing("memory", "/sys/fs/cgroup", errors.New("cause"))
	if got := fmt.Sprint(err); got != "no memory controller at /sys/fs/cgroup: cause" {
		t.Error(got)
	}
}
