// This file owns the reaper: the program of about a thousand bytes that init turns
// into once everything is set up, PID 1 of the run's PID namespace from L3 on. It
// starts the program as an ordinary child, says how it ended, and reaps orphans.
//
// Why not init itself: a Go process has four or five threads that pids.max would
// count, and the program must not be PID 1 (no default signal actions there).
//
//	supervisor                        reaper (fd 3)                   program
//	    │                                │─ clone, setsid, execve ──────▶│
//	    │◀─ 'S' pid ─────────────────────│  it runs                      │
//	    │   or 'F' errno ────────────────│  execve failed, exit 127      │
//	    │   or 'C' errno ────────────────│  set-up or clone failed, 127  │
//	    │                                │                               │
//	    │◀─ 'X' status, rusage ──────────│◀─ ends ───────────────────────┘
//	    │                                │  goes on reaping orphans, silently
//	    │── a byte ─────────────────────▶│  exit with it as status; the rest is the supervisor's
//	    │── close, or die ──────────────▶│  kills what is left, exit 0
//
// A frame is one letter and an int32 in the byte order of the machine: the pid as
// the reaper's namespace counts, an errno, or a status as from wait4(2). After the
// status of 'X' comes the kernel's struct rusage of the program and of the children
// that it waited for (144 bytes). EOF without 'X' or 'F' means that the reaper was
// killed, by the OOM killer say.
//
// The reaper gets the path of the program as argv[0], the program's own arguments
// as argv[1..], the program's environment, the program's descriptors 0 to 2 (its
// own are closed once it runs), the channel as 3 and cgroup.kill as 4; a 4 that is
// something else or not there does no harm. It makes these system calls, which a
// filter installed before must let through: clone (CLONE_VM|CLONE_VFORK), close,
// close_range, execve, exit_group, kill, ppoll, prctl, read, rt_sigaction,
// rt_sigprocmask, rt_sigreturn, setsid, wait4, waitid, write. The
// program's limits are its own too: RLIMIT_NOFILE must be at least 1, and
// RLIMIT_CPU counts what reaping costs.
//
// What it kills: as PID 1 everything, because the namespace ends with it. Elsewhere
// (L0 to L2, as child subreaper) what cgroup.kill reaches and the program's process
// group; a daemon in a session of its own is left to the supervisor's sweep.
//
// What the program can do to it: from L3 on it cannot kill or stop its PID 1. It
// can trace it (and so forge a frame) only with CAP_SYS_PTRACE in the user
// namespace that the image belongs to. An image that the run's user cannot read,
// owned by an id that is not mapped in the run, belongs to the parent's: then even
// all capabilities inside do not suffice (would_dump in fs/exec.c). Below L3 the
// two are equals, and a frame is worth no more than the program's exit status.

package sbxinit

import (
	_ "embed" // the images
	"runtime"
)

// Frames that the reaper sends, see above.
const (
	FrameStarted     = 'S'
	FrameExited      = 'X'
	FrameExecFailed  = 'F'
	FrameStartFailed = 'C'
)

// The images are what hack/reaper/build makes of the sources beside it; a test
// assembles them again and compares. As strings they are read-only and cost nothing
// at start-up, and the linker drops the one that is not used.
var (
	//go:embed reaper_amd64.bin
	reaperAMD64 string
	//go:embed reaper_arm64.bin
	reaperARM64 string
)

// Reaper gives the ELF image of the reaper for this architecture, or nil where
// there is none. It is meant to be written to a sealed memfd and executed by
// execveat(2).
func Reaper() []byte {
	switch runtime.GOARCH {
	case "amd64":
		return []byte(reaperAMD64)
	case "arm64":
		return []byte(reaperARM64)
	}
	return nil
}
