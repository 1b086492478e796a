// Tests that attack the built binary: each attack at the level that stops it, where
// the Result says why, and at the level below, where it still succeeds.

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// slow gives limits with room for a busy machine where the limit under test is
// another one.
var slow = []string{"--wall", "300s", "--cpu", "200s"}

// hungry is slow with less to fill: a slow machine takes minutes for 256 MiB.
var hungry = append([]string{"--memory", "64MiB"}, slow...)

func TestLimitsStopAndSayWhy(t *testing.T) {
	needRoot(t)
	needProgram(t, "python3")
	for _, tc := range []struct {
		name   string
		level  spec.Level
		flags  []string
		argv   []string
		reason runtime.Reason
		source string // of the first evidence
	}{
		{"A1 a busy loop runs into the wall clock", spec.L1, nil, []string{"attack", "spin"}, runtime.WallClock, "supervisor"},
		{"A1 a sleeper runs into the wall clock", spec.L5, nil, []string{"attack", "sleep"}, runtime.WallClock, "supervisor"},
		{"A1 below, only the watchdog ends it", spec.L0, nil, []string{"attack", "sleep"}, runtime.WallClock, "supervisor"},
		{"A2 one process runs out of CPU time", spec.L1, []string{"--wall", "300s", "--cpu", "1s"}, []string{"attack", "spin"}, runtime.CPU, ""},
		{"A2 so does one under a PID namespace", spec.L5, []string{"--wall", "300s", "--cpu", "1s"}, []string{"attack", "spin"}, runtime.CPU, ""},
		{"A2 so do several within their own limits", spec.L1, []string{"--wall", "300s", "--cpu", "1s"}, []string{"attack", "cpu-tree", "3", "20"}, runtime.CPU, ""},
		{"A2 so does one without a group", spec.L5, []string{"--wall", "300s", "--cpu", "1s", "--cgroup", "off", "--memory", "0"}, []string{"attack", "spin"}, runtime.CPU, "rusage"},
		{"A3 a hog on the heap is ended", spec.L1, hungry, []string{"attack", "heap", "100"}, runtime.OOM, "memory.events"},
		{"A3 a hog in a memfd is ended", spec.L1, append([]string{"--file-size", "1GiB"}, hungry...), []string{"attack", "memfd", "100"}, runtime.OOM, "memory.events"},
		{"A3 a list of Python is ended", spec.L5, hungry, []string{"python3", "-c", "x=[]\nwhile True: x.append([0]*10**5)"}, runtime.OOM, "memory.events"},
		{"A3 without a group the address space is", spec.L5, append([]string{"--cgroup", "off"}, slow...), []string{"python3", "-c", "[0]*10**9"}, runtime.OOM, "text"},
		{"A4 a large file is ended by its signal", spec.L1, append([]string{"--workdir"}, slow...), []string{"/bin/sh", "-c", "exec head -c 20000000 /dev/zero >big"}, runtime.FileSize, "wait"},
		{"A4 below, without a private directory, words are all there is", spec.L1, slow, []string{"/bin/sh", "-c", "cd $(mktemp -d); trap '' XFSZ; head -c 20000000 /dev/zero >big; rc=$?; rm big; rmdir $PWD; exit $rc"}, runtime.FileSize, "text"},
		{"A4 a survivor of the signal is recognised", spec.L5, slow, []string{"attack", "big-file", "20"}, runtime.FileSize, "workdir"},
		{"A11 a fork bomb is ended", spec.L3, slow, []string{"/bin/sh", "-c", "b() { b | b & }; b; sleep 20"}, runtime.Processes, "pids.events"},
		{"A11 a fork tree is ended", spec.L5, slow, []string{"attack", "fork-tree", "6"}, runtime.Processes, "pids.events"},
		{"A11 thirty children are ended", spec.L3, slow, []string{"attack", "children", "30"}, runtime.Processes, "pids.events"},
		{"A11 so they are when the program lives on", spec.L3, slow, []string{"/bin/sh", "-c", "for i in $(seq 30); do sleep 2 & done 2>/dev/null; exit 0"}, runtime.Processes, "pids.events"},
		{"A11 without a group the monitor sees it", spec.L3, append([]string{"--cgroup", "off", "--memory", "0"}, slow...), []string{"attack", "children", "30"}, runtime.Processes, "monitor"},
		{"A16 a foreign call is ended", spec.L5, slow, []string{"attack", "syscalls", "foreign"}, runtime.Syscall, "wait"},
		{"A20 one that stops itself runs into the wall clock", spec.L5, nil, []string{"attack", "suspend"}, runtime.WallClock, "supervisor"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			foreignCalls(t, tc.argv)
			before := lookAround(t)
			res := code(t, tc.level, tc.flags, tc.argv...)
			if res.Reason != tc.reason || len(res.Evidence) == 0 || tc.source != "" && res.Evidence[0].Source != tc.source {
				t.Fatalf("ended for %s with %+v, want %s by %s; error %+v, output %.300q", res.Reason, res.Evidence, tc.reason, tc.source, res.Error, res.Stdout.Text+res.Stderr.Text)
			}
			if res.TimedOut != (tc.reason == runtime.WallClock) || res.OOM != (tc.reason == runtime.OOM) || res.OOM != (res.OOMSource != "") {
				t.Errorf("timed_out %v, oom %v by %q", res.TimedOut, res.OOM, res.OOMSource)
			}
			nothingLeft(t, before)
		})
	}
}

