// This file owns the verdict: which reason holds, from the evidence in a fixed
// order. Decisions and counters come first, text comes last and is marked.

package runtime

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/spec"
)

// result makes the Result of a run that ended in whatever way.
func (r *run) result(err error) *Result {
	res := &Result{ID: r.opt.ID, Level: spec.NoLevel, Evidence: []Evidence{}, LimitsHit: []string{}, Wider: []string{}, Receipt: []Receipt{}}
	if r.policy != nil {
		res.Digest, res.Level, res.Receipt = r.digest(), r.policy.Level, r.receipt(err)
		res.Wider = append(res.Wider, r.policy.Wider()...)
	}
	if err != nil {
		res.Error = failureOf(err)
	}
	if r.report == nil && r.stop == nil {
		r.neverRan(res, err)
		return res
	}
	r.usage(res)
	r.outputs(res)
	v := r.verdict(res.Stderr.Text)
	res.Reason, res.Evidence = v.reason, append(res.Evidence, v.evidence...)
	if err != nil && !errors.Is(err, errOutputs) {
		// The run was not taken care of as promised, whatever the program did.
		res.Reason = Internal
		res.Evidence = append([]Evidence{{Source: "supervisor", Detail: err.Error()}}, res.Evidence...)
	}
	r.ending(res)
	res.TimedOut, res.OOM, res.OOMSource = res.Reason == WallClock, res.Reason == OOM, v.oomSource
	res.LimitsHit = r.limitsHit(res)
	if r.policy.Limits.Sweep {
		res.Swept = r.leftovers
	} else if r.leftovers > 0 {
		res.Evidence = append(res.Evidence, Evidence{Source: "supervisor", Detail: fmt.Sprintf("%d processes were left running, the policy has no sweep", r.leftovers)})
	}
	return res
}

// neverRan is the Result when nothing was executed.
func (r *run) neverRan(res *Result, err error) {
	res.Reason = Internal
	if errors.Is(err, ErrUnavailable) || !errors.Is(err, errInitDied) {
		res.Reason = Unavailable
	}
	if errors.Is(err, errKilledEarly) {
		res.Reason = Canceled
	}
	if r.counters.OOMKills > 0 {
		res.Reason, res.OOM, res.OOMSource = OOM, true, "cgroup"
		res.Evidence = append(res.Evidence, oomEvidence(r.counters.OOMKills, r.policy))
		res.LimitsHit = r.limitsHit(res)
	}
}

// verdict is a reason with what it rests on.
type verdict struct {
	reason    Reason
	evidence  []Evidence
	oomSource string
}

// verdict goes through the evidence in its fixed order: the supervisor's own
// decision, the group's counters, how the program ended, what it printed.
func (r *run) verdict(stderr string) verdict {
	if r.stop != nil && r.stop.reason == WallClock && planted("timeout-exited") {
		return verdict{Exited, []Evidence{r.stop.evidence}, ""}
	}
	if r.stop != nil {
		v := verdict{reason: r.stop.reason, evidence: []Evidence{r.stop.evidence}}
		if r.stop.reason == OOM {
			v.oomSource = "cgroup"
		}
		return v
	}
	c := r.counters
	switch limit := r.policy.Limits.CPU; {
	case c.OOMKills > 0:
		return verdict{OOM, []Evidence{oomEvidence(c.OOMKills, r.policy)}, "cgroup"}
	case c.PidsMax > 0:
		return verdict{Processes, []Evidence{pidsEvidence(c.PidsMax, r.policy), r.waitEvidence()}, ""}
	case limit > 0 && r.cpuTime() >= limit:
		return verdict{CPU, []Evidence{{Source: "rusage", Detail: fmt.Sprintf("%v of CPU time used, limit %v", r.cpuTime().Round(time.Millisecond), limit)}, r.waitEvidence()}, ""}
	case r.report.err != nil:
		// Nothing but the program, which has the reaper's user, or somebody outside does
		// that; with the reaper the program is killed.
		return verdict{Signaled, []Evidence{{Source: "wait", Detail: "the run's reaper was ended, by the program or from outside, and the program with it"}}, ""}
	case !r.drained && r.policy.Limits.Sweep:
		return verdict{Output, []Evidence{{Source: "supervisor", Detail: "an output pipe was not closed although everything was ended"}, r.waitEvidence()}, ""}
	}
	return r.ownEnd(stderr)
}

