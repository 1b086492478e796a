// Tests of what a config says of its process beyond user and capabilities, of the
// agent that answers system calls, and of events and features.

package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestTheProcessIsScheduledAsTheConfigSays(t *testing.T) {
	e := newEngine(t, "cut -d' ' -f19,41 /proc/self/stat; ionice; cat /proc/self/personality")
	edit(t, e.bundle, func(c map[string]any) {
		p := c["process"].(map[string]any)
		p["scheduler"] = map[string]any{"policy": "SCHED_BATCH", "nice": 5}
		p["ioPriority"] = map[string]any{"class": "IOPRIO_CLASS_IDLE", "priority": 0}
		c["linux"].(map[string]any)["personality"] = map[string]any{"domain": "LINUX32"}
	})
	o := e.run("scheduled")
	if f := strings.Fields(o.stdout); len(f) != 4 || f[0] != "5" || f[1] != "3" || !strings.HasPrefix(f[2], "idle") || f[3] != "00000008" {
		t.Errorf("%+v", o)
	}
}

func TestAnExecutedProcessStaysOnItsCPUs(t *testing.T) {
	e := newEngine(t, "sleep 100")
	e.ok("run", "--detach", "--bundle", e.bundle, "pinned")
	t.Cleanup(func() { e.ok("delete", "--force", "pinned") })
	process := filepath.Join(t.TempDir(), "process.json")
	p := map[string]any{"args": []string{"/bin/busybox", "grep", "Cpus_allowed_list", "/proc/self/status"}, "cwd": "/", "user": map[string]any{"uid": 0, "gid": 0},
		"execCPUAffinity": map[string]any{"initial": "0", "final": "0"}}
	if err := os.WriteFile(process, []byte(jsonText(p)), 0o600); err != nil {
		t.Fatal(err)
	}
	if o := e.do("exec", "--process", process, "pinned"); !strings.HasSuffix(o.stdout, "\t0\n") {
		t.Errorf("%+v", o)
	}
}

func TestASecurityModuleThatIsNotThereIsRefused(t *testing.T) {
	e := newEngine(t, "true")
	if text, err := os.ReadFile("/sys/module/apparmor/parameters/enabled"); err == nil && text[0] == 'Y' {
		t.Skip("AppArmor is enabled here")
	}
	for key, value := range map[string]string{"apparmorProfile": "nobody-knows", "selinuxLabel": "system_u:system_r:container_t:s0"} {
		edit(t, e.bundle, func(c map[string]any) {
			p := c["process"].(map[string]any)
			delete(p, "apparmorProfile")
			p[key] = value
		})
		if o := e.run("labelled"); o.exit != 1 || !strings.Contains(o.stderr, "not enabled") && !strings.Contains(o.stderr, "disabled") {
			t.Errorf("%s: %+v", key, o)
		}
	}
}

// notification is struct seccomp_notif and seccomp_notif_resp of seccomp.h.
type (
	notification struct {
		id    uint64
		pid   uint32
		flags uint32
		data  [64]byte
	}
	response struct {
		id    uint64
		val   int64
		err   int32
		flags uint32
	}
)

func TestAnAgentAnswersSystemCalls(t *testing.T) {
	e := newEngine(t, "mkdir /dev/shm/x; echo done")
	socket := filepath.Join(t.TempDir(), "agent")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	profile := func(calls ...string) {
		edit(t, e.bundle, func(c map[string]any) {
			c["linux"].(map[string]any)["seccomp"] = map[string]any{
				"defaultAction": "SCMP_ACT_ALLOW", "listenerPath": socket, "listenerMetadata": "for the test",
				"syscalls": []any{map[string]any{"names": calls, "action": "SCMP_ACT_NOTIFY"}},
			}
		})
	}
	profile("mkdir", "mkdirat")
	states := make(chan string, 1)
	go answerOnce(l, states, unix.ENOMEDIUM)
	if o := e.run("watched"); !strings.Contains(o.stderr, "No medium found") || o.stdout != "done\n" {
		t.Errorf("%+v", o)
	}
	var st struct {
		Fds      []string
		Pid      int
		Metadata string
		State    struct{ ID, Bundle string }
	}
	if err := json.Unmarshal([]byte(<-states), &st); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(st.Fds, []string{"seccompFd"}) || st.Pid == 0 || st.Metadata != "for the test" || st.State.ID != "watched" || st.State.Bundle != e.bundle {
		t.Errorf("the agent was told %+v", st)
	}
	l.Close()
	if o := e.run("unwatched"); o.exit != 1 || !strings.Contains(o.stderr, "listenerPath") {
		t.Errorf("without an agent: %+v", o)
	}
	profile("write")
	if o := e.run("silent"); o.exit != 1 || !strings.Contains(o.stderr, "write") {
		t.Errorf("with a notice for write: %+v", o)
	}
}

// answerOnce takes one listener and answers one call with the error.
func answerOnce(l *net.UnixListener, states chan<- string, errno unix.Errno) {
	defer close(states)
	conn, err := l.AcceptUnix()
	if err != nil {
		return
	}
	defer conn.Close()
	text, oob := make([]byte, 64<<10), make([]byte, 64)
	n, oobn, _, _, err := conn.ReadMsgUnix(text, oob)
	if err != nil {
		return
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(messages) != 1 {
		return
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return
	}
	defer unix.Close(fds[0])
	states <- string(text[:n])
	var got notification
	const recv, send = 0xc0502100, 0xc0182101 // SECCOMP_IOCTL_NOTIF_RECV and _SEND
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fds[0]), recv, uintptr(unsafe.Pointer(&got))); e != 0 {
		return
	}
	answer := response{id: got.id, err: -int32(errno)}
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(fds[0]), send, uintptr(unsafe.Pointer(&answer)))
}

