// Programs whose effect the host measures while they stand still: each does its worst,
// calls itself ready and waits until its stdin ends. The last argument is the mark by
// which the host finds the process.

package attack

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Ready is the name that a process takes on (/proc/PID/comm) once it has done what it
// came for.
const Ready = "attack-ready"

func init() {
	register(
		attack{"A2", "burn", "MILLISECONDS MARK", "uses CPU time and ignores SIGXCPU", burnCPU},
		attack{"A3", "hold-heap", "MIB MARK", "touches memory and keeps it", holdHeap},
		attack{"A3", "hold-memfds", "N MIB MARK", "keeps memory in N memfds, where RLIMIT_AS does not look", holdMemfds},
		attack{"A5", "hold-files", "N MARK", "opens descriptors and keeps them", holdFiles},
		attack{"A6", "speak", "MIB", "writes one long line with a known start and end", speak},
		attack{"A8", "environs", "NAME", "prints a variable out of every environment it can read", environs},
		attack{"A11", "hold-children", "N MARK", "starts N children and keeps them", holdChildren},
		attack{"A13", "tell", "tcp|unix ADDRESS MARK", "connects and says its mark", tell},
		attack{"A13", "loopback", "MARK", "talks to itself over 127.0.0.1", loopback},
		attack{"A15", "idle", "MARK", "does nothing", func([]string) { ready() }},
		attack{"C2", "read-fds", "", "prints what it can read from descriptors that were left open", readFDs},
	)
}

// ready says that the host may look, and waits until it has.
func ready() {
	comm, err := os.OpenFile("/proc/self/comm", os.O_WRONLY, 0)
	if err != nil {
		saw("call itself ready", err)
		return
	}
	readyIn(comm)
}

func readyIn(comm *os.File) {
	_, _ = comm.WriteString(Ready)
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func holdFiles(args []string) {
	comm, err := os.OpenFile("/proc/self/comm", os.O_WRONLY, 0) // later there is no descriptor left
	openFiles(args)
	if err == nil {
		readyIn(comm)
	}
}

func burnCPU(args []string) {
	signal.Ignore(unix.SIGXCPU)
	limit := time.Duration(number(arg(args, 0))) * time.Millisecond
	for {
		var u syscall.Rusage
		if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil || time.Duration(u.Utime.Nano()+u.Stime.Nano()) >= limit {
			return
		}
	}
}

func holdHeap(args []string) {
	hold, err := unix.Mmap(-1, 0, number(arg(args, 0))<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	for i := 0; i < len(hold); i += 4096 {
		hold[i] = 1
	}
	saw(args[0]+" MiB", err)
	ready()
}

func holdMemfds(args []string) {
	var err error
	for i := 0; err == nil && i < number(arg(args, 0)); i++ {
		var fd int
		if fd, err = unix.MemfdCreate("hoard", unix.MFD_CLOEXEC); err == nil {
			err = unix.Fallocate(fd, 0, 0, int64(number(arg(args, 1)))<<20)
		}
	}
	saw("memfds", err)
	ready()
}

func speak(args []string) {
	room := number(arg(args, 0))<<20 - len(SpeakStart) - len(SpeakEnd)
	_, _ = os.Stdout.WriteString(SpeakStart)
	for piece := bytes.Repeat([]byte("x"), 1<<16); room > 0; room -= len(piece) {
		if _, err := os.Stdout.Write(piece[:min(room, len(piece))]); err != nil {
			os.Exit(1)
		}
	}
	_, _ = os.Stdout.WriteString(SpeakEnd)
}

// What speak says first and last.
const (
	SpeakStart = "the first words of a long line "
	SpeakEnd   = " and its last words"
)

func environs(args []string) {
	needle := []byte(arg(args, 0) + "=")
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range append([]string{"/proc/self/environ", "/proc/1/environ"}, files...) {
		text, _ := os.ReadFile(f)
		for v := range bytes.SplitSeq(text, []byte{0}) {
			if bytes.HasPrefix(v, needle) {
				fmt.Printf("%s: %s\n", f, v)
			}
		}
	}
	fmt.Println("looked into", len(files), "environments")
}

func holdChildren(args []string) {
	started, err := 0, error(nil)
	for ; err == nil && started < number(arg(args, 0)); started++ {
		// Born without Go's own threads: one task each.
		_, err = os.StartProcess("/bin/sleep", []string{"sleep", "20." + arg(args, 1)}, &os.ProcAttr{Files: []*os.File{nil, os.Stdout, os.Stderr}})
	}
	saw(fmt.Sprintf("%d children", started), err)
	ready()
	children, _ := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/children", os.Getpid()))
	for f := range bytes.FieldsSeq(children) {
		if pid, err := strconv.Atoi(string(f)); err == nil {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}

func tell(args []string) {
	c, err := net.DialTimeout(arg(args, 0), arg(args, 1), 2*time.Second)
	if err == nil {
		_, err = c.Write([]byte(arg(args, 2)))
		c.Close()
	}
	saw("connect", err)
}

func loopback([]string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		saw("listen", err)
		ready()
		return
	}
	c, err := net.DialTimeout("tcp", l.Addr().String(), 2*time.Second)
	saw("connect", err)
	ready()
	if err == nil {
		c.Close()
	}
	l.Close()
}

func readFDs([]string) {
	for fd := 3; fd < 256; fd++ {
		buf := make([]byte, 4096)
		if n, err := unix.Pread(fd, buf, 0); err == nil && n > 0 {
			fmt.Printf("descriptor %d: %s\n", fd, buf[:n])
		}
	}
	fmt.Println("looked at descriptors 3 to 255")
}
