// This file owns the protocol between the session commands and the process that holds
// a session. Both sides send frames: a kind, a length, and at most maxFrame bytes. A
// message is JSON in frames of its kind, which an empty one ends.
//
//	command ──────────────────────────────▶ holder
//	                           hello         A message: it lives, and this user may ask
//	request  Q message, with stdin as descriptor
//	data     D frames, an empty one ends    (put)
//	                           1 2 N frames  output and notices of a run
//	                           D frames      (get)
//	                           answer        A message, the last word on the request
//
// One request follows the other. While "turn" or "run" is answered the command sends
// nothing: when it closes its side, that cancels what it asked for.

package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
)

// Kinds of frames.
const (
	frameRequest = 'Q'
	frameAnswer  = 'A'
	frameData    = 'D'
	frameStdout  = '1'
	frameStderr  = '2'
	frameNotice  = 'N'
)

const (
	maxFrame   = 64 << 10
	maxRequest = 4 << 20   // the kernel takes no longer command lines
	maxAnswer  = 512 << 20 // two streams at the largest cap, escaped
	// stallTime is how long either side may keep the holder waiting for bytes.
	stallTime = time.Minute
)

// request is what a command asks for.
type request struct {
	Op     string        `json:"op"` // "turn", "run", "put", "get", "stat", "list", "remove", "info" or "end"
	Name   []byte        `json:"name,omitempty"`
	Mode   os.FileMode   `json:"mode,omitempty"`
	Args   [][]byte      `json:"args,omitempty"` // any bytes, as the kernel takes them
	Wall   time.Duration `json:"wall,omitempty"`
	Live   bool          `json:"live,omitempty"`    // send the output while the program runs
	Notice bool          `json:"notices,omitempty"` // send notices, too
	Now    bool          `json:"now,omitempty"`     // of "turn": refuse instead of waiting
}

// answer is the last word on a request.
type answer struct {
	Error   string          `json:"error,omitempty"`
	Result  *runtime.Result `json:"result,omitempty"`
	Status  int             `json:"status,omitempty"` // exit status of the Result
	Mode    os.FileMode     `json:"mode,omitempty"`
	Entries []listed        `json:"entries,omitempty"`
	Info    *sessionInfo    `json:"info,omitempty"`
}

// listed is a rootfs.Entry on its way; names are any bytes.
type listed struct {
	Name    []byte      `json:"name"`
	Size    int64       `json:"size"`
	Mode    os.FileMode `json:"mode"`
	ModTime time.Time   `json:"modified"`
	Err     string      `json:"error,omitempty"`
}

// sessionInfo is what only the holder knows.
type sessionInfo struct {
	Idle    time.Duration `json:"idle"`
	Running bool          `json:"running"`
}

var errProtocol = errors.New("what came over the session's socket is not its protocol")

// readFrame reads one frame into buf, which holds maxFrame bytes.
func readFrame(r io.Reader, buf []byte) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	return readBody(r, head, buf)
}

func readBody(r io.Reader, head [5]byte, buf []byte) (kind byte, payload []byte, err error) {
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes", errProtocol, n)
	}
	if _, err := io.ReadFull(r, buf[:n]); err != nil {
		return 0, nil, short(err)
	}
	return head[0], buf[:n], nil
}

// short names an end in the middle of something.
func short(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// readMessage reads the rest of a message after its first frame.
func readMessage(r io.Reader, kind byte, first, buf []byte, limit int, into any) error {
	text := append([]byte(nil), first...)
	for more := len(first) > 0; more; {
		k, p, err := readFrame(r, buf)
		switch {
		case err != nil:
			return short(err)
		case k != kind:
			return fmt.Errorf("%w: a frame of kind %q in a message", errProtocol, k)
		case len(text)+len(p) > limit:
			return fmt.Errorf("%w: a message of more than %d bytes", errProtocol, limit)
		}
		text, more = append(text, p...), len(p) > 0
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %w", errProtocol, err)
	}
	return nil
}

// wire is one side of a connection. Frames may be sent from several goroutines.
type wire struct {
	conn *net.UnixConn
	buf  []byte
	mu   sync.Mutex   // guards what is sent
	wait atomic.Int64 // nanoseconds that one frame may take, 0 without end
}

func newWire(conn *net.UnixConn, wait time.Duration) *wire {
	w := &wire{conn: conn, buf: make([]byte, maxFrame)}
	w.wait.Store(int64(wait))
	return w
}

// hurry leaves the other side little time to take what is sent, also what is being sent.
func (w *wire) hurry() {
	w.wait.Store(int64(closingStall))
	_ = w.conn.SetWriteDeadline(time.Now().Add(closingStall))
}

func (w *wire) Read(p []byte) (int, error) { return w.conn.Read(p) }

// send sends one frame, and a file with it unless that is nil.
func (w *wire) send(kind byte, p []byte, file *os.File) error {
	text := append([]byte{kind, 0, 0, 0, 0}, p...)
	binary.BigEndian.PutUint32(text[1:], uint32(len(p)))
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := w.wait.Load(); wait > 0 {
		if err := w.conn.SetWriteDeadline(time.Now().Add(time.Duration(wait))); err != nil {
			return err
		}
	}
	if file != nil {
		n, _, err := w.conn.WriteMsgUnix(text, unix.UnixRights(int(file.Fd())), nil)
		if err != nil {
			return err
		}
		text = text[n:]
	}
	_, err := w.conn.Write(text)
	return err
}

// message sends v as JSON.
func (w *wire) message(kind byte, v any, file *os.File) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	for len(text) > 0 {
		n := min(len(text), maxFrame)
		if err := w.send(kind, text[:n], file); err != nil {
			return err
		}
		text, file = text[n:], nil
	}
	return w.send(kind, nil, nil)
}

