// Tests of a container's life as engines drive it.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// engine is a state directory and a bundle.
type engine struct {
	t            *testing.T
	root, bundle string
}

// newEngine makes a bundle whose program is the script.
func newEngine(t *testing.T, script string) *engine {
	t.Helper()
	needRoot(t)
	e := &engine{t: t, root: filepath.Join(t.TempDir(), "state"), bundle: filepath.Dir(busyboxRoot(t))}
	if o := call(t, "spec", "--bundle", e.bundle); o.exit != 0 {
		t.Fatalf("spec: %+v", o)
	}
	edit(t, e.bundle, func(c map[string]any) {
		p := c["process"].(map[string]any)
		p["terminal"], p["args"] = false, []string{"/bin/sh", "-c", script}
	})
	return e
}

func (e *engine) command(args ...string) *exec.Cmd {
	return exec.Command(sbxrun, append([]string{"--root", e.root}, args...)...)
}

// do runs a command. A container's stdio is its creator's, so that must not be a pipe
// that the test waits for.
func (e *engine) do(args ...string) outcome {
	e.t.Helper()
	cmd := e.command(args...)
	out, err := os.CreateTemp(e.t.TempDir(), "out")
	if err != nil {
		e.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout = out
	var text strings.Builder
	if slices.Contains(args, "create") || slices.Contains(args, "--detach") {
		cmd.Stderr = out
	} else {
		cmd.Stderr = &text
	}
	_ = cmd.Run()
	stdout, err := os.ReadFile(out.Name())
	if err != nil {
		e.t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), string(stdout), text.String()}
}

func (e *engine) ok(args ...string) outcome {
	e.t.Helper()
	o := e.do(args...)
	if o.exit != 0 {
		e.t.Fatalf("%v: %+v", args, o)
	}
	return o
}

func (e *engine) status(id string) (status string, pid int) {
	e.t.Helper()
	var st struct {
		Status string
		Pid    int
	}
	if err := json.Unmarshal([]byte(e.ok("state", id).stdout), &st); err != nil {
		e.t.Fatal(err)
	}
	return st.Status, st.Pid
}

func (e *engine) is(id, want string) {
	e.t.Helper()
	if got, _ := e.status(id); got != want {
		e.t.Fatalf("the container is %s, want %s", got, want)
	}
}

func TestAContainerLivesFromCreateToDelete(t *testing.T) {
	e := newEngine(t, "trap 'exit 3' TERM; echo up >/dev/shm/up; while :; do sleep 1; done")
	before := lookAround(t)
	pidFile := filepath.Join(t.TempDir(), "pid")
	e.ok("create", "--bundle", e.bundle, "--pid-file", pidFile, "life")
	e.is("life", "created")
	text, _ := os.ReadFile(pidFile)
	if _, pid := e.status("life"); string(text) != strconv.Itoa(pid) {
		t.Errorf("the pid file says %q, state says %d", text, pid)
	}
	if o := e.do("exec", "life", "ls", "/dev/shm"); o.stdout != "" {
		t.Errorf("before start the program has run: %+v", o)
	}
	e.ok("start", "life")
	e.is("life", "running")
	if o := e.do("start", "life"); o.exit == 0 {
		t.Error("it was started twice")
	}
	waitFor(t, "the program", func() bool { return e.do("exec", "life", "ls", "/dev/shm/up").exit == 0 })
	if o := e.do("exec", "--cwd", "/bin", "--env", "X=y", "life", "sh", "-c", "echo $X $(pwd) $$; exit 5"); o.exit != 5 || !strings.HasPrefix(o.stdout, "y /bin ") {
		t.Errorf("exec: %+v", o)
	}
	if o := e.do("delete", "life"); o.exit == 0 || !strings.Contains(o.stderr, "not stopped") {
		t.Errorf("a running container was deleted: %+v", o)
	}
	e.ok("pause", "life")
	e.is("life", "paused")
	if o := e.do("exec", "life", "true"); o.exit == 0 {
		t.Error("exec in a paused container")
	}
	e.ok("resume", "life")
	if o := e.ok("ps", "--format", "json", "life"); !strings.HasPrefix(o.stdout, "[") || len(strings.Split(o.stdout, ",")) < 1 {
		t.Errorf("ps: %q", o.stdout)
	}
	if o := e.ok("list", "-q"); o.stdout != "life\n" {
		t.Errorf("list: %q", o.stdout)
	}
	e.ok("kill", "life", "TERM")
	waitFor(t, "the end", func() bool { s, _ := e.status("life"); return s == "stopped" })
	if o := e.do("kill", "life"); o.exit == 0 || !strings.Contains(o.stderr, "not running") {
		t.Errorf("kill of a stopped container: %+v", o)
	}
	e.ok("delete", "life")
	if o := e.do("state", "life"); o.exit == 0 || !strings.Contains(o.stderr, "does not exist") {
		t.Errorf("state of a deleted container: %+v", o)
	}
	e.ok("delete", "--force", "life")
	nothingLeft(t, before)
}

