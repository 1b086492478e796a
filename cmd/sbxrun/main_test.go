// Tests of the commands doing what they are for.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

func TestCodeRunsSourceTextInEveryWay(t *testing.T) {
	needRoot(t)
	needProgram(t, "python3")
	dir := t.TempDir()
	file := filepath.Join(dir, "six.py")
	if err := os.WriteFile(file, []byte("import sys\nprint(6*7, sys.argv[1:])\nsys.exit(3)\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"L0", "L1", "L2", "L4", "L5"} {
		for _, tc := range []struct {
			name string
			args []string
			in   string
		}{
			{"a file", []string{file, "a", "b"}, ""},
			{"stdin", []string{"--lang", "python", "-"}, "import sys\nprint(6*7, sys.argv[1:])\nsys.exit(3)\n"},
			{"a command", []string{"--", "/bin/sh", "-c", "echo 42; exit 3"}, ""},
		} {
			cmd := exec.Command(sbxrun, append([]string{"code", "--level", level, "--wall", "60s", "--cpu", "60s"}, tc.args...)...)
			cmd.Stdin = strings.NewReader(tc.in)
			if o := finishCommand(t, cmd); o.exit != 3 || !strings.HasPrefix(o.stdout, "42") || o.stderr != "" {
				t.Errorf("%s at %s: %+v", tc.name, level, o)
			}
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "sbxrun-*-main.py")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestFilesGoInAndComeOut(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.txt"), filepath.Join(dir, "out.txt")
	if err := os.WriteFile(in, []byte("to be counted"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, level := range []string{"L2", "L3", "L5"} {
		o := call(t, "code", "--level", level, "--in", in+":sub/data", "--out", "n:"+out, "--", "/bin/sh", "-c", "wc -c <sub/data >n")
		text, err := os.ReadFile(out)
		if o.exit != 0 || err != nil || strings.TrimSpace(string(text)) != "13" {
			t.Errorf("%s: %+v, %q, %v", level, o, text, err)
		}
		os.Remove(out)
		// What is a program stays one.
		o = call(t, "code", "--level", level, "--out", "n:"+out, "--", "/bin/sh", "-c", "echo x >n; chmod 755 n")
		if st, err := os.Stat(out); o.exit != 0 || err != nil || st.Mode().Perm() != 0o700 {
			t.Errorf("%s: %+v, %v", level, o, err)
		}
		os.Remove(out)
		// An output that is not there changes nothing of the verdict.
		o = call(t, "code", "--json", "--level", level, "--out", "gone:"+out, "--", "/bin/sh", "-c", "exit 3")
		if res := o.verdict(t); o.exit != 125 || res.Reason != runtime.Exited || *res.ExitCode != 3 || res.Error == nil {
			t.Errorf("%s: %+v", level, o)
		}
		// What hostile code leaves under the name must not be followed.
		o = call(t, "code", "--level", level, "--out", "n:"+out, "--", "/bin/sh", "-c", "ln -s /etc/hostname n")
		if _, err := os.Stat(out); o.exit != 125 || err == nil || !strings.Contains(o.stderr, "symbolic link") {
			t.Errorf("%s: a link was followed: %+v", level, o)
		}
	}
}

func TestACommaIsACharacterLikeAnyOther(t *testing.T) {
	needRoot(t)
	in := filepath.Join(t.TempDir(), "a,b.txt")
	if err := os.WriteFile(in, []byte("one file"), 0o600); err != nil {
		t.Fatal(err)
	}
	o := call(t, "code", "--in", in, "--env", "LIST=x,PATH=/evil", "--", "/bin/sh", "-c", `ls; cat a,b.txt; echo " $LIST"`)
	if o.stdout != "a,b.txt\ntmp\none file x,PATH=/evil\n" {
		t.Errorf("%+v", o)
	}
}

func TestOutputThatCannotBePrintedIsAnError(t *testing.T) {
	needRoot(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	cmd := exec.Command(sbxrun, "code", "--", "/bin/echo", "lost")
	cmd.Stdout = full
	var text strings.Builder
	cmd.Stderr = &text
	_ = cmd.Run()
	if cmd.ProcessState.ExitCode() != 125 || !strings.Contains(text.String(), "no space left") {
		t.Errorf("exit %d, %q", cmd.ProcessState.ExitCode(), text.String())
	}
}

func TestExitCodesTellFinishedFromStopped(t *testing.T) {
	needRoot(t)
	for _, tc := range []struct {
		script, flags string
		exit          int
		stderr        string
	}{
		{"exit 0", "", 0, ""},
		{"exit 7", "", 7, ""},
		{"kill -TERM $$", "", 128 + 15, "sbxrun: signaled: ended by SIGTERM\n"},
		{"sleep 9", "--wall=100ms", 128 + 9, "sbxrun: wall_clock: killed after 100ms of wall clock\n"},
		{"for i in $(seq 30); do sleep 2 & done 2>/dev/null; exit 0", "--wall=9s", 128 + 9, "sbxrun: processes: "},
	} {
		args := []string{"code", "--wall=9s", "--", "/bin/sh", "-c", tc.script}
		if tc.flags != "" {
			args[1] = tc.flags
		}
		if o := call(t, args...); o.exit != tc.exit || !strings.HasPrefix(o.stderr, tc.stderr) || tc.stderr == "" && o.stderr != "" {
			t.Errorf("%q: exit %d and %q, want %d and %q", tc.script, o.exit, o.stderr, tc.exit, tc.stderr)
		}
	}
}

func TestEveryResultMatchesItsSchema(t *testing.T) {
	needRoot(t)
	if _, err := os.Stat("../../runtime/result.schema.json"); err != nil {
		t.Skip("the schema is not beside the test binary")
	}
	s, err := jsonschema.NewCompiler().Compile("../../runtime/result.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	valid := func(text string) error {
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
		if err != nil {
			return err
		}
		return s.Validate(v)
	}
	for _, args := range [][]string{
		{"--", "/bin/true"},
		{"--level", "L0", "--", "/bin/true"},
		{"--wall", "50ms", "--", "/bin/sleep", "5"},
		{"--memory", "16MiB", "--", "/bin/sh", "-c", "x=a; while :; do x=$x$x; done"},
		{"--", "/bin/sh", "-c", `printf '\377'; kill -9 $$`},
		{"--", "/no/such/program"},
		{"--level", "L9", "--", "true"},
		{"--procs", "2", "--", "/bin/sh", "-c", "sleep 1 & sleep 1 & sleep 1 & wait"},
	} {
		if o := call(t, append([]string{"code", "--json"}, args...)...); valid(o.stdout) != nil {
			t.Errorf("%v: %v\n%s", args, valid(o.stdout), o.stdout)
		}
	}
	if valid(`{"reason":"exited"}`) == nil {
		t.Error("the schema accepts anything")
	}
}

func TestACompiledBundleRunsAsThePolicySays(t *testing.T) {
	needRoot(t)
	for _, level := range []spec.Level{spec.L0, spec.L1, spec.L2, spec.L3, spec.L4, spec.L5} {
		dir := filepath.Join(t.TempDir(), "b")
		if o := call(t, "compile", "--level", level.String(), "--wall", "3s", "-o", dir, "--", "/bin/sh", "-c", "id -u; pwd; cat /proc/self/status; sleep 300"); o.exit != 0 {
			t.Fatalf("compile: %+v", o)
		}
		before := lookAround(t)
		result := filepath.Join(dir, "result.json")
		o := call(t, "run", "--result", result, "--bundle", dir, "some-id")
		var res runtime.Result
		text, _ := os.ReadFile(result)
		if err := json.Unmarshal(text, &res); err != nil {
			t.Fatalf("%v: no Result: %v, %+v", level, err, o)
		}
		if o.exit != 137 || res.Reason != runtime.WallClock || res.ID != "some-id" || res.Level != level || !strings.HasPrefix(o.stdout, "0\n") {
			t.Errorf("%v: %+v, %+v", level, o, res)
		}
		if dropped := strings.Contains(o.stdout, "CapEff:\t0000000000000000"); dropped != (level == spec.L5) {
			t.Errorf("%v: capabilities dropped: %v", level, dropped)
		}
		nothingLeft(t, before)
		if o := call(t, "compile", "-o", dir, "--", "true"); o.exit != 125 || !strings.Contains(o.stderr, "exists") {
			t.Errorf("a bundle was overwritten: %+v", o)
		}
	}
}

// busyboxRoot makes a root file system of busybox alone.
func busyboxRoot(t testing.TB) string {
	t.Helper()
	needProgram(t, "busybox")
	busybox, _ := exec.LookPath("busybox")
	dir := t.TempDir()
	for d := dir; strings.Contains(d, "Test"); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "rootfs")
	if err := os.MkdirAll(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(busybox)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "bin", "busybox"), text, 0o755)
	}
	for _, name := range []string{"sh", "true", "id", "cat", "ls", "sleep", "hostname", "mount"} {
		if err == nil {
			err = os.Symlink("busybox", filepath.Join(root, "bin", name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

func TestABundleWithoutAPolicyRunsAsWithRunc(t *testing.T) {
	needRoot(t)
	root := busyboxRoot(t)
	dir := filepath.Dir(root)
	if o := call(t, "spec", "--bundle", dir); o.exit != 0 {
		t.Fatalf("spec: %+v", o)
	}
	for _, tc := range []struct {
		name, script string
		exit         int
		stdout       string
	}{
		{"the exit code comes through", "exit 5", 5, ""},
		{"a signal gives 128 and its number", "exec sleep 30 & kill -9 $!; wait $!; exit $?", 137, ""},
		{"the root is read-only", "echo x >/x 2>/dev/null || echo no", 0, "no\n"},
		{"the program is the first process", "echo $$; hostname", 0, "1\nsbxrun\n"},
		{"devices are there", "ls /dev | tr '\\n' ' '", 0, "fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero "},
		{"masked paths are empty", "ls -A /sys/firmware; cat /proc/keys 2>/dev/null; echo end", 0, "end\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := lookAround(t)
			edit(t, dir, func(c map[string]any) {
				p := c["process"].(map[string]any)
				p["terminal"], p["args"] = false, []string{"/bin/busybox", "sh", "-c", tc.script}
			})
			o := call(t, "run", "--bundle", dir, "plain")
			if o.exit != tc.exit || o.stdout != tc.stdout {
				t.Errorf("%+v, want exit %d and %q", o, tc.exit, tc.stdout)
			}
			nothingLeft(t, before)
		})
	}
}

// edit changes a bundle's config.json.
func edit(t testing.TB, dir string, change func(map[string]any)) {
	t.Helper()
	file := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(file)
	var config map[string]any
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err == nil {
		change(config)
		text, err = json.Marshal(config)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// portable says which compiled levels other runtimes can run. The README repeats it.
//
// From L3 on they need a root file system that belongs to the run's id: the host's
// "/" they refuse. Below, crun refuses a config without mounts.
var portable = map[string][]string{"runc": {"L0", "L1", "L2", "L3", "L4", "L5"}, "crun": {"L3", "L4", "L5"}}

func TestWhichLevelsOtherRuntimesRun(t *testing.T) {
	needRoot(t)
	needProgram(t, "runc", "crun", "unshare")
	root := busyboxRoot(t)
	own := filepath.WalkDir(root, func(p string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, int(uint32(spec.BundleRunID)), int(uint32(spec.BundleRunID))))
	})
	if own != nil {
		t.Fatal(own)
	}
	for _, peer := range []string{"runc", "crun"} {
		var works []string
		for _, level := range []spec.Level{spec.L0, spec.L1, spec.L2, spec.L3, spec.L4, spec.L5} {
			dir := filepath.Join(t.TempDir(), "b")
			args := []string{"compile", "--level", level.String(), "--cgroup", "off", "--memory", "0", "-o", dir}
			if level >= spec.L3 {
				args = append(args, "--rootfs", root)
			}
			if o := call(t, append(args, "--", "/bin/sh", "-c", "echo it ran")...); o.exit != 0 {
				t.Fatalf("compile: %+v", o)
			}
			// In a view of pure cgroup v2: crun takes no hybrid. A private /dev/null,
			// since both would hand the host's to the container's user.
			// And a private /dev, since with the host's "/" as root runc puts a link in ptmx's place.
			script := `umount -R /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup
				dev=$(mktemp -d); mount -t tmpfs dev "$dev"
				cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$dev"
				mknod "$dev/ptmx" c 5 2; mkdir "$dev/pts" "$dev/shm"; mount --bind "$dev" /dev; umount "$dev"; rmdir "$dev"
				exec "$@" </dev/zero`
			id := fmt.Sprintf("port-%s-%v-%d", peer, level, os.Getpid())
			cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", peer, "--root", t.TempDir(), "run", "--bundle", dir, id)
			o := finishCommand(t, cmd)
			if o.exit == 0 && o.stdout == "it ran\n" {
				works = append(works, level.String())
			}
			t.Logf("%s %v: exit %d %q %.200q", peer, level, o.exit, o.stdout, o.stderr)
		}
		if !slices.Equal(works, portable[peer]) {
			t.Errorf("%s runs %v, the README says %v", peer, works, portable[peer])
		}
	}
}

func TestDoctorSaysWhatIsThere(t *testing.T) {
	needRoot(t)
	o := call(t, "doctor", "--json")
	var report struct {
		Healthy  bool
		Findings []runtime.Finding
	}
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || o.exit != 0 || !report.Healthy || len(report.Findings) < 12 {
		t.Fatalf("%+v %v", o, err)
	}
	o = finishCommand(t, exec.Command("unshare", "-m", "sh", "-c", `mount -t tmpfs none /sys/fs/cgroup; exec "$0" doctor`, sbxrun))
	if o.exit != 1 || !strings.Contains(o.stdout, "NO") || !strings.Contains(o.stdout, "remedy: mount the control groups") {
		t.Errorf("without control groups: %+v", o)
	}
}

func TestInitTakesOverBeforePackagesThatItDoesNotNeed(t *testing.T) {
	cmd := exec.Command(sbxrun)
	cmd.Args = []string{"sbxrun-init"}
	cmd.Env = []string{"GODEBUG=inittrace=1"}
	text, _ := cmd.CombinedOutput() // without a channel it ends at once
	for _, pkg := range []string{"containerd/cgroups", "godbus/dbus", "go-systemd", "protobuf/internal/impl", "urfave/cli", "go.yaml.in", "sbxrun/runtime"} {
		if strings.Contains(string(text), pkg) {
			t.Errorf("%s is initialised in every init", pkg)
		}
	}
	if !strings.Contains(string(text), "init syscall @") || cmd.ProcessState.ExitCode() != 125 {
		t.Errorf("there is no trace, or no init: %s, %.200q", cmd.ProcessState, text)
	}
}

func TestHonestRunsAreRightBesideHostileOnes(t *testing.T) {
	needRoot(t)
	bombs, hogs, honest := 50, 50, 20
	if testing.Short() {
		bombs, hogs, honest = 5, 5, 4
	}
	before := lookAround(t)
	type job struct {
		argv   []string
		reason runtime.Reason
		output string
	}
	var jobs []job
	for range bombs {
		jobs = append(jobs, job{[]string{"/bin/sh", "-c", "b() { b | b & }; b; sleep 60"}, runtime.Processes, ""})
	}
	for range hogs {
		jobs = append(jobs, job{[]string{"attack", "heap", "400"}, runtime.OOM, ""})
	}
	for i := range honest {
		jobs = append(jobs, job{[]string{"/bin/sh", "-c", fmt.Sprintf("n=%d; i=2; while [ $((i*i)) -le $n ]; do while [ $((n%%i)) = 0 ]; do echo $i; n=$((n/i)); done; i=$((i+1)); done; echo $n", 2*3*10007*(i+1))}, runtime.Exited, "10007\n"})
	}
	var wg sync.WaitGroup
	for i, j := range jobs {
		wg.Go(func() {
			cmd := exec.Command(sbxrun, codeArgs(spec.L5, []string{"--wall", "300s", "--cpu", "200s", "--memory", "64MiB"}, j.argv)...)
			text, _ := cmd.Output()
			var res runtime.Result
			if err := json.NewDecoder(bytes.NewReader(text)).Decode(&res); err != nil {
				t.Errorf("job %d: no Result: %v in %q", i, err, text)
				return
			}
			if res.Reason != j.reason || !strings.Contains(res.Stdout.Text, j.output) {
				t.Errorf("job %d (%s): ended for %s with %+v, error %+v, output %.200q", i, j.argv[len(j.argv)-1], res.Reason, res.Evidence, res.Error, res.Stdout.Text)
			}
		})
	}
	wg.Wait()
	nothingLeft(t, before)
}
