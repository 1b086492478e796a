package runtime_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

func TestAHintSaysWhyAndHowMuch(t *testing.T) {
	for _, tc := range []struct {
		script, says string
		set          func(*spec.Policy)
	}{
		{"exit 0", "exit code 0.", func(*spec.Policy) {}},
		{"exit 3", "exit code 3, no limit stopped it", func(*spec.Policy) {}},
		{"kill -SEGV $$", "SIGSEGV, which no limit explains", func(*spec.Policy) {}},
		{"sleep 50", "after 200ms of wall clock", func(p *spec.Policy) { p.Limits.Wall = 200 * time.Millisecond }},
		{"sleep 50 & sleep 50 & sleep 50 & wait", "more than 2 ", func(p *spec.Policy) { p.Processes.Max = 2 }},
		{"head -c 3000000 /dev/zero >f; exec kill -XFSZ $$", "larger than 1 MiB", func(p *spec.Policy) { p.Limits.FileSize = 1 << 20 }},
	} {
		p := sessionPolicy(spec.L5)
		tc.set(&p)
		s := newSession(t, p, 0)
		res, err := s.Run(context.Background(), runtime.Command{Args: []string{"/bin/sh", "-c", tc.script}})
		if err != nil {
			t.Fatal(err)
		}
		if hint := res.Hint(); !strings.Contains(hint, tc.says) {
			t.Errorf("%q: %s, %q", tc.script, res.Reason, hint)
		}
	}
}
