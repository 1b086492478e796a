// Tests of namespaces that a container joins by path, and of user namespaces with
// more ids than their maker's own.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// joins makes the container join namespaces of the process pid, by kind and /proc name.
func (e *engine) joins(pid int, names map[string]string) {
	edit(e.t, e.bundle, func(c map[string]any) {
		l := c["linux"].(map[string]any)
		list := slices.DeleteFunc(l["namespaces"].([]any), func(ns any) bool { return names[ns.(map[string]any)["type"].(string)] != "" })
		for kind, name := range names {
			list = append(list, map[string]any{"type": kind, "path": fmt.Sprintf("/proc/%d/ns/%s", pid, name)})
		}
		l["namespaces"] = list
	})
}

func namespaceOf(t *testing.T, pid int, name string) string {
	t.Helper()
	to, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
	if err != nil {
		t.Fatal(err)
	}
	return to
}

func TestMountAndCgroupNamespacesAreJoinedByPath(t *testing.T) {
	e := newEngine(t, "readlink /proc/self/ns/mnt; readlink /proc/self/ns/cgroup")
	other := exec.Command("unshare", "-mC", "--propagation", "private", "sh", "-c", "echo ready; read wait")
	stdin, err := other.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stdin.Close(); _ = other.Wait() })
	if _, err := stdout.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	e.joins(other.Process.Pid, map[string]string{"mount": "mnt", "cgroup": "cgroup"})
	o := e.run("joined")
	for _, name := range []string{"mnt", "cgroup"} {
		if want := namespaceOf(t, other.Process.Pid, name); !strings.Contains(o.stdout, want) {
			t.Errorf("not in %s: %+v", want, o)
		}
	}
}

func TestANewUserNamespaceGoesWithAJoinedNetwork(t *testing.T) {
	e := newEngine(t, "sleep 100")
	e.ok("run", "--detach", "--bundle", e.bundle, "owner")
	_, pid := e.status("owner")
	t.Cleanup(func() { e.ok("delete", "--force", "owner") })
	edit(t, e.bundle, func(c map[string]any) {
		c["process"].(map[string]any)["args"] = []string{"/bin/sh", "-c", "readlink /proc/self/ns/net; cat /proc/self/uid_map; id -u"}
		var mounts []any
		for _, m := range c["mounts"].([]any) { // sysfs is for whoever owns the network
			if !strings.HasPrefix(m.(map[string]any)["destination"].(string), "/sys") {
				mounts = append(mounts, m)
			}
		}
		c["mounts"] = mounts
	})
	e.mapped(7000)
	e.joins(pid, map[string]string{"network": "net"})
	o := e.run("guest")
	if f := strings.Fields(o.stdout); len(f) != 5 || f[0] != namespaceOf(t, pid, "net") || f[2] != "7000" || f[4] != "0" {
		t.Errorf("%+v", o)
	}
}

// TestAnOrdinaryUserGetsTheIdsThatSubuidGivesHim needs newuidmap and a user with ranges.
func TestAnOrdinaryUserGetsTheIdsThatSubuidGivesHim(t *testing.T) {
	e := newEngine(t, "id -u; cut -c1-40 /proc/self/uid_map; touch /tmp/f && chown 5:6 /tmp/f && stat -c %u:%g /tmp/f")
	needProgram(t, "newuidmap", "newgidmap")
	const name = "sbxtest"
	if _, err := user.Lookup(name); err != nil {
		if out, err := exec.Command("useradd", "-m", name).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	if out, err := exec.Command("cp", "-a", e.bundle, home+"/b").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if out, err := exec.Command("cp", sbxrun, home+"/sbxrun").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	start := "0"
	text, _ := os.ReadFile("/etc/subuid")
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) == 3 && f[0] == name {
			start = f[1]
		}
	}
	edit(t, filepath.Join(home, "b"), func(c map[string]any) {
		l := c["linux"].(map[string]any)
		l["namespaces"] = append(l["namespaces"].([]any), map[string]any{"type": "user"})
		var id, first int
		fmt.Sscan(u.Uid, &id)
		fmt.Sscan(start, &first)
		ids := []any{map[string]any{"containerID": 0, "hostID": id, "size": 1}, map[string]any{"containerID": 1, "hostID": first, "size": 1000}}
		l["uidMappings"], l["gidMappings"] = ids, ids
		delete(l, "resources")
		c["root"].(map[string]any)["readonly"] = false
		caps := []string{"CAP_CHOWN"}
		c["process"].(map[string]any)["capabilities"] = map[string]any{"bounding": caps, "effective": caps, "permitted": caps}
		var mounts []any
		for _, m := range c["mounts"].([]any) { // without a group of its own there is none to show
			if m.(map[string]any)["destination"] != "/sys/fs/cgroup" {
				mounts = append(mounts, m)
			}
		}
		c["mounts"] = append(mounts, map[string]any{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs"})
	})
	for _, dir := range []string{home, filepath.Dir(home)} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command("chown", "-R", name, home).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command("su", name, "-s", "/bin/sh", "-c", "cd "+home+"/b && ../sbxrun --root "+home+"/state run mapped")
	o := finishCommand(t, cmd)
	if f := strings.Fields(o.stdout); len(f) != 8 || f[0] != "0" || f[5] != start || f[7] != "5:6" {
		t.Errorf("%+v", o)
	}
}
