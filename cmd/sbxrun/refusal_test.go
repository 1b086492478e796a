// Tests that the binary refuses: what the machine lacks, what the caller got wrong.
// In no case may the program run, and nothing may be left.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
)

func TestAMissingMechanismIsRefusedByName(t *testing.T) {
	for _, tc := range []struct {
		name, prepare    string // a shell command that takes the mechanism away
		layer, mechanism string
		errno            string
		flags            []string
		root             bool
	}{
		{"user namespaces", "echo 0 >/proc/sys/user/max_user_namespaces", "processes", "user namespace", "ENOSPC", nil, false},
		{"pid namespaces", "echo 0 >/proc/sys/user/max_pid_namespaces", "processes", "pid namespace", "ENOSPC", nil, false},
		{"network namespaces", "echo 0 >/proc/sys/user/max_net_namespaces", "network", "network namespace", "ENOSPC", nil, false},
		{"mount namespaces", "echo 0 >/proc/sys/user/max_mnt_namespaces", "processes", "mount namespace", "ENOSPC", nil, false},
		{"ipc namespaces", "echo 0 >/proc/sys/user/max_ipc_namespaces", "processes", "ipc namespace", "ENOSPC", nil, false},
		{"uts namespaces", "echo 0 >/proc/sys/user/max_uts_namespaces", "processes", "uts namespace", "ENOSPC", nil, false},
		{"cgroup namespaces", "echo 0 >/proc/sys/user/max_cgroup_namespaces", "processes", "cgroup namespace", "ENOSPC", nil, false},
		{"an unmasked /proc", "mount -t tmpfs none /proc/irq", "filesystem", "mount /proc", "EPERM", nil, false},
		{"control groups", "mount -t tmpfs none /sys/fs/cgroup", "limits", "cgroup memory", "", []string{}, true},
		{"control groups with controllers", "umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup", "limits", "cgroup memory", "", []string{}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			needProgram(t, "unshare")
			marker := filepath.Join(t.TempDir(), "ran")
			flags := "--cgroup off"
			outer := []string{"-Urm", "--propagation", "private"}
			if tc.root {
				needRoot(t)
				if text, _ := os.ReadFile("/sys/fs/cgroup/cgroup.controllers"); strings.Contains(string(text), "memory") && strings.Contains(tc.prepare, "umount") {
					t.Skip("this machine's cgroup v2 has the controllers: they cannot be taken away by a mount")
				}
				flags, outer = "", outer[1:]
				outer = append([]string{"-m"}, outer...)
			}
			script := tc.prepare + ` && exec "$0" code --json ` + flags + ` -- /bin/sh -c "echo >` + marker + `"`
			o := finishCommand(t, exec.Command("unshare", append(outer, "sh", "-c", script, sbxrun)...))
			refused(t, o, tc.layer, tc.mechanism, tc.errno)
			if _, err := os.Stat(marker); err == nil {
				t.Error("the program ran")
			}
			// The same as text: one line that starts in the documented way.
			o = finishCommand(t, exec.Command("unshare", append(outer, "sh", "-c", strings.Replace(script, " --json", "", 1), sbxrun)...))
			want := "sbxrun: sandbox unavailable: " + tc.layer + ": " + tc.mechanism + ": "
			if o.exit != 125 || !strings.HasPrefix(o.stderr, want) || strings.Count(o.stderr, "\n") != 1 || o.stdout != "" {
				t.Errorf("exit %d, stdout %q, stderr %q, want %q", o.exit, o.stdout, o.stderr, want)
			}
		})
	}
}

// refused checks the Result of a refusal.
func refused(t *testing.T, o outcome, layer, mechanism, errno string) {
	t.Helper()
	res := o.verdict(t)
	f := res.Error
	if o.exit != 125 || res.Reason != runtime.Unavailable || f == nil || res.ExitCode != nil {
		t.Fatalf("exit %d, result %+v, stderr %q", o.exit, res, o.stderr)
	}
	if f.Layer != layer || f.Mechanism != mechanism || errno != "" && f.Errno != errno || f.Remedy == "" {
		t.Errorf("refused with %+v, want %s, %s, %s and a remedy", f, layer, mechanism, errno)
	}
}

