// This file owns the tests of where groups are made and of what is missed there.

package cgroup

import (
	"bufio"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

const nobody = 65534

// creator runs the helper that calls Create. setup is a shell script that changes
// the view of a private mount namespace first; uid is who calls. With a directory
// given it starts in that group, and go-ahead is up to the test.
func creator(t *testing.T, setup string, uid uint32, in string, res *specs.LinuxResources) *program {
	t.Helper()
	text, err := json.Marshal(res)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"helper:create", string(text)}
	cmd := exec.Command(binary(t), args...)
	if setup != "" {
		cmd = exec.Command("sh", append([]string{"-c", setup + ` && exec "$0" "$@"`, binary(t)}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	}
	if uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if in != "" {
		cmd.Args = append(cmd.Args, "wait")
		fd, err := unix.Open(in, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		if cmd.SysProcAttr == nil {
			cmd.SysProcAttr = &syscall.SysProcAttr{}
		}
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
	}
	p := &program{t: t, cmd: cmd}
	p.pipes()
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return p
}

// binary is the test binary where every user can execute it.
func binary(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "cgroup-test")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "cgroup.test")
	if err := os.WriteFile(file, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestWhatIsMissingIsNamedWithItsRemedy(t *testing.T) {
	needRoot(t)
	private := "mount --make-rprivate / && "
	rdma := &specs.LinuxResources{Rdma: map[string]specs.LinuxRdma{"mlx5_1": {}}}
	for _, c := range []struct {
		name, setup  string
		uid          uint32
		res          *specs.LinuxResources
		says, remedy string
	}{
		{"no control groups mounted", private + "mount -t tmpfs none /sys/fs/cgroup", 0, memory(64), "missing memory at /sys/fs/cgroup:", remedyMount},
		{"mounted read-only", private + "for m in $(grep -o '/sys/fs/cgroup[^ ]*' /proc/self/mounts); do mount -o remount,bind,ro $m; done", 0, memory(64), "read-only file system", remedyWrite},
		{"an ordinary user without a delegated group", "", nobody, memory(64), "permission denied", remedyDelegate},
		{"a controller that the kernel has not got", "", 0, rdma, "missing rdma at", remedyKernel},
		{"a unified hierarchy without the memory controller", private + "umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup", 0, memory(64), "missing memory at /sys/fs/cgroup: not in cgroup.controllers", remedyKernel},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.setup, "umount") && pureV2(t) {
				t.Skip("this host's unified hierarchy has the memory controller")
			}
			got := creator(t, c.setup, c.uid, "", c.res).line()
			if !strings.HasPrefix(got, "missing ") || !strings.Contains(got, c.says) || !strings.Contains(got, c.remedy) {
				t.Errorf("got  %s\nwant %s … (%s)", got, c.says, c.remedy)
			}
		})
	}
}

// delegated makes a group of the unified hierarchy that belongs to uid, below a
// parent of root's, with memory and pids to give.
func delegated(t *testing.T, uid int) string {
	t.Helper()
	needRoot(t)
	if !pureV2(t) {
		t.Skip("about controllers of cgroup v2, this host has them on v1")
	}
	parent := "/sys/fs/cgroup/" + name()
	own := parent + "/own"
	if err := os.MkdirAll(own, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(parent+"/cgroup.subtree_control", "+memory +pids"); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"", "/cgroup.procs", "/cgroup.subtree_control"} {
		if err := os.Chown(own+file, uid, uid); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, dir := range []string{own + "/supervisor", own, parent} {
			until(t, "removal of "+dir, func() bool { err := unix.Rmdir(dir); return err == nil || gone(err) })
		}
	})
	return own
}

func TestUserAloneInADelegatedGroupStepsAside(t *testing.T) {
	own := delegated(t, nobody)
	p := creator(t, "", nobody, own, memory(64))
	p.line()
	p.goOn()
	if got, want := p.line(), "made "+own+"/sbxrun/"; !strings.HasPrefix(got, want) || !strings.HasSuffix(got, "<nil>") {
		t.Errorf("got %s, want %s…", got, want)
	}
	if err := p.cmd.Wait(); err != nil {
		t.Error(err)
	}
}

func TestUserBesideOthersInADelegatedGroupIsRefused(t *testing.T) {
	own := delegated(t, nobody)
	other := creator(t, "", nobody, own, memory(64))
	other.line()
	p := creator(t, "", nobody, own, memory(64))
	p.line()
	p.goOn()
	if got := p.line(); !strings.Contains(got, "holds other processes") || !strings.Contains(got, remedyDelegate) {
		t.Errorf("got %s", got)
	}
	if at := where(t, strconv.Itoa(other.cmd.Process.Pid)); "/sys/fs/cgroup"+at.unified != own {
		t.Errorf("another's process was moved to %s", at.unified)
	}
	for _, q := range []*program{other, p} {
		_ = q.cmd.Process.Kill()
		_ = q.cmd.Wait()
	}
}

func TestRootGoesBesideItsOwnGroup(t *testing.T) {
	own := delegated(t, 0)
	p := creator(t, "", 0, own, memory(64))
	p.line()
	p.goOn()
	if got, want := p.line(), "made "+filepath.Dir(own)+"/sbxrun/"; !strings.HasPrefix(got, want) {
		t.Errorf("got %s, want %s…", got, want)
	}
	_ = p.cmd.Wait()
}

