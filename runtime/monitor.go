// This file owns the monitor: the witness that counts the run's processes in
// /proc and reads the group's counters every few milliseconds. It walks down
// from the reaper, so its cost grows with the run and not with the host.

package runtime

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	"github.com/sbxrun/sbxrun/spec"
)

// stop is the supervisor's decision to end a run, and why.
type stop struct {
	reason   Reason
	evidence Evidence
}

// monitor looks at a run from outside. The zero counters mean "not seen yet".
type monitor struct {
	root   int // pid of the reaper, which is not counted
	policy *spec.Policy
	group  *cgroup.Group
	idle   time.Duration // CPU time of the group before the program ran
	peak   int64         // most tasks seen alive at once
	last   int64         // tasks at the last look
	calm   int           // looks since that number changed
	ticks  int
	blind  error // of the last walk: processes may not have been seen
	buf    []byte
}

// walkEvery is how many ticks pass between walks while the group counts as well.
const walkEvery = 8

func newMonitor(root int, p *spec.Policy, g *cgroup.Group) *monitor {
	m := &monitor{root: root, policy: p, group: g, buf: make([]byte, 16<<10)}
	if g != nil {
		m.idle, _ = g.CPUUsage() // unreadable counts as zero: the program is charged a few ms more
	}
	return m
}

// watch ticks until there is a reason to end the run, which it sends, or until end
// has been closed. With dedicated set the thread keeps its processor (P) between
// ticks: giving it up and taking it back every few milliseconds wakes the Go
// runtime's own monitor each time, and that costs several times as much as the look.
func (m *monitor) watch(end *os.File, dedicated bool, found chan<- *stop) {
	defer close(found)
	interval := 5 * time.Millisecond
	if m.policy.Processes.Monitor > 0 {
		interval = m.policy.Processes.Monitor
	}
	if m.group == nil && m.policy.Processes.Max == 0 || planted("no-monitor") {
		return // nothing to look at
	}
	fds := []unix.PollFd{{Fd: int32(end.Fd()), Events: unix.POLLIN}}
	if m.group != nil {
		if fd := m.group.PidsEvents(); fd >= 0 {
			// The kernel wakes the monitor when a fork was refused: what it looks for on its
			// own may then wait a little in a run that does not change.
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLPRI})
		}
	}
	for {
		wait, raw := interval, dedicated
		if len(fds) > 1 && m.calm >= calmAfter {
			wait, raw = wait*calmStretch, false // so seldom, giving the processor up is cheaper
		}
		_, err := poll(fds, wait, raw)
		if err != nil && err != unix.EINTR || fds[0].Revents != 0 {
			return
		}
		if s := m.tick(); s != nil {
			found <- s
			return
		}
	}
}

// A run is calm when so many looks showed the same number of tasks; then the interval
// is stretched by this factor until the number changes.
const (
	calmAfter   = 16
	calmStretch = 4
)

// poll waits like ppoll(2); raw, without telling Go's scheduler.
func poll(fds []unix.PollFd, d time.Duration, raw bool) (int, error) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	if !raw {
		return unix.Ppoll(fds, &ts, nil)
	}
	n, _, e := unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), nil
}

// tick looks once. It returns why the run must end, or nil.
func (m *monitor) tick() *stop {
	m.ticks++
	if m.group != nil {
		if s := m.counters(); s != nil {
			return s
		}
		if m.ticks%walkEvery != 1 {
			return nil
		}
	}
	return m.witness()
}

// counters reads what the kernel counted for the group.
func (m *monitor) counters() *stop {
	if hit, err := m.group.PidsHit(); err == nil && hit > 0 {
		return &stop{Processes, pidsEvidence(hit, m.policy)}
	}
	if n, err := m.group.PidsCurrent(); err == nil {
		if m.calm++; n != m.last {
			m.calm, m.last = 0, n
		}
		m.peak = max(m.peak, n-1) // without the reaper
	}
	// These two take turns.
	switch m.ticks % 4 {
	case 2:
		if killed, err := m.group.OOMKills(); err == nil && killed > 0 {
			return &stop{OOM, oomEvidence(killed, m.policy)}
		}
	case 0:
		return m.cpuTime()
	}
	return nil
}

// cpuTime compares what the run has used with its limit.
func (m *monitor) cpuTime() *stop {
	limit := m.policy.Limits.CPU
	if limit == 0 {
		return nil
	}
	if used, err := m.group.CPUUsage(); err == nil && used-m.idle >= limit {
		return &stop{CPU, Evidence{Source: "cgroup cpu", Detail: fmt.Sprintf("%v of CPU time used by the run, limit %v", (used - m.idle).Round(time.Millisecond), limit)}}
	}
	return nil
}

// witness counts the run's tasks in /proc.
func (m *monitor) witness() *stop {
	n := int64(len(m.tasks(m.root, true))) - 1
	m.peak = max(m.peak, n)
	limit := m.policy.Processes.Max
	switch {
	case limit > 0 && n > limit:
		return &stop{Processes, Evidence{Source: "monitor", Detail: fmt.Sprintf("%d tasks seen, limit %d", n, limit)}}
	case limit > 0 && m.group == nil && m.blind != nil: // nothing else counts them
		return &stop{Internal, Evidence{Source: "monitor", Detail: fmt.Sprintf("the run's processes cannot be counted: %v", m.blind)}}
	}
	return nil
}