func TestAMissingSeccompIsRefused(t *testing.T) {
	needRoot(t)
	o := finishCommand(t, exec.Command(attackProgram, "no-seccomp", sbxrun, "code", "--json", "--", "/bin/echo", "ran"))
	refused(t, o, "syscalls", "seccomp", "EINVAL")
	// Where the policy does not ask for it, it is not needed.
	o = finishCommand(t, exec.Command(attackProgram, "no-seccomp", sbxrun, "code", "--level", "L4", "--", "/bin/echo", "ran"))
	if o.stdout != "ran\n" {
		t.Errorf("L4 without seccomp: %+v", o)
	}
}

func TestAnOrdinaryUserIsToldTheRemedy(t *testing.T) {
	needRoot(t)
	needProgram(t, "setpriv")
	dir, err := os.MkdirTemp("", "sbxrun-user-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	as := func(args ...string) outcome {
		cmd := exec.Command("setpriv", append([]string{"--reuid", "54321", "--regid", "54321", "--clear-groups", sbxrun, "code", "--json"}, args...)...)
		cmd.Dir = "/"
		return finishCommand(t, cmd)
	}
	o := as("--", "/bin/echo", "ran")
	res := o.verdict(t)
	if o.exit != 125 || res.Error == nil || res.Error.Layer != "limits" || !strings.Contains(res.Error.Remedy, "cgroup: off") {
		t.Fatalf("exit %d, %+v", o.exit, res.Error)
	}
	res = as("--cgroup", "off", "--", "/bin/sh", "-c", "id -u; grep -c . /proc/self/uid_map; cat /proc/self/uid_map").verdict(t)
	if res.Reason != runtime.Exited || !strings.HasPrefix(res.Stdout.Text, "0\n1\n") || !strings.Contains(res.Stdout.Text, "54321") {
		t.Errorf("with cgroup off: %s %q %q %v", res.Reason, res.Stdout.Text, res.Stderr.Text, res.Error)
	}
	if !strings.Contains(strings.Join(res.Wider, " "), "cgroup") {
		t.Errorf("going without a group does not show: wider %v", res.Wider)
	}
}

func TestBadInputGetsOneLineAndLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return file
	}
	bundle := func(name, config string) string { return filepath.Dir(write(name+"/config.json", config)) }
	minimal := func(more string) string {
		return `{"ociVersion":"1.0.2","process":{"cwd":"/","args":["true"]},"root":{"path":"rootfs"}` + more + `}`
	}
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	typo, script := write("typo.yaml", "limits:\n  wal: 3s\n"), write("x.py", "print(1)")
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		args []string
		want string // what the line must name
	}{
		{"no command", []string{"cod"}, `unknown command "cod"`},
		{"an unknown flag", []string{"code", "--wal", "3s", "x"}, "wal"},
		{"nothing to run", []string{"code"}, "nothing to run"},
		{"a missing file", []string{"code", filepath.Join(dir, "no.py")}, "no.py"},
		{"a directory as program", []string{"code", "--lang", "sh", dir}, "not a regular file"},
		{"a bad level", []string{"code", "--level", "L9", "--", "true"}, "L9"},
		{"an unreadable policy", []string{"code", "--policy", filepath.Join(dir, "no.yaml"), "--", "true"}, "no.yaml"},
		{"an unknown key", []string{"code", "--policy", typo, "--", "true"}, `typo.yaml:2:3: unknown key "limits.wal", did you mean "limits.wall"?`},
		{"a level beside a policy", []string{"code", "--policy", typo, "--level", "L1", "--", "true"}, "contradict"},
		{"a language for a command", []string{"code", "--lang", "sh", "--", "true"}, "contradict"},
		{"an unknown language", []string{"code", "--lang", "cobol", script}, "cobol"},
		{"a file of no known language", []string{"code", typo}, "--lang"},
		{"stdin without a language", []string{"code", "-"}, "--lang"},
		{"a negative time", []string{"code", "--wall", "-3s", "--", "true"}, "--wall"},
		{"a wrong size", []string{"code", "--memory", "lots", "--", "true"}, "--memory"},
		{"a variable without a value", []string{"code", "--env", "X", "--", "true"}, "--env"},
		{"a relative path to hide", []string{"code", "--hide", "etc", "--", "true"}, "--hide"},
		{"a file to put that is not there", []string{"code", "--in", filepath.Join(dir, "no"), "--", "true"}, "--in"},
		{"files without a working directory", []string{"code", "--level", "L1", "--in", script, "--", "true"}, "--in"},
		{"a FIFO as program", []string{"code", "--lang", "sh", fifo}, "not a regular file"},
		{"a FIFO to put in", []string{"code", "--in", fifo, "--", "true"}, "not a regular file"},
		{"a FIFO as policy", []string{"code", "--policy", fifo, "--", "true"}, "not a regular file"},
		{"an endless policy", []string{"code", "--policy", "/dev/zero", "--", "true"}, "not a regular file"},
		{"a device to take files to", []string{"code", "--out", "x:/dev/null", "--", "true"}, "not a regular file"},
		{"a place to take files to that is not there", []string{"code", "--out", "x:/no/such/dir/x", "--", "true"}, "--out"},
		{"a program that is not there", []string{"code", "--cgroup", "off", "--", "no-such-program"}, "no-such-program"},
		{"a program that is no program", []string{"code", "--cgroup", "off", "--", "/etc/passwd"}, `execute "/etc/passwd": permission denied`},
		{"nothing to compile", []string{"compile"}, "nothing to compile"},
		{"a root file system that is not there", []string{"compile", "--rootfs", "/no/such", "--", "true"}, "/no/such"},
		{"a bundle that is not there", []string{"run", "--bundle", filepath.Join(dir, "no"), "x"}, "config.json"},
		{"a bundle without a config", []string{"run", filepath.Join(dir, "empty")}, "config.json"},
		{"a config that is empty", []string{"run", bundle("a", "")}, "config.json"},
		{"a config that is no JSON", []string{"run", bundle("b", "level: L5")}, "config.json"},
		{"a config that is a list", []string{"run", bundle("c", "[]")}, "config.json"},
		{"a config with more behind it", []string{"run", bundle("d", minimal("")+"{}")}, "follows"},
		{"a config without a process", []string{"run", bundle("e", `{"ociVersion":"1.0.2","root":{"path":"r"}}`)}, "process.args"},
		{"a value of the wrong type", []string{"run", bundle("f", `{"ociVersion":"1.0.2","process":{"args":"true"}}`)}, "process.args"},
		{"nesting without end", []string{"run", bundle("g", strings.Repeat("[", 200000))}, "config.json"},
		{"a config too large", []string{"run", bundle("h", minimal(`,"hostname":"`+strings.Repeat("x", 5<<20)+`"`))}, "larger"},
		{"a root file system that is not there", []string{"run", bundle("i", minimal(`,"linux":{"namespaces":[{"type":"mount"}]}`))}, "root.path: lstat"},
		{"a relative mount target", []string{"run", bundle("j", minimal(`,"mounts":[{"destination":"proc","type":"proc"}],"linux":{"namespaces":[{"type":"mount"}]}`))}, "mounts[0].destination"},
		{"a NUL in an argument", []string{"run", bundle("k", strings.Replace(minimal(""), `"true"`, `"a\u0000b"`, 1))}, "NUL"},
		{"an unknown namespace", []string{"run", bundle("l", minimal(`,"linux":{"namespaces":[{"type":"galaxy"}]}`))}, "linux.namespaces[0].type"},
		{"an unknown rlimit", []string{"run", bundle("m", strings.Replace(minimal(`,"linux":{"namespaces":[{"type":"mount"}]}`), `"cwd"`, `"rlimits":[{"type":"RLIMIT_FUN"}],"cwd"`, 1))}, "process.rlimits[0].type"},
		{"an id that leads away", []string{"run", "--bundle", bundle("n", minimal("")), "../x"}, "container ID"},
		{"an empty id", []string{"run", "--bundle", bundle("o", minimal("")), ""}, "container ID"},
		{"an id too long", []string{"run", "--bundle", bundle("p", minimal("")), strings.Repeat("x", 1024)}, "container ID"},
		{"a verdict where there is no policy", []string{"run", "--result", filepath.Join(dir, "r"), bundle("q", minimal(""))}, "--result"},
		{"a wrong log format", []string{"--log-format", "xml", "doctor"}, "--log-format"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := lookAround(t)
			o := call(t, tc.args...)
			want := 125
			switch tc.args[0] { // as runc's, when there is no policy
			case "run":
				want = 1
			case "cod":
				want = 3
			}
			if o.exit != want || !strings.Contains(o.stderr, tc.want) || strings.Count(o.stderr, "\n") != 1 || len(o.stderr) > 1000 {
				t.Errorf("exit %d, stderr %q, want one line with %q and %d", o.exit, o.stderr, tc.want, want)
			}
			nothingLeft(t, before)
		})
	}
}

