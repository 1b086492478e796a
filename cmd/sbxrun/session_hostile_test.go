// Tests of sessions against programs, users and accidents that do harm: what a program
// leaves, who asks, and who is killed when.

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
)

// hostileTree is a program that leaves what A19 says, as much of it as fits.
const hostileTree = `
i=0; while [ $i -lt 100 ]; do mkdir d 2>/dev/null && cd d || break; i=$((i+1)); done; cd "$HOME"
mkdir closed; echo x >closed/f; chmod 0 closed
n=$(printf 'odd\n\377\033[2J'); i=0; while [ $i -lt 500 ]; do : >"$n$i"; i=$((i+1)); done
ln -s / root; ln -s loop loop; mkfifo fifo; truncate -s 1T sparse 2>/dev/null; chmod 500 .; true`

func TestHostileTreesGoWithTheirSessionInBoundedTime(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		for _, level := range []string{"L2", "L4", "L5"} {
			before := lookAround(t)
			s.create("a", "--level", level)
			s.sh("a", hostileTree)
			if out := s.works("ls", "a"); !strings.Contains(out, `"odd\n\xff\x1b[2J0"`) {
				t.Errorf("%s: listed %.300q", level, out)
			}
			start := time.Now()
			s.works("rm", "a")
			if took := time.Since(start); took > time.Minute {
				t.Errorf("%s: it took %v", level, took)
			}
			nothingLeft(t, before)
		}
	})
}

// B1, B3: what a program puts under the name of a result.
func TestB1NothingButRegularFilesComesOutOfASession(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		for _, level := range []string{"L2", "L5"} {
			s.create("a", "--level", level, "--file-size", "0")
			s.sh("a", `ln -s /etc/hostname link; ln -s /proc/self/environ environ; ln -s / root; ln -s /etc/hostname dangling; echo x >f; ln f hard
				mkfifo fifo; mkdir dir; truncate -s 1T sparse; exec 3<>fifo`)
			for name, words := range map[string]string{
				"link": "symbolic link", "environ": "symbolic link", "root/etc/hostname": "symbolic link", "hard": "not a regular file with one name",
				"f": "not a regular file with one name", "fifo": "not a regular file", "dir": "not a regular file", "sparse": "larger than allowed",
				"../x": "not an acceptable file name", "/etc/hostname": "not an acceptable file name", "": "not an acceptable file name", // B3
				"dir/": "not an acceptable file name", strings.Repeat("x", 256): "not an acceptable file name", "gone": "no such file",
			} {
				s.refuses(words, "get", "a", name, "out")
				s.refuses(words, "get", "a", name, "-")
				if o := s.call("get", "a", name, "-"); o.stdout != "" {
					t.Errorf("%s: of %q came %q", level, name, o.stdout)
				}
			}
			// B5: a link that was planted where the host writes, and one where it puts.
			if err := errors.Join(os.WriteFile(filepath.Join(s.dir, "precious"), []byte("precious"), 0o666), os.Symlink("precious", filepath.Join(s.dir, "planted"))); err != nil {
				t.Fatal(err)
			}
			s.sh("a", "echo evil >g; ln -s "+s.dir+"/precious in")
			s.refuses("symbolic link", "get", "a", "g", "planted")
			s.refuses("symbolic link", "put", "a", "planted", "in")
			s.refuses("not an acceptable file name", "put", "a", "precious", "bad\xff")
			if text, _ := os.ReadFile(filepath.Join(s.dir, "precious")); string(text) != "precious" {
				t.Errorf("%s: the host's file says %q", level, text)
			}
			left, _ := os.ReadDir(s.dir)
			if len(left) != 2 {
				t.Errorf("%s: there is %v", level, left)
			}
			os.Remove(filepath.Join(s.dir, "planted"))
			s.works("rm", "a")
		}
	})
}

func TestAKilledCallerEndsItsRun(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		s.create("a")
		for i := range 6 {
			marker := fmt.Sprintf("66%d.%d", i, os.Getpid())
			cmd := s.command("run", "a", "--", "/bin/sh", "-c", "echo x >mark; sleep "+marker)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				await(t, "the program starts", func() bool { return len(alive("sleep "+marker)) > 1 })
			} else {
				time.Sleep(rand.N(100 * time.Millisecond)) // any moment
			}
			cmd.Process.Kill()
			cmd.Wait()
			await(t, "the run ends", func() bool { return len(alive("sleep "+marker)) == 0 && s.status("a").State == "idle" })
			s.works("run", "--no-wait", "a", "--", "/bin/true")
		}
	})
}

