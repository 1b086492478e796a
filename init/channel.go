// This file owns the channel between the supervisor and init: what is sent, in
// which order, and on which descriptor.
//
//	supervisor                         init (fd 3)
//	    │── plan ───────────────────────▶│  after init was placed in its cgroup
//	    │                                │  steps up to OpReady
//	    │◀── 'H' ────────────────────────│  OpHooks, in a plan with such hooks: waits for 'G'
//	    │◀── 'R' (+ workdir fd) ─────────│
//	    │  arms pids.max, puts files     │  blocked in read
//	    │── 'G' ────────────────────────▶│
//	    │                                │  OpAwait (create): waits for a connection, which
//	    │                                │  "start" makes and which becomes the channel;
//	    │                                │  another 'G' comes on it
//	    │── 'G' (+ stdin), plan ────────▶│  OpMore: the rest of the steps comes late
//	    │                                │  remaining steps, execve
//	    │◀── 'L' descriptor ─────────────│  a filter with a listener is installed: waits for 'G'
//	    │◀── 'E' step, op, path, errno ──│  instead, when a step fails
//	    │◀── EOF ────────────────────────│  OpExec: the program runs, fd 3 was close-on-exec
//	    │◀── 'S' pid, later 'X' status ──│  OpReap: the reaper speaks, see reaper.go

package sbxinit

import (
	"encoding/binary"
	"syscall"

	"golang.org/x/sys/unix"
)

// Fixed descriptors of init.
const (
	ChannelFD = 3 // stream socket to the supervisor
	KillFD    = 4 // cgroup.kill of the run, write-only, for the reaper; /dev/null where there is none
	ReaperFD  = 5 // sealed memfd with the reaper's image; /dev/null for OpExec
	StartFD   = 6 // listening socket for OpAwait; /dev/null without
	FirstFree = 7 // the first of the descriptors that OpExec keeps
)

// channel is where the conversation goes on: ChannelFD, until OpExec needs that
// number for the program.
var channel = ChannelFD

// Frames that init sends; the reaper's are FrameStarted and following.
const (
	FrameReady    = 'R'
	FrameHooks    = 'H'
	FrameListener = 'L'
	FrameError    = 'E'
	frameGo       = 'G'
)

// Failure says which step failed and how. It is an error.
type Failure struct {
	Step  string // name of the step
	Layer string // layer of the policy that the step serves, empty for plumbing
	Op    string // the system call or action
	Path  string // its argument, if it has one
	Errno syscall.Errno
}

// Error is one line: step, action, argument, errno.
func (f *Failure) Error() string {
	s := f.Op
	if f.Step != "" {
		s = f.Step + ": " + s
	}
	if f.Path != "" {
		s += " " + f.Path
	}
	if f.Errno != 0 {
		s += ": " + f.Errno.Error()
	}
	return s
}

// Unwrap gives the errno.
func (f *Failure) Unwrap() error {
	if f.Errno == 0 {
		return nil
	}
	return f.Errno
}

// Encode is the failure as a message on the channel.
func (f *Failure) Encode() []byte {
	b := []byte{FrameError, 0, 0, 0, 0}
	for _, s := range []string{f.Step, f.Layer, f.Op, f.Path} {
		if len(s) > 4096 {
			s = s[:4096]
		}
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, uint64(f.Errno))
	binary.LittleEndian.PutUint32(b[1:], uint32(len(b)-5))
	return b
}

// DecodeFailure reads the payload of a FrameError.
func DecodeFailure(b []byte) *Failure {
	f := &Failure{Step: "init", Op: "unreadable message"}
	var parts [4]string
	for i := range parts {
		n, rest, ok := count(b)
		if !ok {
			return f
		}
		parts[i], b = string(rest[:n]), rest[n:]
	}
	errno, w := binary.Uvarint(b)
	if w <= 0 {
		return f
	}
	return &Failure{parts[0], parts[1], parts[2], parts[3], syscall.Errno(errno)}
}

// Go is the message that lets an init at its barrier go on.
func Go() []byte { return []byte{frameGo} }

// readFull reads len(b) bytes with plain system calls: init has no poller.
func readFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Read(fd, b)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.EPIPE // the supervisor is gone
		}
		b = b[n:]
	}
	return nil
}

func writeFull(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.SendmsgN(fd, b, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// receivePlan reads a plan from the channel, still encoded.
func receivePlan() ([]byte, error) {
	var head [4]byte
	if err := readFull(ChannelFD, head[:]); err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n > maxPlan {
		return nil, errPlan
	}
	b := make([]byte, n)
	if err := readFull(ChannelFD, b); err != nil {
		return nil, err
	}
	return b, nil
}
