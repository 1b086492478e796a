// Tests with the systemd that has booted the machine: hack/vm/systemd boots one.

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// needSystemd skips where there is none; on such machines hack/test boots one.
func needSystemd(t testing.TB) {
	t.Helper()
	needRoot(t)
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		t.Skip("systemd has not booted this machine, hack/test does this in user-mode-linux")
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		t.Skip("systemd is not on pure cgroup v2 here")
	}
}

// systemctl gives what systemctl says, and nothing of how it ended.
func systemctl(args ...string) string {
	out, _ := exec.Command("systemctl", args...).Output()
	return strings.TrimSpace(string(out))
}

// shows gives the values of a unit's properties, in the order of their names here.
func shows(unit string, names ...string) string {
	values := map[string]string{}
	for line := range strings.Lines(systemctl("show", unit, "-p", strings.Join(names, ","))) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = value
	}
	var list []string
	for _, name := range names {
		list = append(list, values[name])
	}
	return strings.Join(list, " ")
}

// kept is what stands in a file of a group.
func kept(t testing.TB, group, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", group, file))
	if err != nil {
		t.Error(err)
	}
	return strings.TrimSpace(string(text))
}

// newScoped is an engine whose groups systemd makes.
func newScoped(t *testing.T, path, resources string, script string) *engine {
	t.Helper()
	needSystemd(t)
	e := newEngine(t, script)
	edit(t, e.bundle, func(c map[string]any) {
		var res map[string]any
		if err := json.Unmarshal([]byte(resources), &res); err != nil {
			t.Fatal(err)
		}
		linux := c["linux"].(map[string]any)
		linux["cgroupsPath"], linux["resources"] = path, res
	})
	return e
}

func TestSystemdMakesTheScopeOfAContainer(t *testing.T) {
	e := newScoped(t, "sbxtest-a.slice:check:life",
		`{"memory":{"limit":67108864,"swap":67108864,"reservation":33554432},"cpu":{"quota":50000,"period":100000,"shares":512},"pids":{"limit":20}}`,
		"trap 'exit 3' TERM; while :; do sleep 1; done")
	edit(t, e.bundle, func(c map[string]any) {
		c["annotations"] = map[string]string{"org.systemd.property.TimeoutStopSec": "7"}
	})
	const unit, group = "check-life.scope", "/sbxtest.slice/sbxtest-a.slice/check-life.scope"
	e.ok("--systemd-cgroup", "create", "--bundle", e.bundle, "life")
	t.Cleanup(func() { e.do("delete", "--force", "life") })
	_, pid := e.status("life")
	want := group + " sbxtest-a.slice yes no yes 67108864 33554432 0 20 500ms 20 7s"
	if got := shows(unit, "ControlGroup", "Slice", "Delegate", "DefaultDependencies", "IOAccounting", "MemoryMax", "MemoryLow", "MemorySwapMax", "TasksMax", "CPUQuotaPerSecUSec", "CPUWeight", "TimeoutStopUSec"); got != want {
		t.Errorf("the unit is %q, want %q", got, want)
	}
	limits := func(memory string) {
		t.Helper()
		got := kept(t, group, "memory.max") + " " + kept(t, group, "pids.max") + " " + kept(t, group, "cpu.max") + " " + kept(t, group, "cpu.weight")
		if want := memory + " 20 50000 100000 20"; got != want {
			t.Errorf("the group has %q, want %q", got, want)
		}
	}
	limits("67108864")
	if got := kept(t, group, "cgroup.procs"); got != strconv.Itoa(pid) {
		t.Errorf("in the group are %q, the container is %d", got, pid)
	}
	e.ok("start", "life")
	if o := e.ok("exec", "life", "cat", "/proc/self/cgroup"); !strings.Contains(o.stdout, group) && o.stdout != "0::/\n" {
		t.Errorf("exec is in %q", o.stdout)
	}
	e.ok("pause", "life")
	e.is("life", "paused")
	e.ok("resume", "life")
	e.is("life", "running")
	if o := e.ok("events", "--stats", "life"); !strings.Contains(o.stdout, `"limit":67108864`) || !strings.Contains(o.stdout, `"pids":{"current":`) {
		t.Errorf("events: %s", o.stdout)
	}
	e.ok("update", "--memory", "32M", "--memory-swap", "32M", "life")
	if got := shows(unit, "MemoryMax", "TasksMax"); got != "33554432 20" {
		t.Errorf("after the update the unit has %s", got)
	}
	limits("33554432")
	// What somebody makes systemd write again does not widen anything.
	systemctl("daemon-reload")
	systemctl("set-property", "--runtime", unit, "MemoryHigh=30M", "IOWeight=77")
	limits("33554432")
	e.ok("kill", "life", "TERM")
	waitFor(t, "the end", func() bool { status, _ := e.status("life"); return status == "stopped" })
	e.ok("delete", "life")
	gone(t, unit, group)
}