func TestAKilledHolderLeavesNothingThatGCDoesNotRemove(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		rounds := 8
		if testing.Short() {
			rounds = 4
		}
		for i := range rounds {
			before := lookAround(t)
			level := []string{"L5", "L2", "L3", "L5"}[i%4]
			s.create("a", "--level", level, "--warm", fmt.Sprint(i%3))
			marker := fmt.Sprintf("55%d.%d", i, os.Getpid())
			cmd := s.command("run", "a", "--", "/bin/sh", "-c", hostileTree+"; sleep "+marker)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(rand.N(300 * time.Millisecond)) // any moment
			pid := s.pid("a")
			unix.Kill(pid, unix.SIGKILL)
			cmd.Wait()
			if cmd.ProcessState.ExitCode() != 125 {
				t.Errorf("the caller ended with %v", cmd.ProcessState)
			}
			await(t, "the holder is gone", func() bool { return ended(pid) })
			if st := s.status("a"); st.State != "dead" {
				t.Errorf("list says %+v", st)
			}
			s.refuses("is gone: session rm or session gc", "run", "a", "--", "/bin/true")
			await(t, "its programs end", func() bool { return len(alive("sleep "+marker)) == 0 })
			if i%2 == 0 {
				s.works("gc")
			} else {
				s.works("rm", "a")
			}
			if left, _ := os.ReadDir(filepath.Join(s.root, "sessions")); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			nothingLeft(t, before)
		}
	})
}

func TestAKilledCreateLeavesNothingThatRmDoesNotRemove(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	before := lookAround(t)
	for range 10 {
		cmd := s.command("create", "--id", "a", "--level", "L2")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(80 * time.Millisecond)) // any moment
		cmd.Process.Kill()
		cmd.Wait()
		// Its process may have begun, or be about to end again.
		await(t, "nothing is left", func() bool {
			s.works("rm", "--all")
			return len(s.holders()) == 0 && s.status("a").ID == ""
		})
	}
	nothingLeft(t, before)
}

func TestAStoppedHolderIsRemovedAllTheSame(t *testing.T) {
	asEach(t, func(t *testing.T, s *sessions) {
		before := lookAround(t)
		s.create("a", "--level", "L3")
		pid := s.pid("a")
		marker := fmt.Sprintf("44.%d", os.Getpid())
		cmd := s.command("run", "a", "--", "/bin/sh", "-c", "sleep "+marker)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "the program runs", func() bool { return len(alive("sleep "+marker)) > 1 })
		unix.Kill(pid, unix.SIGSTOP)
		if st := s.status("a"); st.State != "silent" {
			t.Errorf("list says %+v", st)
		}
		s.works("rm", "a")
		cmd.Wait()
		if pids := alive("sleep " + marker); len(pids) > 0 || !ended(pid) {
			t.Errorf("alive: %v", pids)
		}
		nothingLeft(t, before)
	})
}