// ownEnd classifies a program that ended by itself: by its signal, else by what
// a limit that only returns an error made it print. A signal that the program may
// have sent itself counts only when the counters agree.
func (r *run) ownEnd(stderr string) verdict {
	st, wait, limits := r.report.status, r.waitEvidence(), r.policy.Limits
	if st.Signaled() {
		reason := Signaled
		switch st.Signal() {
		case unix.SIGXCPU:
			if limits.CPU > 0 && r.cpuTime() >= limits.CPU*9/10 {
				reason = CPU
			}
		case unix.SIGXFSZ:
			if limits.FileSize > 0 && (r.fullFile || !r.policy.Workdir.Private) {
				reason = FileSize
			}
		case unix.SIGSYS:
			if r.policy.Syscalls.Filter {
				reason = Syscall
			}
		}
		return verdict{reason, []Evidence{wait}, ""}
	}
	if st.ExitStatus() == 0 {
		return verdict{Exited, []Evidence{wait}, ""}
	}
	if r.fullFile {
		return verdict{FileSize, []Evidence{{Source: "workdir", Detail: fmt.Sprintf("a file of exactly %d bytes, the limit, and a failure", limits.FileSize)}, wait}, ""}
	}
	if v, ok := r.fromText(stderr); ok {
		v.evidence = append(v.evidence, wait)
		return v
	}
	return verdict{Exited, []Evidence{wait}, ""}
}

// texts are what runtimes print when a limit made a call fail with an error that
// they did not survive. It is a guess, used only with a non-zero exit status.
var texts = []struct {
	reason Reason
	words  []string
}{
	{OOM, []string{"memoryerror", "std::bad_alloc", "cannot allocate memory", "out of memory", "outofmemoryerror", "memory exhausted"}},
	{FileSize, []string{"file too large", "efbig", "file size limit exceeded"}},
}

func (r *run) fromText(stderr string) (verdict, bool) {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	last := strings.ToLower(strings.Join(lines[max(0, len(lines)-3):], "\n"))
	for _, t := range texts {
		// What counters or files would show is not guessed from words.
		if t.reason == OOM && (r.policy.Limits.Memory == 0 || r.group != nil) && !planted("oom-from-text") ||
			t.reason == FileSize && (r.policy.Limits.FileSize == 0 || r.policy.Workdir.Private) {
			continue
		}
		for _, w := range t.words {
			if strings.Contains(last, w) {
				v := verdict{reason: t.reason, evidence: []Evidence{{Source: "text", Detail: fmt.Sprintf("stderr ends with %q", w), Heuristic: true}}}
				if t.reason == OOM {
					v.oomSource = "text"
				}
				return v, true
			}
		}
	}
	return verdict{}, false
}

func (r *run) waitEvidence() Evidence {
	e := Evidence{Source: "wait"}
	switch st := r.report.status; {
	case r.report.err != nil:
		e.Detail = "no report of the program's end"
	case st.Signaled():
		e.Detail = "ended by " + signalName(st.Signal())
	default:
		e.Detail = fmt.Sprintf("exit status %d", st.ExitStatus())
	}
	return e
}

// cpuTime is what the run used: the group's count, or that of the program and
// the children it waited for.
func (r *run) cpuTime() time.Duration {
	if r.group != nil {
		return r.counters.CPUUsage - r.monitor.idle
	}
	return r.ownCPU()
}

func (r *run) ownCPU() time.Duration {
	switch {
	case r.report != nil && r.report.err == nil:
		return time.Duration(r.report.usage.Utime.Nano() + r.report.usage.Stime.Nano())
	case r.reaper != nil:
		return r.reaper.UserTime() + r.reaper.SystemTime()
	}
	return 0
}