func TestOfManyCallersWithOneIDExactlyOneWins(t *testing.T) {
	e := newEngine(t, "sleep 100")
	var won atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if e.command("create", "--bundle", e.bundle, "one").Run() == nil {
				won.Add(1)
			}
		})
	}
	wg.Wait()
	if won.Load() != 1 {
		t.Errorf("%d won", won.Load())
	}
	e.is("one", "created")
	e.ok("delete", "--force", "one")
}

func TestACreateThatIsKilledLeavesWhatDeleteRemoves(t *testing.T) {
	e := newEngine(t, "sleep 100")
	before := lookAround(t)
	for i := range 20 {
		id := fmt.Sprintf("killed-%d", i)
		cmd := e.command("create", "--bundle", e.bundle, id)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); time.Since(start) < time.Duration(i)*time.Millisecond; { // a little later each time
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if o := e.do("delete", "--force", id); o.exit != 0 {
			t.Errorf("delete: %+v", o)
		}
	}
	if left, _ := os.ReadDir(e.root); len(left) > 0 {
		t.Errorf("left in the state directory: %v", left)
	}
	waitFor(t, "inits to notice", func() bool { return len(alive("sbxrun-init")) == 0 })
	nothingLeft(t, before)
}

func TestAReusedPidIsNotTheContainer(t *testing.T) {
	e := newEngine(t, "sleep 100")
	e.ok("create", "--bundle", e.bundle, "old")
	file := filepath.Join(e.root, "old", "state.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, pid := e.status("old")
	other := exec.Command("sleep", "100")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	// As if the number had come round: the same record, another process.
	changed := strings.Replace(string(text), fmt.Sprintf(`"pid":%d`, pid), fmt.Sprintf(`"pid":%d`, other.Process.Pid), 1)
	if err := os.WriteFile(file, []byte(changed), 0o600); err != nil || changed == string(text) {
		t.Fatal(err)
	}
	e.is("old", "stopped")
	if o := e.do("kill", "old", "KILL"); o.exit == 0 {
		t.Error("a stranger was killed")
	}
	if err := other.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the stranger is gone: %v", err)
	}
	e.ok("delete", "old")
}