func TestAnErrorDoesNotSteerTheTerminal(t *testing.T) {
	o := call(t, "run", "--bundle", filepath.Join(t.TempDir(), "\x1b[2J\u202e\u009b"), "x")
	if o.exit == 0 || !strings.Contains(o.stderr, `\x1b[2J\u202e\u009b`) {
		t.Errorf("exit %d, stderr %q", o.exit, o.stderr)
	}
}

func TestADirectoryAsStdinIsNoWayOut(t *testing.T) {
	needRoot(t)
	cmd := exec.Command(sbxrun, "code", "--json", "--stdin", "--", "/bin/sh", "-c", "ls /proc/self/fd/0/")
	root, err := os.Open("/")
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	cmd.Stdin = root
	o := finishCommand(t, cmd)
	if res := o.verdict(t); o.exit != 125 || res.Error == nil || !strings.Contains(res.Error.Message, "stdin is a directory") {
		t.Errorf("%+v", o)
	}
}

// The program could open its stdin anew for writing, which no read-only mount forbids:
// the descriptor is of the host's. Here anybody may write the file; an ordinary user's
// program may write all that is his.
func TestAFileAsStdinCannotBeChangedByTheProgram(t *testing.T) {
	needRoot(t)
	const script = "(echo evil >/proc/self/fd/0) 2>/dev/null; chmod 777 /proc/self/fd/0 2>/dev/null; cat"
	text := strings.Repeat("a line\n", 30_000) // more than a pipe holds
	s := newSessions(t)
	s.create("a", "--level", "L5", "--output-chars", "off", "--wall", "20s")
	for name, cmd := range map[string]*exec.Cmd{
		"code":    exec.Command(sbxrun, "code", "--stdin", "--output-chars", "off", "--wall", "20s", "--", "/bin/sh", "-c", script),
		"session": s.command("run", "--stdin", "a", "--", "/bin/sh", "-c", script),
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "input")
			if err := firstOf(os.WriteFile(file, []byte(text), 0o600), os.Chmod(file, 0o666)); err != nil {
				t.Fatal(err)
			}
			in, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			cmd.Stdin = in
			o := finishCommand(t, cmd)
			if now, err := os.ReadFile(file); err != nil || string(now) != text {
				t.Errorf("the file has %.40q %v", now, err)
			}
			if o.exit != 0 || !strings.HasSuffix(o.stdout, text) && !strings.HasSuffix(o.stdout, "evil\n") {
				t.Errorf("exit %d, %d bytes, %s", o.exit, len(o.stdout), o.stderr)
			}
		})
	}
}

func TestAnErrorIsInTheLogAsEnginesReadIt(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	call(t, "--log", log, "--log-format", "json", "run", "--bundle", "/no/such/bundle", "x")
	text, err := os.ReadFile(log)
	if err != nil || !strings.Contains(string(text), `"level":"error"`) || !strings.Contains(string(text), `"msg":"open the bundle`) {
		t.Errorf("the log says %q (%v)", text, err)
	}
}

// A supervisor that is stopped has no clock either.
func TestARunInTheBackgroundIsNotStoppedByItsTerminal(t *testing.T) {
	needRoot(t)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err := firstOf(err, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)); err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	if _, err := master.WriteString("typed\n"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-mc", `"$0" code --stdin --wall 300s -- /bin/sh -c 'cat; echo done' & wait $!; echo "exit $?"`, sbxrun)
	cmd.Stdin = slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if o := finishCommand(t, cmd); o.stdout != "done\nexit 0\n" {
		t.Errorf("%+v", o)
	}
}
