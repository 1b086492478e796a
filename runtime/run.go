// This file owns a run under a policy from end to end: place, start, watch,
// sweep, collect, clean up. The verdict itself is made in classify.go.

package runtime

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/spec"
)

// Options are what a run needs beside its config.json.
type Options struct {
	ID     string   // "" makes a random one; letters, digits, "_+-." otherwise
	Bundle string   // where relative paths of the config start
	Stdin  *os.File // nil is /dev/null; a regular file is copied to the program through a pipe
	// Binary is the path of the sbxrun whose process becomes init; "" is this program,
	// which takes the part of sbxrun before its main function.
	Binary string
	// Dedicated says that this process does nothing but supervise this run, as the
	// command line's does. The monitor may then keep a processor of the Go runtime.
	Dedicated bool
	// Stdout and Stderr get what the program prints while it runs, as far as the Result
	// will have it, the end of a stream that is cut when the program has ended. They may
	// block: the program does not wait for them, Run does.
	Stdout, Stderr io.Writer
	// Watch is told what happens, from one goroutine at a time. Nil is nobody.
	Watch func(Notice)
	// Systemd puts this process, which must be Dedicated, in a scope of its own that
	// systemd makes, and the run's group in there.
	Systemd bool
	// Put fills the working directory before the program starts, Get takes files
	// out of it after the run. Without a private working directory they are
	// refused.
	Put, Get func(*rootfs.Gateway) error
}

// drainTime bounds the wait for output after the end: only what nothing sweeps
// can hold a pipe that long.
const drainTime = 250 * time.Millisecond

// killTime bounds the attempts to end everything.
const killTime = 5 * time.Second

// report is the reaper's word on the program's end.
type report struct {
	status syscall.WaitStatus
	usage  syscall.Rusage
	err    error // the channel ended instead
}

// run is the state of one supervised run.
type run struct {
	opt       Options
	plan      *blueprint
	policy    *spec.Policy
	digest    func() string // of the config, made once
	group     *cgroup.Group
	workdir   *workdir
	taps      [2]*tap
	child     *child
	monitor   *monitor
	started   time.Time
	wall      time.Duration
	stop      *stop // the supervisor's own decision, nil when the program ended by itself
	report    *report
	reaper    *os.ProcessState
	leftovers int
	drained   bool
	home      *home           // a session's working directory, nil for a run of its own
	warm      bool            // its init was prepared before its program was known
	driven    bool            // engines drive it: the reaper is their child, and has its word last
	announce  cgroup.Announce // of a driven one: writes down where the group will be
	over      bool            // the program ran, and nothing of it is left
	fullFile  bool            // a file in the working directory has exactly the size limit
	room      room            // what is left in the working directory
	counters  cgroup.Evidence
	letGo     func() // of what feeds the stdin
}

// Run executes a compiled config.json under supervision and returns the verdict.
// The Result is never nil. The error says that nothing ran (errors.Is
// ErrUnavailable for a missing mechanism) or that sbxrun itself failed; it is
// in the Result as well. Canceling ctx ends the run.
func Run(ctx context.Context, sp *specs.Spec, opt Options) (*Result, error) {
	r := &run{opt: opt}
	return r.do(ctx, r.prepare(sp))
}

// prepare makes everything up to init's barrier.
func (r *run) prepare(sp *specs.Spec) error {
	if err := r.setup(sp); err != nil {
		return err
	}
	return r.ready()
}

// do runs the program after prepare, which gave err, and undoes it all.
func (r *run) do(ctx context.Context, err error) (*Result, error) {
	if err == nil {
		err = r.fill()
	}
	if err == nil {
		err = r.release()
	}
	if err == nil {
		err = r.watch(ctx)
	}
	if clean := errors.Join(r.collect(), r.cleanup()); err == nil {
		err = clean
	}
	res := r.result(err)
	r.tellEnd(res)
	return res, err
}