func TestTheTerminalGoesToTheConsoleSocket(t *testing.T) {
	e := newEngine(t, "test -t 0 && test -t 2 && echo a terminal; sleep 100")
	edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["terminal"] = true })
	if o := e.do("create", "--bundle", e.bundle, "tty"); o.exit == 0 {
		t.Error("a terminal without a socket was accepted")
	}
	socket := filepath.Join(t.TempDir(), "console")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	masters := make(chan *os.File, 1)
	go func() {
		c, err := l.AcceptUnix()
		if err != nil {
			return
		}
		defer c.Close()
		name, oob := make([]byte, 100), make([]byte, unix.CmsgSpace(4))
		_, n, _, _, err := c.ReadMsgUnix(name, oob)
		if err != nil {
			return
		}
		messages, _ := unix.ParseSocketControlMessage(oob[:n])
		for _, m := range messages {
			if fds, err := unix.ParseUnixRights(&m); err == nil {
				masters <- os.NewFile(uintptr(fds[0]), "master")
			}
		}
	}()
	e.ok("create", "--bundle", e.bundle, "--console-socket", socket, "tty")
	master := <-masters
	defer master.Close()
	e.ok("start", "tty")
	line := make([]byte, len("a terminal"))
	if _, err := io.ReadFull(master, line); err != nil || string(line) != "a terminal" {
		t.Errorf("the terminal says %q (%v)", line, err)
	}
	e.ok("delete", "--force", "tty")
}

func TestPreservedDescriptorsArrive(t *testing.T) {
	e := newEngine(t, "cat <&3; cat <&4")
	cmd := e.command("create", "--bundle", e.bundle, "--preserve-fds", "2", "fds")
	var files [2]*os.File
	for i := range files {
		f, err := os.CreateTemp(t.TempDir(), "f")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fmt.Fprintf(f, "file %d\n", i)
		_, _ = f.Seek(0, 0)
		files[i] = f
	}
	cmd.ExtraFiles = files[:]
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	e.ok("start", "fds")
	waitFor(t, "the end", func() bool { s, _ := e.status("fds"); return s == "stopped" })
	if text, _ := os.ReadFile(out.Name()); string(text) != "file 0\nfile 1\n" {
		t.Errorf("the program read %q", text)
	}
	e.ok("delete", "fds")
}

func TestContainersShareNamespacesByPath(t *testing.T) {
	e := newEngine(t, "sleep 100")
	e.ok("create", "--bundle", e.bundle, "first")
	e.ok("start", "first")
	_, pid := e.status("first")
	namespace := func(name string) string {
		to, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	edit(t, e.bundle, func(c map[string]any) {
		c["process"].(map[string]any)["args"] = []string{"/bin/sh", "-c", "ls -l /proc/self/ns/net /proc/self/ns/ipc /proc/self/ns/pid"}
		for _, ns := range c["linux"].(map[string]any)["namespaces"].([]any) {
			n := ns.(map[string]any)
			if name := map[any]string{"network": "net", "ipc": "ipc", "pid": "pid"}[n["type"]]; name != "" {
				n["path"] = fmt.Sprintf("/proc/%d/ns/%s", pid, name)
			}
		}
	})
	out, err := exec.Command(sbxrun, "run", "--bundle", e.bundle, "second").Output()
	if err != nil {
		t.Error(err)
	}
	for _, name := range []string{"net", "ipc", "pid"} {
		if want := namespace(name); !strings.Contains(string(out), want) {
			t.Errorf("the second container is not in %s: %q", want, out)
		}
	}
	edit(t, e.bundle, func(c map[string]any) {
		for _, ns := range c["linux"].(map[string]any)["namespaces"].([]any) {
			if n := ns.(map[string]any); n["type"] == "network" {
				n["path"] = fmt.Sprintf("/proc/%d/ns/uts", pid)
			}
		}
	})
	if o := e.do("create", "--bundle", e.bundle, "third"); o.exit != 1 || !strings.Contains(o.stdout, "is not a network namespace") {
		t.Errorf("a namespace of another kind: %+v", o)
	}
	e.ok("delete", "--force", "first")
}

func TestWhatCannotBeDoneIsRefusedInThisLife(t *testing.T) {
	e := newEngine(t, "true")
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"create", "--bundle", e.bundle, "../x"}, "invalid container ID"},
		{[]string{"create", "--bundle", e.bundle}, "requires exactly 1 argument"},
		{[]string{"start", "nobody"}, "does not exist"},
		{[]string{"kill", "nobody"}, "does not exist"},
		{[]string{"kill", "nobody", "NOSIGNAL"}, "unknown signal"},
		{[]string{"checkpoint", "nobody"}, "checkpoint: not supported"},
		{[]string{"restore", "nobody"}, "restore: not supported"},
	} {
		if o := e.do(tc.args...); o.exit == 0 || !strings.Contains(o.stderr+o.stdout, tc.want) {
			t.Errorf("%v: %+v, want %q", tc.args, o, tc.want)
		}
	}
	if left, _ := os.ReadDir(e.root); len(left) > 0 {
		t.Errorf("left in the state directory: %v", left)
	}
}

