// This file owns what the process that holds a session does for a connection.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sbxrun/sbxrun/runtime"
)

// helloTime is how long a connection may take over its first request.
const helloTime = 10 * time.Second

// errBusy refuses to wait.
var errBusy = errors.New("a program is running in the session, and --no-wait says not to wait")

// serve answers the requests of a connection, one after the other.
func (h *holder) serve(w *wire) {
	if _, err := samePeer(w.conn); err != nil {
		return // who it is gets no word
	}
	if err := w.message(frameAnswer, answer{}, nil); err != nil {
		return
	}
	c := &client{holder: h, wire: w}
	defer c.release()
	for wait := helloTime; ; wait = stallTime {
		if err := c.patience(wait); err != nil {
			return
		}
		q, stdin, err := w.request()
		if err != nil {
			return
		}
		ans, err := c.do(q, stdin)
		if stdin != nil {
			stdin.Close()
		}
		if err != nil {
			ans.Error = err.Error()
		}
		if w.message(frameAnswer, ans, nil) != nil || c.broken {
			return
		}
		if q.Op == "end" {
			h.end(runtime.ErrClosed)
			return
		}
	}
}

// client is one connection.
type client struct {
	holder *holder
	wire   *wire
	turn   bool // it has the session's turn
	broken bool // what it sends is not read to its end: nothing more can follow
}

// patience bounds the wait for what the client sends, unless the end is near.
func (c *client) patience(wait time.Duration) error {
	c.holder.mu.Lock()
	defer c.holder.mu.Unlock()
	if err := context.Cause(c.holder.ended); err != nil {
		return err
	}
	return c.wire.conn.SetReadDeadline(time.Now().Add(wait))
}

func (c *client) release() {
	if c.turn {
		c.turn = false
		<-c.holder.turn
	}
}

// do does what is asked for.
func (c *client) do(q *request, stdin *os.File) (ans answer, err error) {
	h := c.holder
	switch q.Op {
	case "end":
		return ans, nil
	case "info":
		h.mu.Lock()
		running := h.running
		h.mu.Unlock()
		return answer{Info: &sessionInfo{Idle: h.idle(), Running: running}}, nil
	}
	defer h.use()()
	name := string(q.Name)
	switch q.Op {
	case "turn":
		return ans, c.take(q.Now)
	case "run":
		return c.run(q, stdin)
	case "put":
		data := &dataReader{w: c.wire}
		_, err = h.session.Put(name, data, q.Mode)
		c.broken = !data.end
		return ans, err
	case "get":
		_, err = h.session.Get(name, frameWriter{c.wire, frameData})
		return ans, err
	case "stat":
		entry, err := h.session.Stat(name)
		return answer{Mode: entry.Mode}, err
	case "list":
		return c.list()
	case "remove":
		return ans, h.session.Remove(name)
	}
	c.broken = true
	return ans, fmt.Errorf("%w: no request %q", errProtocol, q.Op)
}

// take waits for the session's turn.
func (c *client) take(now bool) error {
	if c.turn {
		return nil
	}
	ctx, stop := c.watch()
	defer stop()
	select {
	case c.holder.turn <- struct{}{}:
		c.turn = true
		return nil
	default:
	}
	if now {
		return errBusy
	}
	select {
	case c.holder.turn <- struct{}{}:
		c.turn = true
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errGone = errors.New("the caller gave up")

// watch gives a context that ends when the client closes its side, or sends what it
// should not. The function that it returns ends the watch.
func (c *client) watch() (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(c.holder.ended)
	// The holder's end sets a deadline, too: it is not taken back.
	c.holder.mu.Lock()
	if c.holder.ended.Err() == nil {
		_ = c.wire.conn.SetReadDeadline(time.Time{})
	}
	c.holder.mu.Unlock()
	done := make(chan struct{})
	stopping := make(chan struct{})
	go func() {
		defer close(done)
		var b [1]byte
		_, err := c.wire.conn.Read(b[:])
		select {
		case <-stopping:
			if errors.Is(err, os.ErrDeadlineExceeded) {
				return // it was us
			}
		default:
		}
		c.broken = true
		cancel(errGone)
	}()
	return ctx, func() {
		close(stopping)
		_ = c.wire.conn.SetReadDeadline(time.Now())
		<-done
		cancel(nil)
	}
}

// run runs a program; its connection has the turn.
func (c *client) run(q *request, stdin *os.File) (ans answer, err error) {
	if err := c.take(false); err != nil {
		return ans, err
	}
	h := c.holder
	cmd := runtime.Command{Wall: q.Wall}
	for _, a := range q.Args {
		cmd.Args = append(cmd.Args, string(a))
	}
	if stdin != nil {
		cmd.Stdin = stdin
	}
	if q.Live {
		cmd.Stdout, cmd.Stderr = frameWriter{c.wire, frameStdout}, frameWriter{c.wire, frameStderr}
	}
	var events *eventLog
	if q.Notice {
		events = newEventLog(frameWriter{c.wire, frameNotice})
		cmd.Watch = events.watch
	}
	ctx, stop := c.watch()
	h.setRunning(true)
	res, err := h.session.Run(ctx, cmd)
	h.setRunning(false)
	stop()
	if events != nil {
		_ = events.close() // the client is gone, which it knows
	}
	return answer{Result: res, Status: res.ExitStatus()}, err
}

func (h *holder) setRunning(yes bool) {
	h.mu.Lock()
	h.running = yes
	h.mu.Unlock()
}

func (c *client) list() (ans answer, err error) {
	entries, err := c.holder.session.List()
	for _, e := range entries {
		l := listed{Name: []byte(e.Name), Size: e.Size, Mode: e.Mode, ModTime: e.ModTime}
		if e.Err != nil {
			l.Err = e.Err.Error()
		}
		ans.Entries = append(ans.Entries, l)
	}
	return ans, err
}
