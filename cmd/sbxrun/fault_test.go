// Tests of calls that fail in the middle of things: memory, descriptors, disk and
// rights that are not there.

package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// faults are the ways in which a call fails.
var faults = map[string][]string{
	"mkdirat": {"ENOSPC", "EROFS"}, "renameat": {"ENOSPC", "EROFS"}, "symlinkat": {"ENOSPC"}, "mknodat": {"EPERM"},
	"openat": {"EMFILE", "ENOMEM"}, "openat2": {"EMFILE", "ENOMEM"}, "pidfd_open": {"EMFILE"}, "memfd_create": {"EMFILE", "ENOMEM"},
	"socket": {"EMFILE"}, "socketpair": {"EMFILE", "ENOBUFS"}, "bind": {"ENOSPC", "EROFS"}, "pipe2": {"EMFILE"},
	"clone3": {"EAGAIN", "ENOMEM", "ENOSPC", "EPERM"}, "fchmod": {"EPERM"}, "fchmodat": {"EROFS"}, "fchownat": {"EPERM"},
	"mount": {"EPERM", "ENOMEM"}, "move_mount": {"EPERM", "ENOSPC"}, "open_tree": {"EPERM", "EMFILE"}, "fsopen": {"EPERM", "EMFILE"},
	"fsconfig": {"EPERM", "ENOMEM"}, "fsmount": {"EPERM", "EMFILE"}, "mount_setattr": {"EPERM"}, "umount2": {"EPERM"}, "pivot_root": {"EPERM"}, "fchdir": {"EPERM"},
	"sethostname": {"EPERM"}, "setgroups": {"EPERM"}, "setresuid": {"EPERM", "EAGAIN"}, "setresgid": {"EPERM"}, "capset": {"EPERM"},
	"seccomp": {"EPERM", "ENOMEM"}, "flock": {"ENOLCK"}, "keyctl": {"EDQUOT"},
}

// needed are calls that no program may run without.
var needed = []string{"pivot_root", "capset", "seccomp", "setresuid", "setresgid", "setgroups", "move_mount", "clone3", "sethostname"}

// SBXRUN_TEST_FAULTS=all is the long form, "run:openat.7" one step.
func TestACallThatFailsIsToldAndLeavesNothing(t *testing.T) {
	needRoot(t)
	needProgram(t, "strace")
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	notSlow(t)
	const few = 3
	var calls []string
	for call := range faults {
		calls = append(calls, call)
	}
	for _, a := range accidents {
		if a.before != nil {
			continue
		}
		if a.program != "" {
			a.program = "echo it ran; exit 3"
		}
		t.Run(a.name, func(t *testing.T) {
			before := lookAround(t)
			s := a.scene(t)
			log, o := s.traced(strings.Join(calls, ","), "")
			if o.exit != 3 && a.program != "" || o.exit != 0 && a.program == "" {
				t.Fatalf("%+v", o)
			}
			s.aftermath(a.name)
			all := stepsIn(t, log)
			some := chosen("SBXRUN_TEST_FAULTS", a.name, all, few)
			t.Logf("failing: %v of %d steps", some, len(all))
			for _, step := range some {
				for _, errno := range faults[step.call] {
					a.fails(t, step, errno)
				}
			}
			nothingLeft(t, before)
		})
	}
}

// fails runs the command with one call that fails.
func (a accident) fails(t *testing.T, at step, errno string) {
	t.Helper()
	s := a.scene(t)
	_, o := s.traced(at.call, fmt.Sprintf("%s:error=%s:when=%d", at.call, errno, at.n))
	name := fmt.Sprintf("%s:%v %s", a.name, at, errno)
	ran := strings.Contains(o.stdout, "it ran")
	switch said, _, _ := strings.Cut(strings.TrimPrefix(o.stdout, "it ran\n"), "\n"); {
	case strings.Contains(o.stdout, "goroutine ") || strings.Contains(o.stdout, "panic: "):
		t.Errorf("%s: it panicked: %.2000s", name, o.stdout)
	case a.program == "" && o.exit == 0, ran && o.exit == 3: // the call was one that can be done without
		if slices.Contains(needed, at.call) {
			t.Errorf("%s: it went on without: %+v", name, o)
		}
	case o.exit == 127 && a.flags != nil: // the shell's own call
	case !strings.HasPrefix(said, "sbxrun: "):
		t.Errorf("%s: %+v", name, o)
	default:
		t.Logf("%s: exit %d %s", name, o.exit, said)
		// One may stay only where the error says that its state could not be opened or removed.
		if o := s.do("list", "-q"); o.stdout != "" && !strings.Contains(said, s.root) {
			t.Errorf("%s: there is a container after an error: %s", name, o.stdout)
		}
	}
	s.aftermath(name)
}

