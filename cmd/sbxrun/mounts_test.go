// Tests of mounts as engines ask for them: ids mapped, contents copied up, shared
// with the host, sources that only the host's root can reach.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// withMount adds an entry to mounts.
func (e *engine) withMount(entry map[string]any) {
	edit(e.t, e.bundle, func(c map[string]any) { c["mounts"] = append(c["mounts"].([]any), entry) })
}

// mapped gives the container a user namespace whose ids start at first, and its root
// in that namespace the image.
func (e *engine) mapped(first int) {
	err := filepath.WalkDir(filepath.Join(e.bundle, "rootfs"), func(name string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(name, first, first))
	})
	if err != nil {
		e.t.Fatal(err)
	}
	edit(e.t, e.bundle, func(c map[string]any) {
		l := c["linux"].(map[string]any)
		l["namespaces"] = append(l["namespaces"].([]any), map[string]any{"type": "user"})
		ids := []any{map[string]any{"containerID": 0, "hostID": first, "size": 1000}}
		l["uidMappings"], l["gidMappings"] = ids, ids
	})
}

func (e *engine) run(id string) outcome {
	e.t.Helper()
	return e.do("run", "--bundle", e.bundle, id)
}

func TestATmpfsStartsWithWhatItsPlaceHeld(t *testing.T) {
	e := newEngine(t, "cd /held; cat file sub/inner; readlink link; stat -c '%a %u:%g' file sub; echo more >new; readlink escape")
	held := filepath.Join(e.bundle, "rootfs", "held")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(held, "sub"), 0o750),
		os.WriteFile(filepath.Join(held, "file"), []byte("one\n"), 0o604),
		os.WriteFile(filepath.Join(held, "sub", "inner"), []byte("two\n"), 0o644),
		os.Symlink("nowhere", filepath.Join(held, "link")),
		os.Symlink("/etc/passwd", filepath.Join(held, "escape")), // stays a link, is not followed
		os.Chown(filepath.Join(held, "file"), 12, 34),
		unix.Mkfifo(filepath.Join(held, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	e.withMount(map[string]any{"destination": "/held", "type": "tmpfs", "source": "tmpfs", "options": []string{"tmpcopyup", "size=1m"}})
	o := e.run("copied")
	if want := "one\ntwo\nnowhere\n604 12:34\n750 0:0\n/etc/passwd\n"; o.stdout != want {
		t.Errorf("%+v, want %q", o, want)
	}
	if _, err := os.Stat(filepath.Join(held, "new")); err == nil {
		t.Error("the write went through to the image")
	}
}

func TestOwnersAreMapped(t *testing.T) {
	for _, c := range []struct {
		name  string
		entry map[string]any
		users int // first id of the container's user namespace, 0 without one
		want  string
	}{
		{"by the mount's own mapping", map[string]any{"options": []string{"bind"},
			"uidMappings": []any{map[string]any{"containerID": 0, "hostID": 7000, "size": 10}},
			"gidMappings": []any{map[string]any{"containerID": 0, "hostID": 8000, "size": 10}}}, 0, "7003:8004"},
		{"by the container's", map[string]any{"options": []string{"rbind", "idmap"}}, 7000, "3:4"},
		{"not without being asked to", map[string]any{"options": []string{"bind"}}, 7000, "65534:65534"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := shmDir(t) // a file system that can map ids
			if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(filepath.Join(dir, "file"), 3, 4); err != nil {
				t.Fatal(err)
			}
			e := newEngine(t, "stat -c %u:%g /data/file")
			if c.users > 0 {
				e.mapped(c.users)
			}
			c.entry["destination"], c.entry["type"], c.entry["source"] = "/data", "bind", dir
			e.withMount(c.entry)
			o := e.run("owners")
			if c.want != "65534:65534" && strings.Contains(o.stderr, "invalid argument") && !kernelHas(t, 6, 3) {
				t.Skip("tmpfs maps no ids before Linux 6.3")
			}
			if strings.TrimSpace(o.stdout) != c.want {
				t.Errorf("%+v, want %s", o, c.want)
			}
		})
	}
}