func TestRootOfACgroupNamespaceStepsAside(t *testing.T) {
	own := delegated(t, 0)
	p := creator(t, `exec unshare -C -m sh -c 'umount /sys/fs/cgroup; mount -t cgroup2 none /sys/fs/cgroup; exec "$0" "$@"' "$0" "$@"; true`, 0, own, memory(64))
	p.line()
	p.goOn()
	if got := p.line(); !strings.HasPrefix(got, "made /sys/fs/cgroup/sbxrun/") {
		t.Errorf("got %s", got)
	}
	_ = p.cmd.Wait()
}

// TestAllOfItHoldsOnPureV1 runs the tests once more where a hybrid host shows its
// v1 hierarchies alone.
func TestAllOfItHoldsOnPureV1(t *testing.T) {
	needRoot(t)
	h, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	if h.unified == nil || !h.onV1("memory") || !h.onV1("freezer") {
		t.Skip("needs a hybrid host")
	}
	cmd := exec.Command("sh", "-c", `mount --make-rprivate / && umount "$1" && exec "$0" -test.run "$2"`, os.Args[0], h.unified.mount,
		"Killed|Refused|Armed|Born|Moves|Kill|Spares|Freeze|Delete|State|Hundred|Failed|Device|Probe|TakenOver|Allocate")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

const hybridMounts = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:5 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 /docker/x /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /mnt/a\040b rw,relatime - cgroup2 cgroup2 rw
42 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
43 31 0:38 / /elsewhere rw,relatime - cgroup2 cgroup2 rw
`

func everyMount(string, int64) bool { return true }

func TestMountsOfAHybridHostAreUnderstood(t *testing.T) {
	h, err := parseMounts(strings.NewReader(hybridMounts), everyMount)
	if err != nil {
		t.Fatal(err)
	}
	if h.unified == nil || h.unified.mount != "/sys/fs/cgroup/unified" {
		t.Errorf("unified: %+v", h.unified)
	}
	for name, mount := range map[string]string{"cpu": "/sys/fs/cgroup/cpu", "cpuacct": "/sys/fs/cgroup/cpuacct", "memory": "/sys/fs/cgroup/memory", "systemd": "/sys/fs/cgroup/systemd"} {
		if h.v1[name].mount != mount {
			t.Errorf("%s: %+v", name, h.v1[name])
		}
	}
	if got := h.v1["memory"].below("/docker/x/y"); got != "/y" {
		t.Errorf("a group below a bind mount's root is at %q", got)
	}
	for group, want := range map[string]string{"/docker/x": "/", "/docker/xy": "/", "/other": "/"} {
		if got := h.v1["memory"].below(group); got != want {
			t.Errorf("%s is at %q, want %q", group, got, want)
		}
	}
	if h, _ := parseMounts(bufio.NewReader(strings.NewReader(hybridMounts)), func(string, int64) bool { return false }); h.unified != nil || len(h.v1) > 0 {
		t.Error("mounts that lie hidden are taken")
	}
}

func FuzzMounts(f *testing.F) {
	f.Add(hybridMounts)
	f.Add("1 2 3 \\04 \\999 x - cgroup cgroup ,,=,")
	f.Fuzz(func(t *testing.T, text string) {
		h, err := parseMounts(strings.NewReader(text), everyMount)
		if err == nil && h.unified != nil && !strings.HasPrefix(h.unified.below(text), "/") {
			t.Errorf("%q is not below the mount", h.unified.below(text))
		}
	})
}

func TestAnEmptyLeftoverIsMadeAnewAndOneInUseRefused(t *testing.T) {
	needRoot(t)
	id := name()
	old, err := Create("", id, memory(8))
	if err != nil {
		t.Fatal(err)
	}
	dirs := old.String()
	if err := old.Close(); err != nil { // its maker was killed
		t.Fatal(err)
	}
	g, err := Create("", id, memory(64))
	if err != nil {
		t.Fatalf("%s is in the way: %v", dirs, err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Delete()); err != nil {
			t.Error(err)
		}
	})
	run(t, g, "wait")
	if _, err := Create("", id, memory(64)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a group with a process was taken over: %v", err)
	}
	if pids, err := g.Procs(); len(pids) == 0 || err != nil {
		t.Errorf("the refused one took the process away: %v, %v", pids, err)
	}
}

func TestAProcessJoinsBesideAnInitThatMovedDown(t *testing.T) {
	needRoot(t)
	if !pureV2(t) {
		t.Skip("about controllers of cgroup v2, this host has them on v1")
	}
	g, err := Create("", name(), memory(64))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Delete()); err != nil {
			t.Error(err)
		}
	})
	init, second := run(t, g, "wait"), exec.Command("sleep", "100")
	if err := second.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = second.Process.Kill(); _ = second.Wait() })
	dir, _ := g.Dir("")
	below := filepath.Join(dir, "init")
	if err := errors.Join(os.Mkdir(below, 0o755), writeFile(filepath.Join(below, "cgroup.procs"), strconv.Itoa(init.cmd.Process.Pid)),
		writeFile(filepath.Join(dir, "cgroup.subtree_control"), "+memory")); err != nil {
		t.Fatal(err)
	}
	if err := g.AdoptBelow(second.Process.Pid, init.cmd.Process.Pid, map[string]string{"": "/"}); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a group that was asked for was left: %v", err)
	}
	if err := g.AdoptBelow(second.Process.Pid, os.Getpid(), nil); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a process went outside: %v", err)
	}
	if err := g.AdoptBelow(second.Process.Pid, init.cmd.Process.Pid, nil); err != nil {
		t.Fatal(err)
	}
	if got := words(filepath.Join(below, "cgroup.procs")); !slices.Contains(got, strconv.Itoa(second.Process.Pid)) {
		t.Errorf("%v are beside init", got)
	}
}
