// This file owns containers with a policy that engines drive by create and start. What
// config.json cannot say to the kernel (wall clock, output cap, sweep, monitor) needs
// somebody who stays: a supervisor process, made by create.
//
//	create ──▶ supervisor ──▶ reaper ──▶ program
//	  │            │             └ child of create's parent, which waits for it: the pid
//	  │            │               of the container
//	  │◀─ made ────┤
//	start ── 'G' ─▶│  on the start socket, spoken as by an init (init/channel.go)
//	               │  watches, sweeps, writes result.json beside the state,
//	               └─ then lets the reaper exit with the program's status
//
// The supervisor's death ends the container: the reaper sees the channel close.

package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/spec"
)

const (
	supervisorName = "sbxrun-supervisor" // argv[0] of a supervisor
	resultFile     = "result.json"
)

// order is what create tells the supervisor, as JSON on descriptor 3. The answer is
// one JSON string, empty when the container is made.
type order struct {
	Root, ID, Bundle, PidFile string
	Systemd                   bool
	Config                    *specs.Spec
}

// createSupervised makes a supervisor that makes the container.
func (s *Store) createSupervised(sp *specs.Spec, opt CreateOptions) (*Container, error) {
	switch {
	case len(opt.Keep) > 0:
		return nil, errors.New("--preserve-fds: a program under a policy gets descriptors 0 to 2 only")
	case opt.ConsoleSocket != "":
		return nil, errors.New("--console-socket: a program under a policy has no terminal")
	case opt.NoPivot:
		return nil, errors.New("--no-pivot: not for a config with a policy")
	}
	ours, theirs, err := socketpair()
	if err != nil {
		return nil, err
	}
	defer ours.Close()
	env := []string{}
	if opt.Systemd { // where a user's systemd is
		for _, name := range []string{"XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"} {
			env = append(env, name+"="+os.Getenv(name))
		}
	}
	p, err := os.StartProcess("/proc/self/exe", []string{supervisorName}, &os.ProcAttr{
		Dir: "/", Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr, theirs}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	theirs.Close()
	if err != nil {
		return nil, fmt.Errorf("start the supervisor: %w", err)
	}
	text, err := json.Marshal(order{s.root, opt.ID, opt.Bundle, opt.PidFile, opt.Systemd, sp})
	if err == nil {
		_, err = ours.Write(text)
	}
	if err == nil {
		err = ours.CloseWrite()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("tell the supervisor: %w", err), p.Kill())
	}
	var answer string
	if err := json.NewDecoder(ours).Decode(&answer); err != nil {
		_, wait := p.Wait()
		return nil, errors.Join(errors.New("the supervisor ended without an answer"), wait)
	}
	if answer != "" {
		_, err := p.Wait()
		return nil, errors.Join(errors.New(answer), err)
	}
	return s.Load(opt.ID)
}

// BecomeSupervisor makes this process a supervisor if it was started as one, and does
// not return then. A program that calls Store.Create calls it first thing in main.
func BecomeSupervisor() {
	if len(os.Args) != 1 || os.Args[0] != supervisorName {
		return
	}
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP, unix.SIGINT) // readers of the output, and terminals, come and go
	channel := os.NewFile(sbxinit.ChannelFD, "channel")
	err := Unprivileged() // main asked already; a caller of this package may not have
	if err == nil {
		err = supervise(channel)
	}
	if err != nil {
		// After the answer nobody listens; the Result has it.
		_ = json.NewEncoder(channel).Encode(err.Error())
		os.Exit(1)
	}
	os.Exit(0)
}

// supervise makes the container, waits for its start, and sees it through.
func supervise(channel *os.File) error {
	unix.CloseOnExec(int(channel.Fd()))
	text, err := io.ReadAll(channel)
	if err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	o := order{}
	if err := json.Unmarshal(text, &o); err != nil {
		return fmt.Errorf("read the order: %w", err)
	}
	s, err := OpenStore(o.Root, func(error) {})
	if err != nil {
		return err
	}
	c, err := s.reserve(o.ID)
	if err != nil {
		return err
	}
	r := &run{opt: Options{ID: o.ID, Bundle: o.Bundle, Stdin: os.Stdin, Dedicated: true, Systemd: o.Systemd}, driven: true}
	start, err := c.buildSupervised(r, o)
	if err == nil {
		err = json.NewEncoder(channel).Encode("")
	}
	if err != nil {
		return errors.Join(err, r.cleanup(), c.forget(), c.Close())
	}
	defer start.Close()
	if err := errors.Join(channel.Close(), os.Stdin.Close(), c.Close()); err != nil {
		return err
	}
	return c.see(r, start)
}