func TestBelowTheLevelTheLimitIsNotThere(t *testing.T) {
	needRoot(t)
	for _, tc := range []struct {
		name  string
		level spec.Level
		argv  []string
	}{
		{"A3 100 MiB of heap at L0", spec.L0, []string{"attack", "heap", "100"}},
		{"A3 100 MiB in a memfd at L0", spec.L0, []string{"attack", "memfd", "100"}},
		{"A5 1000 descriptors at L0", spec.L0, []string{"attack", "open-files", "1000"}},
		{"A11 thirty children at L2", spec.L2, []string{"attack", "children", "30"}},
		{"A16 a foreign call at L4", spec.L4, []string{"attack", "syscalls", "foreign"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			foreignCalls(t, tc.argv)
			flags := []string{"--wall", "5m"} // L0 has nothing else that a slow machine could meet
			if tc.level > spec.L0 {
				flags = slow
			}
			res := code(t, tc.level, flags, tc.argv...)
			if res.Reason != runtime.Exited || *res.ExitCode != 0 || !strings.Contains(res.Stdout.Text, `"got_through":true`) {
				t.Errorf("ended for %s, said %q; the layer above buys nothing", res.Reason, res.Stdout.Text)
			}
		})
	}
}

// foreignCalls skips an attack by 32-bit calls where the kernel has no entry for them.
func foreignCalls(t *testing.T, argv []string) {
	t.Helper()
	if !slices.Contains(argv, "foreign") {
		return
	}
	if err := exec.Command(attackProgram, argv[1:]...).Run(); err != nil {
		t.Skip("this kernel has no entry for 32-bit calls, one outside of any sandbox dies of them:", err)
	}
}

func TestOpenFilesAreCappedAndTheProgramLives(t *testing.T) {
	res := code(t, spec.L1, append([]string{"--cgroup", "off", "--memory", "0"}, slow...), "attack", "open-files", "10000")
	if res.Reason != runtime.Exited || !strings.Contains(res.Stdout.Text, `"errno":24`) {
		t.Errorf("ended for %s, said %q, want EMFILE", res.Reason, res.Stdout.Text)
	}
}

