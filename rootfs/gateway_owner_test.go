// Tests of whose rights the gateway acts with, and that no thread keeps them.

package rootfs

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// someone is an owner that is nobody here.
var someone = Owner{1<<31 + 77, 1<<31 + 78}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("acting for another user needs root")
	}
}

// open lets everybody get to dir, and gives it to owner.
func open(t *testing.T, dir string, owner Owner) {
	t.Helper()
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		must(t, os.Chmod(d, 0o755))
	}
	must(t, os.Chown(dir, int(owner.UID), int(owner.GID)))
}

func TestATmpfsOfAUserNamespaceTakesFilesOfItsOwnerOnly(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	open(t, dir, Owner{})
	said, pid := helper(t, &syscall.SysProcAttr{
		Cloneflags:                 syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings:                []syscall.SysProcIDMap{{HostID: int(someone.UID), Size: 1}},
		GidMappings:                []syscall.SysProcIDMap{{HostID: int(someone.GID), Size: 1}},
		GidMappingsEnableSetgroups: true, Credential: &syscall.Credential{},
	}, "tmpfs", dir)
	if said != "ready <nil>" {
		t.Fatal(said)
	}
	seen := fmt.Sprintf("/proc/%d/root%s", pid, dir)
	for _, tc := range []struct {
		owner Owner
		want  error
	}{{Owner{}, unix.EOVERFLOW}, {someone, nil}} {
		g := gateway(t, seen, tc.owner, Caps{})
		if _, err := g.Put("d/f", strings.NewReader("x"), 0o600); !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
			t.Errorf("as %+v: got %v, want %v", tc.owner, err, tc.want)
		}
	}
	g := gateway(t, seen, someone, Caps{})
	if n, err := g.Get("d/f", io.Discard); n != 1 || err != nil {
		t.Errorf("get: %d, %v", n, err)
	}
	if entries, err := g.List(); err != nil || len(entries) != 2 {
		t.Errorf("list: %v, %v", entries, err)
	}
}

func TestTheGatewayHasNoMoreRightsThanTheOwner(t *testing.T) {
	needsRoot(t)
	dir, outside, root := box(t)
	open(t, dir, someone)
	g := gateway(t, dir, someone, Caps{})
	must(t, errors.Join(os.WriteFile(dir+"/roots", []byte("of root"), 0o644), os.Mkdir(dir+"/closed", 0o700),
		os.WriteFile(dir+"/closed/f", nil, 0o644), os.Mkdir(dir+"/group", 0o770), os.WriteFile(dir+"/unreadable", nil, 0),
		os.Chown(dir+"/unreadable", int(someone.UID), int(someone.GID))))
	for name, want := range map[string]error{"roots": ErrOwner, "closed/f": unix.EACCES, "unreadable": unix.EACCES} {
		if _, err := root.Get(name, io.Discard); err != nil {
			t.Errorf("root itself cannot get %s: %v", name, err)
		}
		refuses(t, g, name, outside, want)
	}
	for _, name := range []string{"closed/new", "group/new"} {
		if _, err := g.Put(name, strings.NewReader("x"), 0o600); !errors.Is(err, unix.EACCES) {
			t.Errorf("put %s: %v", name, err)
		}
	}
	must(t, os.WriteFile(dir+"/link", nil, 0o600))
	if _, err := g.Put("sub/f", strings.NewReader("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"sub", "sub/f"} {
		var st unix.Stat_t
		if err := unix.Lstat(dir+"/"+name, &st); err != nil || (Owner{st.Uid, st.Gid}) != someone {
			t.Errorf("%s belongs to %d:%d (%v)", name, st.Uid, st.Gid, err)
		}
	}
}

// asAnother tries to act for a user who is not this process.
func asAnother([]string) {
	dir, err := os.Open("/")
	if err == nil {
		_, err = OpenGateway(dir, someone, Caps{})
	}
	fmt.Println(err)
}

func TestOnlyRootActsForAnother(t *testing.T) {
	var attr *syscall.SysProcAttr
	if os.Geteuid() == 0 {
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
	}
	said, _ := helper(t, attr, "as-another")
	if !strings.Contains(said, "act for user 2147483725 as user") || !strings.HasSuffix(said, "operation not permitted") {
		t.Errorf("it said %q", said)
	}
}

var rights = regexp.MustCompile(`(?m)^(Uid|Gid|Groups|CapInh|CapPrm|CapEff|CapBnd|CapAmb):.*\n`)

// identities gives the rights of each thread of this process.
func identities(t *testing.T) map[string]string {
	t.Helper()
	tasks, err := os.ReadDir("/proc/self/task")
	must(t, err)
	ids := map[string]string{}
	for _, task := range tasks {
		if status, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status"); err == nil {
			ids[task.Name()] = strings.Join(rights.FindAllString(string(status), -1), "")
		}
	}
	return ids
}

