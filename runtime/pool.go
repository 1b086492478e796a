// This file owns the prepared inits of a session: everything up to the barrier is done
// ahead of time, so that a run costs little more than its program.

package runtime

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/spec"
)

// MaxWarm bounds the prepared inits of a session.
const MaxWarm = 16

// pool holds the prepared inits.
type pool struct {
	session *Session
	size    int
	mounts  *os.File // mountinfo, whose changes poll(2) tells

	mu      sync.Mutex
	waiting []prepared
	filling bool
	closed  bool
	version int // of the host's mounts
	fills   sync.WaitGroup
}

// prepared is an init that waits, and what it relies on.
type prepared struct {
	run  *run
	host []string // marks
}

func (p *pool) open(s *Session, size int) (err error) {
	p.session, p.size = s, size
	if size > 0 {
		if p.mounts, err = os.Open("/proc/self/mountinfo"); err != nil {
			return fmt.Errorf("watch the host's mounts: %w", err)
		}
	}
	return nil
}

// marks are what a cold run would find now on the host: its mounts, and the files that
// the policy hides. One that was replaced since an init hid it would be open to it.
func (p *pool) marks() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	fds := []unix.PollFd{{Fd: int32(p.mounts.Fd()), Events: unix.POLLPRI}}
	if n, err := unix.Poll(fds, 0); n != 0 || err != nil {
		p.version++
	}
	out := []string{fmt.Sprint(p.version)}
	for _, path := range p.session.policy.Filesystem.Hide {
		var st unix.Stat_t
		err := unix.Stat(path, &st)
		out = append(out, fmt.Sprint(st.Dev, st.Ino, err))
	}
	return out
}

// take gives an init that waits for its program, nil when there is none.
func (p *pool) take() *run {
	if p.size == 0 {
		return nil
	}
	now := p.marks()
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) > 0 {
		w := p.waiting[0]
		p.waiting = p.waiting[1:]
		if slices.Equal(w.host, now) && !w.run.child.spoke() {
			return w.run
		}
		// It goes on its own time; what cannot be removed the next run's end tells of.
		p.fills.Go(func() { _ = w.run.cleanup() })
	}
	return nil
}

// become makes a prepared run one of sp, which was compiled from the policy and differs
// from its own in the program and what only the supervisor enforces.
func (r *run) become(policy *spec.Policy, sp *specs.Spec) {
	r.policy, r.digest = policy, digestOf(sp)
	r.plan.program(sp.Process.Args)
}

// fill prepares what is missing, in the background.
func (p *pool) fill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.filling || p.closed || len(p.waiting) >= p.size {
		return
	}
	p.filling = true
	p.fills.Go(func() {
		for p.prepare() {
		}
	})
}

// prepare prepares one and says whether another is wanted. A failure ends it: the next
// run will be a cold one, and tell.
func (p *pool) prepare() bool {
	home, err := p.session.use()
	var r *run
	var host []string
	if err == nil {
		defer home.uses.Done()
		host = p.marks()
		r = &run{home: home, warm: true, opt: Options{Binary: p.session.binary}}
		var sp *specs.Spec
		if _, sp, err = p.session.compile([]string{"-"}, 0); err == nil {
			err = r.prepare(sp)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	// A Reset discards the waiting ones after it has changed the directory.
	now, gone := p.session.current()
	reset := gone == nil && now != home // which may be why it failed
	if err == nil && gone == nil && !reset && !p.closed {
		p.waiting = append(p.waiting, prepared{r, host})
		p.filling = len(p.waiting) < p.size
		return p.filling
	}
	if r != nil {
		_ = r.cleanup() // the failure itself is what a cold run will tell
	}
	p.filling = (err == nil || reset) && !p.closed
	return p.filling
}

// discard ends those that wait.
func (p *pool) discard() error {
	p.mu.Lock()
	old := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	var errs []error
	for _, w := range old {
		errs = append(errs, w.run.cleanup())
	}
	return errors.Join(errs...)
}

// close ends those that wait and those that are being prepared.
func (p *pool) close() error {
	if p.size == 0 {
		return nil
	}
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.fills.Wait()
	return errors.Join(p.discard(), p.mounts.Close())
}

// Waiting says how many prepared inits wait for a command.
func (s *Session) Waiting() int {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return len(s.pool.waiting)
}