// request reads a request and the descriptor that may come with it, nil without.
func (w *wire) request() (q *request, file *os.File, err error) {
	var head [5]byte
	oob := make([]byte, unix.CmsgLen(4)) // room for one: the kernel drops what is more
	n, oobn, _, _, err := w.conn.ReadMsgUnix(head[:], oob)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, nil, err
	}
	if file, err = receivedFile(oob[:oobn]); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil && file != nil {
			file.Close()
		}
	}()
	if _, err := io.ReadFull(w, head[n:]); err != nil {
		return nil, nil, short(err)
	}
	kind, p, err := readBody(w, head, w.buf)
	if err == nil && kind != frameRequest {
		err = fmt.Errorf("%w: a frame of kind %q for a request", errProtocol, kind)
	}
	q = &request{}
	if err == nil {
		err = readMessage(w, frameRequest, p, w.buf, maxRequest, q)
	}
	return q, file, err
}

// receivedFile takes the descriptor out of a control message.
func receivedFile(oob []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(messages) == 0 {
		return nil, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, errors.Join(errProtocol, err)
	}
	return os.NewFile(uintptr(fds[0]), "stdin"), nil
}

// dataReader reads data frames until the empty one.
type dataReader struct {
	w    *wire
	rest []byte
	end  bool
}

func (d *dataReader) Read(p []byte) (int, error) {
	for len(d.rest) == 0 {
		if d.end {
			return 0, io.EOF
		}
		if err := d.w.conn.SetReadDeadline(time.Now().Add(stallTime)); err != nil {
			return 0, err
		}
		kind, payload, err := readFrame(d.w, d.w.buf)
		if err == nil && kind != frameData {
			err = fmt.Errorf("%w: a frame of kind %q among data", errProtocol, kind)
		}
		if err != nil {
			return 0, short(err)
		}
		d.rest, d.end = payload, len(payload) == 0
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	return n, nil
}

// frameWriter sends what is written as frames of a kind.
type frameWriter struct {
	w    *wire
	kind byte
}

func (f frameWriter) Write(p []byte) (n int, err error) {
	for n < len(p) && err == nil {
		k := min(len(p)-n, maxFrame)
		if err = f.w.send(f.kind, p[n:n+k], nil); err == nil {
			n += k
		}
	}
	return n, err
}

// samePeer checks that the other side of the connection is this user, and not a program
// of his in a sandbox: that one has his id, too, but another user namespace.
func samePeer(conn *net.UnixConn) (pid int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	handle := -1
	ctl := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		// Before Linux 6.5 there is no handle, and a pid that was given anew goes unseen.
		if h, wrong := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD); wrong == nil {
			handle = h
		}
	})
	if handle >= 0 {
		defer unix.Close(handle)
	}
	if err = errors.Join(err, ctl); err != nil {
		return 0, fmt.Errorf("ask who is at the session's socket: %w", err)
	}
	if int(cred.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("at the session's socket is user %d: %w", cred.Uid, unix.EPERM)
	}
	if err := sameUserNamespace(int(cred.Pid), handle); err != nil {
		return 0, fmt.Errorf("process %d is at the session's socket: %w", cred.Pid, err)
	}
	return int(cred.Pid), nil
}

// sameUserNamespace checks that the process, which the handle holds if it is not -1, is
// in this one's user namespace.
func sameUserNamespace(pid, handle int) error {
	own, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return err
	}
	its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid))
	if err != nil {
		return err
	}
	if handle >= 0 {
		if err := unix.PidfdSendSignal(handle, 0, nil, 0); err != nil {
			return fmt.Errorf("it is no more: %w", err)
		}
	}
	if its != own {
		return fmt.Errorf("it is in another user namespace: %w", unix.EPERM)
	}
	return nil
}