// kernelHas says whether the kernel is at least of that version.
func kernelHas(t *testing.T, major, minor int) bool {
	t.Helper()
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		t.Fatal(err)
	}
	var a, b int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &a, &b); err != nil {
		t.Fatal(err)
	}
	return a > major || a == major && b >= minor
}

// shmDir makes a directory on a tmpfs.
func shmDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "sbxrun-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSourcesThatOnlyTheHostsRootReachesAreMountedInAUserNamespace(t *testing.T) {
	closed := t.TempDir()
	data := filepath.Join(closed, "data")
	if err := os.Mkdir(data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(data, "file"), []byte("reached\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	e := newEngine(t, "cat /data/file; touch /data/mark 2>/dev/null || echo refused")
	e.mapped(7000)
	e.withMount(map[string]any{"destination": "/data", "type": "bind", "source": data, "options": []string{"bind"}})
	for _, dir := range []string{closed, filepath.Dir(e.bundle), e.bundle} {
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if o := e.run("closed"); o.stdout != "reached\nrefused\n" {
		t.Errorf("%+v", o)
	}
}

// TestMountsPassBetweenHostAndContainerAsAsked looks from both sides for a mount that
// the other one makes, in a mount namespace of the test's own with shared mounts.
func TestMountsPassBetweenHostAndContainerAsAsked(t *testing.T) {
	for _, c := range []struct {
		rootfs, option  string
		outward, inward bool
	}{
		{"rshared", "rshared", true, true},
		{"rslave", "rslave", false, true},
		{"", "rprivate", false, false},
		{"rprivate", "rprivate", false, false},
	} {
		t.Run(fmt.Sprintf("root %q with a mount %q", c.rootfs, c.option), func(t *testing.T) {
			dir := t.TempDir()
			e := newEngine(t, "mkdir -p /vol/in /vol/out; mount -t tmpfs t /vol/in; echo ready; read go </vol/fifo; grep -c ' /vol/out ' /proc/self/mountinfo")
			edit(t, e.bundle, func(cfg map[string]any) {
				if c.rootfs != "" {
					cfg["linux"].(map[string]any)["rootfsPropagation"] = c.rootfs
				}
				caps := []string{"CAP_SYS_ADMIN"}
				cfg["process"].(map[string]any)["capabilities"] = map[string]any{"bounding": caps, "effective": caps, "permitted": caps}
			})
			e.withMount(map[string]any{"destination": "/vol", "type": "bind", "source": dir, "options": []string{"rbind", c.option}})
			if err := unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
				t.Fatal(err)
			}
			script := `
				mount --make-rshared /
				mount --bind "$1" "$1"; mount --make-shared "$1"
				"$2" --root "$3" run --bundle "$4" passing >"$5" &
				until grep -qs ready "$5"; do sleep 0.02; done
				grep -q " $1/in " /proc/self/mountinfo && echo 1 || echo 0
				mount -t tmpfs t "$1/out"
				echo go >"$1/fifo"
				wait
				tail -1 "$5"
				grep -c " $4/rootfs/proc " /proc/self/mountinfo`
			cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", script, "sh", dir, sbxrun, e.root, e.bundle, filepath.Join(t.TempDir(), "out"))
			out, err := cmd.Output() // the last grep finds nothing and fails
			if _, failed := err.(*exec.ExitError); err != nil && !failed {
				t.Fatal(err)
			}
			count := map[bool]string{true: "1", false: "0"}
			want := fmt.Sprintf("%s\n%s\n0\n", count[c.outward], count[c.inward])
			if string(out) != want {
				t.Errorf("outward, inward, leaked: %q, want %q", out, want)
			}
		})
	}
}

func TestAMountIsChangedByARemount(t *testing.T) {
	e := newEngine(t, "touch /dev/shm/x || echo refused; df -k /dev/shm | tail -1 | awk '{print $2}'")
	e.withMount(map[string]any{"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": []string{"remount", "ro", "size=64k"}})
	if o := e.run("changed"); o.stdout != "refused\n64\n" {
		t.Errorf("%+v", o)
	}
}

func TestWithoutAMountNamespaceTheMountsGoWithTheContainer(t *testing.T) {
	e := newEngine(t, "ls -d /proc/self; readlink /proc/self/ns/mnt; touch /x 2>&1")
	edit(t, e.bundle, func(c map[string]any) {
		l := c["linux"].(map[string]any)
		l["namespaces"] = []any{map[string]any{"type": "pid"}, map[string]any{"type": "ipc"}}
		delete(c, "hostname")
	})
	before := lookAround(t)
	host, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		t.Fatal(err)
	}
	if o := e.run("bare"); !strings.HasPrefix(o.stdout, "/proc/self\n"+host+"\n") || !strings.Contains(o.stdout, "Read-only") {
		t.Errorf("%+v", o)
	}
	edit(t, e.bundle, func(c map[string]any) { c["process"].(map[string]any)["cwd"] = "/proc/version" })
	if o := e.run("failing"); o.exit != 1 {
		t.Errorf("%+v", o)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), e.bundle) {
		t.Errorf("mounts are left below %s", e.bundle)
	}
	nothingLeft(t, before)
}

