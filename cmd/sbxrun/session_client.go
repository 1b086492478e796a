// This file owns the commands' side of a session's connection.

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/sbxrun/sbxrun/rootfs"
)

// greetTime bounds the wait for a holder's hello: one that does not give it in that
// time is stopped, or has all the connections that it takes.
const greetTime = 20 * time.Second

// sessionConn is a connection to the process that holds a session.
type sessionConn struct {
	*wire
	pid  int
	live [2]io.Writer // get the program's output
	log  io.Writer    // gets its notices
	data io.Writer    // gets a file
}

// connect connects to the session id.
func (s *sessionDir) connect(id string) (*sessionConn, error) {
	dir, err := s.find(id)
	if err != nil {
		return nil, err
	}
	conn, err := reachHolder(dir, greetTime)
	if err != nil {
		return nil, fmt.Errorf("session %q: %w", id, err)
	}
	return conn, nil
}

// reachHolder connects to the holder of the session in dir.
func reachHolder(dir string, wait time.Duration) (*sessionConn, error) {
	if !held(dir) {
		return nil, errors.New("the process that held it is gone: session rm or session gc removes what is left")
	}
	conn, err := dial(dir)
	if err != nil {
		return nil, fmt.Errorf("reach the process that holds it: %w", err)
	}
	c := &sessionConn{wire: newWire(conn, 0)}
	if c.pid, err = samePeer(conn); err == nil {
		if err = conn.SetReadDeadline(time.Now().Add(wait)); err == nil {
			_, err = c.last()
		}
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("the process that holds it, %d, does not answer: %w", c.pid, err)
	}
	return c, conn.SetReadDeadline(time.Time{})
}

// last reads up to the answer, and passes on what comes before.
func (c *sessionConn) last() (*answer, error) {
	to := map[byte]io.Writer{frameStdout: c.live[0], frameStderr: c.live[1], frameNotice: c.log, frameData: c.data}
	for {
		kind, p, err := readFrame(c, c.buf)
		if err != nil {
			return nil, fmt.Errorf("the session's process ended: %w", short(err))
		}
		if kind == frameAnswer {
			a := &answer{}
			if err := readMessage(c, frameAnswer, p, c.buf, maxAnswer, a); err != nil {
				return nil, err
			}
			if a.Error != "" {
				err = errors.New(a.Error)
			}
			return a, err
		}
		w := to[kind]
		if w == nil {
			return nil, fmt.Errorf("%w: a frame of kind %q", errProtocol, kind)
		}
		if _, err := w.Write(p); err != nil {
			return nil, err
		}
	}
}

// ask sends a request, with a descriptor unless that is nil, and waits for its answer.
func (c *sessionConn) ask(q request, stdin *os.File) (*answer, error) {
	if err := c.message(frameRequest, q, stdin); err != nil {
		return nil, fmt.Errorf("ask the session's process: %w", err)
	}
	return c.last()
}

// Put sends a file. When src fails the connection is over, and nothing appears.
func (c *sessionConn) Put(name string, src io.Reader, perm fs.FileMode) (int64, error) {
	if err := c.message(frameRequest, request{Op: "put", Name: []byte(name), Mode: perm}, nil); err != nil {
		return 0, err
	}
	failing := &source{from: src}
	n, err := io.Copy(frameWriter{c.wire, frameData}, failing)
	if failing.err != nil {
		return n, errors.Join(fmt.Errorf("put %q: %w", name, failing.err), c.conn.Close())
	}
	if err == nil {
		err = c.send(frameData, nil, nil)
	}
	// A refusal comes before all was sent.
	if _, refused := c.last(); refused != nil {
		return n, refused
	}
	return n, err
}

// source tells an error of what is read from one of what is written.
type source struct {
	from io.Reader
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// Get writes the content of a file to dst.
func (c *sessionConn) Get(name string, dst io.Writer) (*answer, error) {
	c.data = dst
	return c.ask(request{Op: "get", Name: []byte(name)}, nil)
}

// GetFile copies a file to one of the host, with the rights of this process: by the
// rules of rootfs.Gateway.Put beneath the directory of dst.
func (c *sessionConn) GetFile(name, dst string) (n int64, err error) {
	parent, err := os.Open(filepath.Dir(dst))
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", dst, err)
	}
	defer parent.Close()
	g, err := rootfs.OpenGateway(parent, rootfs.Owner{}, rootfs.Caps{FileSize: math.MaxInt64, TotalSize: math.MaxInt64, Time: math.MaxInt64})
	if err != nil {
		return 0, err
	}
	defer g.Close()
	info, err := c.ask(request{Op: "stat", Name: []byte(name)}, nil)
	if err != nil {
		return 0, err
	}
	r, w := io.Pipe()
	go func() {
		_, err := c.Get(name, w)
		w.CloseWithError(err) // nil is the end
	}()
	n, err = g.Put(filepath.Base(dst), r, 0o600|info.Mode&0o100)
	if err != nil {
		_, _ = io.Copy(io.Discard, r) // the rest: the connection goes on
		return 0, fmt.Errorf("get %q: %w", name, err)
	}
	return n, nil
}
