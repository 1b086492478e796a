// Tests of what is kept of a stream and how it is cut.

package runtime

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func captured(held int64, chunks ...[]byte) *capture {
	c := newCapture(held)
	for _, p := range chunks {
		_, _ = c.Write(p)
	}
	return c
}

func TestStreamIsCutOnRuneBordersWithAnExactCount(t *testing.T) {
	for _, tc := range []struct {
		name     string
		in       string
		held     int64
		chars    int64
		want     string
		omitted  int64
		encoding bool
	}{
		{"a short stream is whole", "hello\n", 100, 10, "hello\n", 0, false},
		{"a stream of exactly the limit is whole", "0123456789", 100, 10, "0123456789", 0, false},
		{"one more is cut to the first 6 and the last 4", "0123456789a", 100, 10, "012345\n[… 1 bytes omitted …]\n789a", 1, false},
		{"an empty stream stays empty", "", 100, 10, "", 0, false},
		{"runes count as one", "ääääääääää", 100, 10, "ääääääääää", 0, false},
		{"a cut counts bytes, not runes", "äääääääääää", 100, 10, "ääääää\n[… 2 bytes omitted …]\nääää", 2, false},
		{"what was never held is counted as well", strings.Repeat("x", 1000), 10, 0, "xxxxxx\n[… 990 bytes omitted …]\nxxxx", 990, false},
		{"a rune torn by the held limit is dropped on both sides", strings.Repeat("€", 10), 10, 0, "€€\n[… 21 bytes omitted …]\n€", 21, false},
		{"bytes that are no UTF-8 are escaped", "a\xffb", 100, 10, `a\xffb`, 0, true},
		{"an escape counts as the four characters it is", "\xff\xff\xff\xff", 100, 10, "\\xff\n[… 2 bytes omitted …]\n\\xff", 2, true},
		{"without a limit of characters all that is held comes back", strings.Repeat("y", 50), 100, 0, strings.Repeat("y", 50), 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := captured(tc.held, []byte(tc.in)).stream(tc.chars)
			if s.Text != tc.want || s.OmittedBytes != tc.omitted || s.TotalBytes != int64(len(tc.in)) || (s.Encoding != "") != tc.encoding {
				t.Errorf("got %+v, want text %q with %d bytes omitted", s, tc.want, tc.omitted)
			}
		})
	}
}

func TestWhatIsInThePipeAtTheDeadlineIsNotLost(t *testing.T) {
	for _, held := range []bool{false, true} {
		tp, w, err := openTap(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(make([]byte, 50_000)); err != nil {
			t.Fatal(err)
		}
		if !held {
			w.Close()
		}
		// The reader comes late: the deadline is over before it reads a byte.
		if err := tp.read.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		tp.run()
		end := tp.drain(time.Unix(1, 0))
		if tp.capture.total != 50_000 || end == held {
			t.Errorf("held %v: %d bytes taken, end seen %v", held, tp.capture.total, end)
		}
		w.Close()
	}
}

// model keeps everything, which the capture must not.
func TestCaptureHoldsTheSameAsAModelThatHoldsAll(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		held := int64(1 + rnd.IntN(60))
		var all []byte
		c := newCapture(held)
		for range rnd.IntN(12) {
			p := make([]byte, rnd.IntN(40))
			for j := range p {
				p[j] = byte('a' + rnd.IntN(26))
			}
			all = append(all, p...)
			_, _ = c.Write(p)
		}
		head, tail := c.parts()
		h := held * headShare / allShare
		wantHead, wantTail := all, []byte(nil)
		if int64(len(all)) > h {
			wantHead = all[:h]
			wantTail = all[max(h, int64(len(all))-(held-h)):]
		}
		if !bytes.Equal(head, wantHead) || !bytes.Equal(tail, wantTail) {
			t.Fatalf("case %d, held %d, stream %q: got %q … %q, want %q … %q", i, held, all, head, tail, wantHead, wantTail)
		}
		if int64(cap(c.head)) > 2*held+64 || int64(cap(c.tail)) > 2*held+64 {
			t.Fatalf("case %d: %d and %d bytes held for a limit of %d", i, cap(c.head), cap(c.tail), held)
		}
	}
}

func FuzzStreamIsValidTextWithinItsLimit(f *testing.F) {
	f.Add([]byte("hello"), int64(10), int64(4))
	f.Add([]byte("\xff\xfe€€€€€€€€"), int64(7), int64(3))
	f.Add([]byte(strings.Repeat("ä€𝄞", 20)), int64(31), int64(11))
	f.Fuzz(func(t *testing.T, in []byte, held, chars int64) {
		held, chars = 1+abs(held)%200, abs(chars)%50
		s := captured(held, in).stream(chars)
		if !utf8.ValidString(s.Text) {
			t.Fatalf("text %q is not UTF-8", s.Text)
		}
		if s.TotalBytes != int64(len(in)) || s.OmittedBytes < 0 || s.OmittedBytes > s.TotalBytes {
			t.Fatalf("%d of %d bytes omitted", s.OmittedBytes, s.TotalBytes)
		}
		marker := fmt.Sprintf("\n[… %d bytes omitted …]\n", s.OmittedBytes)
		text := s.Text
		if s.OmittedBytes > 0 {
			text = strings.Replace(text, marker, "", 1)
		}
		if chars > 0 && int64(utf8.RuneCountInString(text)) > chars {
			t.Fatalf("%d characters for a limit of %d", utf8.RuneCountInString(text), chars)
		}
		if _, err := json.Marshal(s); err != nil {
			t.Fatal(err)
		}
	})
}

func abs(n int64) int64 {
	if n < 0 {
		return -(n + 1)
	}
	return n
}
