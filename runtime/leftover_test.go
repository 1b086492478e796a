// Tests of what a policy without the sweep leaves behind.

package runtime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	"github.com/sbxrun/sbxrun/spec"
)

func TestWithoutTheSweepALeftoverLivesOnInItsGroup(t *testing.T) {
	if err := cgroup.Probe(); err != nil {
		t.Skipf("no control groups here: %v", err)
	}
	id := fmt.Sprintf("leftover-%d", os.Getpid())
	sp := compiled(t, spec.L1, func(p *spec.Policy) { p.Cgroup, p.Limits.Sweep = spec.CgroupOn, false },
		"/bin/sh", "-c", "sleep 300 >/dev/null 2>&1 </dev/null & echo $!")
	res, err := Run(context.Background(), sp, Options{ID: id})
	if res == nil {
		t.Fatal(err)
	}
	pid, wrong := strconv.Atoi(strings.TrimSpace(res.Stdout.Text))
	if wrong != nil {
		t.Fatalf("%v: %+v", err, res)
	}
	if err != nil || res.Reason != Exited {
		t.Errorf("%v: %+v", err, res)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("the leftover is gone: %v", err)
	}
	defer unix.Close(fd)
	if at, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid)); err != nil || !strings.Contains(string(at), "/sbxrun/"+ownedID(id)) {
		t.Errorf("it is out of its group: %s, %v", at, err)
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 60_000)
	g, err := cgroup.Create("", ownedID(id), nil) // what is left is empty now and blocks no id
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(g.Kill(), g.Delete()); err != nil {
		t.Error(err)
	}
}