func (r *run) usage(res *Result) {
	u := &res.Usage
	u.WallMS = ms(r.wall)
	if r.report != nil && r.report.err == nil {
		u.UserMS, u.SystemMS = ms(time.Duration(r.report.usage.Utime.Nano())), ms(time.Duration(r.report.usage.Stime.Nano()))
		u.PeakMemory = r.report.usage.Maxrss << 10
	} else if r.reaper != nil {
		u.UserMS, u.SystemMS = ms(r.reaper.UserTime()), ms(r.reaper.SystemTime())
	}
	if r.group != nil {
		// Processes that nobody waited for are in the group's count only.
		if total := ms(r.cpuTime()); total > u.UserMS+u.SystemMS {
			u.UserMS = total - u.SystemMS
		}
		u.PeakMemory = max(u.PeakMemory, r.counters.MemoryPeak)
	}
	// Not pids.peak: that has seen the threads of init.
	u.PeakProcesses = max(r.monitor.peak, 1)
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *run) outputs(res *Result) {
	chars := r.policy.Limits.OutputChars
	res.Stdout, res.Stderr = r.taps[0].capture.stream(chars), r.taps[1].capture.stream(chars)
	res.Usage.StdoutBytes, res.Usage.StderrBytes = res.Stdout.TotalBytes, res.Stderr.TotalBytes
	if !r.drained {
		res.Evidence = append(res.Evidence, Evidence{Source: "supervisor", Detail: "a leftover process held an output pipe; reading stopped"})
	}
}

// ending fills exit code and signal, which are the program's own: a program that
// the supervisor killed has none.
func (r *run) ending(res *Result) {
	if r.report == nil || r.report.err != nil {
		if r.stop != nil || res.Reason == OOM || res.Reason == Signaled {
			res.Signal, res.signal = "SIGKILL", unix.SIGKILL
		}
		return
	}
	if st := r.report.status; st.Signaled() {
		res.Signal, res.signal = signalName(st.Signal()), st.Signal()
	} else {
		code := st.ExitStatus()
		res.ExitCode = &code
	}
}

// signalName names every signal, the real-time ones as the C library counts them.
func signalName(s syscall.Signal) string {
	if name := unix.SignalName(s); name != "" {
		return name
	}
	return fmt.Sprintf("SIGRTMIN%+d", int(s)-34)
}

// ExitStatus is what a shell would see: the program's own code when it ended by
// itself, else 128 + signal. A program that was stopped never gives 0.
func (r *Result) ExitStatus() int {
	switch {
	case r.Reason == Exited && r.ExitCode != nil:
		return *r.ExitCode
	case r.signal != 0:
		return 128 + int(r.signal)
	}
	return 128 + int(unix.SIGKILL)
}

// limitKeys are the policy's keys for the reasons that are limits.
var limitKeys = map[Reason]string{
	WallClock: "limits.wall", CPU: "limits.cpu", OOM: "limits.memory", FileSize: "limits.file-size",
	Processes: "processes.max", Syscall: "syscalls.filter",
}

// limitsHit lists every limit that was reached, the verdict's own first.
func (r *run) limitsHit(res *Result) []string {
	hit := []string{}
	add := func(key string, yes bool) {
		if yes && key != "" && !slices.Contains(hit, key) {
			hit = append(hit, key)
		}
	}
	add(limitKeys[res.Reason], true)
	add(limitKeys[OOM], r.counters.OOMKills > 0)
	add(limitKeys[Processes], r.counters.PidsMax > 0)
	add(limitKeys[FileSize], r.fullFile)
	add("workdir.size", r.room.noBytes)
	add("workdir.inodes", r.room.noInodes)
	l := r.policy.Limits
	for _, s := range []Stream{res.Stdout, res.Stderr} {
		add("limits.output-chars", l.OutputChars > 0 && s.OmittedBytes > 0)
		add("limits.output-held", s.TotalBytes > l.OutputHeld)
	}
	return hit
}
