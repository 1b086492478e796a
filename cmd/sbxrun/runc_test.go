// Tests of small things that users of runc rely on.

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestFlagsMayFollowTheContainersID(t *testing.T) {
	e := newEngine(t, "sleep 100")
	e.ok("run", "followed", "--detach", "--bundle", e.bundle)
	t.Cleanup(func() { e.ok("delete", "followed", "--force") })
	e.ok("update", "followed", "--memory", "64M", "--pids-limit=20")
	if o := e.do("exec", "followed", "cat", "--help"); !strings.Contains(o.stdout+o.stderr, "BusyBox") {
		t.Errorf("exec took a flag of the program's: %+v", o)
	}
	if o := e.do("update", "followed", "--no-such-flag"); o.exit == 0 || !strings.Contains(o.stderr, "no-such-flag") {
		t.Errorf("%+v", o)
	}
}

func TestExecJoinsOnlyGroupsBelowTheContainers(t *testing.T) {
	e := newEngine(t, "sleep 100")
	e.ok("run", "--detach", "--bundle", e.bundle, "parent")
	t.Cleanup(func() { e.ok("delete", "--force", "parent") })
	for group, says := range map[string]string{
		"..": "is not a sub cgroup path", "a/../../b": "is not a sub cgroup path", "nonexistent": "no such file", "whaaat:/": "unknown controller",
	} {
		if o := e.do("exec", "--cgroup", group, "parent", "sh", "-c", "true"); o.exit != 255 || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: %+v", group, o)
		}
	}
	if o := e.do("exec", "--cgroup", "/", "parent", "sh", "-c", "echo in"); o.stdout != "in\n" {
		t.Errorf("%+v", o)
	}
}

func TestProcAndSysAreNotMountedThroughALink(t *testing.T) {
	for _, name := range []string{"proc", "sys"} {
		e := newEngine(t, "true")
		at := filepath.Join(e.bundle, "rootfs", name)
		if err := os.RemoveAll(at); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("bin", at); err != nil {
			t.Fatal(err)
		}
		if o := e.run("linked"); o.exit != 1 || !strings.Contains(o.stderr, "must be mounted on ordinary directory") {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestAReadOnlyTmpfsTakesMountPointsFirst(t *testing.T) {
	e := newEngine(t, "ls -d /dev/pts; touch /dev/x 2>&1")
	edit(t, e.bundle, func(c map[string]any) {
		for _, m := range c["mounts"].([]any) {
			if m := m.(map[string]any); m["destination"] == "/dev" {
				m["options"] = append(m["options"].([]any), "ro")
			}
		}
	})
	if o := e.run("readonly"); !strings.HasPrefix(o.stdout, "/dev/pts\n") || !strings.Contains(o.stdout, "Read-only") {
		t.Errorf("%+v", o)
	}
}

func TestAShorterPeriodComesWithItsQuota(t *testing.T) {
	e := newEngine(t, "sleep 100")
	edit(t, e.bundle, func(c map[string]any) {
		c["linux"].(map[string]any)["resources"].(map[string]any)["cpu"] = map[string]any{"quota": 50000, "period": 100000}
	})
	e.ok("run", "--detach", "--bundle", e.bundle, "quick")
	t.Cleanup(func() { e.ok("delete", "--force", "quick") })
	e.ok("update", "--cpu-period", "10000", "--cpu-quota", "3000", "quick")
	e.ok("update", "--cpu-period", "200000", "--cpu-quota", "100000", "quick")
}

func TestExecMayWaitInAPausedContainer(t *testing.T) {
	if testing.Short() {
		t.Skip("user-mode-linux stands still when a process joins a frozen group")
	}
	e := newEngine(t, "sleep 100")
	e.ok("run", "--detach", "--bundle", e.bundle, "asleep")
	t.Cleanup(func() { e.ok("delete", "--force", "asleep") })
	e.ok("pause", "asleep")
	done := make(chan outcome)
	go func() { done <- e.do("exec", "--ignore-paused", "asleep", "sh", "-c", "echo woken") }()
	waitFor(t, "the new process", func() bool {
		return strings.Count(e.ok("ps", "--format", "json", "asleep").stdout, ",") == 1
	})
	e.ok("resume", "asleep")
	if o := <-done; o.stdout != "woken\n" {
		t.Errorf("%+v", o)
	}
}

func TestAFrozenGroupIsNotAdopted(t *testing.T) {
	e := newEngine(t, "true")
	edit(t, e.bundle, func(c map[string]any) { c["linux"].(map[string]any)["cgroupsPath"] = "/sbxrun-frozen" })
	freeze := map[string]string{"/sys/fs/cgroup/freezer": "freezer.state=FROZEN", "/sys/fs/cgroup/unified": "cgroup.freeze=1", "/sys/fs/cgroup": "cgroup.freeze=1"}
	for hierarchy, setting := range freeze {
		file, value, _ := strings.Cut(setting, "=")
		group := filepath.Join(hierarchy, "sbxrun-frozen")
		var st unix.Statfs_t
		if err := unix.Statfs(hierarchy, &st); err != nil || st.Type != unix.CGROUP_SUPER_MAGIC && st.Type != unix.CGROUP2_SUPER_MAGIC {
			continue // not a hierarchy here
		}
		if err := os.Mkdir(group, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0); err != nil {
			t.Fatal(err)
		}
		o := e.do("run", "--bundle", e.bundle, "cold")
		if err := os.Remove(group); err != nil {
			t.Fatal(err)
		}
		if o.exit != 1 || !strings.Contains(o.stderr, "unexpectedly frozen") {
			t.Errorf("%s: %+v", hierarchy, o)
		}
	}
}