func TestEventsTellOfUseAndOfMemoryKills(t *testing.T) {
	e := newEngine(t, "busybox mkfifo /dev/shm/fifo; read go </dev/shm/fifo; busybox tail /dev/zero; sleep 100")
	edit(t, e.bundle, func(c map[string]any) {
		c["linux"].(map[string]any)["resources"].(map[string]any)["memory"] = map[string]any{"limit": 32 << 20}
	})
	e.ok("run", "--detach", "--bundle", e.bundle, "eventful")
	t.Cleanup(func() { e.ok("delete", "--force", "eventful") })
	var stats struct {
		Type, ID string
		Data     struct {
			CPU    struct{ Usage struct{ Total uint64 } }
			Memory struct {
				Usage struct{ Limit, Usage uint64 }
				Raw   map[string]uint64
			}
			Pids struct{ Current uint64 }
		}
	}
	if err := json.Unmarshal([]byte(e.ok("events", "--stats", "eventful").stdout), &stats); err != nil {
		t.Fatal(err)
	}
	if d := stats.Data; stats.Type != "stats" || stats.ID != "eventful" || d.CPU.Usage.Total == 0 || d.Memory.Usage.Limit != 32<<20 || d.Memory.Usage.Usage == 0 || len(d.Memory.Raw) == 0 || d.Pids.Current == 0 {
		t.Errorf("%+v", stats)
	}
	watch := e.command("events", "--interval", "50ms", "eventful")
	out, err := watch.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = watch.Process.Kill(); _ = watch.Wait() }()
	lines := json.NewDecoder(out)
	var event struct{ Type, ID string }
	if err := lines.Decode(&event); err != nil || event.Type != "stats" {
		t.Fatalf("%+v %v", event, err)
	}
	waitFor(t, "the fifo", func() bool { return e.do("exec", "eventful", "ls", "/dev/shm/fifo").exit == 0 })
	e.ok("exec", "eventful", "sh", "-c", "echo go >/dev/shm/fifo")
	for event.Type != "oom" {
		if err := lines.Decode(&event); err != nil {
			t.Fatalf("no memory kill was told: %v", err)
		}
	}
}

func TestEventsOfWhatDoesNotRunAreRefused(t *testing.T) {
	e := newEngine(t, "true")
	e.ok("create", "--bundle", e.bundle, "ended")
	e.ok("start", "ended")
	waitFor(t, "the end", func() bool { s, _ := e.status("ended"); return s == "stopped" })
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"events", "--stats", "ended"}, "not running"},
		{[]string{"events", "ended"}, "not running"},
		{[]string{"events", "--interval", "0s", "ended"}, "must be greater than 0"},
		{[]string{"events", "nobody"}, "does not exist"},
	} {
		if o := e.do(c.args...); o.exit != 1 || !strings.Contains(o.stderr, c.says) {
			t.Errorf("%v: %+v", c.args, o)
		}
	}
	e.ok("delete", "ended")
}

func TestFeaturesAreThoseThatWork(t *testing.T) {
	out, err := exec.Command(sbxrun, "features").Output()
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Hooks, MountOptions []string
		Linux               struct {
			Namespaces, Capabilities []string
			Seccomp                  struct{ Enabled bool }
		}
	}
	if err := json.Unmarshal(out, &f); err != nil {
		t.Fatal(err)
	}
	if len(f.Hooks) != 6 || !slices.Contains(f.MountOptions, "rro") || !slices.Contains(f.MountOptions, "tmpcopyup") ||
		!slices.Contains(f.Linux.Namespaces, "user") || !slices.Contains(f.Linux.Capabilities, "CAP_SYS_ADMIN") || !f.Linux.Seccomp.Enabled {
		t.Errorf("%s", out)
	}
}

func TestHomeComesFromTheContainersUsers(t *testing.T) {
	e := newEngine(t, "echo $HOME")
	etc := filepath.Join(e.bundle, "rootfs", "etc")
	if err := errors.Join(os.MkdirAll(etc, 0o755), os.WriteFile(filepath.Join(etc, "passwd"), []byte("root:x:0:0::/root:/bin/sh\nme:x:7:7::/home/me:/bin/sh\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	for uid, want := range map[int]string{0: "/root", 7: "/home/me", 8: "/"} {
		edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["user"] = map[string]any{"uid": uid, "gid": uid} })
		if o := e.run("home"); o.stdout != want+"\n" {
			t.Errorf("user %d: %+v, want %s", uid, o, want)
		}
	}
	edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["env"] = []string{"HOME=/mine", "PATH=/bin"} })
	if o := e.run("home"); o.stdout != "/mine\n" {
		t.Errorf("%+v", o)
	}
}

// mayRaiseLimits says whether this process has CAP_SYS_RESOURCE.
func mayRaiseLimits(t *testing.T) bool {
	t.Helper()
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		t.Fatal(err)
	}
	return data[0].Effective&(1<<unix.CAP_SYS_RESOURCE) != 0
}

func TestALimitAboveTheCallersIsRefusedAtCreate(t *testing.T) {
	e := newEngine(t, "true")
	if mayRaiseLimits(t) {
		t.Skip("root has CAP_SYS_RESOURCE here: no limit is above his")
	}
	edit(t, e.bundle, func(c map[string]any) {
		c["process"].(map[string]any)["rlimits"] = []any{map[string]any{"type": "RLIMIT_NOFILE", "soft": 100, "hard": 1 << 40}}
	})
	if o := e.do("create", "--bundle", e.bundle, "greedy"); o.exit != 1 || !strings.Contains(o.stdout, "RLIMIT_NOFILE") {
		t.Errorf("%+v", o)
	}
}
