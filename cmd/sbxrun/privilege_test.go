// Tests of rights: whose they are, what a caller can do with sbxrun that he could not
// do without, and what his environment changes.

package main

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// stranger is an id that has no rights here, with another one for his neighbour.
const stranger, neighbour = 40001, 40002

// as lets a command be called by a user without rights, in an environment of his own.
func as(uid uint32, cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &unix.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	cmd.Env, cmd.Dir = []string{"PATH=" + os.Getenv("PATH")}, "/"
	return cmd
}

// openDir is a directory that everybody can pass.
func openDir(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for d := dir; strings.Contains(d, "Test"); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// elevated makes a copy of sbxrun that the change gives rights to.
func elevated(t *testing.T, change func(file string) error) string {
	t.Helper()
	file := filepath.Join(openDir(t), "sbxrun")
	text, err := os.ReadFile(sbxrun)
	if err == nil {
		err = os.WriteFile(file, text, 0o755)
	}
	if err == nil {
		err = change(file)
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestItDoesNotRunWithRightsThatTheCallerHasNot(t *testing.T) {
	needRoot(t)
	// struct vfs_cap_data: revision 2 with the effective mark, then CAP_SYS_ADMIN permitted.
	capability := binary.LittleEndian.AppendUint32(nil, 0x02000001)
	capability = binary.LittleEndian.AppendUint32(capability, 1<<unix.CAP_SYS_ADMIN)
	capability = append(capability, make([]byte, 12)...)
	for _, c := range []struct {
		by     string
		change func(string) error
	}{
		{"setuid", func(f string) error { return os.Chmod(f, 0o755|fs.ModeSetuid) }},
		{"setgid", func(f string) error { return os.Chmod(f, 0o755|fs.ModeSetgid) }},
		{"file capabilities", func(f string) error { return unix.Setxattr(f, "security.capability", capability, 0) }},
	} {
		t.Run(c.by, func(t *testing.T) {
			file := elevated(t, c.change)
			o := finishCommand(t, as(stranger, exec.Command(file, "code", "--level", "L0", "--", "/bin/echo", "ran")))
			if o.exit != 125 || o.stdout != "" || !strings.Contains(o.stderr, "("+c.by+")") {
				t.Errorf("the command: %+v", o)
			}
			// An init obeys whoever holds the other end of its channel.
			mark := filepath.Join(openDir(t), "mark")
			if err := os.Chmod(filepath.Dir(mark), 0o777); err != nil {
				t.Fatal(err)
			}
			var plan sbxinit.Plan
			plan.Add(sbxinit.OpExec, []uint64{3, 0}, "/bin/sh", "-c", "id -u >"+mark)
			asks(t, file, sbxinit.Name, plan.Encode())
			asks(t, file, "sbxrun-supervisor", []byte(`{"Root":"`+filepath.Dir(mark)+`","ID":"x"}`))
			if left, _ := os.ReadDir(filepath.Dir(mark)); len(left) > 0 {
				text, _ := os.ReadFile(mark)
				t.Errorf("it left %v, and ran as user %s", left, text)
			}
		})
	}
}

// asks starts the file under a name that makes it take orders on descriptor 3.
func asks(t *testing.T, file, name string, order []byte) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "ours"), os.NewFile(uintptr(pair[1]), "theirs")
	cmd := as(stranger, exec.Command(file))
	cmd.Args, cmd.ExtraFiles = []string{name}, []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	_, _ = ours.Write(order) // it may be gone
	_ = unix.Shutdown(pair[0], unix.SHUT_WR)
	_ = cmd.Wait()
	ours.Close()
}

func TestStateAndSocketsAreForTheirOwnerOnly(t *testing.T) {
	e := newEngine(t, "sleep 100")
	old := unix.Umask(0) // a careless caller
	defer unix.Umask(old)
	e.ok("create", "--bundle", e.bundle, "own")
	defer e.do("delete", "--force", "own")
	g := newGuarded(t, []string{"--level", "L5"}, "/bin/sleep", "100")
	g.root = e.root
	g.ok("create", "--bundle", g.bundle, "guarded")
	defer g.do("delete", "--force", "guarded")
	seen := 0
	err := filepath.WalkDir(e.root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		seen++
		if open := info.Mode().Perm() & 0o077; open != 0 {
			t.Errorf("%s has mode %v", name, info.Mode())
		}
		return nil
	})
	if err != nil || seen < 7 { // the root, and of each container a directory, a state and a socket
		t.Errorf("%d seen: %v", seen, err)
	}
}