func TestAProgramThatIsNotThereIsToldByCreate(t *testing.T) {
	e := newEngine(t, "true")
	for program, says := range map[string]string{
		"/no/such/program": "stat /no/such/program: no such file",
		"nosuchprogram":    `"nosuchprogram": executable file not found in $PATH`,
		"/proc/version":    "permission denied",
	} {
		edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["args"] = []string{program} })
		if o := e.do("create", "--bundle", e.bundle, "none"); o.exit != 1 || !strings.Contains(o.stdout, says) {
			t.Errorf("%s: %+v", program, o)
		}
	}
}

func TestANewNetworkHasItsLoopbackAndTheDirectoryIsMade(t *testing.T) {
	e := newEngine(t, "pwd; busybox ifconfig lo")
	edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["cwd"] = "/made/here" })
	if o := e.run("looped"); !strings.HasPrefix(o.stdout, "/made/here\n") || !strings.Contains(o.stdout, "127.0.0.1") {
		t.Errorf("%+v", o)
	}
}

func TestTheBinaryCannotBeOverwrittenFromAContainer(t *testing.T) {
	e := newEngine(t, "sleep 100")
	e.ok("create", "--bundle", e.bundle, "victim")
	e.ok("start", "victim")
	before, err := os.ReadFile(sbxrun)
	if err != nil {
		t.Fatal(err)
	}
	// The entry point is a script whose interpreter is the runtime itself (CVE-2019-5736).
	script := "printf '#!/proc/self/exe\\n' >/dev/shm/s; chmod 755 /dev/shm/s; mount -o remount,exec /dev/shm 2>/dev/null; (while :; do for p in /proc/[0-9]*/exe; do (echo evil >$p) 2>/dev/null; done; done) & sleep 2; kill $!"
	cmd := e.command("exec", "victim", "sh", "-c", script)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		_ = e.command("exec", "victim", "/proc/self/exe", "x").Run()
		_ = e.command("exec", "victim", "/dev/shm/s").Run()
	}
	_ = cmd.Wait()
	// The same as the container's own entry point, with a writer that waits for it.
	root := filepath.Join(e.bundle, "rootfs")
	if err := os.WriteFile(filepath.Join(root, "entry"), []byte("#!/proc/self/exe\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["args"] = []string{"/entry"} })
	e.ok("create", "--bundle", e.bundle, "entry")
	_, pid := e.status("entry")
	// What the container's root would do: hold the file, wait until nothing executes it
	// any more, open it again for writing.
	held, err := os.OpenFile(fmt.Sprintf("/proc/%d/exe", pid), unix.O_PATH, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	_ = e.command("start", "entry").Run()
	waitFor(t, "the end", func() bool { s, _ := e.status("entry"); return s == "stopped" })
	again := fmt.Sprintf("/proc/self/fd/%d", held.Fd())
	if f, err := os.OpenFile(again, os.O_WRONLY, 0); err == nil {
		f.Close()
		t.Error("the binary can be opened for writing through the container's first process")
	} else if !errors.Is(err, unix.EROFS) {
		t.Errorf("opening it for writing fails with %v, want a read-only file system", err)
	}
	e.ok("delete", "--force", "entry")
	if after, err := os.ReadFile(sbxrun); err != nil || string(after) != string(before) {
		t.Error("the binary was overwritten")
	}
	e.ok("delete", "--force", "victim")
}