// gone fails where something is left of a scope.
func gone(t *testing.T, unit, group string) {
	t.Helper()
	waitFor(t, "the end of "+unit, func() bool {
		_, err := os.Stat("/sys/fs/cgroup" + group)
		return os.IsNotExist(err) && systemctl("show", unit, "-P", "LoadState") == "not-found"
	})
}

func TestAScopeEndsWithItsContainer(t *testing.T) {
	const unit, group = "sbxrun-end.scope", "/system.slice/sbxrun-end.scope"
	e := newScoped(t, "", `{"pids":{"limit":1}}`, "exec sleep 1000")
	edit(t, e.bundle, func(c map[string]any) { // the first process of a namespace ignores SIGTERM
		c["annotations"] = map[string]string{"org.systemd.property.TimeoutStopSec": "1"}
	})
	e.ok("--systemd-cgroup", "create", "--bundle", e.bundle, "end")
	if got := shows(unit, "ControlGroup", "TasksMax") + " " + kept(t, group, "pids.max"); got != group+" 1 1" {
		t.Errorf("the unit is %q", got)
	}
	e.ok("start", "end") // one task is enough
	// Another container must not take the name over.
	other := &engine{t: t, root: filepath.Join(t.TempDir(), "other"), bundle: e.bundle}
	if o := other.do("--systemd-cgroup", "create", "--bundle", e.bundle, "end"); o.exit == 0 || !strings.Contains(o.stdout, "sbxrun-end.scope: it is in use") {
		t.Errorf("a second container of that name: %+v", o)
	}
	e.is("end", "running")
	e.ok("delete", "--force", "end")
	gone(t, unit, group)
	if o := e.do("--systemd-cgroup", "run", "--bundle", e.bundle, "--detach", "end"); o.exit != 0 {
		t.Errorf("the name is not free again: %+v", o)
	}
	systemctl("stop", unit) // by somebody else
	waitFor(t, "the end", func() bool { status, _ := e.status("end"); return status == "stopped" })
	e.ok("delete", "end")
	gone(t, unit, group)
	// A program that cannot be executed leaves nothing either.
	edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["args"] = []string{"/none"} })
	if o := e.do("--systemd-cgroup", "run", "--bundle", e.bundle, "end"); o.exit == 0 {
		t.Errorf("run of nothing: %+v", o)
	}
	gone(t, unit, group)
}

func TestAFailedUnitOfThatNameIsInNobodysWay(t *testing.T) {
	const unit = "check-failed.scope"
	e := newScoped(t, "sbxtest.slice:check:failed", `{}`, "true")
	// A scope that runs out of its time fails, and stays.
	if text, err := exec.Command("systemd-run", "--scope", "--unit="+unit, "-p", "RuntimeMaxSec=1", "sleep", "1000").CombinedOutput(); err == nil {
		t.Fatalf("%s", text)
	}
	waitFor(t, "the failure", func() bool { return systemctl("is-failed", unit) == "failed" })
	e.ok("--systemd-cgroup", "run", "--bundle", e.bundle, "failed")
	gone(t, unit, "/sbxtest.slice/"+unit)
}

