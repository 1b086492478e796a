// This file owns what the tests run inside groups: the test binary itself, under
// a helper's name, and the groups that they make.

package cgroup

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// helpers are the programs. Each prints a line when it is ready and reads a line
// before it does what it is for.
var helpers = map[string]func(args []string){
	"wait":   func([]string) { step("ready"); step("woken"); select {} },
	"eat":    func(args []string) { step("ready"); eat(args[0]); fmt.Println("ate") },
	"parent": parent,
	"fork":   forkUntilRefused,
	"forker": forkForEver,
	"spin":   func([]string) { step("ready"); spin() },
	"leaderless": func([]string) { // the first thread ends, the process lives
		second := make(chan struct{})
		go func() { // a thread for certain: without one the process would end
			runtime.LockOSThread()
			close(second)
			for {
				_ = unix.Pause()
			}
		}()
		<-second
		fmt.Println("ready")
		unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	},
	"create": create,
	"device": openDevice,
}

func init() {
	if len(os.Args) > 1 && os.Args[1] == "helper:leaderless" {
		runtime.LockOSThread() // main must run on the first thread
		go func() { select {} }()
	}
}

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if name, ok := strings.CutPrefix(os.Args[1], "helper:"); ok {
			helpers[name](os.Args[2:])
			return
		}
	}
	os.Exit(m.Run())
}

var stdin = bufio.NewReader(os.Stdin)

// step tells the test where the helper is and waits for its word.
func step(word string) {
	fmt.Println(word)
	if _, err := stdin.ReadString('\n'); err != nil {
		select {}
	}
}

func spin() {
	for n := 0; ; n++ {
	}
}

// eat touches so many MiB.
func eat(mib string) {
	n, _ := strconv.Atoi(mib)
	for range n {
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			fmt.Println(err)
			return
		}
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
	}
}

// parent waits for a child that eats.
func parent(args []string) {
	step("ready")
	c := exec.Command(os.Args[0], "helper:eat", args[0])
	c.Stdin = strings.NewReader("\n")
	fmt.Println("child:", c.Run())
	select {}
}

func forkUntilRefused([]string) {
	step("ready")
	for i := range 100 {
		if err := exec.Command("sleep", "1000").Start(); err != nil {
			fmt.Println(i, errors.Is(err, syscall.EAGAIN))
			select {}
		}
	}
	fmt.Println("never refused")
}

// forkForEver keeps replacing itself by children, as a fork bomb does.
func forkForEver([]string) {
	fmt.Println("ready")
	for {
		_ = exec.Command("sh", "-c", "sleep 1000 & sleep 1000 & sleep 1000 & exit").Start()
	}
}

// create makes a group like Create's caller would and prints what came of it.
func create(args []string) {
	var res specs.LinuxResources
	if err := json.Unmarshal([]byte(args[0]), &res); err != nil {
		fmt.Println(err)
		return
	}
	if len(args) > 1 {
		step("ready")
	}
	g, err := Create("", name(), &res)
	var m *Missing
	switch {
	case errors.As(err, &m):
		fmt.Printf("missing %s at %s: %v (%s)\n", m.Controller, m.Path, m.Err, m.Remedy)
	case err != nil:
		fmt.Println("error", err)
	default:
		at := g.String()
		fmt.Println("made", at, errors.Join(g.Arm(), g.Delete()))
	}
}

var names atomic.Int64

// name is an id that no other test uses.
func name() string { return fmt.Sprintf("test-%d-%d", os.Getpid(), names.Add(1)) }

// needRoot skips where the test cannot say anything.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("must be root to make groups and mounts")
	}
}

// pureV2 says whether all controllers are in the unified hierarchy.
func pureV2(t *testing.T) bool {
	t.Helper()
	h, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	return h.unified != nil && !h.onV1("memory")
}

// memory makes resources with a limit in MiB and no swap.
func memory(mib int64) *specs.LinuxResources {
	n := mib << 20
	return &specs.LinuxResources{Memory: &specs.LinuxMemory{Limit: &n, Swap: &n}}
}

func pids(n int64) *specs.LinuxResources {
	return &specs.LinuxResources{Pids: &specs.LinuxPids{Limit: &n}}
}

// group makes a group in the default place and sees to it that nothing of it is
// left after the test.
func group(t *testing.T, res *specs.LinuxResources) *Group {
	t.Helper()
	needRoot(t)
	return ended(t, "", res)
}

func ended(t *testing.T, path string, res *specs.LinuxResources) *Group {
	t.Helper()
	g, err := Create(path, name(), res)
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, d := range g.dirs {
		dirs = append(dirs, d.path)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Delete()); err != nil {
			t.Error(err)
		}
		for _, d := range dirs {
			if _, err := os.Stat(d); err == nil {
				t.Errorf("%s is left", d)
			}
		}
	})
	return g
}

// program is a helper that runs in a group.
type program struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// run starts a helper in g and waits until it is ready.
func run(t *testing.T, g *Group, helper string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(os.Args[0], append([]string{"helper:" + helper}, args...)...)}
	if fd := g.FD(); fd >= 0 {
		p.cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
	}
	p.pipes()
	if err := g.Enter(p.cmd.Start); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.cmd.Process.Kill(); _ = p.cmd.Wait() })
	if got := p.line(); got != "ready" {
		t.Fatalf("helper %s says %q", helper, got)
	}
	return p
}

func (p *program) pipes() {
	p.t.Helper()
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		p.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
}

func (p *program) line() string {
	s, _ := p.out.ReadString('\n')
	return strings.TrimSpace(s)
}

// goOn lets the helper do its work.
func (p *program) goOn() { _, _ = p.in.Write([]byte("\n")) }

// signal waits for the end and gives the signal that caused it.
func (p *program) signal() syscall.Signal {
	_ = p.cmd.Wait()
	return p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal()
}

// until waits for what another process brings about.
func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	err := wait(20*time.Second, func() (bool, error) { return done(), nil })
	if err != nil {
		t.Fatalf("%s: does not come", what)
	}
}

// where reads a file of proc that says in which groups a thread is.
func where(t *testing.T, proc string) standing {
	t.Helper()
	h, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	s, err := h.stands(filepath.Join("/proc", proc, "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
