// This file owns the program's output: each stream is read to its end, its first
// 60 % and last 40 % are kept within a fixed amount of memory, and cut again to
// the characters that the Result returns.

package runtime

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// headShare and tailShare are the parts of the room that the first and the last
// of a stream get: an error message stands at the end, its cause at the start.
const (
	headShare = 6
	allShare  = 10
)

// capture holds the head and the tail of a stream. It grows with the stream and
// never beyond held bytes.
type capture struct {
	held  int64
	head  []byte
	tail  []byte // ring, once the head is full
	next  int    // where the ring is written next
	total int64
}

func newCapture(held int64) *capture { return &capture{held: held} }

// Write takes p; it never fails.
func (c *capture) Write(p []byte) (int, error) {
	n := len(p)
	c.total += int64(n)
	headRoom := c.held * headShare / allShare
	if room := headRoom - int64(len(c.head)); room > 0 {
		k := min(room, int64(len(p)))
		c.head = append(c.head, p[:k]...)
		p = p[k:]
	}
	if planted("output-unbounded") {
		headRoom, c.head, p = c.held, append(c.head, p...), nil
	}
	tailRoom := int(c.held - headRoom)
	if len(p) > tailRoom {
		p = p[len(p)-tailRoom:]
	}
	if room := tailRoom - len(c.tail); room > 0 {
		k := min(room, len(p))
		c.tail = append(c.tail, p[:k]...)
		p = p[k:]
		c.next = len(c.tail) % max(tailRoom, 1)
	}
	for len(p) > 0 {
		k := copy(c.tail[c.next:], p)
		p, c.next = p[k:], (c.next+k)%tailRoom
	}
	return n, nil
}

// parts gives the head and the tail in order.
func (c *capture) parts() (head, tail []byte) {
	if planted("head-only") {
		return c.head, nil
	}
	if int64(len(c.head))+int64(len(c.tail)) == c.total {
		// Nothing was overwritten: the ring is in order from its start.
		return c.head, c.tail
	}
	return c.head, append(append(make([]byte, 0, len(c.tail)), c.tail[c.next:]...), c.tail[:c.next]...)
}

// stream cuts what is held to chars characters (0: all that is held) on rune
// borders and escapes what is no UTF-8.
func (c *capture) stream(chars int64) Stream {
	head, tail := c.parts()
	s := Stream{TotalBytes: c.total}
	if int64(len(head)+len(tail)) == c.total {
		all := append(head[:len(head):len(head)], tail...)
		if chars == 0 || len(firstRunes(all, chars)) == len(all) {
			s.Text, s.Encoding = escape(all)
			return s
		}
		head, tail = all, all
	} else {
		// The held parts were cut at a byte: give up what is left of a torn rune.
		head, tail = trimEnd(head), trimStart(tail)
	}
	if chars > 0 {
		first := chars * headShare / allShare
		head, tail = firstRunes(head, first), lastRunes(tail, chars-first)
	}
	s.OmittedBytes = c.total - int64(len(head)) - int64(len(tail))
	before, bad := escape(head)
	after, bad2 := escape(tail)
	s.Encoding = bad
	if s.Encoding == "" {
		s.Encoding = bad2
	}
	s.Text = before + omission(s.OmittedBytes) + after
	return s
}

// cost is what a rune takes of the characters returned: a byte that is no UTF-8
// is written as four.
func cost(r rune, w int) int64 {
	if r == utf8.RuneError && w == 1 {
		return 4
	}
	return 1
}

func firstRunes(b []byte, room int64) []byte {
	for i := 0; i < len(b); {
		r, w := utf8.DecodeRune(b[i:])
		if room -= cost(r, w); room < 0 {
			return b[:i]
		}
		i += w
	}
	return b
}

func lastRunes(b []byte, room int64) []byte {
	for i := len(b); i > 0; {
		r, w := utf8.DecodeLastRune(b[:i])
		if room -= cost(r, w); room < 0 {
			return b[i:]
		}
		i -= w
	}
	return b
}

// trimEnd drops the beginning of a rune that was cut off at the end of b.
func trimEnd(b []byte) []byte {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		if c := b[len(b)-i]; utf8.RuneStart(c) {
			if !utf8.FullRune(b[len(b)-i:]) {
				return b[:len(b)-i]
			}
			break
		}
	}
	return b
}

