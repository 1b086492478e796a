//go:build plants

// This file owns the switch of the planted defects: the binary that has them is made
// for the lab, which must find each.

package runtime

import (
	"os"
	goruntime "runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

var plant = os.Getenv("SBXRUN_PLANT")

// planted says whether the defect of that name is planted in this process.
func planted(name string) bool { return plant == name }

// plantDelay is how late "pids-max-late" writes the limit: late enough to be no luck.
const plantDelay = 2 * time.Second

// plantCwd and plantEnv are the caller's.
var (
	plantCwd, _ = os.Getwd()
	plantEnv    = os.Environ()
)

// loopbackUp brings up the loopback device of the network namespace that a process is in.
func loopbackUp(pid int) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		goruntime.LockOSThread() // and never unlocked: the thread ends in a foreign namespace
		ns, err := os.Open("/proc/" + strconv.Itoa(pid) + "/ns/net")
		if err != nil || unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET) != nil {
			return
		}
		s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
		if err != nil {
			return
		}
		if r, err := unix.NewIfreq("lo"); err == nil {
			r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
			_ = unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, r)
		}
		unix.Close(s)
	}()
	<-done
}
