// This file owns Session: a working directory that lives across runs.

package runtime

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sbxrun/sbxrun/rootfs"
	"github.com/sbxrun/sbxrun/spec"
)

// ErrClosed says that the session is closed.
var ErrClosed = errors.New("the session is closed")

// ErrWider says that a command asks for more than the session's policy allows.
var ErrWider = errors.New("wider than the session's policy")

// SessionOptions are what a session needs beside its policy.
type SessionOptions struct {
	ID   string // "" makes a random one; letters, digits, "_+-." otherwise
	Warm int    // how many prepared inits wait for a command, at most MaxWarm
	// Binary is the path of the sbxrun whose processes become inits; "" is this program,
	// which takes the part of sbxrun before its main function.
	Binary string
}

// Session is a private working directory under one policy, in which programs run one
// after the other: what one leaves there, the next finds. It is safe for concurrent
// use. When the process that made it ends, however that comes, so does everything in it,
// except that below L5 the directory stays for the next session or run to remove.
type Session struct {
	id     string
	policy spec.Policy
	host   spec.Host
	binary string
	base   *specs.Spec   // what every run's config has, of which the directory's owner and mapping are read
	turn   chan struct{} // who has its one token may run
	ended  context.Context
	end    context.CancelCauseFunc
	pool   pool

	mu   sync.Mutex
	home *home // nil once the session is closed
}

// Command is one program to run in a session.
type Command struct {
	Args  []string
	Files []File        // put into the working directory before the program starts
	Stdin io.Reader     // nil is /dev/null; a reader that blocks is read from until it gives something
	Wall  time.Duration // 0 is the policy's; a longer one is ErrWider
	// Stdout and Stderr get what the program prints while it runs, as far as the Result
	// will have it. They may block: the program does not wait for them, Run does.
	Stdout, Stderr io.Writer
	Watch          func(Notice) // told what happens, from one goroutine at a time; may be nil
}

// File is a file for the working directory.
type File struct {
	Name string // beneath it, slash-separated
	Data []byte
	Mode fs.FileMode // 0 is 0600
}

// NewSession makes the working directory. The policy must have a private one (L2 or
// higher); its size is bounded from L5 on.
func NewSession(policy spec.Policy, opt SessionOptions) (*Session, error) {
	if !policy.Workdir.Private {
		return nil, fmt.Errorf("a session needs a private working directory, which level %v has not", policy.Level)
	}
	if opt.Warm < 0 || opt.Warm > MaxWarm {
		return nil, fmt.Errorf("%d prepared inits: 0 to %d are possible", opt.Warm, MaxWarm)
	}
	id, err := checkID(opt.ID)
	if err != nil {
		return nil, err
	}
	s := &Session{id: id, policy: policy, host: ThisHost(), binary: opt.Binary, turn: make(chan struct{}, 1)}
	if _, s.base, err = s.compile([]string{"-"}, 0); err != nil {
		return nil, err
	}
	if err := s.pool.open(s, opt.Warm); err != nil {
		return nil, err
	}
	keepRunID(s.host.RunID)
	if s.home, err = newHome(s.id, s.binary, &s.policy, s.base); err != nil {
		dropRunID(s.host.RunID)
		return nil, errors.Join(err, s.pool.close())
	}
	s.ended, s.end = context.WithCancelCause(context.Background())
	s.pool.fill()
	return s, nil
}

// ID is the session's name.
func (s *Session) ID() string { return s.id }

// Policy is what its programs run under.
func (s *Session) Policy() spec.Policy { return s.policy }

// compile gives the policy with that wall clock, and the config of a run of args under it.
func (s *Session) compile(args []string, wall time.Duration) (*spec.Policy, *specs.Spec, error) {
	policy := s.policy
	if limit := policy.Limits.Wall; wall < 0 || wall > limit && limit > 0 {
		return nil, nil, fmt.Errorf("limits.wall: %v: %w, which has %v", wall, ErrWider, limit)
	} else if wall > 0 {
		policy.Limits.Wall = wall
	}
	sp, err := spec.Compile(policy, s.host, spec.Process{Args: args, Env: os.Environ()})
	return &policy, sp, err
}

