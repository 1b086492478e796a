// This file owns the attacks themselves: how each is made, and how the host measures
// what came of it.

package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/lab/attack"
	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// theEnd is what a program says that the wall clock should have ended before.
const theEnd = "came to its end"

// overWall asks whether the program came to its own end. Which of the two is first is
// seconds apart, and no clock of ours decides it.
func (t *try) overWall(script string) error {
	// Where a level is under test its wall clock is up to 4 s.
	seconds := "2.5"
	if t.matrix {
		seconds = "9.5"
	}
	err := t.sh(script+"\necho "+theEnd, seconds+t.mark)
	if err != nil {
		return err
	}
	if left := processes(t.mark); len(left) > 0 {
		t.got("alive afterwards: %d processes", len(left))
	} else if strings.Contains(t.res.Stdout.Text, theEnd) {
		t.got("it %s", theEnd)
	}
	return t.limited(runtime.WallClock)
}

func neverEnds(t *try) error { return t.overWall(`sleep "$1" & wait`) }

func spins(t *try) error {
	t.policy.Limits.CPU = 0 // it would be faster on two processors
	return t.overWall(`sleep "$1" & while kill -0 $! 2>/dev/null; do :; done`)
}

// suspends is woken by the one who is left.
func suspends(t *try) error { return t.overWall(`(sleep "$1"; kill -CONT $$) & kill -STOP $$`) }

func burnsCPU(t *try) error {
	// A limit of 1 s lets one who ignores the signal have 2 s, to the tick.
	err := t.helper("burn", "2500", t.mark)
	if err != nil {
		return err
	}
	if used := t.res.Usage.UserMS + t.res.Usage.SystemMS; used > 2300 {
		t.got("%.1f s of CPU time", used/1000)
	}
	return t.limited(runtime.CPU)
}

// sharesCPU starts three that end after a second each, so that RLIMIT_CPU, which counts
// for each process, lets them be.
func sharesCPU(t *try) error {
	err := t.sh(`for i in 1 2 3; do (ulimit -t 1; while :; do :; done) & done; wait; :`, t.mark)
	if err != nil {
		return err
	}
	if used := t.res.Usage.UserMS + t.res.Usage.SystemMS; used > 2000 { // RLIMIT_CPU counts ticks, not what was used
		t.got("%.1f s of CPU time", used/1000)
	}
	return t.limited(runtime.CPU)
}

// hoard is what attacks on memory take at least. Their limit is smaller than the
// preset's: to touch more only takes more time.
const hoard = 48 << 20

func hoardsMemory(t *try) error {
	kib := 0
	err := t.heldAs("tail", func(pid int) bool {
		now, _ := strconv.Atoi(strings.TrimSuffix(status(pid, "VmRSS"), " kB"))
		kib = max(kib, now)
		return kib > hoard*15/16>>10
	}, func() error {
		return t.sh(`{ head -c "$2" /dev/zero && read _; } | tail -c "$2" >/dev/null`, t.mark, strconv.Itoa(hoard))
	})
	if kib > hoard*15/16>>10 {
		t.got("%d MiB in use", kib>>10)
	}
	return or(err, func() error { return t.limited(runtime.OOM) })
}

func hidesMemory(t *try) error {
	var bytes int64
	err := t.held(func(pid int) { bytes = openBytes(pid, "memfd:hoard") }, func() error {
		return t.python(`import os, sys
for i in range(12):
    os.posix_fallocate(os.memfd_create("hoard"), 0, 8 << 20)
open("/proc/self/comm", "w").write("attack-ready")
sys.stdin.read()`, t.mark)
	})
	if bytes > 2*hoard*15/16 {
		t.got("%d MiB in memfds", bytes>>20)
	}
	return or(err, func() error { return t.limited(runtime.OOM) })
}