func TestAStateDirectoryThatIsFullOrReadOnlyIsAnError(t *testing.T) {
	needProgram(t, "unshare")
	for options, says := range map[string]string{"size=4k": "no space left on device", "nr_inodes=3": "no space left on device", "ro": "read-only file system"} {
		t.Run(options, func(t *testing.T) {
			e := newEngine(t, "exit 3")
			if err := os.Mkdir(e.root, 0o700); err != nil {
				t.Fatal(err)
			}
			id := fmt.Sprintf("full-%d", os.Getpid())
			for _, command := range []string{"create", "run"} {
				script := `mount -t tmpfs -o mode=0700,"$1" state "$2"; root=$2; shift 2; "$@" </dev/null 2>&1; echo "exit $?"; ls -A "$root"`
				o := finishCommand(t, exec.Command("unshare", "-m", "sh", "-c", script, "sh", options, e.root, sbxrun, "--root", e.root, command, "--bundle", e.bundle, id))
				if !strings.HasPrefix(o.stdout, "sbxrun: ") || !strings.HasSuffix(o.stdout, says+"\nexit 1\n") {
					t.Errorf("%s: %+v", command, o)
				}
				if left := groupsNamed(id); len(left) > 0 {
					t.Errorf("%s: control groups are left: %v", command, left)
				}
			}
		})
	}
}

func TestAGroupThatStaysIsToldAndRemovedLater(t *testing.T) {
	needRoot(t)
	needProgram(t, "strace")
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	s := accident{name: "delete", before: [][]string{createIt, startIt}, args: []string{"delete", "--force", "ID"}}.scene(t)
	if _, o := s.traced("unlinkat", "unlinkat:error=EBUSY:when=1+"); o.exit != 1 || !strings.HasPrefix(o.stdout, "sbxrun: remove group ") || strings.Count(o.stdout, "\n") != 1 {
		t.Errorf("%+v", o)
	}
	if o := s.ok("list", "-q"); o.stdout != s.id+"\n" {
		t.Errorf("the container is forgotten: %+v", o)
	}
	s.aftermath(s.name)
}

func TestAProcessThatCannotBeLookedAtIsNotTakenForGone(t *testing.T) {
	needRoot(t)
	needProgram(t, "strace")
	if err := subreaper(); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"delete", "state", "pause", "exec"} {
		s := accident{name: command, before: [][]string{createIt, startIt}, args: []string{command, "ID"}}.scene(t)
		if command == "exec" {
			s.args = append(s.args, "true")
		}
		_, o := s.traced("pidfd_open", "pidfd_open:error=EMFILE:when=1+")
		if o.exit == 0 || !strings.Contains(o.stdout, "too many open files") || strings.Count(o.stdout, "\n") != 1 {
			t.Errorf("%s: %+v", command, o)
		}
		if o := s.ok("state", s.id); !strings.Contains(o.stdout, `"status": "running"`) {
			t.Errorf("%s: afterwards it does not run: %+v", command, o)
		}
		s.aftermath(command)
	}
}

func TestWhoClosesTheConsoleSocketKeepsNobodyWaiting(t *testing.T) {
	e := newEngine(t, "sleep 100")
	edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["terminal"] = true })
	before := lookAround(t)
	for name, serve := range map[string]func(*net.UnixListener){
		"closes at once":  func(l *net.UnixListener) { hangUp(l) },
		"does not listen": func(l *net.UnixListener) { l.Close() },
		"does not accept": func(*net.UnixListener) {},
	} {
		socket := filepath.Join(t.TempDir(), "console")
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		serve(l)
		o := e.do("create", "--bundle", e.bundle, "--console-socket", socket, "closed")
		if o.exit != 0 && (!strings.HasPrefix(o.stdout, "sbxrun: ") || e.ok("list", "-q").stdout != "") {
			t.Errorf("%s: %+v", name, o)
		}
		e.ok("delete", "--force", "closed")
		l.Close()
	}
	nothingLeft(t, before)
}

// hangUp accepts one connection and closes it.
func hangUp(l *net.UnixListener) {
	go func() {
		if c, err := l.Accept(); err == nil {
			c.Close()
		}
	}()
}
