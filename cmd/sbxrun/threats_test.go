// Tests of the runtime itself against hostile images, configurations and moments: each
// is a fault that some runtime has had.

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// linux gives the linux object of a config.
func linux(c map[string]any) map[string]any { return c["linux"].(map[string]any) }

func TestOpenDescriptorsOfTheCallerStayOutOfContainers(t *testing.T) {
	e := newEngine(t, "ls /proc/self/fd; exec sleep 100")
	leak := func(cmd *exec.Cmd) *exec.Cmd {
		for range 64 {
			f, err := os.Open("/")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
		return cmd
	}
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	create := leak(e.command("create", "--bundle", e.bundle, "leaky"))
	create.Stdout = out
	if err := create.Run(); err != nil {
		t.Fatal(err)
	}
	defer e.do("delete", "--force", "leaky")
	_, pid := e.status("leaky")
	// The init that waits keeps its own few, all of them close-on-exec; nothing of the
	// caller's may be used through /proc/PID/fd meanwhile (CVE-2024-21626).
	for fd := range 80 {
		if target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); err == nil && target == "/" {
			t.Errorf("init holds the caller's descriptor of / as %d", fd)
		}
	}
	e.ok("start", "leaky")
	want := "0\n1\n2\n3\n" // 3 is that of ls
	waitFor(t, "the list", func() bool { text, _ := os.ReadFile(out.Name()); return len(text) >= len(want) })
	if text, _ := os.ReadFile(out.Name()); string(text) != want {
		t.Errorf("the program has %q", text)
	}
	if o := finishCommand(t, leak(e.command("exec", "leaky", "ls", "/proc/self/fd"))); o.stdout != want {
		t.Errorf("a further process has %q (%s)", o.stdout, o.stderr)
	}
}

func TestAWorkingDirectoryOutsideTheRootIsRefused(t *testing.T) {
	e := newEngine(t, "pwd; ls")
	for fd := range 20 {
		edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["cwd"] = fmt.Sprintf("/proc/self/fd/%d", fd) })
		cmd := e.command("run", "--bundle", e.bundle, fmt.Sprintf("cwd-%d", fd))
		root, err := os.Open("/")
		if err != nil {
			t.Fatal(err)
		}
		cmd.ExtraFiles = slices.Repeat([]*os.File{root}, 8)
		o := finishCommand(t, cmd)
		root.Close()
		if o.exit == 0 || o.stdout != "" || !strings.Contains(o.stderr, "sbxrun:") {
			t.Errorf("descriptor %d: %+v", fd, o)
		}
	}
}

func TestMountTargetsAndMasksStayInsideTheImage(t *testing.T) {
	outside := filepath.Join(openDir(t), "outside")
	if err := firstOf(os.Mkdir(outside, 0o755), os.WriteFile(outside+"/file", []byte("host"), 0o644)); err != nil {
		t.Fatal(err)
	}
	away := "../../../../../../../.." + outside
	for _, c := range []struct {
		name, want string // what the error must name; "" for a container that runs
		image      func(root string) error
		config     func(map[string]any)
	}{
		{"a target whose parent is a link to something inside", "", func(root string) error {
			return firstOf(os.MkdirAll(root+outside, 0o755), os.Symlink(away, root+"/vol"))
		}, mounting("/vol/new/dir", "tmpfs")},
		{"a target that is a link to something inside", "", func(root string) error {
			return firstOf(os.MkdirAll(root+outside, 0o755), os.Symlink(outside, root+"/vol"))
		}, mounting("/vol", "tmpfs")},
		{"a target whose parent is a link", "/vol/new/dir", func(root string) error { return os.Symlink(away, root+"/vol") },
			mounting("/vol/new/dir", "tmpfs")},
		{"a target that is a link", "/vol", func(root string) error { return os.Symlink(outside, root+"/vol") },
			mounting("/vol", "tmpfs")},
		{"a target through the host's root", "vol", func(root string) error { return os.Symlink("/proc/1/root", root+"/vol") },
			mounting("/vol"+outside+"/x", "tmpfs")},
		{"a mask of a link to a file", "", func(root string) error { return os.Symlink(away+"/file", root+"/vol") },
			func(c map[string]any) { linux(c)["maskedPaths"] = []string{"/vol"} }},
		{"a read-only path that is a link", "", func(root string) error { return os.Symlink(away, root+"/vol") },
			func(c map[string]any) { linux(c)["readonlyPaths"] = []string{"/vol"} }},
		{"a /dev that is a link", "/dev", func(root string) error { return os.Symlink(away, root+"/dev") },
			func(map[string]any) {}},
		{"a /dev/null that is a link", "/dev/null", func(root string) error {
			return firstOf(os.Mkdir(root+"/dev", 0o755), os.Symlink(away+"/file", root+"/dev/null"))
		}, withoutMounts("/dev")},
		{"a /dev/null that is a file", "/dev/null", func(root string) error {
			return firstOf(os.Mkdir(root+"/dev", 0o755), os.WriteFile(root+"/dev/null", nil, 0o666))
		}, withoutMounts("/dev")},
		{"a /dev/pts that is a link", "", func(root string) error {
			return firstOf(os.Mkdir(root+"/dev", 0o755), os.Symlink(away, root+"/dev/pts"))
		}, func(map[string]any) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEngine(t, "echo ran; echo evil >/vol; echo evil >/dev/null")
			edit(t, e.bundle, func(m map[string]any) { m["root"].(map[string]any)["readonly"] = false; c.config(m) })
			if err := c.image(filepath.Join(e.bundle, "rootfs")); err != nil {
				t.Fatal(err)
			}
			before := lookAround(t)
			o := e.run("astray")
			if c.want == "" && !strings.HasPrefix(o.stdout, "ran\n") || c.want != "" && (o.stdout != "" || !strings.Contains(o.stderr, c.want)) {
				t.Errorf("%+v", o)
			}
			if left, err := os.ReadDir(outside); err != nil || len(left) != 1 {
				t.Errorf("outside there is %v %v", left, err)
			}
			if text, err := os.ReadFile(outside + "/file"); err != nil || string(text) != "host" {
				t.Errorf("the file outside has %q %v", text, err)
			}
			nothingLeft(t, before)
		})
	}
}