// openBytes adds up what the files that a process holds take, of those with a name.
func openBytes(pid int, name string) (sum int64) {
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, fd := range fds {
		var st unix.Stat_t
		if to, _ := os.Readlink(fd); strings.Contains(to, name) && unix.Stat(fd, &st) == nil {
			sum += st.Blocks * 512
		}
	}
	return sum
}

// or goes on with next unless there is an error already.
func or(err error, next func() error) error {
	if err != nil {
		return err
	}
	return next()
}

// files runs a script and gives count and size of what lies in its directory afterwards.
func (t *try) files(script string) (count int, size, largest int64, err error) {
	add := func(n int64) {
		count, size, largest = count+1, size+n, max(largest, n)
	}
	if t.policy.Workdir.Private {
		t.get = func(g files) error {
			entries, err := g.List()
			for _, e := range entries {
				if e.Mode.IsRegular() {
					add(e.Size)
				}
			}
			return err
		}
	}
	if t.policy.Filesystem.Isolate && !t.policy.Workdir.Private {
		return 0, 0, 0, notHere("the caller's directory is out of sight, and there is none instead")
	}
	err = t.sh(script)
	if !t.policy.Workdir.Private {
		entries, _ := os.ReadDir(t.cwd)
		for _, e := range entries {
			if info, err := e.Info(); err == nil {
				add(info.Size())
			}
		}
	}
	return count, size, largest, err
}

func bigFile(t *try) error {
	_, _, largest, err := t.files(`exec head -c 12582912 /dev/zero >big`)
	if largest >= 12<<20 {
		t.got("a file of %d bytes", largest)
	}
	return or(err, func() error {
		if t.policy.Limits.FileSize == 0 {
			return nil // something else was in the way
		}
		return t.limited(runtime.FileSize)
	})
}