func TestAHolderThatIsTerminatedCleansUp(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	before := lookAround(t)
	s.create("a", "--level", "L2", "--warm", "2")
	cmd := s.command("run", "--json", "a", "--", "/bin/sleep", "60")
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the program runs", func() bool { return s.status("a").State == "running" })
	pid := s.pid("a")
	unix.Kill(pid, unix.SIGTERM)
	text, _ := io.ReadAll(out)
	cmd.Wait()
	if !strings.Contains(string(text), `"reason":"canceled"`) {
		t.Errorf("the caller got %q", text)
	}
	await(t, "it ends", func() bool { return ended(pid) })
	if left, _ := os.ReadDir(filepath.Join(s.root, "sessions")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	nothingLeft(t, before)
}

func TestDamagedStateIsShownAndRemoved(t *testing.T) {
	needRoot(t)
	for name, damage := range map[string]func(dir string) error{
		"torn":      func(d string) error { return os.WriteFile(d+"/state.json", []byte(`{"id":`), 0o600) },
		"another's": func(d string) error { return os.WriteFile(d+"/state.json", []byte(`{"id":"b","pid":1}`), 0o600) },
		"a FIFO": func(d string) error {
			return errors.Join(os.Remove(d+"/state.json"), unix.Mkfifo(d+"/state.json", 0o600))
		},
		"without socket": func(d string) error { return os.Remove(d + "/socket") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSessions(t)
			s.create("a")
			pid, dir := s.pid("a"), filepath.Join(s.root, "sessions", "a")
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			if st := s.status("a"); st.State != "damaged" && st.State != "silent" {
				t.Errorf("list says %+v", st)
			}
			s.works("rm", "a")
			if !ended(pid) {
				t.Error("its process lives")
			}
			// The same with nobody who holds it.
			if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/state.json", nil, 0o600), os.WriteFile(dir+"/socket", nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := damage(dir); err != nil {
				t.Fatal(err)
			}
			if st := s.status("a"); st.State != "damaged" {
				t.Errorf("list says %+v", st)
			}
			s.works("gc")
			if left, _ := os.ReadDir(filepath.Dir(dir)); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

func TestAReusedPidIsNotKilled(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	bystander := exec.Command("sleep", "600")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { bystander.Process.Kill(); bystander.Wait() }()
	dir := filepath.Join(s.root, "sessions", "a")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := sessionRecord{ID: "a", Pid: bystander.Process.Pid, Start: runtime.StartTime(bystander.Process.Pid) - 1, Ready: true, Dir: "/etc"}
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	s.refuses(`"/etc" is no session's directory`, "rm", "a")
	r.Dir = ""
	if err := r.write(dir); err != nil {
		t.Fatal(err)
	}
	s.works("rm", "a")
	if unix.Kill(bystander.Process.Pid, 0) != nil || runtime.StartTime(bystander.Process.Pid) == 0 {
		t.Error("the bystander is dead")
	}
}

// dialVariable makes the test binary somebody who connects to a socket.
const dialVariable = "SBXRUN_TEST_DIAL"

// dialOnly connects and says what it is told there.
func dialOnly(socket string) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		fmt.Print(err)
		return
	}
	n, _ := conn.Read(make([]byte, 100))
	fmt.Printf("connected, then %d bytes", n)
}

// B7: nobody else can ask for anything, even where the directory lets him through.
func TestAnotherUsersSessionCannotBeTouched(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	s.create("a")
	s.sh("a", "echo mine >f")
	for d := filepath.Dir(s.root); strings.Contains(d, "Test"); d = filepath.Dir(d) {
		os.Chmod(d, 0o755)
	}
	os.Chmod(s.dir, 0o755)
	other := &sessions{t: t, root: s.root, dir: s.dir, as: &syscall.Credential{Uid: 12345, Gid: 12345}}
	try := func() {
		t.Helper()
		for _, args := range [][]string{{"get", "a", "f", "-"}, {"run", "a", "--", "/bin/true"}, {"rm", "a"}, {"ls", "a"}, {"create", "--id", "b"}} {
			if o := other.call(args...); o.exit != 125 || strings.Contains(o.stdout, "mine") {
				t.Errorf("%q: %+v", args, o)
			}
		}
	}
	try()
	// The careless directory: everything open. The socket itself asks who it is.
	filepath.WalkDir(s.root, func(p string, _ os.DirEntry, _ error) error { return os.Chmod(p, 0o777) })
	stranger := exec.Command("/proc/self/exe")
	stranger.Env = []string{dialVariable + "=" + filepath.Join(s.root, "sessions", "a", "socket")}
	stranger.SysProcAttr = &syscall.SysProcAttr{Credential: other.as}
	text, err := stranger.CombinedOutput()
	if err != nil || string(text) != "connected, then 0 bytes" {
		t.Errorf("a stranger connected and got %q (%v), want nothing", text, err)
	}
	// Its owner is told, and it is still there when he has mended it.
	s.refuses("can be written by everybody", "get", "a", "f", "-")
	filepath.WalkDir(s.root, func(p string, _ os.DirEntry, _ error) error { return os.Chmod(p, 0o700) })
	if out := s.works("get", "a", "f", "-"); out != "mine\n" {
		t.Errorf("the session says %q", out)
	}
}

// A program of an ordinary user has his id. Where his state directory is not hidden, it
// is the user namespace that tells it from him.
func TestAProgramInASandboxDrivesNoSession(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	s.create("a")
	program := exec.Command("/proc/self/exe")
	program.Env = []string{dialVariable + "=" + filepath.Join(s.root, "sessions", "a", "socket")}
	program.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
	}
	if text, err := program.CombinedOutput(); err != nil || string(text) != "connected, then 0 bytes" {
		t.Errorf("a program connected and got %q (%v), want nothing", text, err)
	}
	s.works("run", "a", "--", "/bin/true")
}

