// This file owns the tests of what sbxrun asks of systemd: names, slices, properties.
// That systemd does it is tested in cmd/sbxrun, on a machine that it has booted.

package cgroup

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestASliceIsInTheSlicesThatItsNameSays(t *testing.T) {
	for name, want := range map[string]string{
		"system.slice":                         "/system.slice",
		"a-b-c.slice":                          "/a.slice/a-b.slice/a-b-c.slice",
		"system-a-b.slice":                     "/system.slice/system-a.slice/system-a-b.slice",
		"kubepods-besteffort-pod0123_45.slice": "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod0123_45.slice",
		`machine-a\x2db.slice`:                 `/machine.slice/machine-a\x2db.slice`,
		"-.slice":                              "/",
		"":                                     "error",
		".slice":                               "error",
		"system":                               "error",
		"a--b.slice":                           "error",
		"-a.slice":                             "error",
		"a-.slice":                             "error",
		"--.slice":                             "error",
		"a/b.slice":                            "error",
		"../a.slice":                           "error",
		"a b.slice":                            "error",
		"a\x00.slice":                          "error",
		"a.scope":                              "error",
		strings.Repeat("a", 300) + ".slice":    "error",
	} {
		got, err := expandSlice(name)
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%q: %q %v, want %q", name, got, err, want)
		}
	}
}

func TestACgroupsPathNamesSliceAndScope(t *testing.T) {
	for _, c := range []struct {
		path, id string
		user     bool
		want     string
	}{
		{"", "box", false, "system.slice sbxrun-box.scope"},
		{"", "box", true, "user.slice sbxrun-box.scope"},
		{"", "a+b", false, `system.slice sbxrun-a\x2bb.scope`},
		{"machine.slice:libpod:0123", "box", false, "machine.slice libpod-0123.scope"},
		{":docker:0123", "box", false, "system.slice docker-0123.scope"},
		{":docker:0123", "box", true, "user.slice docker-0123.scope"},
		{"-.slice::x", "box", false, "-.slice -x.scope"},
		{"/a/path", "box", false, "error slice:prefix:name"},
		{"a:b", "box", false, "error slice:prefix:name"},
		{"a.slice:b:c:d", "box", false, "error slice:prefix:name"},
		{"nowhere:b:c", "box", false, "error no name of a slice"},
		{"a.slice:b:", "box", false, "error needs a name"},
		{"a.slice:b:c.slice", "box", false, "error a slice is none"},
		{"a.slice:b:c/d", "box", false, "error no name of a unit"},
		{"a.slice:b:" + strings.Repeat("c", 250), "box", false, "error no name of a unit"},
	} {
		s, err := nameScope(c.path, c.id, c.user)
		got := ""
		if err != nil {
			got = "error " + err.Error()
		} else {
			got = s.Slice + " " + s.Unit
		}
		want, isError := strings.CutPrefix(c.want, "error ")
		if isError != (err != nil) || isError && !strings.Contains(got, want) || !isError && got != want {
			t.Errorf("%q of %s: %q, want %q", c.path, c.id, got, c.want)
		}
	}
}

func TestBusesAreTheMachinesOrTheUsersOwn(t *testing.T) {
	env := func(vars map[string]string) func(string) string { return func(n string) string { return vars[n] } }
	none := fmt.Sprintf("unix:path=/run/user/%d", os.Getuid())
	for _, c := range []struct {
		user bool
		env  map[string]string
		want string
	}{
		{false, map[string]string{"DBUS_SESSION_BUS_ADDRESS": "unix:path=/x"}, "unix:path=/run/systemd/private unix:path=/run/dbus/system_bus_socket"},
		{true, map[string]string{"XDG_RUNTIME_DIR": "/r"}, "unix:path=/r/bus unix:path=/r/systemd/private"},
		{true, map[string]string{"XDG_RUNTIME_DIR": "/r", "DBUS_SESSION_BUS_ADDRESS": "unix:abstract=a"}, "unix:abstract=a unix:path=/r/bus unix:path=/r/systemd/private"},
		{true, map[string]string{"XDG_RUNTIME_DIR": "/r", "DBUS_SESSION_BUS_ADDRESS": "unixexec:path=/bin/sh"}, "unix:path=/r/bus unix:path=/r/systemd/private"},
		{true, map[string]string{"XDG_RUNTIME_DIR": "r"}, none + "/bus " + none + "/systemd/private"},
	} {
		if got := strings.Join(buses(c.user, env(c.env)), " "); got != c.want {
			t.Errorf("user %v with %v: %q, want %q", c.user, c.env, got, c.want)
		}
	}
}