// mounting adds a mount to a config.
func mounting(target, kind string) func(map[string]any) {
	return func(c map[string]any) {
		c["mounts"] = append(c["mounts"].([]any), map[string]any{"destination": target, "type": kind, "source": kind})
	}
}

// withoutMounts takes the mounts at and below a place out of a config.
func withoutMounts(place string) func(map[string]any) {
	return func(c map[string]any) {
		c["mounts"] = slices.DeleteFunc(c["mounts"].([]any), func(m any) bool {
			return strings.HasPrefix(m.(map[string]any)["destination"].(string), place)
		})
	}
}

func TestAWriteToProcDoesNotGoElsewhere(t *testing.T) {
	const key, file = "net.ipv4.ip_unprivileged_port_start", "/proc/sys/net/ipv4/ip_unprivileged_port_start"
	for _, c := range []struct {
		name  string
		mount map[string]any
	}{
		{"a file over the parameter", map[string]any{"destination": file, "type": "bind", "source": "trap", "options": []string{"bind"}}},
		{"a tmpfs over its directory", map[string]any{"destination": "/proc/sys/net", "type": "tmpfs", "source": "tmpfs"}},
		{"another parameter over it", map[string]any{"destination": file, "type": "bind", "source": "/proc/sys/net/ipv4/ip_forward", "options": []string{"bind"}}},
		{"a tmpfs over all of it", map[string]any{"destination": "/proc", "type": "tmpfs", "source": "tmpfs"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEngine(t, "echo ran")
			trap := filepath.Join(e.bundle, "trap")
			if err := os.WriteFile(trap, []byte("as it was"), 0o644); err != nil {
				t.Fatal(err)
			}
			e.withMount(c.mount)
			edit(t, e.bundle, func(m map[string]any) { linux(m)["sysctl"] = map[string]string{key: "999"} })
			o := e.run("redirected")
			if o.exit == 0 || o.stdout != "" || !strings.Contains(o.stderr, "/proc") {
				t.Errorf("%+v", o)
			}
			if text, err := os.ReadFile(trap); err != nil || string(text) != "as it was" {
				t.Errorf("the file has %q %v", text, err)
			}
		})
	}
}

func TestTheOOMScoreIsNotWrittenElsewhere(t *testing.T) {
	e := newEngine(t, "echo ran")
	trap := filepath.Join(e.bundle, "trap")
	if err := os.WriteFile(trap, []byte("as it was"), 0o644); err != nil {
		t.Fatal(err)
	}
	edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["oomScoreAdj"] = 321 })
	if o := e.run("plain"); o.stdout != "ran\n" {
		t.Fatalf("without a trap: %+v", o)
	}
	e.withMount(map[string]any{"destination": "/proc/self/oom_score_adj", "type": "bind", "source": trap, "options": []string{"bind"}})
	o := e.run("redirected")
	if text, err := os.ReadFile(trap); o.stdout != "" || !strings.Contains(o.stderr, "oom_score_adj") || err != nil || string(text) != "as it was" {
		t.Errorf("%+v, the file has %q %v", o, text, err)
	}
}