func TestATmpfsHasTheModeOfItsPlaceUnlessToldOtherwise(t *testing.T) {
	e := newEngine(t, "stat -c %a /a /b /c")
	for dir, mode := range map[string]os.FileMode{"a": 0o750, "b": 0o750} {
		if err := os.Mkdir(filepath.Join(e.bundle, "rootfs", dir), mode); err != nil {
			t.Fatal(err)
		}
	}
	e.withMount(map[string]any{"destination": "/a", "type": "tmpfs", "source": "tmpfs"})
	e.withMount(map[string]any{"destination": "/b", "type": "tmpfs", "source": "tmpfs", "options": []string{"mode=1777", "tmpcopyup"}})
	e.withMount(map[string]any{"destination": "/c", "type": "tmpfs", "source": "tmpfs", "options": []string{"mode=1777", "tmpcopyup"}})
	edit(t, e.bundle, func(c map[string]any) { c["root"].(map[string]any)["readonly"] = false })
	if o := e.run("modes"); o.stdout != "750\n1777\n1777\n" {
		t.Errorf("%+v", o)
	}
}

func TestAMaskDoesNotHandOutTheHostsNull(t *testing.T) {
	e := newEngine(t, "chmod 600 /masked 2>&1; echo x >/masked && cat /masked && echo usable")
	if err := os.WriteFile(filepath.Join(e.bundle, "rootfs", "masked"), []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	edit(t, e.bundle, func(c map[string]any) { c["linux"].(map[string]any)["maskedPaths"] = []string{"/masked"} })
	if o := e.run("masked"); !strings.Contains(o.stdout, "Read-only file system") || !strings.HasSuffix(o.stdout, "usable\n") {
		t.Errorf("%+v", o)
	}
}

func TestWhatTheHostMountsIsNoWayOut(t *testing.T) {
	needRoot(t)
	needProgram(t, "unshare", "pgrep")
	for _, tc := range []struct {
		name, script string // $1 is a directory, $2 sbxrun
		says         string
	}{
		{"a mount that comes while the program runs", `mount --make-rshared /
			{ until pgrep -f "^/bin/sh -c read _.*$1" >/dev/null; do :; done; mount -t tmpfs -o mode=1777 late "$1"; echo; } |
			"$2" code --level L5 --wall 300s --cpu 200s --stdin -- /bin/sh -c 'read _; touch "$0/file" || echo refused' "$1" 2>/dev/null
			mountpoint -q "$1" && ls "$1"`, "refused\n"},
		{"a device in a directory of the host's", `mount -t tmpfs dev "$1" && mknod -m 666 "$1/zero" c 1 5 && head -c 3 "$1/zero" | wc -c
			"$2" code --level L5 --wall 300s --cpu 200s -- /bin/sh -c 'head -c 3 "$0/zero" 2>/dev/null | wc -c; head -c 3 /dev/zero | wc -c' "$1" 2>/dev/null`, "3\n0\n3\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, err := os.MkdirTemp("/opt", "sbxrun-test-") // not hidden
			if err != nil {
				t.Fatal(err)
			}
			defer os.Remove(dir)
			o := finishCommand(t, exec.Command("unshare", "-m", "--propagation", "private", "sh", "-c", tc.script, "sh", dir, sbxrun))
			if o.stdout != tc.says {
				t.Errorf("%+v, want %q", o, tc.says)
			}
		})
	}
}
