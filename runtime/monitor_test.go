// Tests of the monitor where the supervisor itself is out of something.

package runtime

import (
	"errors"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/spec"
)

// withoutDescriptors calls f while this process can open nothing.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	f()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
}

func TestAMonitorThatSeesNothingSaysSo(t *testing.T) {
	cmd := exec.Command("/bin/sh", "-c", "sleep 1000 & echo; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- cmd.Wait() }()
	policy := spec.Preset(spec.L3)
	m := newMonitor(cmd.Process.Pid, &policy, nil)

	var found *stop
	var killed error
	withoutDescriptors(t, func() {
		found = m.tick()
		killed = m.killTree(time.Now())
	})
	if found == nil || found.reason != Internal {
		t.Errorf("the look that saw nothing: %+v", found)
	}
	if !errors.Is(killed, unix.EMFILE) {
		t.Errorf("the tree is taken for killed: %v", killed)
	}
	if found := m.tick(); found != nil || m.peak != 1 {
		t.Errorf("once it sees again: %+v, %d tasks", found, m.peak)
	}
	if err := m.killTree(time.Now().Add(killTime)); err != nil {
		t.Error(err)
	}
	<-ended // the shell, whose child was ended
}