func TestAConfigThatIsTooMuchEndsInAnError(t *testing.T) {
	e := newEngine(t, "echo ran")
	before := lookAround(t)
	edit(t, e.bundle, func(c map[string]any) {
		many := 60000 // within the size that a config may have
		if testing.Short() {
			many = 3000
		}
		mounts := c["mounts"].([]any)
		for range many {
			mounts = append(mounts, map[string]any{"destination": "/a", "type": "no-such-fs"})
		}
		c["mounts"] = mounts
	})
	if o := e.run("much"); o.exit != 1 || o.stdout != "" || !strings.Contains(o.stderr, "no-such-fs") {
		t.Errorf("%+v", o)
	}
	nothingLeft(t, before)
}

func TestWhatIsNotImplementedIsRefusedByItsField(t *testing.T) {
	for _, c := range []struct {
		want   string
		config func(map[string]any)
	}{
		{"linux.intelRdt", func(c map[string]any) { linux(c)["intelRdt"] = map[string]any{"closID": "x"} }},
		{"linux.timeOffsets", func(c map[string]any) {
			linux(c)["timeOffsets"] = map[string]any{"monotonic": map[string]any{"secs": 1}}
		}},
		{"linux.netDevices", func(c map[string]any) { linux(c)["netDevices"] = map[string]any{"eth0": map[string]any{}} }},
		{"linux.memoryPolicy", func(c map[string]any) { linux(c)["memoryPolicy"] = map[string]any{"mode": "MPOL_BIND"} }},
		{"linux.rootfsPropagation", func(c map[string]any) { linux(c)["rootfsPropagation"] = "sideways" }},
		{"linux.personality", func(c map[string]any) { linux(c)["personality"] = map[string]any{"domain": "SOLARIS"} }},
		{"process.scheduler", func(c map[string]any) {
			c["process"].(map[string]any)["scheduler"] = map[string]any{"policy": "SCHED_MAGIC"}
		}},
		{"process.ioPriority", func(c map[string]any) {
			c["process"].(map[string]any)["ioPriority"] = map[string]any{"class": "IOPRIO_CLASS_MAGIC"}
		}},
		{"linux.devices[0]", func(c map[string]any) {
			linux(c)["devices"] = []any{map[string]any{"path": "/dev/x", "type": "q"}}
		}},
		{"linux.sysctl", func(c map[string]any) { linux(c)["sysctl"] = map[string]any{"kernel.panic": "1"} }},
		{"windows", func(c map[string]any) { c["windows"] = map[string]any{"layerFolders": []any{}} }},
		{"vm", func(c map[string]any) { c["vm"] = map[string]any{"kernel": map[string]any{"path": "/k"}} }},
	} {
		t.Run(c.want, func(t *testing.T) {
			e := newEngine(t, "echo ran")
			edit(t, e.bundle, c.config)
			before := lookAround(t)
			if o := e.run("odd"); o.exit != 1 || o.stdout != "" || !strings.Contains(o.stderr, c.want) {
				t.Errorf("%+v", o)
			}
			nothingLeft(t, before)
		})
	}
}

