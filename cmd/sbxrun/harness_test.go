// This file owns what the tests of the built binary share: building it, running
// it, reading its verdict, and looking for what it left behind.

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
	"testing"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// sbxrun and attackProgram are the binaries under test, attackProgram being
// hack/attack. Where there is no Go they come ready-made, by environment.
var (
	sbxrun        = os.Getenv("SBXRUN_TEST_BIN")
	attackProgram = os.Getenv("SBXRUN_TEST_ATTACK")
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(dialVariable); socket != "" {
		dialOnly(socket)
		return
	}
	dir, err := os.MkdirTemp("", "sbxrun-test-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err == nil && sbxrun == "" {
		sbxrun, attackProgram = filepath.Join(dir, "sbxrun"), filepath.Join(dir, "attack")
		err = errors.Join(build(sbxrun, "."), build(attackProgram, "../../hack/attack"), build(sbxrun+"-mcp", "../sbxrun-mcp"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

func build(out, pkg string, tags ...string) error {
	cmd := exec.Command("go", "build", "-tags", strings.Join(append(tags, "urfave_cli_no_docs"), ","), "-o", out, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", pkg, err, text)
	}
	return nil
}

// needRoot skips what an ordinary user cannot do.
func needRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
}

// needProgram finds a program that a test wants. In CI it must be there.
func needProgram(t testing.TB, names ...string) {
	t.Helper()
	for _, name := range names {
		if _, err := exec.LookPath(name); err == nil {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("%s is not installed, hack/deps should have done it", name)
		}
		t.Skipf("%s is not installed", name)
	}
}

// outcome is what one call of sbxrun did.
type outcome struct {
	exit           int
	stdout, stderr string
}

// call runs sbxrun with the arguments.
func call(t testing.TB, args ...string) outcome {
	t.Helper()
	return finishCommand(t, exec.Command(sbxrun, args...))
}

func finishCommand(t testing.TB, cmd *exec.Cmd) outcome {
	t.Helper()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v: %v", cmd.Args, err)
	}
	o := outcome{cmd.ProcessState.ExitCode(), out.String(), errOut.String()}
	if strings.Contains(o.stderr, "goroutine ") {
		t.Fatalf("%v panicked:\n%s", cmd.Args, o.stderr)
	}
	return o
}

// verdict reads the one Result that --json prints.
func (o outcome) verdict(t testing.TB) *runtime.Result {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(o.stdout))
	dec.DisallowUnknownFields()
	res := &runtime.Result{}
	if err := dec.Decode(res); err != nil {
		t.Fatalf("no Result in %q (stderr %q): %v", o.stdout, o.stderr, err)
	}
	if dec.More() {
		t.Fatalf("more than one object in %q", o.stdout)
	}
	return res
}

// code runs "sbxrun code --json" at a level. An argv that starts with "attack" is
// the attack program, which is put into the working directory where there is one.
func code(t testing.TB, level spec.Level, flags []string, argv ...string) *runtime.Result {
	t.Helper()
	return call(t, codeArgs(level, flags, argv)...).verdict(t)
}

func codeArgs(level spec.Level, flags, argv []string) []string {
	args := append([]string{"code", "--json", "--level", level.String()}, flags...)
	argv = slices.Clone(argv)
	if argv[0] == "attack" {
		argv[0] = attackProgram
		if level >= spec.L2 {
			argv[0] = "./attack"
			args = append(args, "--in", attackProgram+":attack")
		}
	}
	return append(append(args, "--"), argv...)
}

// saw reads the lines that an attack printed: what it tried, and whether it says
// that it got through.
func saw(t testing.TB, res *runtime.Result) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for line := range strings.Lines(res.Stdout.Text) {
		var l struct {
			What string `json:"what"`
			Got  bool   `json:"got_through"`
		}
		if json.Unmarshal([]byte(line), &l) == nil && l.What != "" {
			out[l.What] = l.Got
		}
	}
	return out
}

// traces is what a run could leave on the machine.
type traces struct {
	mounts string
	groups []string
	temp   []string
}

func lookAround(t testing.TB) traces {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	tr := traces{mounts: string(mounts)}
	temp, _ := filepath.Glob(filepath.Join(os.TempDir(), "sbxrun-run-*"))
	for _, dir := range temp {
		if left(strings.TrimPrefix(filepath.Base(dir), "sbxrun-")) {
			tr.temp = append(tr.temp, dir)
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && left(filepath.Base(p)) {
			tr.groups = append(tr.groups, p)
		}
		return nil // groups of others come and go
	})
	return tr
}

// left says whether an id is that of a run whose supervisor has ended: the machine
// may have runs of others going on.
func left(id string) bool {
	rest, ok := strings.CutPrefix(id, "run-")
	pid, _, _ := strings.Cut(rest, "-")
	_, err := os.Stat("/proc/" + pid)
	return ok && err != nil
}

// nothingLeft compares with what was there before. Tests that use it do not run
// beside others.
func nothingLeft(t testing.TB, before traces) {
	t.Helper()
	after := lookAround(t)
	if after.mounts != before.mounts {
		t.Errorf("mounts differ:\n%s\nbefore:\n%s", after.mounts, before.mounts)
	}
	if !slices.Equal(after.groups, before.groups) {
		t.Errorf("control groups are left: %v", after.groups)
	}
	if !slices.Equal(after.temp, before.temp) {
		t.Errorf("directories are left: %v", after.temp)
	}
}

// alive lists the processes whose command line has the text.
func alive(text string) (pids []string) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})), text) {
			pids = append(pids, strings.Split(f, "/")[2])
		}
	}
	return pids
}
