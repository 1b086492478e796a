// This file owns the process that holds a session between commands: how it is started,
// how it lives, and how it ends.
//
//	create ──▶ holder      order on descriptor 3; the answer is one JSON string
//	commands ─▶ │ socket   each connection is served on its own (session_serve.go)
//	            └ ends on "end", SIGTERM, or when its ttl has passed since the last use;
//	              all that the session has goes with it

package main

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
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

const (
	holderName   = "sbxrun-session" // argv[0] of a holder
	holderFD     = 3
	maxClients   = 64              // connections at a time
	closingStall = 2 * time.Second // for whoever is still connected at the end
)

// holderOrder is what create tells the holder.
type holderOrder struct {
	Sessions, ID string
	Policy       spec.Policy
	TTL          time.Duration
	Warm         int
}

// startHolder starts a holder and waits until its session is ready.
func startHolder(o holderOrder) error {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("start the session's process: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "holder"), os.NewFile(uintptr(fds[1]), "channel")
	defer ours.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		theirs.Close()
		return err
	}
	defer null.Close()
	env := []string{"TMPDIR=" + os.TempDir()}
	if !o.Policy.Environment.Scrub {
		env = os.Environ()
	}
	p, err := os.StartProcess("/proc/self/exe", []string{holderName}, &os.ProcAttr{
		Dir: "/", Env: env, Files: []*os.File{null, null, null, theirs}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	theirs.Close()
	if err != nil {
		return fmt.Errorf("start the session's process: %w", err)
	}
	err = json.NewEncoder(ours).Encode(o)
	var word string
	if err == nil {
		err = json.NewDecoder(ours).Decode(&word)
	}
	if err != nil {
		_ = p.Kill()
		_, _ = p.Wait()
		return fmt.Errorf("the session's process ended without an answer: %w", err)
	}
	if word != "" {
		_, wait := p.Wait()
		return errors.Join(errors.New(word), wait)
	}
	return p.Release()
}

// becomeHolder makes this process a holder if it was started as one, and does not
// return then. The caller has marked every descriptor above 2 as close-on-exec.
func becomeHolder() {
	if len(os.Args) != 1 || os.Args[0] != holderName {
		return
	}
	signal.Ignore(unix.SIGPIPE, unix.SIGHUP, unix.SIGINT)
	channel := os.NewFile(holderFD, "channel")
	h, err := openHolder(channel)
	if err != nil {
		_ = json.NewEncoder(channel).Encode(err.Error()) // whoever asked may be gone
		os.Exit(1)
	}
	// Nobody knows of a session whose creator is gone.
	if err := json.NewEncoder(channel).Encode(""); err != nil {
		h.end(err)
	}
	channel.Close()
	if err := h.live(); err != nil {
		os.Exit(1) // what is left, "rm" and "gc" find by the state directory
	}
	os.Exit(0)
}

// holder holds one session.
type holder struct {
	sessions *sessionDir
	session  *runtime.Session
	dir      string
	lock     *os.File
	listener *net.UnixListener
	record   sessionRecord
	turn     chan struct{} // who has its one token may run
	ended    context.Context
	end      context.CancelCauseFunc

	clients sync.WaitGroup
	mu      sync.Mutex
	conns   map[*wire]bool
	uses    int // requests being served
	used    time.Time
	running bool
}

// openHolder makes the session. After an error nothing is left.
func openHolder(channel io.Reader) (_ *holder, err error) {
	var o holderOrder
	if err := json.NewDecoder(channel).Decode(&o); err != nil {
		return nil, fmt.Errorf("read the order: %w", err)
	}
	h := &holder{sessions: &sessionDir{o.Sessions}, turn: make(chan struct{}, 1), conns: map[*wire]bool{}, used: time.Now()}
	h.ended, h.end = context.WithCancelCause(context.Background())
	h.record = sessionRecord{ID: o.ID, Level: o.Policy.Level, Created: time.Now().UTC(), TTL: o.TTL, Pid: os.Getpid(), Start: runtime.StartTime(os.Getpid())}
	if h.dir, h.lock, err = h.sessions.reserve(o.ID); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if err := h.record.write(h.dir); err != nil {
		return nil, err
	}
	// Its own id has this process's pid: so what is left of a killed one can be told.
	if h.session, err = runtime.NewSession(o.Policy, runtime.SessionOptions{Warm: o.Warm}); err != nil {
		return nil, err
	}
	if err := h.listen(); err != nil {
		return nil, err
	}
	h.record.Dir, h.record.Ready = h.session.Dir(), true
	return h, h.record.write(h.dir)
}

func (h *holder) listen() error {
	d, err := os.Open(h.dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if h.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: socketAt(d), Net: "unix"}); err != nil {
		return fmt.Errorf("make the session's socket: %w", err)
	}
	h.listener.SetUnlinkOnClose(false)
	if err := os.Chmod(filepath.Join(h.dir, sessionSocket), 0o600); err != nil {
		return fmt.Errorf("make the session's socket: %w", err)
	}
	return nil
}

// live serves until the end, and removes everything.
func (h *holder) live() error {
	ctx, cancel := signal.NotifyContext(h.ended, unix.SIGTERM)
	defer cancel()
	go h.accept()
	if h.record.TTL > 0 {
		go h.expire()
	}
	<-ctx.Done()
	h.end(runtime.ErrClosed)
	return h.close()
}

// accept takes connections. One beyond the bound waits, as its hello then does.
func (h *holder) accept() {
	free := make(chan struct{}, maxClients)
	for {
		free <- struct{}{}
		conn, err := h.listener.AcceptUnix()
		if err != nil {
			if h.ended.Err() != nil {
				return
			}
			<-free
			time.Sleep(10 * time.Millisecond) // out of descriptors: some will be given back
			continue
		}
		w := newWire(conn, stallTime)
		h.mu.Lock()
		if h.ended.Err() != nil {
			h.mu.Unlock()
			conn.Close()
			return
		}
		h.conns[w] = true
		h.clients.Add(1)
		h.mu.Unlock()
		go func() {
			defer h.clients.Done()
			h.serve(w)
			conn.Close()
			h.mu.Lock()
			delete(h.conns, w)
			h.mu.Unlock()
			<-free
		}()
	}
}

// use marks a use until the function that it returns is called. The ttl counts from it.
func (h *holder) use() func() {
	h.mu.Lock()
	h.uses++
	h.mu.Unlock()
	return func() {
		h.mu.Lock()
		h.uses--
		h.used = time.Now()
		h.mu.Unlock()
	}
}

// idle is how long ago the last use ended, 0 during one.
func (h *holder) idle() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.uses > 0 {
		return 0
	}
	return time.Since(h.used)
}

// expire ends the session when nobody has used it for its ttl.
func (h *holder) expire() {
	for {
		left := h.record.TTL - h.idle()
		if left <= 0 {
			h.end(runtime.ErrClosed)
			return
		}
		select {
		case <-time.After(left):
		case <-h.ended.Done():
			return
		}
	}
}

// close ends what runs and removes everything, the state directory last. What cannot be
// removed leaves that, too.
func (h *holder) close() error {
	var err error
	if h.listener != nil {
		h.listener.Close()
	}
	h.hurry()
	if h.session != nil {
		err = h.session.Close()
	}
	h.clients.Wait()
	if err != nil {
		return err
	}
	return h.sessions.alone(func() error { return os.RemoveAll(h.dir) })
}

// hurry makes those who are connected come to an end: what they ask for has failed or
// is about to, and nobody waits long for who does not listen.
func (h *holder) hurry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for w := range h.conns {
		_ = w.conn.SetReadDeadline(time.Now())
		w.hurry()
	}
}