// show writes properties as a line.
func show(list []dbus.Property) string {
	var out []string
	for _, p := range list {
		text := strings.ReplaceAll(fmt.Sprint(p.Value.Value()), fmt.Sprint(infinity), "infinity")
		if b, ok := p.Value.Value().([]byte); ok {
			text = hex.EncodeToString(b)
		}
		out = append(out, p.Name+"="+text)
	}
	return strings.Join(out, " ")
}

func TestLimitsAreProperties(t *testing.T) {
	type res = specs.LinuxResources
	mem := func(limit, reservation, swap int64) res {
		return res{Memory: &specs.LinuxMemory{Limit: &limit, Reservation: &reservation, Swap: &swap}}
	}
	for _, c := range []struct {
		name string
		res  res
		want string
	}{
		{"nothing", res{}, ""},
		{"memory", mem(100, 50, 150), "MemoryMax=100 MemoryLow=50 MemorySwapMax=50"},
		{"no swap", mem(100, 0, 100), "MemoryMax=100 MemorySwapMax=0"},
		{"no limit", mem(-1, -1, -1), "MemoryMax=infinity MemoryLow=infinity MemorySwapMax=infinity"},
		{"zeros are unset", mem(0, 0, 0), ""},
		{"the process limit comes later", res{Pids: &specs.LinuxPids{Limit: ptr(int64(5))}}, ""},
		{"shares", res{CPU: &specs.LinuxCPU{Shares: ptr(uint64(1024))}}, "CPUWeight=39"},
		{"least shares", res{CPU: &specs.LinuxCPU{Shares: ptr(uint64(2))}}, "CPUWeight=1"},
		{"most shares", res{CPU: &specs.LinuxCPU{Shares: ptr(uint64(262144))}}, "CPUWeight=10000"},
		{"half a processor", res{CPU: &specs.LinuxCPU{Quota: ptr(int64(50000)), Period: ptr(uint64(100000))}}, "CPUQuotaPeriodUSec=100000 CPUQuotaPerSecUSec=500000"},
		{"quota alone", res{CPU: &specs.LinuxCPU{Quota: ptr(int64(5000))}}, "CPUQuotaPerSecUSec=50000"},
		{"percents are rounded up", res{CPU: &specs.LinuxCPU{Quota: ptr(int64(3333)), Period: ptr(uint64(10000))}}, "CPUQuotaPeriodUSec=10000 CPUQuotaPerSecUSec=340000"},
		{"no quota", res{CPU: &specs.LinuxCPU{Quota: ptr(int64(-1))}}, "CPUQuotaPerSecUSec=infinity"},
		{"sets", res{CPU: &specs.LinuxCPU{Cpus: "0-2,9", Mems: "1"}}, "AllowedCPUs=0702 AllowedMemoryNodes=02"},
		{"no set", res{CPU: &specs.LinuxCPU{Cpus: "2-1"}}, "error no list"},
		{"nor this", res{CPU: &specs.LinuxCPU{Cpus: "0,all"}}, "error no list"},
		{"nor so many", res{CPU: &specs.LinuxCPU{Cpus: "0-99999999"}}, "error no list"},
		{"weight", res{BlockIO: &specs.LinuxBlockIO{Weight: ptr(uint16(1000))}}, "IOWeight=10000"},
		{"files by name", res{Unified: map[string]string{
			"memory.high": "5K", "memory.min": "max", "pids.max": "7", "cpu.max": "max 20000", "cpu.weight": "3", "cpuset.mems": "0", "io.weight": "default 50", "memory.oom.group": "1",
		}}, "CPUQuotaPeriodUSec=20000 CPUQuotaPerSecUSec=infinity CPUWeight=3 AllowedMemoryNodes=01 IOWeight=50 MemoryHigh=5120 MemoryMin=infinity TasksMax=7"},
		{"a file's nonsense", res{Unified: map[string]string{"memory.max": "much"}}, "error memory.max"},
		{"another's", res{Unified: map[string]string{"cpu.max": "1 0"}}, "error cpu.max"},
	} {
		list, err := limitProperties(meant(&c.res))
		got := show(list)
		if want, isError := strings.CutPrefix(c.want, "error "); isError {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q %v, want %s", c.name, got, err, c.want)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %q", c.name, got, err, c.want)
		}
	}
	if got := show(append(tasksProperty(16), tasksProperty(-1)...)); got != "TasksMax=16 TasksMax=infinity" {
		t.Errorf("the process limit: %s", got)
	}
}

