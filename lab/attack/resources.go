// Attacks on limits: time, memory, files, output (A1 to A7, A19, A20).

package attack

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	register(
		attack{"A1", "spin", "", "uses CPU for ever", func([]string) { burn(time.Hour) }},
		attack{"A1", "sleep", "", "does nothing for ever", func([]string) { time.Sleep(time.Hour) }},
		attack{"A2", "cpu-tree", "N SECONDS", "burns CPU in N processes, each within a limit of its own", cpuTree},
		attack{"A3", "heap", "MIB", "allocates and touches memory", heap},
		attack{"A3", "memfd", "MIB", "puts memory where RLIMIT_AS does not look", memfd},
		attack{"A4", "big-file", "MIB", "writes one large file and survives SIGXFSZ", bigFile},
		attack{"A4", "many-files", "N MIB", "writes N files, each within the limit", manyFiles},
		attack{"A5", "open-files", "N", "opens N descriptors", openFiles},
		attack{"A6", "flood", "MIB line|lines|binary", "writes to stdout", flood},
		attack{"A7", "hold-stdout", "SECONDS", "ends, while a child keeps stdout open", holdStdout},
		attack{"A19", "deep-tree", "N", "makes directories within directories", deepTree},
		attack{"A19", "many-names", "N", "makes files with names of any bytes", manyNames},
		attack{"A20", "suspend", "", "stops itself and all it can reach", func([]string) { _ = unix.Kill(os.Getpid(), unix.SIGSTOP); time.Sleep(time.Hour) }},
	)
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		fmt.Fprintln(os.Stderr, "attack:", err)
		os.Exit(2)
	}
	return n
}

func burn(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

// self starts this program again, detached from nothing.
func self(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", append(slices.Clone(words), args...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd
}

func cpuTree(args []string) {
	n, seconds := number(arg(args, 0)), number(arg(args, 1))
	if n > 1 {
		for range n {
			_ = self("cpu-tree", "1", args[1]).Start()
		}
	}
	burn(time.Duration(seconds) * time.Second)
	saw("burnt "+args[1]+" s", nil)
}

func heap(args []string) {
	var hold [][]byte
	for i := range number(arg(args, 0)) {
		hold = append(hold, bytes.Repeat([]byte{byte(i + 1)}, 1<<20))
	}
	saw(fmt.Sprintf("%d MiB of heap", len(hold)), nil)
}

func memfd(args []string) {
	fd, err := unix.MemfdCreate("hoard", unix.MFD_CLOEXEC)
	if err != nil {
		saw("memfd", err)
		return
	}
	n := number(arg(args, 0))
	if err := unix.Ftruncate(fd, int64(n)<<20); err != nil {
		saw("memfd", err) // RLIMIT_FSIZE; fallocate below would say the same
		os.Exit(1)
	}
	// In pieces: a signal of Go's own scheduler interrupts the call, and undoes it.
	for i := 0; err == nil && i < n; {
		if err = unix.Fallocate(fd, 0, int64(i)<<20, 1<<20); err == nil {
			i++
		} else if err == unix.EINTR {
			err = nil
		}
	}
	saw(args[0]+" MiB in a memfd", err)
}

func bigFile(args []string) {
	signal.Ignore(unix.SIGXFSZ)
	f, err := os.Create("big")
	for i := 0; err == nil && i < number(arg(args, 0)); i++ {
		_, err = f.Write(make([]byte, 1<<20))
	}
	saw(args[0]+" MiB in one file", err)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func manyFiles(args []string) {
	var err error
	written := 0
	for i := 0; err == nil && i < number(arg(args, 0)); i++ {
		if err = os.WriteFile(fmt.Sprintf("part%d", i), make([]byte, number(arg(args, 1))<<20), 0o600); err == nil {
			written++
		}
	}
	saw(fmt.Sprintf("%d files", written), err)
}

func openFiles(args []string) {
	var err error
	n := 0
	for ; err == nil && n < number(arg(args, 0)); n++ {
		_, err = unix.Open("/dev/null", unix.O_RDONLY, 0)
	}
	saw(fmt.Sprintf("%d descriptors", n), err)
}

func flood(args []string) {
	piece := map[string]string{"line": strings.Repeat("x", 1<<16), "lines": strings.Repeat("a line of text – with a dash\n", 2000), "binary": strings.Repeat("\xff\xfe\x00ab", 13000)}[arg(args, 1)]
	for left := number(arg(args, 0)) << 20; left > 0; left -= len(piece) {
		if _, err := os.Stdout.WriteString(piece[:min(left, len(piece))]); err != nil {
			os.Exit(1)
		}
	}
}

func holdStdout(args []string) {
	fmt.Println("parent ends")
	cmd := exec.Command("/bin/sleep", arg(args, 0))
	cmd.Stdout = os.Stdout
	if err := cmd.Start(); err != nil {
		saw("child", err)
	}
}

func deepTree(args []string) {
	n := 0
	var err error
	for ; err == nil && n < number(arg(args, 0)); n++ {
		if err = unix.Mkdir("d", 0o700); err == nil {
			err = unix.Chdir("d")
		}
	}
	saw(fmt.Sprintf("%d levels", n), err)
}

func manyNames(args []string) {
	n := 0
	var err error
	for ; err == nil && n < number(arg(args, 0)); n++ {
		var fd int
		if fd, err = unix.Open(fmt.Sprintf("%d\n\x1b[2J\xff\xfe", n), unix.O_CREAT|unix.O_WRONLY, 0); err == nil {
			unix.Close(fd)
		}
	}
	saw(fmt.Sprintf("%d files", n), err)
}