func TestNoThreadKeepsTheOwnersRights(t *testing.T) {
	needsRoot(t)
	dir, _, _ := box(t)
	open(t, dir, someone)
	g := gateway(t, dir, someone, Caps{})
	before := identities(t)
	own := before[fmt.Sprint(os.Getpid())]
	var inside, source string
	for range 300 {
		_, err := g.Put("f", failing(func() { source = threadRights() }), 0o600)
		if !errors.Is(err, unix.EIO) {
			t.Fatal(err)
		}
		must(t, g.asOwner(func() error { inside = threadRights(); return nil }))
	}
	if !strings.Contains(inside, fmt.Sprintf("\t%d\nGid", someone.UID)) || !strings.Contains(inside, "CapEff:\t0000000000000000") {
		t.Errorf("as the owner it has\n%s", inside)
	}
	if source != own {
		t.Errorf("the source was read with\n%sinstead of\n%s", source, own)
	}
	after := identities(t)
	for task, ids := range after {
		if ids != own {
			t.Errorf("thread %s has now\n%sinstead of\n%s", task, ids, own)
		}
	}
	if len(after) > len(before)+10 {
		t.Errorf("there were %d threads, now %d", len(before), len(after))
	}
}

func TestAnIdentityIsAssumedAndGivenUpWhole(t *testing.T) {
	needsRoot(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread is spoilt
		err := unix.Setgroups([]int{7, 8})
		was, cerr := current()
		before := threadRights()
		owned := identity{uid: int(someone.UID), gid: int(someone.GID), caps: was.caps}
		owned.drop()
		err = errors.Join(err, cerr, owned.assume())
		if now := threadRights(); strings.Contains(now, "7 8") {
			err = errors.Join(err, fmt.Errorf("the groups are still\n%s", now))
		}
		err = errors.Join(err, was.assume())
		if now := threadRights(); now != before || !strings.Contains(now, "7 8") {
			err = errors.Join(err, fmt.Errorf("it has now\n%sinstead of\n%s", now, before))
		}
		done <- err
	}()
	must(t, <-done)
}

func threadRights() string {
	status, _ := os.ReadFile("/proc/thread-self/status")
	return strings.Join(rights.FindAllString(string(status), -1), "")
}

func TestAThreadThatCannotBePutBackIsThrownAway(t *testing.T) {
	needsRoot(t)
	dir, _, _ := box(t)
	g := gateway(t, dir, someone, Caps{})
	thread := 0
	must(t, g.asOwner(func() error {
		thread = unix.Gettid()
		header, none := capHeader, [2]unix.CapUserData{}
		return unix.Capset(&header, &none[0])
	}))
	if thread == os.Getpid() {
		return // the first thread cannot end before the process: Go parks it for ever
	}
	for deadline := time.Now().Add(10 * time.Second); ; runtime.Gosched() {
		if _, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread)); err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("thread %d is still there with\n%s", thread, identities(t)[fmt.Sprint(thread)])
		}
	}
}

func TestChildrenWithAParentDeathSignalLive(t *testing.T) {
	needsRoot(t)
	dir, _, _ := box(t)
	open(t, dir, someone)
	g := gateway(t, dir, someone, Caps{})
	var children []*exec.Cmd
	for range 10 {
		c := exec.Command("sleep", "100")
		c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		must(t, c.Start())
		children = append(children, c)
		for range 5 {
			if _, err := g.Put("f", strings.NewReader("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range children {
		must(t, c.Process.Signal(syscall.SIGTERM))
		_ = c.Wait()
		if s := c.ProcessState.Sys().(syscall.WaitStatus).Signal(); s != syscall.SIGTERM {
			t.Errorf("a child died of %v", s)
		}
	}
}