// setup draws the plan and makes what must be there before init is.
func (r *run) setup(sp *specs.Spec) (err error) {
	if r.opt.ID, err = checkID(r.opt.ID); err != nil {
		return err
	}
	policy, err := spec.FromSpec(sp)
	if err != nil {
		return err
	}
	if err := checkMapping(sp); err != nil {
		return err
	}
	r.policy, r.digest = &policy, digestOf(sp)
	if policy.Workdir.Private && !policy.Filesystem.Isolate {
		if r.home != nil {
			r.workdir, err = r.home.workdir, r.home.workdir.inPlace()
		} else {
			r.workdir, err = makeWorkdir(r.opt.ID, ownerOf(sp))
		}
		if err != nil {
			return err
		}
		sp = r.workdir.relocate(sp)
	}
	r.plan = &blueprint{spec: sp, policy: r.policy, home: r.home, late: r.warm, binary: r.opt.Binary}
	if err := r.plan.draw(r.opt.Bundle); err != nil {
		return err
	}
	if policy.Cgroup == spec.CgroupOn {
		path := sp.Linux.CgroupsPath
		if r.opt.Systemd {
			if err := r.enterScope(path, sp.Annotations); err != nil {
				return err
			}
			path = ""
		}
		if r.group, err = cgroup.CreateAnnounced(path, r.groupID(), sp.Linux.Resources, r.announce); err != nil {
			return unavailableCgroup(err)
		}
	}
	return nil
}

// digestOf is the digest of sp, made when it is first asked for.
func digestOf(sp *specs.Spec) func() string {
	return sync.OnceValue(func() string {
		d, _ := spec.Digest(sp) // it was decoded or compiled: it can be written
		return d
	})
}

// groupID names the group, so that others see whose it was if nobody removes it. A
// driven run has a state for that.
func (r *run) groupID() string {
	if r.driven {
		return r.opt.ID
	}
	return ownedID(r.opt.ID)
}

// enterScope lets systemd make the scope that this process and the run's group are in.
func (r *run) enterScope(path string, annotations map[string]string) error {
	if !r.opt.Dedicated {
		return errors.New("Options.Systemd moves the whole process: it needs Options.Dedicated")
	}
	if err := cgroup.EnterScope(path, r.opt.ID, annotations); err != nil {
		return unavailableCgroup(err)
	}
	return nil
}

// ready brings init to its barrier, where everything is in place.
func (r *run) ready() (err error) {
	var in io.Reader
	if r.opt.Stdin != nil {
		in = r.opt.Stdin
	}
	stdin, done, err := openStdin(in)
	if err != nil {
		return err
	}
	r.letGo = done
	io3 := stdio{stdin}
	for i := range r.taps {
		if r.taps[i], io3[i+1], err = openTap(r.policy.Limits.OutputHeld); err != nil {
			return err
		}
		defer io3[i+1].Close()
	}
	r.plan.driven = r.driven
	if r.child, err = r.plan.start(r.group, io3, more{}); err != nil {
		return err
	}
	if err = r.child.prepare(r.plan.plan, nil); err != nil {
		return explain(err)
	}
	return nil
}

// fill puts the files in, and arms the last limit.
func (r *run) fill() error {
	if err := r.files(r.opt.Put); err != nil {
		return err
	}
	if !planted("pids-max-late") {
		if err := arm(r.group); err != nil {
			return err
		}
	}
	if planted("loopback-up") {
		loopbackUp(r.child.proc.Pid)
	}
	return nil
}

// release brings the program to life: after it returns nil, the program runs.
func (r *run) release() error {
	r.monitor = newMonitor(r.child.proc.Pid, r.policy, r.group)
	if err := r.child.release(true, r.plan.rest, r.opt.Stdin); err != nil {
		return explainExec(explain(err), r.plan)
	}
	if planted("pids-max-late") {
		time.Sleep(plantDelay)
		_ = arm(r.group)
	}
	r.started = time.Now()
	go r.digest() // the supervisor has time while the program runs
	for i, t := range r.taps {
		if to := [...]io.Writer{r.opt.Stdout, r.opt.Stderr}[i]; to != nil && t.live == nil {
			t.live = newRelay(to)
		}
		go t.run()
	}
	r.tell(Notice{Event: "started", Warm: r.warm})
	return nil
}

// watch waits for the program's end or decides on it, and then sweeps.
func (r *run) watch(ctx context.Context) error {
	reports := make(chan report, 1)
	go func() { reports <- readReport(r.child.channel) }()
	stopWatching, found, err := r.startMonitor()
	if err != nil {
		return err
	}
	defer stopWatching()
	var wall <-chan time.Time
	if w := r.policy.Limits.Wall; w > 0 && !planted("no-watchdog") {
		timer := time.NewTimer(w)
		defer timer.Stop()
		wall = timer.C
	}
	for r.stop == nil && r.report == nil {
		select {
		case rep := <-reports:
			r.report = &rep
		case <-wall:
			r.stop = &stop{WallClock, Evidence{Source: "supervisor", Detail: fmt.Sprintf("killed after %v of wall clock", r.policy.Limits.Wall)}}
		case s, more := <-found:
			if r.stop = s; !more {
				found = nil
			}
		case <-ctx.Done():
			r.stop = &stop{Canceled, Evidence{Source: "supervisor", Detail: context.Cause(ctx).Error()}}
		}
	}
	r.wall = time.Since(r.started)
	stopWatching()
	if r.stop != nil && r.stop.reason != Processes { // that many were seen, whatever came then
		r.endedBefore(reports)
	}
	return r.sweep()
}

