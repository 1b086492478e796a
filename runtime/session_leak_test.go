// Tests of many runs and many sessions: what they leave is counted.

package runtime

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	goruntime "runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sbxrun/sbxrun/spec"
)

// many is how often something is done: few times, or as often as the variable says.
func many(t *testing.T, variable string, few int) int {
	t.Helper()
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	if testing.Short() {
		return max(few/4, 1)
	}
	return few
}

// traces counts what this process has, by kind.
func traces(t *testing.T) map[string]int {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{"descriptors": openFiles(t), "goroutines": goruntime.NumGoroutine(), "mounts": strings.Count(string(mounts), "\n")}
	children, _ := filepath.Glob("/proc/self/task/*/children")
	for _, c := range children {
		text, _ := os.ReadFile(c) // a thread may be gone
		out["processes"] += len(strings.Fields(string(text)))
	}
	ours := fmt.Sprintf("%s%d-", ownID, os.Getpid())
	_ = filepath.WalkDir("/sys/fs/cgroup", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ours) {
			out["control groups"]++
		}
		return nil // others' groups come and go
	})
	dirs, _ := filepath.Glob(os.TempDir() + "/" + dirPrefix + ours + "*")
	out["directories"] = len(dirs)
	return out
}

// goroutines counts this process's once there are no more than there were: one that has
// said it is done has still to return. One that stays is shown.
func goroutines(t *testing.T, were int) (n int) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); goruntime.Gosched() {
		if n = goruntime.NumGoroutine(); n <= were {
			return n
		}
	}
	stacks := make([]byte, 1<<16)
	t.Logf("%s", stacks[:goruntime.Stack(stacks, true)])
	return n
}

// resident is the memory of this process in KiB, without what Go could give back.
func resident(t *testing.T) (kib int) {
	t.Helper()
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmRSS:")
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

// SBXRUN_TEST_RUNS=1000 SBXRUN_TEST_SESSIONS=200 is the long form.
func TestManyRunsAndSessionsLeaveNothing(t *testing.T) {
	policy := spec.Preset(spec.L5)
	policy.Limits.Wall, policy.Limits.CPU = time.Minute, time.Minute
	if os.Geteuid() != 0 {
		policy.Cgroup = spec.CgroupOff
	}
	once := func(warm, runs int) {
		s, err := NewSession(policy, SessionOptions{Warm: warm})
		if err != nil {
			t.Error(err)
			return
		}
		for i := range runs {
			res, err := s.Run(context.Background(), Command{Args: []string{"/bin/sh", "-c", "echo . >>f; wc -l <f"}})
			if want := fmt.Sprintln(i + 1); err != nil || res.Reason != Exited || strings.TrimSpace(res.Stdout.Text) != strings.TrimSpace(want) {
				t.Errorf("run %d: %v %s %q", i, err, res.Reason, res.Stdout.Text)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	once(1, 1) // what is made once is made now
	before, memory := traces(t), resident(t)
	once(2, many(t, "SBXRUN_TEST_RUNS", 20))
	var wg sync.WaitGroup
	for range many(t, "SBXRUN_TEST_SESSIONS", 10) {
		wg.Go(func() { once(0, 2) })
	}
	wg.Wait()
	goroutines(t, before["goroutines"])
	after := traces(t)
	for kind, n := range after {
		if n > before[kind] {
			t.Errorf("%d %s, there were %d", n, kind, before[kind])
		}
	}
	t.Logf("before %v, %d KiB; after %v, %d KiB", before, memory, after, resident(t))
}
