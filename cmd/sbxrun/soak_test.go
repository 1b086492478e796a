// The soak: many runs, one after the other and beside each other, a third of them
// hostile. Verdicts stay right, and nothing piles up.

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// soaked are the programs that take turns: two honest ones for each that is hostile.
var soaked = []struct {
	flags  []string
	argv   []string
	reason runtime.Reason
	output string
}{
	{nil, []string{"/bin/sh", "-c", "echo right"}, runtime.Exited, "right\n"},
	{nil, []string{"/bin/sh", "-c", "echo x >f; cat f; exit 7"}, runtime.Exited, "x\n"},
	{nil, []string{"/bin/sh", "-c", "b() { b | b & }; b; sleep 60"}, runtime.Processes, ""},
	{nil, []string{"/bin/sh", "-c", "(setsid sleep 1000 &) >/dev/null 2>&1; echo left"}, runtime.Exited, "left\n"},
	{nil, []string{"/bin/sh", "-c", "kill -TERM $$"}, runtime.Signaled, ""},
	{nil, []string{"attack", "heap", "400"}, runtime.OOM, ""},
	{nil, []string{"/bin/sh", "-c", "echo 1; echo 2 >&2"}, runtime.Exited, "1\n"},
	{nil, []string{"/bin/sh", "-c", "ls / >/dev/null; echo seen"}, runtime.Exited, "seen\n"},
	{[]string{"--wall", "200ms"}, []string{"/bin/sh", "-c", "while :; do :; done"}, runtime.WallClock, ""},
}

// soak does the nth run.
func soak(t *testing.T, n int) {
	j := soaked[n%len(soaked)]
	flags := append([]string{"--wall", "300s", "--cpu", "200s", "--memory", "64MiB"}, j.flags...)
	text, _ := exec.Command(sbxrun, codeArgs(spec.L5, flags, j.argv)...).Output()
	var res runtime.Result
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&res); err != nil {
		t.Errorf("run %d: no Result: %v in %q", n, err, text)
	} else if res.Reason != j.reason || !strings.Contains(res.Stdout.Text, j.output) {
		t.Errorf("run %d (%v): ended for %s with %+v, error %+v, output %.200q", n, j.argv, res.Reason, res.Evidence, res.Error, res.Stdout.Text)
	}
}

// keys counts the keyrings that there are of runs: those of ids that no user has.
func keys(t *testing.T) (n int) {
	t.Helper()
	text, err := os.ReadFile("/proc/key-users")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(text)) {
		var id uint32
		if _, err := fmt.Sscanf(strings.TrimSpace(line), "%d:", &id); err == nil && id >= 1<<31 {
			n++
		}
	}
	return n
}

// SBXRUN_TEST_SOAK=2000 SBXRUN_TEST_SOAK_BESIDE=200 is the long form, SBXRUN_TEST_DURATION=4h repeats it.
func TestASoakOfRunsStaysRightAndLeavesNothing(t *testing.T) {
	needRoot(t)
	notSlow(t)
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	rows, beside := moments(t, "SBXRUN_TEST_SOAK", 45), moments(t, "SBXRUN_TEST_SOAK_BESIDE", 18)
	until := time.Now()
	if text := os.Getenv("SBXRUN_TEST_DURATION"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("SBXRUN_TEST_DURATION: %v", err)
		}
		until = until.Add(d)
	}
	soak(t, 0)
	before, ringsBefore, filesBefore := lookAround(t), keys(t), openFiles(t)
	for round := 1; ; round++ {
		start := time.Now()
		for i := range rows {
			soak(t, i)
		}
		row := time.Since(start)
		var wg sync.WaitGroup
		for i := range beside {
			wg.Go(func() { soak(t, i) })
		}
		wg.Wait()
		t.Logf("round %d: %d runs in %v, %d beside each other in %v", round, rows, row.Round(time.Millisecond), beside, (time.Since(start) - row).Round(time.Millisecond))
		childless(t, "the soak")
		nothingLeft(t, before)
		if n := openFiles(t); n > filesBefore {
			t.Errorf("%d descriptors, there were %d", n, filesBefore)
		}
		// The kernel takes a moment to let go of a key.
		waitFor(t, fmt.Sprintf("the key rings of runs to go, there were %d", ringsBefore), func() bool { return keys(t) <= ringsBefore+2 })
		if t.Failed() || !time.Now().Before(until) {
			return
		}
	}
}

// openFiles counts this process's descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