func TestOutputIsCappedCountedAndText(t *testing.T) {
	needRoot(t)
	for _, kind := range []string{"line", "lines", "binary"} {
		t.Run(kind, func(t *testing.T) {
			res := code(t, spec.L1, slow, "attack", "flood", "50", kind)
			if res.Reason != runtime.Exited || res.Stdout.TotalBytes != 50<<20 || res.Usage.StdoutBytes != 50<<20 {
				t.Fatalf("%s after %d bytes", res.Reason, res.Stdout.TotalBytes)
			}
			if n := len([]rune(res.Stdout.Text)); n > 8000+60 || n < 7900 {
				t.Errorf("%d characters came back", n)
			}
			if !strings.Contains(res.Stdout.Text, fmt.Sprintf("%d bytes omitted", res.Stdout.OmittedBytes)) || !slices.Contains(res.LimitsHit, "limits.output-chars") {
				t.Errorf("the marker or the limit is missing: %v", res.LimitsHit)
			}
			if (res.Stdout.Encoding != "") != (kind == "binary") {
				t.Errorf("encoding note %q", res.Stdout.Encoding)
			}
		})
	}
	if res := code(t, spec.L0, []string{"--wall", "300s"}, "attack", "flood", "20", "lines"); len(res.Stdout.Text) < 8<<20 {
		t.Errorf("at L0 only %d bytes come back; the cap is the layer's", len(res.Stdout.Text))
	}
}

func TestTheCallReturnsWhenAChildHoldsStdout(t *testing.T) {
	needRoot(t)
	for _, tc := range []struct {
		level spec.Level
		swept int
	}{{spec.L0, 0}, {spec.L1, 1}, {spec.L5, 1}} {
		start := time.Now()
		res := code(t, tc.level, nil, "attack", "hold-stdout", "31.7")
		if took := time.Since(start); took > 20*time.Second || res.Reason != runtime.Exited || res.Swept != tc.swept {
			t.Errorf("%v: %s after %v, %d swept, want %d", tc.level, res.Reason, took, res.Swept, tc.swept)
		}
		pids := alive("/bin/sleep 31.7")
		if (len(pids) > 0) != (tc.level == spec.L0) {
			t.Errorf("%v: the child is %v", tc.level, pids)
		}
		end(t, pids)
	}
}

// end kills what a test left on purpose.
func end(t testing.TB, pids []string) {
	for _, p := range pids {
		if err := exec.Command("kill", "-9", p).Run(); err != nil {
			t.Error(err)
		}
	}
}

func TestNoDaemonOutlivesASweep(t *testing.T) {
	needRoot(t)
	for _, level := range []spec.Level{spec.L0, spec.L1, spec.L2, spec.L3, spec.L5} {
		marker := fmt.Sprintf("marker-%v-%d", level, os.Getpid())
		res := code(t, level, slow, "attack", "daemon", marker)
		pids := alive("daemon-body " + marker)
		// The sweep reaches daemons from L1 on already: the reaper is a subreaper.
		if (len(pids) > 0) != (level == spec.L0) {
			t.Errorf("%v: alive afterwards: %v", level, pids)
		}
		if level > spec.L0 && res.Swept != 1 {
			t.Errorf("%v: %d swept", level, res.Swept)
		}
		end(t, pids)
	}
}

func TestTheEnvironmentIsKeptFromTheProgram(t *testing.T) {
	needRoot(t)
	t.Setenv("SBXRUN_CANARY", "tweet-"+fmt.Sprint(os.Getpid()))
	needle := os.Getenv("SBXRUN_CANARY")
	for _, tc := range []struct {
		level spec.Level
		found string
	}{
		{spec.L1, "found in /proc/self/environ"},
		{spec.L2, "found in /proc/"}, // the caller's own, through the host's /proc
		{spec.L3, ""}, {spec.L5, ""},
	} {
		// The needle travels in two parts, or the attack would find its own argument.
		argv := []string{"/bin/sh", "-c", `exec "$0" read-env "SBXRUN_CANARY=$1$2"`, "attack", needle[:3], needle[3:]}
		args := append([]string{"code", "--json", "--level", tc.level.String(), "--wall", "300s"}, "--")
		if tc.level >= spec.L2 {
			args = append(args[:len(args)-1], "--in", attackProgram+":attack", "--")
			argv[3] = "./attack"
		} else {
			argv[3] = attackProgram
		}
		res := call(t, append(args, argv...)...).verdict(t)
		got := ""
		for what, through := range saw(t, res) {
			if through {
				got = what
			}
		}
		if !strings.HasPrefix(got, tc.found) || (got == "") != (tc.found == "") {
			t.Errorf("%v: got %q, want %q (%q)", tc.level, got, tc.found, res.Stderr.Text)
		}
		if tc.level == spec.L2 && got == "found in /proc/self/environ" {
			t.Error("L2: the canary is in the program's own environment")
		}
	}
}