func TestADamagedStateIsToldAndDeleted(t *testing.T) {
	e := newEngine(t, "sleep 100")
	before := lookAround(t)
	e.ok("create", "--bundle", e.bundle, "good")
	good, err := os.ReadFile(filepath.Join(e.root, "good", "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{string(good[:len(good)/2]), "", "null", "[]", `{"pid":-1}`, `{"pid":1,"boot":""}`, `{"pid":"x"}`, "\x00\x00"} {
		id := fmt.Sprintf("bad-%d", i)
		dir := filepath.Join(e.root, id)
		if err := firstOf(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "state.json"), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		if o := e.do("list"); o.exit != 0 || !strings.Contains(o.stdout, id) || !strings.Contains(o.stdout, "good") {
			t.Errorf("%q: list: %+v", text, o)
		}
		if o := e.do("state", id); o.exit == 0 && !strings.Contains(o.stdout, "stopped") || o.exit != 0 && !strings.Contains(o.stderr, "damaged") {
			t.Errorf("%q: state: %+v", text, o)
		}
		for _, args := range [][]string{{"kill", id, "KILL"}, {"exec", id, "true"}, {"start", id}, {"pause", id}, {"ps", id}, {"update", "--memory", "1G", id}} {
			if o := e.do(args...); o.exit == 0 {
				t.Errorf("%q: %v: %+v", text, args, o)
			}
		}
		if o := e.do("delete", "--force", id); o.exit != 0 {
			t.Errorf("%q: delete: %+v", text, o)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%q: its directory is still there", text)
		}
	}
	e.is("good", "created")
	e.ok("delete", "--force", "good")
	nothingLeft(t, before)
}

func TestAContainerOfAnotherBootIsNobodysAnyMore(t *testing.T) {
	e := newEngine(t, "sleep 100")
	e.ok("create", "--bundle", e.bundle, "same")
	defer e.do("delete", "--force", "same")
	// As if a disk had kept it over a reboot, and since then somebody made another one
	// of that name, which has the group now.
	text, err := os.ReadFile(filepath.Join(e.root, "same", "state.json"))
	if err != nil {
		t.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(text, &state); err != nil {
		t.Fatal(err)
	}
	state["boot"] = "another"
	if text, err = json.Marshal(state); err != nil {
		t.Fatal(err)
	}
	old := &engine{t, filepath.Join(t.TempDir(), "old"), e.bundle}
	if err := firstOf(os.MkdirAll(filepath.Join(old.root, "same"), 0o700), os.WriteFile(filepath.Join(old.root, "same", "state.json"), text, 0o600)); err != nil {
		t.Fatal(err)
	}
	old.is("same", "stopped")
	for _, args := range [][]string{{"kill", "same", "KILL"}, {"pause", "same"}, {"exec", "same", "true"}} {
		if o := old.do(args...); o.exit == 0 {
			t.Errorf("%v: %+v", args, o)
		}
	}
	old.do("kill", "--all", "same", "KILL") // runc calls it a success to find nobody
	old.ok("delete", "--force", "same")
	e.is("same", "created")
	e.ok("start", "same")
	e.is("same", "running")
}

func TestExecIntoADyingContainerLeavesNobodyOutside(t *testing.T) {
	e := newEngine(t, "exec sleep 100")
	before := lookAround(t)
	rounds := 30
	if testing.Short() {
		rounds = 3
	}
	for i := range rounds {
		id, marker := fmt.Sprintf("dying-%d", i), fmt.Sprintf("1234%d.%d", i, os.Getpid())
		e.ok("create", "--bundle", e.bundle, id)
		e.ok("start", id)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				cmd := e.command("exec", "--detach", id, "sleep", marker)
				text, err := cmd.CombinedOutput()
				if err != nil && (strings.Count(string(text), "\n") != 1 || !strings.HasPrefix(string(text), "sbxrun: ")) {
					t.Errorf("exec: %v %q", err, text)
				}
			})
		}
		wg.Go(func() { _ = e.command("kill", id, "KILL").Run() })
		wg.Wait()
		e.ok("delete", "--force", id)
		waitFor(t, "the further processes to end", func() bool { return len(alive(marker)) == 0 })
	}
	if err := unix.Access(e.root, unix.W_OK); err != nil {
		t.Error(err)
	}
	nothingLeft(t, before)
}

// What exec starts is an equal of the container's processes before it has its filter.
func TestInitIsNotToBeWrittenIntoByItsEquals(t *testing.T) {
	e := newEngine(t, "echo ran")
	edit(t, e.bundle, func(c map[string]any) { // a hook has init's user and capabilities
		c["hooks"] = map[string]any{"startContainer": []any{map[string]any{
			"path": "/bin/sh", "args": []string{"sh", "-c", "(: <>/proc/$PPID/mem) 2>/dev/null && exit 7; exit 0"}}}}
	})
	if o := e.run("equals"); o.exit != 0 || o.stdout != "ran\n" {
		t.Errorf("%+v", o)
	}
}

// A container's processes have the rights to stop what exec starts among them.
func TestAStoppedExecKeepsNobodyFromKillingTheContainer(t *testing.T) {
	e := newEngine(t, "trap '' TERM; while :; do kill -STOP $(($$+1)) $(($$+2)) $(($$+3)) $(($$+4)); done 2>/dev/null")
	before := lookAround(t)
	e.ok("create", "--bundle", e.bundle, "stopper")
	e.ok("start", "stopper")
	cmd := e.command("exec", "stopper", "sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	waitFor(t, "a process in state T", func() bool { return stoppedIn(t, e, "stopper") })
	e.ok("kill", "stopper", "KILL")
	e.ok("delete", "--force", "stopper")
	if err := <-ended; err == nil {
		t.Error("exec succeeded")
	}
	nothingLeft(t, before)
}

// stoppedIn says whether a process in the container's PID namespace is stopped.
func stoppedIn(t *testing.T, e *engine, id string) bool {
	t.Helper()
	_, pid := e.status(id)
	pids, err := filepath.Glob("/proc/[0-9]*/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, ns := range pids {
		if there, err := os.Readlink(ns); err != nil || there != want {
			continue // gone, or another's
		}
		if text, _ := os.ReadFile(strings.Replace(ns, "ns/pid", "stat", 1)); strings.Contains(string(text), ") T ") {
			return true
		}
	}
	return false
}