func TestWhatSystemdRefusesLeavesNothing(t *testing.T) {
	for _, c := range []struct{ path, annotation, value, want string }{
		{"/a/path", "", "", "slice:prefix:name"},
		{"no slice:a:b", "", "", "no name of a slice"},
		{"system.slice:check:refused", "org.systemd.property.MemoryMax", "uint64 5", "sets this property itself"},
		{"system.slice:check:refused", "org.systemd.property.NoSuchThing", "true", "NoSuchThing"},
		{"system.slice:check:refused", "org.systemd.property.CollectMode", "true", "check-refused.scope: Failed to set unit properties"},
	} {
		e := newScoped(t, c.path, `{"memory":{"limit":67108864}}`, "true")
		edit(t, e.bundle, func(config map[string]any) { config["annotations"] = map[string]string{c.annotation: c.value} })
		o := e.do("--systemd-cgroup", "run", "--bundle", e.bundle, "refused")
		if o.exit != 1 || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%+v: %+v", c, o)
		}
		gone(t, "check-refused.scope", "/system.slice/check-refused.scope")
		if left, _ := os.ReadDir(e.root); len(left) > 0 {
			t.Errorf("%+v: state is left", c)
		}
	}
}

func TestAPolicyHoldsInAScope(t *testing.T) {
	needSystemd(t)
	scoped := func(argv ...string) *runtime.Result {
		return call(t, append([]string{"--systemd-cgroup"}, codeArgs(spec.L5, []string{"--wall", "300s", "--cpu", "200s", "--memory", "64MiB"}, argv)...)...).verdict(t)
	}
	if res := scoped("attack", "heap", "400"); res.Reason != runtime.OOM || res.Evidence[0].Heuristic {
		t.Errorf("memory: %s, %+v, %+v", res.Reason, res.Evidence, res.Error)
	}
	if res := scoped("/bin/sh", "-c", "b() { b | b & }; b; sleep 60"); res.Reason != runtime.Processes {
		t.Errorf("processes: %s, %+v, %+v", res.Reason, res.Evidence, res.Error)
	}
	if left := systemctl("list-units", "--all", "--plain", "--no-legend", "sbxrun-run*"); left != "" {
		t.Errorf("units are left: %s", left)
	}
	// As an engine would drive it, with a path of its own.
	e := newGuarded(t, []string{"--wall", "300s", "--memory", "64MiB"}, "/bin/sleep", "1000")
	edit(t, e.bundle, func(c map[string]any) { c["linux"].(map[string]any)["cgroupsPath"] = "sbxtest.slice:check:guarded" })
	const unit, group = "check-guarded.scope", "/sbxtest.slice/check-guarded.scope"
	e.ok("--systemd-cgroup", "create", "--bundle", e.bundle, "guarded")
	if got := kept(t, group+"/sbxrun/guarded", "memory.max"); got != "67108864" {
		t.Errorf("the limit is %s", got)
	}
	e.ok("start", "guarded")
	e.ok("pause", "guarded")
	e.ok("resume", "guarded")
	e.ok("delete", "--force", "guarded")
	gone(t, unit, group)
}

// member is an ordinary user with a systemd of his own.
type member struct {
	t        *testing.T
	uid, gid uint32
	home     string
}

// newMember starts the systemd of a user that every Debian has. It is where
// user@UID.service would be, but for PAM.
func newMember(t *testing.T) *member {
	t.Helper()
	needSystemd(t)
	u, err := user.Lookup("daemon")
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	m := &member{t: t, uid: uint32(uid), gid: uint32(gid), home: filepath.Dir(busyboxRoot(t))}
	for _, dir := range []string{m.home, filepath.Join(m.home, "rootfs"), m.run(), filepath.Join(m.home, "tmp")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(dir, uid, gid); err != nil {
			t.Fatal(err)
		}
	}
	unit := fmt.Sprintf("sbxtest-user-%d.service", uid)
	text, err := exec.Command("systemd-run", "--unit="+unit, "--uid=daemon", "-p", "Delegate=yes", "-p", "Type=notify", "-p", "DefaultDependencies=no",
		"-E", "XDG_RUNTIME_DIR="+m.run(), "-E", "HOME="+m.home, "/lib/systemd/systemd", "--user").CombinedOutput()
	t.Cleanup(func() { systemctl("stop", unit); systemctl("reset-failed", unit) })
	if err != nil {
		t.Fatalf("start a user's systemd: %v: %s", err, text)
	}
	return m
}

func (m *member) run() string { return filepath.Join(m.home, "run") }

