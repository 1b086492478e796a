// Attacks on the process tree and on what processes share (A8, A10 to A12, A17).

package attack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func init() {
	register(
		attack{"A8", "read-env", "NEEDLE", "looks for a text in every environment it can read", readEnv},
		attack{"A10", "daemon", "MARKER", "leaves a daemon that a kill of the group misses", daemon},
		attack{"", "daemon-body", "MARKER", "what the daemon does", func([]string) { time.Sleep(20 * time.Second) }},
		attack{"A11", "children", "N", "starts N children and keeps them", children},
		attack{"A11", "fork-tree", "DEPTH", "every process starts two more", forkTree},
		attack{"A12", "orphans", "N", "leaves N dead orphans, one after the other", orphans},
		attack{"A17", "leave-ipc", "KEY", "leaves SysV and POSIX shared memory", leaveIPC},
		attack{"A17", "find-ipc", "KEY", "looks for what another run left", findIPC},
		attack{"", "kill-parent", "", "kills whoever started it", func([]string) {
			saw("kill of the parent", unix.Kill(os.Getppid(), unix.SIGKILL))
			time.Sleep(time.Second)
		}},
		attack{"A3", "starve-reaper", "", "sets limits on the first process of its namespace", starveReaper},
		attack{"A15", "reach-reaper", "", "takes the first process's memory and descriptors; uncovers the host's /proc", reachReaper},
		attack{"A17", "with-key", "NAME CMD…", "puts a key into the session keyring and executes CMD", withKey},
		attack{"A17", "find-key", "NAME", "looks for a key of the caller", findKey},
		attack{"A10", "leave-group", "MARKER end|hang", "leaves its control groups and its parent's death behind", leaveGroup},
		attack{"C2", "fds", "", "lists descriptors beyond 2", listFDs},
	)
}

func readEnv(args []string) {
	needle := arg(args, 0)
	files := []string{"/proc/self/environ", fmt.Sprintf("/proc/%d/environ", os.Getppid()), "/proc/1/environ"}
	more, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range append(files, more...) {
		text, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(text), needle) {
			saw("found in "+f, nil)
			return
		}
	}
	saw("no environment has it", errors.New("not found"))
}

func daemon(args []string) {
	// Double fork: the middle process ends at once, its child has a session of its own.
	if len(args) > 1 {
		cmd := exec.Command("/proc/self/exe", "daemon-body", args[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		saw("daemon", cmd.Start())
		return
	}
	_ = self("daemon", arg(args, 0), "middle").Run()
}

func children(args []string) {
	started := 0
	var err error
	for i := 0; err == nil && i < number(arg(args, 0)); i++ {
		if err = exec.Command("/bin/sleep", "5").Start(); err == nil {
			started++
		}
	}
	saw(fmt.Sprintf("%d children", started), err)
	time.Sleep(300 * time.Millisecond)
}

func forkTree(args []string) {
	depth := number(arg(args, 0))
	if depth > 7 { // 255 processes at the most
		depth = 7
	}
	if depth == 0 {
		time.Sleep(time.Second)
		return
	}
	// Each waits for its children: all of the tree is alive at once, on a slow machine too.
	var children []*exec.Cmd
	for range 2 {
		if c := self("fork-tree", fmt.Sprint(depth-1)); c.Start() == nil {
			children = append(children, c)
		}
	}
	for _, c := range children {
		_ = c.Wait()
	}
}

func orphans(args []string) {
	n := number(arg(args, 0))
	cmd := exec.Command("/bin/sh", "-c", fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (/bin/true &); i=$((i+1)); done`, n))
	cmd.Stderr = os.Stderr
	err := cmd.Run()
	zombies := countZombies()
	for i := 0; zombies > 0 && i < 100; i++ { // the last ones may be dying at this moment
		time.Sleep(20 * time.Millisecond)
		zombies = countZombies()
	}
	saw(fmt.Sprintf("%d orphans, %d zombies", n, zombies), err)
}

func countZombies() (n int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, s := range stats {
		text, _ := os.ReadFile(s)
		if strings.Contains(string(text), ") Z ") {
			n++
		}
	}
	return n
}

func leaveIPC(args []string) {
	_, _, e := unix.Syscall(unix.SYS_SHMGET, uintptr(number(arg(args, 0))), 4096, unix.IPC_CREAT|0o666)
	var err error
	if e != 0 {
		err = e
	}
	saw("SysV shared memory", err)
	saw("POSIX shared memory", os.WriteFile("/dev/shm/attack-"+args[0], []byte("left"), 0o666))
}

func findIPC(args []string) {
	_, _, e := unix.Syscall(unix.SYS_SHMGET, uintptr(number(arg(args, 0))), 0, 0)
	var err error
	if e != 0 {
		err = e
	}
	saw("SysV shared memory", err)
	_, err = os.Stat("/dev/shm/attack-" + args[0])
	saw("POSIX shared memory", err)
}

func listFDs([]string) {
	for fd := 3; fd < 256; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil {
			continue
		}
		// Go's own descriptors (epoll, eventfd) are made on first use, not at start.
		to, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
		if !strings.HasPrefix(to, "anon_inode:") && !strings.HasPrefix(to, "/proc/") {
			saw(fmt.Sprintf("descriptor %d is %s", fd, to), nil)
		}
	}
}

func starveReaper([]string) {
	none := unix.Rlimit{}
	saw("CPU time of the first process", unix.Prlimit(1, unix.RLIMIT_CPU, &none, nil))
	saw("descriptors of the first process", unix.Prlimit(1, unix.RLIMIT_NOFILE, &none, nil))
	// It has to do something for that to bite: reap.
	_ = exec.Command("/bin/sh", "-c", "i=0; while [ $i -lt 300 ]; do (/bin/true &); i=$((i+1)); done").Run()
	time.Sleep(time.Second)
}

func reachReaper([]string) {
	_, err := os.OpenFile("/proc/1/mem", os.O_RDWR, 0)
	saw("memory of the first process", err)
	saw("tracing the first process", unix.PtraceAttach(1))
	pidfd, err := unix.PidfdOpen(1, 0)
	if err == nil {
		_, err = unix.PidfdGetfd(pidfd, 3, 0)
	}
	saw("descriptor of the first process", err)
	saw("uncovering /proc", unix.Unmount("/proc", unix.MNT_DETACH))
}

func withKey(args []string) {
	runtime.LockOSThread()
	if err := sys(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0); err != nil {
		saw("keyring", err)
		os.Exit(3)
	}
	if _, err := unix.AddKey("user", arg(args, 0), []byte("secret"), unix.KEY_SPEC_SESSION_KEYRING); err != nil {
		saw("key", err)
		os.Exit(3)
	}
	saw("exec", syscall.Exec(arg(args, 1), args[1:], os.Environ()))
}

func findKey(args []string) {
	_, err := unix.KeyctlSearch(unix.KEY_SPEC_SESSION_KEYRING, "user", arg(args, 0), 0)
	saw("a key of the caller", err)
}

func leaveGroup(args []string) {
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
	for _, g := range append(groups, "/sys/fs/cgroup/cgroup.procs") {
		if f, err := os.OpenFile(g, os.O_WRONLY, 0); err == nil { // not everywhere there is one, and none is made
			_, _ = f.WriteString("0")
			f.Close()
		}
	}
	_ = unix.Prctl(unix.PR_SET_PDEATHSIG, 0, 0, 0, 0)
	cmd := exec.Command("/proc/self/exe", "daemon-body", arg(args, 0))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	saw("daemon", cmd.Start())
	if arg(args, 1) == "hang" {
		time.Sleep(time.Hour)
	}
}