// endedBefore takes a decision back when the program had ended by then: supervisors
// are suspended, too, and wake to a clock that has run out and a report that is there.
func (r *run) endedBefore(reports <-chan report) {
	if !r.child.spoke() {
		// Not in the socket; but the reader may hold it. It is made to come back.
		if err := r.child.channel.SetReadDeadline(time.Now()); err != nil {
			return
		}
	}
	if rep := <-reports; rep.err == nil {
		r.report, r.stop = &rep, nil
	}
}

// startMonitor lets the monitor look. The function that it returns ends that and
// returns when it has ended; calling it again does nothing.
func (r *run) startMonitor() (func(), <-chan *stop, error) {
	quit, closing, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("start the monitor: %w", err)
	}
	found, ended := make(chan *stop, 1), make(chan struct{})
	go func() {
		defer close(ended)
		r.monitor.watch(quit, r.opt.Dedicated && goruntime.GOMAXPROCS(0) > 1, found)
	}()
	return sync.OnceFunc(func() {
		closing.Close()
		<-ended
		quit.Close()
	}), found, nil
}

// sweep ends whatever is left, waits for the reaper, and collects the output.
func (r *run) sweep() error {
	deadline := time.Now().Add(killTime)
	if r.stop == nil && r.report.err == nil { // else the program itself is what is ended
		r.leftovers = len(r.monitor.descendants())
	}
	var err error
	if r.stop != nil || r.policy.Limits.Sweep && !planted("no-sweep") || r.report.err != nil {
		err = r.killAll(deadline)
	}
	if !r.driven {
		// The reaper goes last: below L3 it is what the orphans hang on.
		if kill := r.child.proc.Kill(); kill != nil && !errors.Is(kill, os.ErrProcessDone) {
			err = errors.Join(err, kill)
		}
		var wait error
		r.reaper, wait = r.child.proc.Wait()
		err = errors.Join(err, wait)
	}
	r.over, r.drained = true, true
	end := time.Now().Add(drainTime)
	if err == nil && (r.stop != nil || r.policy.Limits.Sweep) {
		end = time.Now().Add(killTime) // nobody is left to hold a pipe: the end is on its way
	}
	for _, t := range r.taps {
		r.drained = t.drain(end) && r.drained
		t.finish()
	}
	return err
}

// killAll ends every process of the run.
func (r *run) killAll(deadline time.Time) error {
	isolated := r.plan.has(unix.CLONE_NEWPID)
	if r.driven && r.group != nil {
		_ = r.group.Thaw() // somebody may have paused it; one that is not frozen stays as it is
	}
	switch {
	case r.driven:
		return r.monitor.killTree(deadline)
	case planted("kill-child-only"):
		for _, pid := range r.monitor.children(r.monitor.root, r.monitor.root) {
			r.monitor.signal(pid, unix.SIGKILL)
		}
		return nil
	case r.group != nil && isolated:
		// The kernel ends the namespace with its first process, and tells when. What this
		// does not reach, in a frozen group say, the group's end does.
		_ = r.child.proc.Kill()
		awaitExit(r.child.proc.Pid, int(drainTime.Milliseconds()))
		return r.group.Kill()
	case isolated:
		// Without a group, too; but a reaper that gets no processor does not end by itself.
		_ = r.child.proc.Kill()
		if awaitExit(r.child.proc.Pid, int(drainTime.Milliseconds())) {
			return nil
		}
		return r.monitor.killTree(deadline)
	}
	// The tree first, while the reaper holds it together: below L3 a program with root's
	// rights may have left its group. What forks faster than that dies with the group.
	err := r.monitor.killTree(deadline)
	if r.group != nil {
		return r.group.Kill()
	}
	return err
}