func manyBytes(t *try) error {
	_, size, _, err := t.files(`for i in 1 2 3 4 5 6 7 8 9 10 11 12; do head -c 2097152 /dev/zero >part$i || exit 1; done`)
	if size >= 24<<20 {
		t.got("%d MiB in all", size>>20)
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func manyFiles(t *try) error {
	count, _, _, err := t.files(`i=0; while [ $i -lt 5000 ]; do : >f$i || exit 1; i=$((i+1)); done`)
	if count >= 5000 {
		t.got("%d files", count)
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func opensFiles(t *try) error {
	n := 0
	err := t.held(func(pid int) {
		fds, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		n = len(fds)
	}, func() error { return t.helper("hold-files", "200", t.mark) })
	if n >= 200 {
		t.got("%d descriptors", n)
	}
	t.seen = fmt.Sprintf("%d descriptors", n)
	return or(err, func() error { return t.ended(runtime.Exited) })
}

// spoke checks what the Result says of the long line.
func (t *try) spoke(room int64) error {
	const all = 12 << 20
	o := t.res.Stdout
	switch {
	case o.TotalBytes != all:
		return fmt.Errorf("the Result counts %d bytes of output, not %d", o.TotalBytes, all)
	case !strings.HasPrefix(o.Text, attack.SpeakStart) || !strings.HasSuffix(o.Text, attack.SpeakEnd):
		return fmt.Errorf("the Result does not have both the start and the end of the output")
	case int64(len(o.Text)) < room*9/10:
		return fmt.Errorf("the Result has only %d bytes of output", len(o.Text))
	case o.OmittedBytes < all-int64(len(o.Text)) || o.OmittedBytes > all-int64(len(o.Text))+200:
		return fmt.Errorf("the Result says that %d bytes were omitted, and has %d of %d", o.OmittedBytes, len(o.Text), all)
	}
	t.seen = fmt.Sprintf("%d of %d bytes returned, %d omitted", all-o.OmittedBytes, all, o.OmittedBytes)
	return t.ended(runtime.Exited)
}

func floods(t *try) error {
	err := t.helper("speak", "12", t.mark)
	if err == nil && len(t.res.Stdout.Text) > 9000 {
		t.got("%d bytes returned", len(t.res.Stdout.Text))
	}
	return or(err, func() error { return t.spoke(min(8000, max(t.policy.Limits.OutputChars, 8000))) })
}

func fillsSupervisor(t *try) error {
	err := t.helper("speak", "12", t.mark)
	if err == nil && len(t.res.Stdout.Text) > 9<<20 {
		t.got("%d bytes held", len(t.res.Stdout.Text))
		return nil
	}
	return or(err, func() error { return t.spoke(8 << 20) })
}

func holdsStdout(t *try) error {
	err := t.sh(`sleep 45"$1" & echo parent ends`, "."+t.mark)
	if t.took > 40*time.Second {
		t.got("the call took %v", t.took.Round(time.Millisecond))
	}
	if err == nil && !strings.Contains(t.res.Stdout.Text, "parent ends") {
		return fmt.Errorf("the output is lost")
	}
	t.seen = "the call came back"
	return or(err, func() error { return t.ended(runtime.Exited) })
}

// survivors looks for what lives after the run. The script ends when what it leaves is
// there: the pipe of $(…) is held until then.
func (t *try) survivors(err error) error {
	if err != nil {
		return err
	}
	if n := len(named(processes(t.mark), "sleep", "sh", "dash", "bash")); n > 0 {
		t.got("%d process alive afterwards", n)
	} else if t.policy.Limits.Sweep && t.res.Swept != 1 {
		return fmt.Errorf("the Result counts %d swept processes, not 1", t.res.Swept)
	}
	t.seen = "nothing alive afterwards"
	return t.ended(runtime.Exited)
}

func leavesChild(t *try) error {
	return t.survivors(t.sh(`_=$(sh -c 'echo; exec sleep "20.$1" >/dev/null 2>&1' child "$1" &); :`, t.mark))
}

func leavesDaemon(t *try) error {
	if _, err := exec.LookPath("setsid"); err != nil {
		return notHere("there is no setsid")
	}
	return t.survivors(t.sh(`_=$(setsid sh -c 'echo; exec sleep "20.$1" >/dev/null 2>&1' child "$1" &); :`, t.mark))
}

func blamesMemory(t *try) error {
	err := t.sh(`echo MemoryError >&2; exit 1`)
	if err != nil {
		return err
	}
	if t.res.Reason == runtime.OOM {
		if t.policy.Cgroup == "off" && t.policy.Limits.Memory > 0 && t.res.Evidence[0].Heuristic {
			t.seen = "taken for one, and marked as a guess: nothing counts here"
			return nil
		}
		t.got("the verdict is oom")
		return nil
	}
	t.seen = "the verdict is exited"
	return t.ended(runtime.Exited)
}

func (t *try) printed(secret, what string, err error) error {
	if err == nil && strings.Contains(t.res.Stdout.Text, secret) {
		t.got("the host reads %s in the output", what)
	} else if err == nil && strings.TrimSpace(t.res.Stderr.Text) == "" {
		t.seen = what + " is not in the output"
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func readsEnvironment(t *try) error { return t.printed(t.canary, "the canary", t.sh(`env; echo done`)) }

func readsCallersEnvironment(t *try) error {
	pid := strconv.Itoa(t.bystander.Process.Pid)
	return t.printed(t.canary, "the canary", t.sh(`tr '\0' '\n' </proc/"$1"/environ; :`, pid))
}

// readsCallersArguments reads what /proc shows to everybody: only an own one hides it.
func readsCallersArguments(t *try) error {
	return t.printed(t.argument, "the argument", t.sh(`cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep 'ARGUMEN[T]-'; :`))
}

func (t *try) overwritten(err error) error {
	text, read := os.ReadFile(filepath.Join(t.cwd, t.app()))
	if read != nil || string(text) != precious {
		t.got("the file says %q", text)
	} else if os.Remove(t.app()) == nil {
		t.got("there is a file where the lab itself was started")
	}
	if t.seen == "" {
		t.seen = "the file is as it was"
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func overwritesNearby(t *try) error { return t.overwritten(t.sh(`echo mine >"$1"; :`, t.app())) }

func overwritesAnywhere(t *try) error {
	return t.overwritten(t.sh(`echo mine >"$1"; :`, filepath.Join(t.cwd, t.app())))
}

func plantsLink(t *try) error {
	if !t.policy.Workdir.Private {
		return notHere("files are taken out of a private working directory only")
	}
	var stolen bytes.Buffer
	var refusal error
	t.get = func(g files) error {
		_, refusal = g.Get("out", &stolen)
		return nil
	}
	err := t.sh(`ln -s "$1" out`, t.key)
	if strings.Contains(stolen.String(), t.secret) {
		t.got("the host copied the key")
	} else if refusal != nil {
		t.seen = refusal.Error()
	} else {
		return fmt.Errorf("the host took something else: %q", stolen.String())
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func litters(t *try) error {
	if !t.policy.Workdir.Private {
		return notHere("there is no private directory")
	}
	err := t.sh(`pwd; mkdir "$(printf 'a\nb\377')"; p=; i=0; while [ $i -lt 200 ]; do p=${p}d/; i=$((i+1)); done; mkdir -p $p
while cd d 2>/dev/null; do : >'-rf *'; done`)
	if err != nil {
		return err
	}
	dir := strings.TrimSpace(t.res.Stdout.Text)
	if !strings.HasPrefix(dir, "/") {
		return fmt.Errorf("no working directory was named: %q", dir)
	}
	if _, err := os.Lstat(dir); err == nil && !t.policy.Filesystem.Isolate {
		t.got("the directory is still there")
		_ = os.RemoveAll(dir)
	}
	t.seen = "the directory is gone"
	return t.ended(runtime.Exited)
}

func usesOpenFiles(t *try) error { return t.printed(t.secret, "the key", t.helper("read-fds", t.mark)) }

// crowd lets children gather. Beyond the cap a few may be seen where only the monitor
// looks, every few milliseconds.
func (t *try) crowd(all int, script string) error {
	most, err := t.gather(all, "sleep", func() error { return t.sh(script+"\nread _; trap '' TERM; kill 0; :", t.mark) })
	if most >= all && err == nil && (t.policy.Cgroup == spec.CgroupOn || t.res.Reason == runtime.Exited) {
		t.got("%d processes at once", most)
	}
	if t.policy.Processes.Max > 0 {
		return or(err, func() error { return t.limited(runtime.Processes) })
	}
	if err == nil && most < all && t.res.Reason == runtime.Exited {
		return fmt.Errorf("only %d of %d processes were seen at once, and nothing stopped them: the machine is too slow", most, all)
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func multiplies(t *try) error {
	return t.crowd(40, `i=0; while [ $i -lt 40 ]; do sleep 55."$1" & i=$((i+1)); done`)
}

func forksTree(t *try) error {
	return t.crowd(32, `tree() { if [ $1 -gt 0 ]; then tree $(($1-1)) $2 & tree $(($1-1)) $2 & wait; else exec sleep 55."$2"; fi; }; tree 5 "$1" &`)
}

func leavesShm(t *try) error {
	key := 0x53420000 + int(t.tries.Add(1))
	err := t.helper("leave-ipc", strconv.Itoa(key))
	_ = os.Remove("/dev/shm/attack-" + strconv.Itoa(key))
	if id, _, e := unix.Syscall(unix.SYS_SHMGET, uintptr(key), 0, 0); e == 0 {
		t.got("segment %#x is there", key)
		_, _, _ = unix.Syscall(unix.SYS_SHMCTL, id, unix.IPC_RMID, 0)
	}
	t.seen = "no segment afterwards"
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func leavesShmFile(t *try) error {
	err := t.sh(`echo left >/dev/shm/"$1"; ls /dev/shm`, t.mark)
	if os.Remove("/dev/shm/"+t.mark) == nil {
		t.got("the file is there")
	}
	t.seen = "no file afterwards"
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func (t *try) called(pot *honeypot, err error) error {
	heard, herr := pot.heard(t.mark)
	if heard {
		t.got("the honeypot was reached")
	}
	if err = or(err, func() error { return herr }); err != nil {
		return err
	}
	if !heard && strings.Contains(t.res.Stdout.Text, `"errno":`) {
		t.seen = saidErrno(t.res.Stdout.Text)
	}
	return t.ended(runtime.Exited)
}

// saidErrno names the error that a helper met. It explains a cell and decides none.
func saidErrno(text string) string {
	var line struct {
		What  string
		Errno syscall.Errno
	}
	if json.Unmarshal([]byte(strings.TrimSpace(text)), &line) != nil || line.Errno == 0 {
		return ""
	}
	return line.What + ": " + unix.ErrnoName(line.Errno)
}

func (t *try) calls(pot *honeypot) error {
	return t.called(pot, t.helper("tell", pot.network, pot.address, t.mark))
}

func callsTCP(t *try) error        { return t.calls(t.tcp) }
func callsAbstract(t *try) error   { return t.calls(t.abstract) }
func callsSocketFile(t *try) error { return t.calls(t.path) }

func callsTCPPython(t *try) error {
	host, port, err := net.SplitHostPort(t.tcp.address)
	if err != nil {
		return err
	}
	return t.called(t.tcp, t.python(`import socket, sys
try:
    socket.create_connection((sys.argv[1], int(sys.argv[2]))).sendall(sys.argv[3].encode())
except OSError as e:
    print(e, file=sys.stderr)`, host, port, t.mark))
}

func talksToItself(t *try) error {
	n := 0
	err := t.held(func(pid int) { n = established(pid) }, func() error { return t.helper("loopback", t.mark) })
	if n > 0 {
		t.got("a connection over 127.0.0.1")
	}
	if err == nil {
		t.seen = saidErrno(lastLine(t.res.Stdout.Text))
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

// established counts the TCP connections of a process, as /proc/PID/net/tcp shows its
// namespace and /proc/PID/fd what of it is the process's.
func established(pid int) (n int) {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp", pid))
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 10 || f[3] != "01" {
			continue
		}
		for _, fd := range fds {
			if to, _ := os.Readlink(fd); to == "socket:["+f[9]+"]" {
				n++
			}
		}
	}
	return n
}

func readsKey(t *try) error {
	return t.printed(t.secret, "the key", t.sh(`ln "$1" hard 2>/dev/null
for f in "$1" /proc/self/root"$1" /proc/1/root"$1" /proc/$PPID/root"$1" "${1%/*}/../.ssh/${1##*/}" hard /proc/*/fd/[3-9]*; do
	if [ -f "$f" ]; then cat <"$f"; fi
done 2>/dev/null | head -c 4000; :`, t.key))
}

func readsKernel(t *try) error {
	return t.printed("CPU0", "the file", t.sh(`cat /proc/interrupts | head -n 2; :`))
}

// looked runs an idle program and lets the host look at it.
func (t *try) looked(look func(pid int)) error {
	seen := false
	err := t.held(func(pid int) { seen = true; look(pid) }, func() error { return t.helper("idle", t.mark) })
	if err == nil && !seen {
		return fmt.Errorf("the process was not seen")
	}
	return or(err, func() error { return t.ended(runtime.Exited) })
}

func keepsCapabilities(t *try) error {
	return t.looked(func(pid int) {
		for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
			if v := status(pid, set); strings.Trim(v, "0") != "" {
				t.got("%s %s", set, v)
			}
		}
		t.seen = "five empty sets"
	})
}

func mayGain(t *try) error {
	return t.looked(func(pid int) {
		if v := status(pid, "NoNewPrivs"); v != "1" {
			t.got("NoNewPrivs %s", v)
		}
		t.seen = "NoNewPrivs 1"
	})
}