// buildSupervised takes the run to its barrier and writes down what there is.
func (c *Container) buildSupervised(r *run, o order) (start *net.UnixListener, err error) {
	self, err := readStat(os.Getpid())
	if err != nil {
		return nil, err
	}
	digest, err := spec.Digest(o.Config)
	if err != nil {
		return nil, err
	}
	c.record = record{
		Digest: digest,
		State:  specs.State{Version: specs.Version, ID: o.ID, Status: specs.StateCreating, Bundle: o.Bundle, Annotations: o.Config.Annotations},
		Rootfs: rootOf(o.Config, o.Bundle), Created: time.Now().UTC(), Boot: c.store.boot, Config: o.Config,
		Supervisor: &process{os.Getpid(), self.start},
	}
	r.announce = func(state cgroup.State) error {
		if r.workdir != nil {
			c.record.Workdir = r.workdir.path
		}
		return c.announce(state)
	}
	if err := r.setup(o.Config); err != nil {
		return nil, err
	}
	if r.workdir != nil {
		c.record.Workdir = r.workdir.path
	}
	c.grouped(r.group)
	if err := c.save(); err != nil {
		return nil, err
	}
	err = r.ready()
	if err == nil {
		err = r.fill()
	}
	if err != nil {
		return nil, err
	}
	for i, to := range []*os.File{os.Stdout, os.Stderr} {
		r.taps[i].live = newRelay(to)
	}
	l, err := c.startSocket()
	if err != nil {
		return nil, err
	}
	st, err := readStat(r.child.proc.Pid)
	if err == errGone {
		err = errInitDied
	}
	if err == nil {
		c.record.Pid, c.record.StartTime, c.record.Status = r.child.proc.Pid, st.start, specs.StateCreated
		err = c.save()
	}
	if err == nil && o.PidFile != "" {
		err = writeAtomically(o.PidFile, []byte(strconv.Itoa(c.record.Pid)))
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// see waits for start and then for the end, and writes the Result.
func (c *Container) see(r *run, start *net.UnixListener) error {
	ctx, cancel := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer cancel()
	err := awaitStart(r, start)
	if err == nil {
		err = r.watch(ctx)
	}
	err = errors.Join(err, r.collect())
	err = errors.Join(err, c.writeResult(r.result(err)))
	r.dismiss()
	if clean := r.cleanup(); clean != nil {
		err = errors.Join(err, clean)
		err = errors.Join(err, c.writeResult(r.result(err)))
	}
	return err
}

var errKilledEarly = errors.New("the container was killed before it was started")

// awaitStart lets the program run when somebody says so. A container that is killed
// before is an error.
func awaitStart(r *run, l *net.UnixListener) error {
	gone := make(chan struct{})
	go func() {
		awaitExit(r.child.proc.Pid, -1)
		close(gone)
		l.Close()
	}()
	for {
		conn, err := l.AcceptUnix()
		select {
		case <-gone:
			return errKilledEarly
		default:
		}
		if err != nil {
			return fmt.Errorf("wait for start: %w", err)
		}
		word := sbxinit.Go()
		if _, err := io.ReadFull(conn, word); err != nil {
			conn.Close()
			continue // whoever it was went away
		}
		err = r.release()
		if err != nil {
			_, _ = conn.Write(failureFrame(err)) // the Result says it, too
		}
		return errors.Join(err, conn.Close())
	}
}

// failureFrame is an error as an init reports it.
func failureFrame(err error) []byte {
	var f *sbxinit.Failure
	if !errors.As(err, &f) {
		f = &sbxinit.Failure{Op: err.Error()}
	}
	return f.Encode()
}

// awaitExit waits until the process pid is gone, at most ms milliseconds unless that
// is negative.
func awaitExit(pid, ms int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return true
	}
	defer unix.Close(fd)
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms)
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// dismiss lets the reaper exit as the program did, 137 when it was stopped.
func (r *run) dismiss() {
	if r.child == nil {
		return
	}
	status := 128 + int(unix.SIGKILL)
	if r.report != nil && r.report.err == nil && r.stop == nil {
		if ws := r.report.status; ws.Signaled() {
			status = 128 + int(ws.Signal())
		} else {
			status = ws.ExitStatus()
		}
	}
	// What is left of the group goes with cleanup, whatever comes of this.
	if _, err := r.child.channel.Write([]byte{byte(status)}); err != nil || !awaitExit(r.child.proc.Pid, int(killTime.Milliseconds())) {
		_ = r.child.proc.Kill()
	}
}

// writeResult puts the Result beside the state. Of a container that was deleted
// meanwhile nobody wants it.
func (c *Container) writeResult(res *Result) error {
	text, err := json.Marshal(res)
	if err != nil {
		return fmt.Errorf("encode the result: %w", err)
	}
	err = writeAtomically(filepath.Join(c.dir, resultFile), text)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// Result is the verdict on a container with a policy that has ended, nil without.
func (c *Container) Result() json.RawMessage {
	text, err := os.ReadFile(filepath.Join(c.dir, resultFile))
	if err != nil || !json.Valid(text) {
		return nil
	}
	return text
}

// awaitSupervisor lets the supervisor of a container that is being deleted end what it
// does; what it would leave is removed by whoever waits.
func (c *Container) awaitSupervisor() error {
	fd, err := c.record.Supervisor.open()
	if err == errGone {
		return nil
	}
	if err != nil {
		return fmt.Errorf("wait for the supervisor: %w", err)
	}
	defer unix.Close(fd)
	if !awaitExit(c.record.Supervisor.Pid, int(killTime.Milliseconds())) {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // stuck on a reader of the output
	}
	return nil
}

// runSupervised is "run --detach" of a config with a policy.
func (s *Store) runSupervised(sp *specs.Spec, opt RunOptions) error {
	if !opt.Detach {
		return errors.New("a config with a policy is run by Run")
	}
	c, err := s.createSupervised(sp, opt.CreateOptions)
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return errors.Join(err, c.Delete(true), c.Close())
	}
	return c.Close()
}

// program finds the program below the reaper, nil when it is gone.
func program(reaper int) *process {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", reaper, reaper))
	first := strings.Fields(string(text))
	if err != nil || len(first) == 0 {
		return nil
	}
	pid, err := strconv.Atoi(first[0])
	if err != nil {
		return nil
	}
	st, err := readStat(pid)
	if err != nil || st.ppid != reaper {
		return nil
	}
	return &process{pid, st.start}
}

// isSupervised says whether the config needs a supervisor.
func isSupervised(sp *specs.Spec) bool { return spec.IsCompiled(sp) }