// files lets the caller put or get files through the gateway.
func (r *run) files(f func(*rootfs.Gateway) error) error {
	if f == nil {
		return nil
	}
	dir := r.directory()
	if dir == nil {
		return fmt.Errorf("files in and out need a private working directory, which level %v has not", r.policy.Level)
	}
	g, err := rootfs.OpenGateway(dir, ownerOf(r.plan.spec), rootfs.Caps{FileSize: r.policy.Limits.FileSize})
	if err != nil {
		return err
	}
	return errors.Join(f(g), g.Close())
}

// errOutputs says that files could not be taken out. The verdict on the program
// stands all the same.
var errOutputs = errors.New("take files out")

// directory is the private working directory, nil without one.
func (r *run) directory() *os.File {
	if r.workdir != nil {
		return r.workdir.dir
	}
	return r.child.hand
}

// clockGrain is how far a file's time may lag behind the clock: a tick, 10 ms at most.
const clockGrain = 10 * time.Millisecond

// room is what a bounded working directory has run out of.
type room struct{ noBytes, noInodes bool }

// inspect looks at the working directory for limits that leave no other trace.
func (r *run) inspect() {
	dir := r.directory()
	if dir == nil {
		return
	}
	if size := r.policy.Limits.FileSize; size > 0 {
		since := time.Time{}
		if r.home != nil { // not those of the session's earlier runs
			since = r.started.Round(0).Add(-clockGrain)
		}
		r.fullFile = rootfs.HasFileOfSize(dir, size, since)
	}
	var st unix.Statfs_t
	if r.plan.inside && unix.Fstatfs(int(dir.Fd()), &st) == nil {
		r.room = room{r.policy.Workdir.Size > 0 && st.Bavail == 0, r.policy.Workdir.Inodes > 0 && st.Ffree == 0}
	}
}

// collect takes the evidence, and the files that are wanted, before they go.
func (r *run) collect() (err error) {
	if r.over {
		r.inspect()
		if err = r.files(r.opt.Get); err != nil {
			err = fmt.Errorf("%w: %w", errOutputs, err)
		}
	}
	if r.group == nil {
		return err
	}
	var counters error
	if r.counters, counters = r.group.Evidence(); counters != nil {
		err = errors.Join(err, fmt.Errorf("read the control group's counters: %w", counters))
	}
	return err
}

// cleanup undoes what setup and ready made. It runs in every case.
func (r *run) cleanup() error {
	var errs []error
	if r.letGo != nil {
		r.letGo()
	}
	if r.child != nil {
		if !r.over {
			r.child.abandon()
		} else {
			r.child.close()
		}
	}
	for _, t := range r.taps {
		if t != nil && !r.over {
			t.read.Close()
		}
	}
	if r.group != nil {
		if r.driven {
			errs = append(errs, r.group.Kill())
		}
		r.group.RemoveStale(abandoned)
		if r.leftoversLive() {
			errs = append(errs, r.group.Close())
		} else {
			errs = append(errs, r.group.Delete())
		}
	}
	if r.workdir != nil && r.home == nil && !planted("workdir-left") {
		errs = append(errs, r.workdir.remove())
	}
	return errors.Join(errs...)
}

// leftoversLive says whether the policy lets processes live on that are there. Their
// group stays, and its limits hold; once they have ended, a later run removes it.
func (r *run) leftoversLive() bool {
	if r.driven || r.stop != nil || r.report == nil || r.report.err != nil || r.policy.Limits.Sweep {
		return false
	}
	left, err := r.group.Procs()
	return err == nil && len(left) > 0
}

// readReport waits for the reaper's word: 'X', the wait status and the rusage.
func readReport(channel io.Reader) report {
	var b struct {
		Kind   byte
		Status int32
		Usage  syscall.Rusage
	}
	if err := binary.Read(channel, binary.NativeEndian, &b); err != nil {
		return report{err: fmt.Errorf("the reaper ended without a report: %w", err)}
	}
	return report{status: syscall.WaitStatus(b.Status), usage: b.Usage}
}

// explainExec says which program could not be executed, and where it was looked for.
func explainExec(err error, b *blueprint) error {
	var f *sbxinit.Failure
	if !errors.As(err, &f) || f.Layer != "" || errors.Is(err, ErrUnavailable) {
		return err
	}
	place := ""
	if b.inside {
		place = "; inside, the directory is " + spec.WorkdirPath + " and nothing else of /tmp is there, --in puts files in"
	}
	return fmt.Errorf("execute %q: %w%s", b.spec.Process.Args[0], f.Errno, place)
}

// explain names the refusal behind a failed step.
func explain(err error) error {
	var f *sbxinit.Failure
	if errors.As(err, &f) {
		return explainStep(f)
	}
	return err
}