// Run runs one command and waits for its end, first for that of the one before. Result
// and error are as those of the package's Run.
func (s *Session) Run(ctx context.Context, cmd Command) (*Result, error) {
	policy, sp, err := s.compile(cmd.Args, cmd.Wall)
	if err != nil {
		return Refused(err), err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(s.ended, func() { cancel(ErrClosed) })()
	if err := s.take(ctx); err != nil {
		return Refused(err), err
	}
	defer s.give()
	home, err := s.current()
	if err != nil {
		return Refused(err), err
	}
	stdin, done, err := openStdin(cmd.Stdin)
	if err != nil {
		return Refused(err), err
	}
	defer done()
	r := s.pool.take()
	if r != nil {
		r.become(policy, sp)
	} else {
		r = &run{home: home, opt: Options{Stdin: stdin, Binary: s.binary}}
		err = r.prepare(sp)
	}
	r.opt.Stdin, r.opt.Stdout, r.opt.Stderr, r.opt.Watch = stdin, cmd.Stdout, cmd.Stderr, cmd.Watch
	if len(cmd.Files) > 0 {
		r.opt.Put = cmd.put
	}
	res, err := r.do(ctx, err)
	s.pool.fill()
	return res, err
}

// put brings a command's files in.
func (cmd *Command) put(g *rootfs.Gateway) error {
	for _, f := range cmd.Files {
		if _, err := g.Put(f.Name, bytes.NewReader(f.Data), cmp.Or(f.Mode, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// take waits for the right to run.
func (s *Session) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if ctx.Err() != nil { // both were there
		s.give()
		return context.Cause(ctx)
	}
	return nil
}

func (s *Session) give() { <-s.turn }

// use gives the directory of now, which stays until its uses are Done.
func (s *Session) use() (*home, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.home == nil {
		return nil, ErrClosed
	}
	s.home.uses.Add(1)
	return s.home, nil
}

// current gives the directory of now; only who has the turn may rely on it.
func (s *Session) current() (*home, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.home == nil {
		return nil, ErrClosed
	}
	return s.home, nil
}

// Put writes a file beneath the working directory, also while a program runs.
func (s *Session) Put(name string, src io.Reader, perm fs.FileMode) (n int64, err error) {
	err = s.files(func(g *rootfs.Gateway) error { n, err = g.Put(name, src, perm); return err })
	return n, err
}

// Get writes the content of a file to dst.
func (s *Session) Get(name string, dst io.Writer) (n int64, err error) {
	err = s.files(func(g *rootfs.Gateway) error { n, err = g.Get(name, dst); return err })
	return n, err
}

// GetFile copies a file to one of the host, as rootfs.Gateway.GetFile does.
func (s *Session) GetFile(name, dst string) (n int64, err error) {
	err = s.files(func(g *rootfs.Gateway) error { n, err = g.GetFile(name, dst); return err })
	return n, err
}

// List gives what is in the working directory.
func (s *Session) List() (entries []rootfs.Entry, err error) {
	err = s.files(func(g *rootfs.Gateway) error { entries, err = g.List(); return err })
	return entries, err
}

// Remove removes a file, or a directory with all that is in it.
func (s *Session) Remove(name string) error {
	return s.files(func(g *rootfs.Gateway) error { return g.Remove(name) })
}

// files lets f use a gateway to the working directory.
func (s *Session) files(f func(*rootfs.Gateway) error) error {
	s.mu.Lock()
	var g *rootfs.Gateway
	err := ErrClosed
	if s.home != nil {
		// It has a descriptor of its own: a Reset meanwhile does not hurt.
		g, err = s.home.gateway(&s.policy, ownerOf(s.base))
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return errors.Join(f(g), g.Close())
}

// Reset empties the session, whatever its programs have made of it. It waits for the
// end of the one that runs.
func (s *Session) Reset() error {
	if err := s.take(s.ended); err != nil {
		return err
	}
	defer s.give()
	fresh, err := newHome(s.id, s.binary, &s.policy, s.base)
	if err != nil {
		return err
	}
	s.mu.Lock()
	old := s.home
	s.home = fresh
	s.mu.Unlock()
	err = errors.Join(s.pool.discard(), old.remove())
	s.pool.fill()
	return err
}

// Close ends the program that runs and removes everything. What closing again finds is
// nothing, and no error.
func (s *Session) Close() error {
	s.end(ErrClosed)
	s.turn <- struct{}{}
	defer s.give()
	s.mu.Lock()
	home := s.home
	s.home = nil
	s.mu.Unlock()
	if home == nil {
		return nil
	}
	defer dropRunID(s.host.RunID)
	return errors.Join(s.pool.close(), home.remove())
}