// call runs sbxrun as the user, from a group that is not his, as a login's is.
func (m *member) call(args ...string) outcome {
	m.t.Helper()
	cmd := exec.Command(sbxrun, append([]string{"--systemd-cgroup"}, args...)...)
	cmd.Dir = m.home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + m.home, "XDG_RUNTIME_DIR=" + m.run(), "TMPDIR=" + filepath.Join(m.home, "tmp")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: m.uid, Gid: m.gid}}
	var out bytes.Buffer
	file, err := os.CreateTemp(m.t.TempDir(), "err")
	if err != nil {
		m.t.Fatal(err)
	}
	defer file.Close()
	cmd.Stdout, cmd.Stderr = file, file // a detached container keeps it
	if args[0] == "code" || args[0] == "exec" || args[0] == "state" {
		cmd.Stdout = &out
	}
	_ = cmd.Run()
	text, _ := os.ReadFile(file.Name())
	return outcome{cmd.ProcessState.ExitCode(), out.String(), string(text)}
}

func TestAUsersOwnSystemdMakesScopes(t *testing.T) {
	m := newMember(t)
	if o := m.call("spec", "--rootless"); o.exit != 0 {
		t.Fatalf("spec: %+v", o)
	}
	edit(t, m.home, func(c map[string]any) {
		p := c["process"].(map[string]any)
		p["terminal"], p["args"] = false, []string{"sleep", "1000"}
		c["linux"].(map[string]any)["resources"] = map[string]any{"memory": map[string]any{"limit": 64 << 20}, "pids": map[string]any{"limit": 20}}
	})
	if o := m.call("run", "--bundle", m.home, "--detach", "own"); o.exit != 0 {
		t.Fatalf("run: %+v", o)
	}
	t.Cleanup(func() { m.call("delete", "--force", "own") })
	var st struct{ Pid int }
	if err := json.Unmarshal([]byte(m.call("state", "own").stdout), &st); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", st.Pid))
	_, group, _ := strings.Cut(strings.TrimSpace(string(text)), "::")
	if !strings.HasSuffix(group, "/user.slice/sbxrun-own.scope") {
		t.Fatalf("the container is in %q", text)
	}
	if o := m.call("exec", "own", "cat", "/proc/self/cgroup"); o.exit != 0 || strings.TrimSpace(o.stdout) != "0::/" {
		t.Errorf("exec is not in the container's group: %+v", o)
	}
	if got := kept(t, group, "memory.max") + " " + kept(t, group, "pids.max"); got != "67108864 20" {
		t.Errorf("the limits are %s", got)
	}
	for _, args := range [][]string{{"pause", "own"}, {"resume", "own"}, {"update", "--memory", "32M", "own"}, {"kill", "own", "KILL"}, {"delete", "--force", "own"}} {
		if o := m.call(args...); o.exit != 0 {
			t.Errorf("%v: %+v", args, o)
		}
	}
	waitFor(t, "the scope's end", func() bool {
		_, err := os.Stat("/sys/fs/cgroup" + group)
		return os.IsNotExist(err)
	})
	// A policy, without a delegated group to begin with.
	res := m.call("code", "--json", "--level", "L5", "--wall", "300s", "--cpu", "200s", "--memory", "64MiB", "--in", attackProgram+":attack", "--", "./attack", "heap", "400").verdict(t)
	if res.Reason != runtime.OOM || res.Evidence[0].Heuristic {
		t.Errorf("memory: %s, %+v, %+v", res.Reason, res.Evidence, res.Error)
	}
}

func TestAUserWithoutASystemdIsRefused(t *testing.T) {
	needSystemd(t)
	cmd := exec.Command(sbxrun, "--systemd-cgroup", "code", "--", "/bin/true")
	cmd.Dir, cmd.Env = "/", []string{"XDG_RUNTIME_DIR=/nonexistent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1, Gid: 1}}
	o := finishCommand(t, cmd)
	if o.exit != 125 || !strings.Contains(o.stderr, "sandbox unavailable: limits: cgroup scope: no systemd at /nonexistent/systemd/private: ") || !strings.Contains(o.stderr, "loginctl") {
		t.Errorf("%+v", o)
	}
}