func pidsEvidence(hit int64, p *spec.Policy) Evidence {
	return Evidence{Source: "pids.events", Detail: fmt.Sprintf("a fork was refused %d times at %d tasks", hit, p.Processes.Max)}
}

func oomEvidence(killed int64, p *spec.Policy) Evidence {
	return Evidence{Source: "memory.events", Detail: fmt.Sprintf("oom_kill %d, limit %d bytes", killed, p.Limits.Memory)}
}

// tasks lists the tasks of pid and of everything below it: thread ids with
// threads set, else process ids. What ends meanwhile is left out; blind says whether
// there may be others.
func (m *monitor) tasks(pid int, threads bool) []int {
	pids, out := []int{pid}, []int(nil)
	m.blind = nil
	for i := 0; i < len(pids); i++ {
		for j, tid := range m.threads(pids[i]) {
			switch {
			case threads:
				out = append(out, tid)
			case j == 0:
				out = append(out, pids[i])
			}
			pids = append(pids, m.children(pids[i], tid)...)
		}
	}
	return out
}

// unseen keeps an error that does not mean that the process has ended.
func (m *monitor) unseen(err error) {
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
		m.blind = err
	}
}

// threads lists the threads of a process. The link count of its task directory
// tells how many there are; most have one, and its number is known.
func (m *monitor) threads(pid int) []int {
	dir := "/proc/" + strconv.Itoa(pid) + "/task"
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		m.unseen(err)
		return nil
	}
	if st.Nlink == 3 {
		return []int{pid}
	}
	entries, err := os.ReadDir(dir)
	m.unseen(err)
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids
}

// children reads what a thread has started, proc_pid_task(5).
func (m *monitor) children(pid, tid int) (pids []int) {
	file := "/proc/" + strconv.Itoa(pid) + "/task/" + strconv.Itoa(tid) + "/children"
	fd, err := unix.Open(file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		m.unseen(err)
		return nil
	}
	defer unix.Close(fd)
	var all []byte
	for {
		n, err := unix.Read(fd, m.buf)
		m.unseen(err)
		if n <= 0 || err != nil {
			break
		}
		all = append(all, m.buf[:n]...)
	}
	for f := range bytes.FieldsSeq(all) {
		if pid, err := strconv.Atoi(string(f)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descendants lists the processes below the reaper.
func (m *monitor) descendants() []int {
	all := m.tasks(m.root, false)
	if len(all) == 0 {
		return nil
	}
	return all[1:]
}

// killTree ends everything below the reaper with no help of a group or a PID
// namespace: stop first, so that nothing forks away, then kill, until nothing is
// left or the deadline has passed.
func (m *monitor) killTree(deadline time.Time) error {
	for {
		left := 0
		for _, sig := range []unix.Signal{unix.SIGSTOP, unix.SIGKILL} {
			left = 0
			for _, pid := range m.descendants() {
				if m.signal(pid, sig) {
					left++
				}
			}
		}
		if left == 0 && m.blind == nil {
			return nil
		}
		if time.Now().After(deadline) {
			if left == 0 {
				return fmt.Errorf("kill the process tree: %w", m.blind)
			}
			return fmt.Errorf("kill the process tree: %d processes are still alive", left)
		}
	}
}

// signal sends sig to pid if it still is one of the run's. The pidfd is opened
// first: a number that was reused meanwhile has another parent. It says whether
// a live process was there, or nobody can tell.
func (m *monitor) signal(pid int, sig unix.Signal) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err != unix.ESRCH
	}
	defer unix.Close(fd)
	st, err := readStat(pid)
	if err != nil {
		return err != errGone
	}
	if st.ended() || !m.below(st.ppid) {
		return false
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0) != unix.ESRCH
}

// below says whether pid is the reaper or one of its descendants.
func (m *monitor) below(pid int) bool {
	for pid > 1 && pid != m.root {
		st, err := readStat(pid)
		if err != nil {
			return false
		}
		pid = st.ppid
	}
	return pid == m.root
}

// stat is the part of /proc/PID/stat that matters here, proc_pid_stat(5).
type stat struct {
	state byte
	ppid  int
	start uint64
}

// ended says whether the process only waits for its parent to see that.
func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' }

// errGone is the error of looking at a process that is no more. After any other nobody
// knows whether it lives.
var errGone = errors.New("the process is gone")

func readStat(pid int) (stat, error) {
	name := "/proc/" + strconv.Itoa(pid) + "/stat"
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return stat{}, errGone
	}
	if err != nil {
		return stat{}, err
	}
	// "pid (comm) state ppid …": comm may hold anything, so start after its end.
	f := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(f) < 20 {
		return stat{}, fmt.Errorf("read %s: not its form", name)
	}
	ppid, err1 := strconv.Atoi(string(f[1]))
	start, err2 := strconv.ParseUint(string(f[19]), 10, 64)
	return stat{f[0][0], ppid, start}, errors.Join(err1, err2)
}

// StartTime tells a process from a later one with its pid (proc_pid_stat(5)); it is 0
// when there is none.
func StartTime(pid int) uint64 {
	st, err := readStat(pid)
	if err != nil {
		return 0
	}
	return st.start
}