// trimStart drops the rest of a rune that was cut off at the start of b.
func trimStart(b []byte) []byte {
	for i := 0; i < utf8.UTFMax-1 && i < len(b); i++ {
		if utf8.RuneStart(b[i]) {
			return b[i:]
		}
	}
	return b
}

// escape makes text of b: bytes that are no UTF-8 become \xHH, and the note says so.
func escape(b []byte) (text, note string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	var out strings.Builder
	for len(b) > 0 {
		r, w := utf8.DecodeRune(b)
		if r == utf8.RuneError && w == 1 {
			fmt.Fprintf(&out, `\x%02x`, b[0])
		} else {
			out.Write(b[:w])
		}
		b = b[w:]
	}
	return out.String(), `bytes that are not UTF-8 are written as \xHH`
}

// tap reads one stream of the program into its capture.
type tap struct {
	read    *os.File
	capture *capture
	live    *relay // gets what is kept as well, nil without
	done    chan struct{}
	late    bool // reading stopped before the end
}

// openTap makes the pipe; the write end is for the program.
func openTap(held int64) (*tap, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make an output pipe: %w", err)
	}
	return &tap{read: r, capture: newCapture(held), done: make(chan struct{})}, w, nil
}

// run reads until every write end is closed, or drain gave up.
func (t *tap) run() {
	defer close(t.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := t.read.Read(buf)
		t.take(buf[:n])
		if err != nil {
			t.late = !errors.Is(err, io.EOF)
			return
		}
	}
}

// drain waits for the end of the stream, at most until the deadline: a leftover that
// nothing sweeps may hold the pipe for ever. What is in the pipe then is taken all the
// same. It says whether the end came.
func (t *tap) drain(deadline time.Time) bool {
	if planted("pipe-held") {
		deadline = time.Time{}
	}
	_ = t.read.SetReadDeadline(deadline) // a pipe from os.Pipe always takes one
	<-t.done
	defer t.read.Close()
	if !t.late {
		return true
	}
	raw, err := t.read.SyscallConn()
	if err != nil {
		return false
	}
	end := false
	_ = raw.Control(func(fd uintptr) {
		buf := make([]byte, 64<<10)
		for {
			n, err := unix.Read(int(fd), buf) // does not block: a pipe of os.Pipe never does
			if n <= 0 {
				end = n == 0 && err == nil
				return
			}
			t.take(buf[:n])
		}
	})
	return end
}

// take keeps what was read, and passes on what goes to the head.
func (t *tap) take(p []byte) {
	before := len(t.capture.head)
	_, _ = t.capture.Write(p) // never fails
	if t.live != nil {
		t.live.pass(t.capture.head[before:])
	}
}

// finish passes on the tail and what was left out before it, and waits until all of it
// was taken.
func (t *tap) finish() {
	if t.live == nil {
		return
	}
	_, tail := t.capture.parts()
	if omitted := t.capture.total - int64(len(t.capture.head)+len(tail)); omitted > 0 {
		t.live.pass([]byte(omission(omitted)))
	}
	t.live.pass(tail)
	t.live.end()
}

// relay passes a stream on at the pace of whom it goes to, whom the program does not
// wait for. It holds no more than the capture does.
type relay struct {
	more  chan struct{} // something is pending, or the end has come
	done  chan struct{}
	mu    sync.Mutex
	held  []byte
	ended bool
}

func newRelay(to io.Writer) *relay {
	r := &relay{more: make(chan struct{}, 1), done: make(chan struct{})}
	go r.run(to)
	return r
}

// run writes until the end. A reader that has gone away does not concern the program,
// which has us to write to.
func (r *relay) run(to io.Writer) {
	defer close(r.done)
	for range r.more {
		r.mu.Lock()
		p, ended := r.held, r.ended
		r.held = nil
		r.mu.Unlock()
		if len(p) > 0 {
			_, _ = to.Write(p)
		}
		if ended {
			return
		}
	}
}

func (r *relay) pass(p []byte) { r.add(p, false) }

func (r *relay) add(p []byte, end bool) {
	if len(p) == 0 && !end {
		return
	}
	r.mu.Lock()
	r.held, r.ended = append(r.held, p...), end
	r.mu.Unlock()
	select {
	case r.more <- struct{}{}:
	default:
	}
}

// end waits until everything was passed on.
func (r *relay) end() {
	r.add(nil, true)
	<-r.done
}

// omission stands where a stream was cut.
func omission(bytes int64) string { return fmt.Sprintf("\n[… %d bytes omitted …]\n", bytes) }
