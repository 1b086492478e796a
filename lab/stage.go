// This file owns the stage: what the attacks are after (a fake key, a canary, a
// bystander, honeypots) and how the host finds the attacks' processes.

package lab

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/spec"
)

// stageBase is where the stage stands: below it everybody may make files, and L5 hides it.
const stageBase = "/var/tmp"

// canaryName is the variable that no program should find.
const canaryName = "SBXRUN_LAB_CANARY"

// stage is shared by all tries.
type stage struct {
	dir      string // everybody may read it
	self     string // this binary
	key      string // a file with a secret in it that everybody may read
	secret   string // the key's
	canary   string // the environment's
	argument string // the bystander's
	cgroup   spec.CgroupMode
	warm     bool   // attacks run in prepared inits of sessions
	why      string // why there is none
	tries    atomic.Int64
	undo     []func() error

	tcp, abstract, path *honeypot
	bystander           *exec.Cmd // a process of the caller, the canary in its environment
	leaked              int       // a descriptor of the key that was left open
}

func newStage() (st *stage, err error) {
	st = &stage{secret: "PRIVATE-KEY-" + rand.Text(), canary: cmp.Or(os.Getenv(canaryName), "CANARY-"+rand.Text()), argument: "ARGUMENT-" + rand.Text(), leaked: -1}
	defer func() {
		if err != nil {
			err = errors.Join(err, st.close())
		}
	}()
	if st.self, err = os.Executable(); err != nil {
		return st, err
	}
	if st.dir, err = os.MkdirTemp(stageBase, "sbxrun-lab-"); err != nil {
		return st, err
	}
	st.undo = append(st.undo, func() error { return os.RemoveAll(st.dir) })
	st.key = filepath.Join(st.dir, "home", ".ssh", "id_ed25519")
	if err = errors.Join(os.Chmod(st.dir, 0o755), os.MkdirAll(filepath.Dir(st.key), 0o755), os.WriteFile(st.key, []byte(st.secret), 0o644)); err != nil {
		return st, err
	}
	for _, h := range []struct {
		pot              **honeypot
		network, address string
	}{{&st.tcp, "tcp", "127.0.0.1:0"}, {&st.abstract, "unix", "@sbxrun-lab-" + rand.Text()}, {&st.path, "unix", filepath.Join(st.dir, "socket")}} {
		if *h.pot, err = openHoneypot(h.network, h.address); err != nil {
			return st, err
		}
		st.undo = append(st.undo, (*h.pot).listener.Close)
	}
	if err = os.Chmod(filepath.Join(st.dir, "socket"), 0o777); err != nil {
		return st, err
	}
	st.bystander = exec.Command("/bin/sh", "-c", "read _", st.argument)
	st.bystander.Env = append(os.Environ(), canaryName+"="+st.canary)
	if _, err = st.bystander.StdinPipe(); err == nil { // open as long as the bystander is to wait
		err = st.bystander.Start()
	}
	if err != nil {
		return st, err
	}
	st.undo = append(st.undo, func() error {
		err := st.bystander.Process.Kill()
		_ = st.bystander.Wait() // killed: that is no news
		return err
	})
	// Without close-on-exec, as a careless caller has it.
	if st.leaked, err = unix.Open(st.key, unix.O_RDONLY, 0); err == nil {
		st.undo = append(st.undo, func() error { return unix.Close(st.leaked) })
	}
	return st, err
}

func (st *stage) close() error {
	var errs []error
	for i := len(st.undo) - 1; i >= 0; i-- {
		errs = append(errs, st.undo[i]())
	}
	return errors.Join(errs...)
}

// mark is a number that stands for one try, in arguments of processes.
// None is the beginning of another.
func (st *stage) mark() string { return fmt.Sprintf("00%d00%06d", os.Getpid(), st.tries.Add(1)) }

// honeypot is a server that remembers what it was told.
type honeypot struct {
	listener         net.Listener
	network, address string
	mu               sync.Mutex
	told             map[string]int
}

func openHoneypot(network, address string) (*honeypot, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	h := &honeypot{listener: l, network: network, address: l.Addr().String(), told: map[string]int{}}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second)) // whoever says nothing said nothing
			text, _ := io.ReadAll(io.LimitReader(c, 256))
			h.mu.Lock()
			h.told[string(text)]++
			h.mu.Unlock()
			c.Close()
		}
	}()
	return h, nil
}

// heard says whether mark was told. Connections are taken in order, so the lab's own,
// made now, ends the wait for earlier ones.
func (h *honeypot) heard(mark string) (bool, error) {
	own := "lab-" + rand.Text()
	c, err := net.Dial(h.network, h.address)
	if err != nil {
		return false, err
	}
	_, err = io.WriteString(c, own)
	c.Close()
	if err != nil {
		return false, err
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		h.mu.Lock()
		arrived, heard := h.told[own] > 0, h.told[mark] > 0
		h.mu.Unlock()
		if arrived {
			return heard, nil
		}
	}
	return false, fmt.Errorf("the honeypot does not answer")
}

// processes lists the pids whose arguments contain the mark.
func processes(mark string) (pids []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, n := range names {
		pid, err := strconv.Atoi(n)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if text, err := os.ReadFile("/proc/" + n + "/cmdline"); err == nil && bytes.Contains(text, []byte(mark)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// below lists the processes of the run with the mark, from its reaper down. While a run
// goes on that is cheaper than a look at all processes of the host.
func below(mark string) (pids []int) {
	for _, pid := range children(os.Getpid()) {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(text, []byte(mark)) {
			pids = append(pids, pid)
		}
	}
	for i := 0; i < len(pids); i++ {
		pids = append(pids, children(pids[i])...)
	}
	return pids
}

// children reads what all threads of a process have started, proc_pid_task(5).
func children(pid int) (pids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		for word := range bytes.FieldsSeq(text) {
			if pid, err := strconv.Atoi(string(word)); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// named leaves those of the processes that have one of the names, and live.
func named(pids []int, names ...string) (out []int) {
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if slices.Contains(names, strings.TrimSuffix(string(text), "\n")) && lives(pid) {
			out = append(out, pid)
		}
	}
	return out
}

// status gives a field of /proc/PID/status, proc_pid_status(5).
func status(pid int, field string) string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range strings.Lines(string(text)) {
		if v, ok := strings.CutPrefix(line, field+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// end kills what a try has left running, which is checked to be the try's.
func end(mark string) {
	for _, pid := range processes(mark) {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && bytes.Contains(text, []byte(mark)) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended
		}
		unix.Close(fd)
	}
}