func TestAnnotationsAreProperties(t *testing.T) {
	scope := &Scope{Unit: "a.scope", Slice: "system.slice"}
	limit := &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: ptr(int64(100))}}
	always := "Slice=system.slice Delegate=true MemoryMax=100 Description=sbxrun container a.scope DefaultDependencies=false MemoryAccounting=true CPUAccounting=true IOAccounting=true TasksAccounting=true"
	for _, c := range []struct{ name, value, want string }{
		{"other.property", "nonsense", always},
		{"CollectMode", "'inactive-or-failed'", always + " CollectMode=inactive-or-failed"},
		{"After", "['crio.service']", always + " After=[crio.service]"},
		{"DefaultDependencies", "true", strings.Replace(always, " DefaultDependencies=false", "", 1) + " DefaultDependencies=true"},
		{"TimeoutStopUSec", "uint64 2000000", always + " TimeoutStopUSec=2000000"},
		{"TimeoutStopSec", "1.5", always + " TimeoutStopUSec=1500000"},
		{"TimeoutStopSec", "uint64 3", always + " TimeoutStopUSec=3000000"},
		{"TimeoutStopSec", "'3'", "error no number of seconds"},
		{"TimeoutStopSec", "-3", "error no number of seconds"},
		{"MemoryMax", "uint64 5", "error sets this property itself"},
		{"Slice", "'user.slice'", "error sets this property itself"},
		{"Delegate", "false", "error sets this property itself"},
		{"PIDs", "[uint32 1]", "error sets this property itself"},
		{"CollectMode", "inactive", "error org.systemd.property.CollectMode"},
		{"X", "true", "error no name of a property"},
		{"Collect_Mode", "true", "error no name of a property"},
	} {
		key := annotationPrefix + c.name
		if strings.Contains(c.name, ".") {
			key = c.name
		}
		list, err := scope.properties(limit, map[string]string{key: c.value})
		got := show(list)
		if want, isError := strings.CutPrefix(c.want, "error "); isError {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s=%s: %q %v, want %s", c.name, c.value, got, err, c.want)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%s=%s: %q %v, want %q", c.name, c.value, got, err, c.want)
		}
	}
}

func TestWithoutSystemdAScopeIsMissing(t *testing.T) {
	if _, err := os.Stat(booted); err == nil {
		t.Skip("systemd has booted this machine")
	}
	before := groups(t)
	for what, err := range map[string]error{
		"CreateScope": func() error { _, err := CreateScope("", "x", nil, nil); return err }(),
		"EnterScope":  EnterScope("", "x", nil),
	} {
		var m *Missing
		if !errors.As(err, &m) || !errors.Is(err, fs.ErrNotExist) || m.Error() != "no systemd at /run/systemd/system: stat /run/systemd/system: no such file or directory" || m.Remedy == "" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := groups(t); !slices.Equal(before, after) {
		t.Errorf("groups %v, before %v", after, before)
	}
}

// groups are those in which this process is.
func groups(t *testing.T) []string {
	t.Helper()
	return words("/proc/self/cgroup")
}