// resources counts what a process has.
func resources(t *testing.T, pid int) (fds, threads int) {
	t.Helper()
	a, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	b, err2 := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	return len(a), len(b)
}

func TestClientsThatMisbehaveCostTheHolderNothing(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	s.create("a")
	s.sh("a", "true")
	pid, dir := s.pid("a"), filepath.Join(s.root, "sessions", "a")
	fds, _ := resources(t, pid)
	frame := func(kind byte, n int, p string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{kind}, uint32(n)), p...)
	}
	whole := func(q string) []byte { return append(frame('Q', len(q), q), frame('Q', 0, "")...) }
	for i, text := range [][]byte{
		nil, {0}, []byte("GET / HTTP/1.0\r\n\r\n"), frame('Q', 1<<31, ""), frame('Q', 100, "short"), frame('A', 0, ""),
		whole(`{"op":"nonsense"}`), whole(`[1,2]`), whole(`{"op":"put","name":"Zg=="}`), append(whole(`{"op":"put","name":"Zg=="}`), frame('D', 5, "ab")...),
		whole(`{"op":"run","args":["L2Jpbi9zbGVlcA==","MTAwMA=="]}`), append(whole(`{"op":"run","args":["L2Jpbi9zbGVlcA==","MTAwMA=="]}`), 'x'),
		whole(`{"op":"run","live":true,"args":["L2Jpbi95ZXM="]}`), whole(`{"op":"turn"}`), whole(`{"op":"get","name":"Li4vLi4veA=="}`),
	} {
		for range 20 {
			conn, err := dial(dir)
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 { // with descriptors that nobody asked for
				conn.WriteMsgUnix(append(text, 0)[:max(1, len(text))], unix.UnixRights(0, 1, 2), nil)
			} else {
				conn.Write(text)
			}
			time.Sleep(rand.N(2 * time.Millisecond))
			conn.Close()
		}
	}
	await(t, "every descriptor is given back", func() bool { n, _ := resources(t, pid); return n <= fds+1 })
	if out := s.works("ls", "a"); strings.Contains(out, " f\n") || strings.Contains(out, ".sbxrun") {
		t.Errorf("an unfinished put left %q", out)
	}
	s.works("run", "--no-wait", "a", "--", "/bin/true")
	// One too many waits; those before it are told to go in time.
	var conns []net.Conn
	for range maxClients {
		conn, err := dial(dir)
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
	}
	s.works("run", "a", "--", "/bin/true") // after helloTime at the latest
	for _, c := range conns {
		c.Close()
	}
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if n, _ := resources(t, pid); n > fds+maxClients/2 {
		t.Errorf("%d descriptors, %d before\n%s", n, fds, status)
	}
}

// FuzzFrames gives the holder's reader any bytes.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("Q\x00\x00\x00\x0d{\"op\":\"info\"}Q\x00\x00\x00\x00"))
	f.Add([]byte("Q\x00\x00\x00\x02{}"))
	f.Add([]byte("D\xff\xff\xff\xff"))
	f.Add([]byte("Q\x00\x00\x00\x00"))
	f.Add([]byte("D\x00\x00\x00\x03abcD\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		var ends [2]*net.UnixConn
		for i, fd := range fds {
			file := os.NewFile(uintptr(fd), "end")
			conn, err := net.FileConn(file)
			file.Close()
			if err != nil {
				t.Fatal(err)
			}
			ends[i] = conn.(*net.UnixConn)
			defer conn.Close()
		}
		go func() {
			ends[0].Write(text)
			ends[0].CloseWrite()
		}()
		w := newWire(ends[1], time.Minute)
		for {
			q, file, err := w.request()
			if file != nil {
				file.Close()
			}
			if err != nil {
				if err == io.EOF && q != nil {
					t.Error("a request at the end of everything")
				}
				return
			}
			data := &dataReader{w: w}
			n, err := io.Copy(io.Discard, data)
			if n > int64(len(text)) || err == nil && !data.end {
				t.Errorf("%d bytes of %d, %v", n, len(text), err)
			}
			if err != nil {
				return
			}
		}
	})
}