func TestFilesOfTheCallerStayAsTheyAre(t *testing.T) {
	needRoot(t)
	for _, level := range []spec.Level{spec.L1, spec.L2, spec.L5} {
		dir := t.TempDir()
		file := filepath.Join(dir, "app.conf")
		if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(sbxrun, codeArgs(level, slow, []string{"attack", "overwrite", "app.conf"})...)
		cmd.Dir = dir
		finishCommand(t, cmd)
		text, _ := os.ReadFile(file)
		if (string(text) == "precious") != (level >= spec.L2) {
			t.Errorf("%v: the file says %q", level, text)
		}
	}
}

// honeypot counts who connects.
func honeypot(t *testing.T, network, address string) (string, func() int) {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(chan int)
	go func() {
		n := 0
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			// Only the test itself says a word.
			if k, _ := c.Read(make([]byte, 1)); k == 0 {
				n++
			} else {
				counts <- n
				n = 0
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), func() int {
		c, err := net.Dial(network, l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
		return <-counts // connections are accepted in order: all earlier ones are counted
	}
}

func TestTheNetworkIsOutOfReach(t *testing.T) {
	needRoot(t)
	abstract := fmt.Sprintf("@sbxrun-test-%d", os.Getpid())
	run, err := os.MkdirTemp("/run", "sbxrun-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(run)
	if err := os.Chmod(run, 0o755); err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(run, "socket")
	tcp, tcpHits := honeypot(t, "tcp", "127.0.0.1:0")
	_, abstractHits := honeypot(t, "unix", abstract)
	_, pathHits := honeypot(t, "unix", socket)
	if err := os.Chmod(socket, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		network, address string
		hits             func() int
		stopped          spec.Level
	}{
		{"tcp", tcp, tcpHits, spec.L4},
		{"unix", abstract, abstractHits, spec.L4},
		{"unix", socket, pathHits, spec.L5},
	} {
		for _, level := range []spec.Level{tc.stopped - 1, tc.stopped} {
			res := code(t, level, slow, "attack", tc.network, tc.address)
			if hits := tc.hits(); (hits > 0) != (level < tc.stopped) {
				t.Errorf("%s %s at %v: %d connections; the attack says %q", tc.network, tc.address, level, hits, res.Stdout.Text)
			}
			if tc.network == "tcp" && level == spec.L4 && !strings.Contains(res.Stdout.Text, `"errno":101`) {
				t.Errorf("at L4 connect says %q, want ENETUNREACH", res.Stdout.Text)
			}
		}
	}
	for what, through := range saw(t, code(t, spec.L5, slow, "attack", "sockets")) {
		if through {
			t.Errorf("L5: a %s socket was made", what)
		}
	}
}

func TestTheKeyIsNotRead(t *testing.T) {
	needRoot(t)
	home, err := os.MkdirTemp("/srv", "sbxrun-home-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(home)
	key := filepath.Join(home, ".ssh", "id_ed25519")
	if err := os.Mkdir(filepath.Dir(key), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(key, []byte("-----BEGIN FAKE PRIVATE KEY-----"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(home, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, level := range []spec.Level{spec.L4, spec.L5} {
		for what, through := range saw(t, code(t, level, slow, "attack", "read-key", key)) {
			if through != (level == spec.L4) {
				t.Errorf("%v: %s", level, what)
			}
		}
	}
	// A single file is hidden as /dev/null, and what is written to a hidden
	// directory goes nowhere.
	res := code(t, spec.L5, append([]string{"--hide", "/etc/passwd"}, slow...), "/bin/sh", "-c", `wc -c < /etc/passwd; ls -A /srv; echo x > /srv/new && cat /srv/new`)
	if res.Stdout.Text != "0\nx\n" {
		t.Errorf("hidden places show %q (%s)", res.Stdout.Text, res.Stderr.Text)
	}
	if _, err := os.Stat("/srv/new"); err == nil {
		t.Error("a write to a hidden directory arrived")
	}
}

func TestPrivilegesAreGoneAtL5(t *testing.T) {
	needRoot(t)
	below, at := saw(t, code(t, spec.L4, slow, "attack", "privileges")), saw(t, code(t, spec.L5, slow, "attack", "privileges"))
	for what, through := range at {
		if through {
			t.Errorf("L5: %s got through", what)
		}
	}
	for _, what := range []string{"chroot", "trace"} {
		if !below[what] {
			t.Errorf("L4: %s did not get through; the layer buys nothing", what)
		}
	}
	// At L4 a namespace of one's own still gives the right to mount.
	for _, level := range []spec.Level{spec.L4, spec.L5} {
		res := code(t, level, slow, "/usr/bin/unshare", "-Urm", "mount", "-t", "tmpfs", "none", "/mnt")
		if ok := res.ExitCode != nil && *res.ExitCode == 0; ok != (level == spec.L4) {
			t.Errorf("%v: mounting in a new user namespace: %q %v", level, res.Stderr.Text, res.Reason)
		}
	}
	status := code(t, spec.L5, slow, "attack", "status").Stdout.Text
	for _, line := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
		if !strings.Contains(status, line) {
			t.Errorf("L5: the status lacks %q", line)
		}
	}
	for what, through := range saw(t, code(t, spec.L5, slow, "attack", "syscalls")) {
		if through {
			t.Errorf("L5: %s got through", what)
		}
	}
}

func TestHostRootIsNotInsideFromL3On(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "f")
	code(t, spec.L4, slow, "/bin/sh", "-c", "echo x > "+file)
	st, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if uid := st.Sys().(*syscall.Stat_t).Uid; uid < 1<<31 {
		t.Errorf("the program is host id %d", uid)
	}
}

func TestManyOrphansLeaveNoZombies(t *testing.T) {
	needRoot(t)
	n := "10000"
	if testing.Short() {
		n = "500"
	}
	res := code(t, spec.L5, []string{"--wall", "10m", "--cpu", "600s", "--procs", "5000"}, "attack", "orphans", n)
	if res.Reason != runtime.Exited || !strings.Contains(res.Stdout.Text, n+" orphans, 0 zombies") {
		t.Errorf("ended for %s (%v), said %q %q", res.Reason, res.Evidence, res.Stdout.Text, res.Stderr.Text)
	}
}

func TestSharedMemoryDoesNotReachTheNextRun(t *testing.T) {
	needRoot(t)
	key := fmt.Sprint(1_000_000 + os.Getpid())
	defer exec.Command("ipcrm", "-M", key).Run()
	defer os.Remove("/dev/shm/attack-" + key)
	for _, level := range []spec.Level{spec.L2, spec.L3, spec.L5} {
		code(t, level, slow, "attack", "leave-ipc", key)
		found := saw(t, code(t, level, slow, "attack", "find-ipc", key))
		if found["SysV shared memory"] != (level < spec.L3) {
			t.Errorf("%v: SysV shared memory found: %v", level, found["SysV shared memory"])
		}
		if level == spec.L5 && found["POSIX shared memory"] {
			t.Error("L5: POSIX shared memory found")
		}
		_ = exec.Command("ipcrm", "-M", key).Run()
		_ = os.Remove("/dev/shm/attack-" + key)
	}
}

func TestHostileTreesInTheWorkingDirectoryGo(t *testing.T) {
	needRoot(t)
	levels, names := "20000", "20000"
	if testing.Short() {
		levels, names = "500", "500"
	}
	for _, level := range []spec.Level{spec.L2, spec.L5} {
		for _, argv := range [][]string{{"attack", "deep-tree", levels}, {"attack", "many-names", names}} {
			before := lookAround(t)
			if res := code(t, level, slow, argv...); res.Reason != runtime.Exited {
				t.Errorf("%v %v: %s %v", level, argv, res.Reason, res.Error)
			}
			nothingLeft(t, before)
		}
	}
	// The total is bounded from L5 on.
	for _, level := range []spec.Level{spec.L4, spec.L5} {
		res := code(t, level, append([]string{"--memory", "1GiB"}, slow...), "attack", "many-files", "20", "8")
		if full := strings.Contains(res.Stdout.Text, `"errno":28`); full != (level == spec.L5) {
			t.Errorf("%v: 160 MiB in files: %q", level, res.Stdout.Text)
		}
	}
}

func TestKillingTheReaperIsNoEscape(t *testing.T) {
	needRoot(t)
	res := code(t, spec.L3, slow, "attack", "kill-parent")
	if res.Reason != runtime.Exited {
		t.Errorf("L3: %s %v", res.Reason, res.Evidence)
	}
	before := lookAround(t)
	res = code(t, spec.L1, slow, "attack", "kill-parent")
	if res.Reason != runtime.Signaled || res.ExitCode != nil {
		t.Errorf("L1: a run whose reaper was killed counts as %s", res.Reason)
	}
	nothingLeft(t, before)
	// From L3 on limits could end it. The filter keeps them away; below it the run counts
	// as ended by a signal, never as one that finished.
	for _, level := range []spec.Level{spec.L3, spec.L5} {
		res := code(t, level, append([]string{"--procs", "1000"}, slow...), "attack", "starve-reaper")
		if level == spec.L5 && (res.Reason != runtime.Exited || !strings.Contains(res.Stdout.Text, `"errno":1`)) ||
			level == spec.L3 && res.Reason != runtime.Signaled {
			t.Errorf("%v: %s %v %q", level, res.Reason, res.Evidence, res.Stdout.Text)
		}
	}
}

func TestTheReaperAndTheHostsProcAreOutOfReach(t *testing.T) {
	needRoot(t)
	needProgram(t, "setpriv", "python3")
	for _, level := range []spec.Level{spec.L3, spec.L4, spec.L5} {
		for _, user := range []string{"root", "ordinary"} {
			args := codeArgs(level, append([]string{"--cgroup", "off", "--memory", "off"}, slow...), []string{"attack", "reach-reaper"})
			cmd := exec.Command(sbxrun, args...)
			if user == "ordinary" {
				cmd = exec.Command("setpriv", append([]string{"--reuid", "54321", "--regid", "54321", "--clear-groups", sbxrun}, args...)...)
				cmd.Dir = "/"
			}
			found := saw(t, finishCommand(t, cmd).verdict(t))
			if len(found) < 4 {
				t.Errorf("%v as %s user: only %v was tried", level, user, found)
			}
			for what, through := range found {
				if through {
					t.Errorf("%v as %s user: %s", level, user, what)
				}
			}
		}
	}
}

func TestKeysOfTheCallerStayBehind(t *testing.T) {
	needRoot(t)
	name := fmt.Sprintf("sbxrun-test-%d", os.Getpid())
	for _, level := range []spec.Level{spec.L2, spec.L3, spec.L5} {
		cmd := exec.Command(attackProgram, append([]string{"with-key", name, sbxrun}, codeArgs(level, slow, []string{"attack", "find-key", name})...)...)
		found := saw(t, finishCommand(t, cmd).verdict(t))
		if found["a key of the caller"] != (level < spec.L3) {
			t.Errorf("%v: %v", level, found)
		}
	}
}

func TestNobodyLeavesTheGroupToSurvive(t *testing.T) {
	needRoot(t)
	for _, level := range []spec.Level{spec.L1, spec.L2} {
		for _, how := range []string{"end", "hang"} {
			marker := fmt.Sprintf("leaver-%v-%s-%d", level, how, os.Getpid())
			code(t, level, []string{"--wall", "2s"}, "attack", "leave-group", marker, how)
			if pids := alive("daemon-body " + marker); len(pids) > 0 {
				t.Errorf("%v, %s: alive afterwards: %v", level, how, pids)
				end(t, pids)
			}
		}
	}
}

func TestAProgramThatEndedBeforeItsSupervisorWokeHasEnded(t *testing.T) {
	needRoot(t)
	marker := fmt.Sprintf("0.3%d", os.Getpid())
	cmd := exec.Command(sbxrun, codeArgs(spec.L5, []string{"--wall", "900ms"}, []string{"/bin/sleep", marker})...)
	var out strings.Builder
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the program to run", func() bool { return len(alive("/bin/sleep "+marker)) > 1 })
	_ = cmd.Process.Signal(syscall.SIGSTOP)
	time.Sleep(1200 * time.Millisecond) // past the program's end and past the limit
	_ = cmd.Process.Signal(syscall.SIGCONT)
	_ = cmd.Wait()
	if res := (outcome{stdout: out.String()}).verdict(t); res.Reason != runtime.Exited {
		t.Errorf("it counts as %s: %v", res.Reason, res.Evidence)
	}
}

func TestWordsAndSignalsOfTheProgramDecideNothing(t *testing.T) {
	needRoot(t)
	for _, tc := range []struct {
		script, signal string
		exit           int
	}{
		{"echo MemoryError >&2; exit 1", "", 1},
		{"echo 'upload: file too large' >&2; exit 2", "", 2},
		{"kill -XCPU $$", "SIGXCPU", 128 + 24},
		{"kill -XFSZ $$", "SIGXFSZ", 128 + 25},
		{"kill -34 $$", "SIGRTMIN+0", 128 + 34},
	} {
		o := call(t, codeArgs(spec.L5, slow, []string{"/bin/sh", "-c", tc.script})...)
		res := o.verdict(t)
		want := runtime.Exited
		if tc.signal != "" {
			want = runtime.Signaled
		}
		if res.Reason != want || res.Signal != tc.signal || o.exit != tc.exit {
			t.Errorf("%q: %s %q, exit %d", tc.script, res.Reason, res.Signal, o.exit)
		}
	}
}

func TestOnlyThreeDescriptorsReachTheProgram(t *testing.T) {
	for _, level := range []spec.Level{spec.L0, spec.L5} {
		cmd := exec.Command(sbxrun, codeArgs(level, []string{"--cgroup", "off"}, []string{"/bin/ls", "/proc/self/fd"})...)
		for range 20 {
			f, err := os.Open("/etc/passwd")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			cmd.ExtraFiles = append(cmd.ExtraFiles, f)
		}
		res := finishCommand(t, cmd).verdict(t)
		if got := strings.Fields(res.Stdout.Text); !slices.Equal(got, []string{"0", "1", "2", "3"}) { // 3 is ls's own
			t.Errorf("%v: descriptors %v (%s)", level, got, res.Stderr.Text)
		}
	}
}

func TestTheRunDiesWithItsSupervisor(t *testing.T) {
	needRoot(t)
	before := lookAround(t)
	for _, level := range []spec.Level{spec.L1, spec.L3, spec.L5} {
		marker := fmt.Sprintf("%d.%d", 700+int(level), os.Getpid())
		cmd := exec.Command(sbxrun, codeArgs(level, []string{"--wall", "60s"}, []string{"/bin/sleep", marker})...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the program to run", func() bool { return len(alive("/bin/sleep "+marker)) > 1 })
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		waitFor(t, "the program to die", func() bool { return len(alive("/bin/sleep "+marker)) == 0 })
	}
	// What the killed supervisors could not remove, the next run does.
	code(t, spec.L3, slow, "/bin/true")
	nothingLeft(t, before)
}

// waitFor polls with a bound that only guards against hanging.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