func TestInitAndSupervisorHaveNoEnvironment(t *testing.T) {
	e := newEngine(t, "sleep 100")
	t.Setenv("SBXRUN_TEST_SECRET", "1")
	e.ok("create", "--bundle", e.bundle, "bare")
	defer e.do("delete", "--force", "bare")
	g := newGuarded(t, []string{"--level", "L5"}, "/bin/sleep", "100")
	g.ok("create", "--bundle", g.bundle, "guarded")
	defer g.do("delete", "--force", "guarded")
	_, pid := e.status("bare")
	pids := append(alive("sbxrun-supervisor"), fmt.Sprint(pid))
	if len(pids) < 2 {
		t.Fatalf("only %v", pids)
	}
	for _, p := range pids {
		if text, err := os.ReadFile("/proc/" + p + "/environ"); err != nil || len(text) > 0 {
			t.Errorf("process %s: %q %v", p, text, err)
		}
	}
}

// userEngine is an engine of an ordinary user, whose containers are where they are by
// default, below a place that he shares with others as it would be /tmp.
type userEngine struct {
	t              *testing.T
	uid            uint32
	bundle, shared string
}

func newUserEngine(t *testing.T, uid uint32, script string) *userEngine {
	t.Helper()
	e := &userEngine{t, uid, filepath.Dir(busyboxRoot(t)), openDir(t)}
	if err := os.Chmod(e.shared, 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	change := func(c map[string]any) {
		p := c["process"].(map[string]any)
		p["terminal"], p["args"] = false, []string{"/bin/sh", "-c", script}
		delete(c["linux"].(map[string]any), "resources")
		c["mounts"] = slices.DeleteFunc(c["mounts"].([]any), func(m any) bool {
			return strings.HasPrefix(m.(map[string]any)["destination"].(string), "/sys")
		})
	}
	for _, d := range []string{e.bundle, filepath.Join(e.bundle, "rootfs")} {
		if err := os.Lchown(d, int(uid), int(uid)); err != nil {
			t.Fatal(err)
		}
	}
	if o := e.do("spec", "--rootless", "--bundle", e.bundle); o.exit != 0 {
		t.Fatalf("spec: %+v", o)
	}
	edit(t, e.bundle, change)
	return e
}

func (e *userEngine) home() string { return filepath.Join(e.shared, "sbxrun") }

func (e *userEngine) do(args ...string) outcome {
	e.t.Helper()
	cmd := as(e.uid, exec.Command(sbxrun, args...))
	cmd.Env = append(cmd.Env, "XDG_RUNTIME_DIR="+e.shared)
	out, err := os.CreateTemp(e.t.TempDir(), "out")
	if err != nil {
		e.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	_ = cmd.Run()
	text, err := os.ReadFile(out.Name())
	if err != nil {
		e.t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), string(text), string(text)}
}

func TestUsersCannotTouchEachOthersContainers(t *testing.T) {
	needRoot(t)
	mine, theirs := newUserEngine(t, stranger, "sleep 100"), newUserEngine(t, neighbour, "sleep 100")
	if o := mine.do("create", "--bundle", mine.bundle, "mine"); o.exit != 0 {
		t.Fatalf("create: %+v", o)
	}
	defer mine.do("delete", "--force", "mine")
	if o := theirs.do("list", "-q"); o.exit != 0 || o.stdout != "" {
		t.Errorf("list: %+v", o)
	}
	for _, args := range [][]string{
		{"state", "mine"}, {"start", "mine"}, {"kill", "mine", "KILL"}, {"delete", "--force", "mine"}, {"exec", "mine", "true"},
		{"pause", "mine"}, {"ps", "mine"}, {"list"}, {"create", "--bundle", theirs.bundle, "more"},
	} {
		o := theirs.do(append([]string{"--root", mine.home()}, args...)...)
		if o.exit == 0 || !strings.Contains(o.stderr, fmt.Sprintf("belongs to user %d", mine.uid)) {
			t.Errorf("%v: %+v", args, o)
		}
	}
	if o := mine.do("state", "mine"); !strings.Contains(o.stdout, `"created"`) {
		t.Errorf("afterwards: %+v", o)
	}
}

func TestADirectoryThatOthersPreparedHoldsNoState(t *testing.T) {
	needRoot(t)
	mine := newUserEngine(t, stranger, "sleep 100")
	for _, c := range []struct {
		name, want string
		prepare    func() error
	}{
		{"another's directory", "belongs to user 40002", func() error {
			return firstOf(os.Mkdir(mine.home(), 0o777), os.Chmod(mine.home(), 0o777), os.Chown(mine.home(), neighbour, neighbour))
		}},
		{"another's link", "not a directory", func() error {
			return firstOf(os.Symlink("/var/tmp", mine.home()), os.Lchown(mine.home(), neighbour, neighbour))
		}},
		{"a directory of one's own that everybody can write to", "can be written by everybody", func() error {
			return firstOf(os.Mkdir(mine.home(), 0o777), os.Chmod(mine.home(), 0o777), os.Chown(mine.home(), stranger, stranger))
		}},
	} {
		if err := c.prepare(); err != nil {
			t.Fatal(err)
		}
		if o := mine.do("create", "--bundle", mine.bundle, "mine"); o.exit == 0 || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%s: %+v", c.name, o)
		}
		if err := os.RemoveAll(mine.home()); err != nil {
			t.Fatal(err)
		}
	}
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func TestAFileThatOthersCanChangeIsNamedWhenRootObeysIt(t *testing.T) {
	e := newEngine(t, "true")
	dir := openDir(t)
	policy := filepath.Join(dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte("level: L0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(e.bundle, "config.json")
	withPolicy := []string{"code", "--policy", policy, "--", "/bin/true"}
	withConfig := []string{"--root", e.root, "run", "--bundle", e.bundle, "warned"}
	for _, c := range []struct {
		name, want string
		args       []string
		mode       fs.FileMode
		owner      int
		at         string
	}{
		{"a policy of root's", "", withPolicy, 0o644, 0, policy},
		{"a policy of another's", policy + " belongs to user 40001", withPolicy, 0o644, stranger, policy},
		{"a policy that everybody can write", policy + " can be written by everybody", withPolicy, 0o666, 0, policy},
		{"a policy in another's directory", dir + " belongs to user 40001", withPolicy, 0o755, stranger, dir},
		{"a config of root's", "", withConfig, 0o644, 0, config},
		{"a config of another's", config + " belongs to user 40001", withConfig, 0o644, stranger, config},
		{"a bundle that everybody can write to", e.bundle + " can be written by everybody", withConfig, 0o777, 0, e.bundle},
	} {
		var was unix.Stat_t
		if err := firstOf(unix.Stat(c.at, &was), os.Chmod(c.at, c.mode), os.Chown(c.at, c.owner, 0)); err != nil {
			t.Fatal(err)
		}
		o := call(t, c.args...)
		if o.exit != 0 || !strings.Contains(o.stderr, c.want) || c.want == "" && o.stderr != "" {
			t.Errorf("%s: %+v, want %q", c.name, o, c.want)
		}
		if err := firstOf(os.Chmod(c.at, fs.FileMode(was.Mode&0o777)), os.Chown(c.at, int(was.Uid), int(was.Gid))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheEnvironmentChangesNothingOfARun(t *testing.T) {
	needRoot(t)
	theirs := openDir(t) // whoever owns TMPDIR can exchange what root makes in it
	if err := firstOf(os.Chmod(theirs, 0o777), os.Chown(theirs, stranger, stranger)); err != nil {
		t.Fatal(err)
	}
	hostile := append(os.Environ(), "LD_PRELOAD="+theirs+"/evil.so", "LD_LIBRARY_PATH="+theirs, "LD_AUDIT="+theirs+"/evil.so",
		"GODEBUG=gctrace=1,inittrace=1,execerrdot=0,asyncpreemptoff=1", "GOTRACEBACK=crash", "GOMAXPROCS=1", "GOGC=1", "GOMEMLIMIT=1MiB",
		"TMPDIR="+theirs, "XDG_RUNTIME_DIR="+theirs, "HOME="+theirs, "USER=evil", "NOTIFY_SOCKET="+theirs+"/n", "LISTEN_FDS=3")
	script := `env | sort | sed "s,/tmp/sbxrun-[^/]*,DIR,"; pwd | sed "s,/tmp/sbxrun-[^/]*,DIR,"; ls /proc/self/fd; ulimit -a; grep -E '^(Cap|NoNewPrivs|Seccomp|Sig(Blk|Ign|Cgt))' /proc/self/status; umask`
	run := func(env []string, level spec.Level) *runtime.Result {
		cmd := exec.Command(sbxrun, codeArgs(level, slow, []string{"/bin/sh", "-c", script})...)
		cmd.Env = env
		return finishCommand(t, cmd).verdict(t)
	}
	for _, level := range []spec.Level{spec.L2, spec.L3, spec.L5} {
		plain, changed := run([]string{"PATH=" + os.Getenv("PATH"), "TMPDIR=/tmp"}, level), run(hostile, level)
		if plain.Reason != runtime.Exited || changed.Reason != runtime.Exited || plain.Stdout.Text != changed.Stdout.Text || changed.Stderr.Text != "" {
			t.Errorf("%v: inside there is, with one environment and the other:\n%s\n%s\n%s (%s, %s)", level, plain.Stdout.Text, changed.Stdout.Text, changed.Stderr.Text, plain.Reason, changed.Reason)
		}
	}
	if left, _ := os.ReadDir(theirs); len(left) > 0 {
		t.Errorf("in the caller's directory there is %v", left)
	}
	e := newEngine(t, "env; exec cat /proc/self/status")
	cmd := e.command("run", "--bundle", e.bundle, "bare")
	cmd.Env = append(hostile, "GODEBUG=") // its traces go to stderr, which is the program's too
	if o := finishCommand(t, cmd); o.exit != 0 || strings.Contains(o.stdout, theirs) || strings.Contains(o.stdout, "GOTRACEBACK") {
		t.Errorf("%+v", o)
	}
}
