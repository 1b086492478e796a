// This file owns exec: a further process in a running container.

package runtime

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

// ExecOptions are the flags of "exec".
type ExecOptions struct {
	Process       *specs.Process
	PidFile       string
	ConsoleSocket string
	Detach        bool
	IgnorePaused  bool              // a paused container is no error: it runs when that is resumed
	Groups        map[string]string // groups below the container's, by controller, "" for all others
	Keep          []*os.File
}

// joinOrder lists the namespaces in the order of joining: the user namespace first,
// because it gives the right to join the others, the mount namespace last, because
// it takes the host's files out of sight.
var joinOrder = []string{"user", "ipc", "uts", "net", "cgroup", "pid", "mnt"}

// Exec runs a process in the container's namespaces and group, under its system
// call filter. It returns the exit code, 128 + signal for a signal; with Detach it
// returns 0 as soon as the process runs.
func (c *Container) Exec(opt ExecOptions) (int, error) {
	switch status, err := c.Status(); {
	case err != nil:
		return 0, err
	case status == specs.StateRunning || status == specs.StateCreated:
	case status == Paused && opt.IgnorePaused:
	case status == Paused:
		return 0, errors.New("cannot exec in a paused container (use --ignore-paused to override)")
	default:
		return 0, fmt.Errorf("cannot exec in a %s container", status)
	}
	if err := checkConsole(opt.Process, opt.ConsoleSocket, opt.Detach); err != nil {
		return 0, err
	}
	plan, err := c.execPlan(opt)
	if err != nil {
		return 0, err
	}
	c.store.tell(plan)
	ch, err := c.join(plan, opt)
	if err != nil {
		return 0, err
	}
	defer ch.close()
	err = nil
	if opt.IgnorePaused { // whoever resumes it needs the lock
		err = c.Close()
	}
	if err == nil {
		err = c.adoptExec(ch, opt)
	}
	// It is in the container's groups and ends with them. Others may pause, kill or delete
	// meanwhile: the container's processes can stop it for ever.
	if err = errors.Join(err, c.Close()); err == nil {
		err = c.settleExec(ch, plan, opt)
	}
	if err != nil {
		ch.abandon()
		return 0, explain(err)
	}
	if opt.Detach {
		return 0, nil
	}
	return ch.wait(opt.Process.Terminal && opt.ConsoleSocket == "")
}

// execPlan is what the new process's init does: no namespace or mount, all the rest.
func (c *Container) execPlan(opt ExecOptions) (*blueprint, error) {
	sp := *c.record.Config
	sp.Process, sp.Hooks = opt.Process, nil
	if len(sp.Process.Args) == 0 {
		return nil, errors.New("process.args: missing")
	}
	if !path.IsAbs(sp.Process.Cwd) {
		return nil, fmt.Errorf("process.cwd: %q is not an absolute path", sp.Process.Cwd)
	}
	b := &blueprint{spec: &sp, kept: len(opt.Keep)}
	if opt.Process.Terminal {
		b.plan.Add(sbxinit.OpTerminal, consoleStep(opt.Process))
	}
	_, final, err := affinity(opt.Process)
	if err != nil {
		return nil, err
	}
	if len(final) > 0 {
		b.plan.Add(sbxinit.OpAffinity, final)
	}
	b.plan.Add(sbxinit.OpReady, nil)
	return b, b.process("")
}

// join starts the init in the container's namespaces.
func (c *Container) join(b *blueprint, opt ExecOptions) (*child, error) {
	pidfd, err := c.openFirst()
	if err != nil {
		return nil, err
	}
	defer unix.Close(pidfd)
	namespaces, root, err := namespacesOf(c.record.Pid)
	defer closeAll(namespaces)
	if err != nil {
		return nil, err
	}
	exe, err := protectedSelf()
	if err != nil {
		return nil, err
	}
	defer exe.Close()
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	defer null.Close()
	// Opened by number before: is it still the same process?
	again, err := c.openFirst()
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	unix.Close(again)
	files := append([]*os.File{os.Stdin, os.Stdout, os.Stderr, theirs, null, null, null}, opt.Keep...)
	j := joint{root: root}
	proc, err := j.start(namespaces, exe, files)
	if err != nil {
		return nil, errors.Join(err, ours.Close())
	}
	return &child{proc: proc, channel: ours}, nil
}

// namespacesOf opens the namespaces of pid that are not sbxrun's own. root says
// whether a user namespace is among them.
func namespacesOf(pid int) (files []*os.File, root bool, err error) {
	for _, name := range joinOrder {
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns", name))
		if err != nil {
			return files, root, fmt.Errorf("open the container's namespaces: %w", err)
		}
		files = append(files, f)
		var theirs, ours unix.Stat_t
		if err := errors.Join(unix.Fstat(int(f.Fd()), &theirs), unix.Stat("/proc/self/ns/"+name, &ours)); err != nil {
			return files, root, fmt.Errorf("open the container's namespaces: %w", err)
		}
		if theirs.Ino == ours.Ino {
			files = files[:len(files)-1]
			f.Close()
		} else if name == "user" {
			root = true
		}
	}
	return files, root, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// adoptExec puts the started init where it is to run.
func (c *Container) adoptExec(ch *child, opt ExecOptions) error {
	initial, _, err := affinity(opt.Process)
	if err != nil {
		return err
	}
	if len(initial) > 0 {
		if err := startOn(ch.proc.Pid, initial); err != nil {
			return err
		}
	}
	g := c.group()
	if g == nil {
		return nil
	}
	defer g.Close()
	return g.AdoptBelow(ch.proc.Pid, c.record.Pid, opt.Groups)
}

// settleExec takes the init up to its execve.
func (c *Container) settleExec(ch *child, plan *blueprint, opt ExecOptions) error {
	if err := ch.prepare(plan.plan, nil); err != nil {
		return err
	}
	if ch.hand != nil && opt.ConsoleSocket != "" {
		if err := sendTerminal(opt.ConsoleSocket, ch.hand); err != nil {
			return err
		}
	}
	if opt.PidFile != "" {
		if err := writeAtomically(opt.PidFile, []byte(strconv.Itoa(ch.proc.Pid))); err != nil {
			return fmt.Errorf("write the pid file: %w", err)
		}
	}
	ch.listen = c.listener(ch.proc.Pid)
	return ch.release(false, nil, nil)
}

// wait waits for the program, passing signals on, and its terminal when it has one.
func (c *child) wait(terminal bool) (int, error) {
	finish := func() {}
	if terminal && c.hand != nil {
		var err error
		if finish, err = proxy(c.hand); err != nil {
			return 0, err
		}
	}
	stop := forwardSignals(c.proc)
	defer stop()
	state, err := c.proc.Wait()
	if err != nil {
		return 0, fmt.Errorf("wait for the program: %w", err)
	}
	finish()
	if st, ok := state.Sys().(syscall.WaitStatus); ok && st.Signaled() {
		return 128 + int(st.Signal()), nil
	}
	return state.ExitCode(), nil
}

// NewProcess gives the container's own process as a start for one of exec's: its
// user, environment, limits and privileges with other arguments.
func (c *Container) NewProcess(args []string) *specs.Process {
	p := *c.record.Config.Process
	p.Args, p.Terminal, p.ConsoleSize = args, false, nil
	p.Env = slices.Clone(p.Env)
	return &p
}
