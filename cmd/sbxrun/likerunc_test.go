// Tests that calls end as runc's do: exit codes, the log, what is refused and what is let
// pass.

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestExitCodesOfWrongCallsAreRuncs(t *testing.T) {
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		args []string
		exit int
		says string
	}{
		"an unknown command":              {[]string{"nosuch"}, 3, "nosuch"},
		"help for an unknown command":     {[]string{"nosuch", "-h"}, 3, "nosuch"},
		"an unknown global flag":          {[]string{"--nosuch", "state", "x"}, 1, "nosuch"},
		"an unknown flag":                 {[]string{"state", "--nosuch", "x"}, 1, "nosuch"},
		"an unknown flag of run":          {[]string{"run", "--nosuch", "x"}, 1, "nosuch"},
		"an unknown flag of code":         {[]string{"code", "--nosuch", "x"}, 125, "nosuch"},
		"a number that is none":           {[]string{"update", "--pids-limit", "many", "x"}, 1, "pids-limit"},
		"exec without an id":              {[]string{"exec"}, 1, "minimum of 1 argument"},
		"exec in what is not there":       {[]string{"exec", "x", "true"}, 255, "does not exist"},
		"an argument too many for list":   {[]string{"list", "extra"}, 1, "extra"},
		"the same for spec":               {[]string{"spec", "extra"}, 1, "extra"},
		"the same for features":           {[]string{"features", "extra"}, 1, "extra"},
		"the same for kill":               {[]string{"kill", "x", "TERM", "extra"}, 1, "extra"},
		"a directory that is not there":   {[]string{"spec", "--bundle", filepath.Join(dir, "no")}, 1, "no such file"},
		"a log that cannot be written":    {[]string{"--log", filepath.Join(dir, "no", "log"), "list"}, 1, "--log"},
		"the same for a command of ours":  {[]string{"--log", filepath.Join(dir, "no", "log"), "doctor"}, 125, "--log"},
		"a log format that there is not":  {[]string{"--log-format", "xml", "list"}, 1, "--log-format"},
		"a way of being rootless":         {[]string{"--rootless", "perhaps", "list"}, 1, "--rootless"},
		"groups with two colons":          {[]string{"exec", "--cgroup", "a:b:c", "x", "true"}, 255, "--cgroup"},
		"two groups without a controller": {[]string{"exec", "--cgroup", "a", "--cgroup", "b", "x", "true"}, 255, "--cgroup"},
	} {
		t.Run(name, func(t *testing.T) {
			o := call(t, append([]string{"--root", filepath.Join(dir, "state")}, tc.args...)...)
			if o.exit != tc.exit || !strings.Contains(o.stderr, tc.says) || strings.Count(o.stderr, "\n") != 1 {
				t.Errorf("%+v, want exit code %d and one line with %q", o, tc.exit, tc.says)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "no")); err == nil {
		t.Error("spec made the directory")
	}
}

func TestTheLogIsMadeAtOnceAndTellsWithDebugWhatIsDone(t *testing.T) {
	e := newEngine(t, "true")
	edit(t, e.bundle, func(c map[string]any) {
		caps := c["process"].(map[string]any)["capabilities"].(map[string]any)
		caps["bounding"] = append(caps["bounding"].([]any), "CAP_FLY")
	})
	for name, tc := range map[string]struct {
		flags         []string
		log, stderr   []string // what is there
		noLog, noText string   // and what is not
	}{
		"a log":        {[]string{"--log", "LOG"}, []string{"level=warning", "CAP_FLY"}, nil, "level=debug", "CAP_FLY"},
		"no log":       {nil, nil, []string{"CAP_FLY"}, "", "level="},
		"debug":        {[]string{"--debug"}, nil, []string{"level=debug", "plan: mount /proc", "the program runs"}, "", ""},
		"debug in log": {[]string{"--debug", "--log", "LOG"}, []string{"level=debug", "plan: mount /proc", "init is process"}, nil, "", "plan:"},
		"JSON":         {[]string{"--debug", "--log-format", "json", "--log", "LOG"}, []string{`{"level":"debug","msg":"plan: mount /proc"`, `"level":"warning"`}, nil, "", "plan:"},
	} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			args := strings.Split(strings.ReplaceAll(strings.Join(append(tc.flags, "run", "--bundle", e.bundle, "told"), "\n"), "LOG", log), "\n")
			o := e.do(args...)
			text, _ := os.ReadFile(log) // none for some
			if o.exit != 0 {
				t.Fatalf("%+v", o)
			}
			for _, s := range tc.log {
				if !strings.Contains(string(text), s) {
					t.Errorf("the log lacks %q: %s", s, text)
				}
			}
			for _, s := range tc.stderr {
				if !strings.Contains(o.stderr, s) {
					t.Errorf("stderr lacks %q: %s", s, o.stderr)
				}
			}
			if tc.noLog != "" && strings.Contains(string(text), tc.noLog) || tc.noText != "" && strings.Contains(o.stderr, tc.noText) {
				t.Errorf("said too much: %s, log %s", o.stderr, text)
			}
		})
	}
	empty := filepath.Join(t.TempDir(), "log")
	e.ok("--log", empty, "list")
	if st, err := os.Stat(empty); err != nil || st.Size() != 0 {
		t.Errorf("no empty log is there: %v", err)
	}
}

func TestExecTakesAndRefusesWhatRuncDoes(t *testing.T) {
	e := newEngine(t, "sleep 100")
	edit(t, e.bundle, func(c map[string]any) {
		p := c["process"].(map[string]any)
		p["env"] = append(p["env"].([]any), "LEVEL=low")
	})
	e.ok("run", "--detach", "--bundle", e.bundle, "asked")
	t.Cleanup(func() { e.ok("delete", "--force", "asked") })
	for name, tc := range map[string]struct {
		args           []string
		exit           int
		stdout, stderr string
	}{
		"a variable without a value":     {[]string{"-e", "FOO", "asked", "true"}, 255, "", "NAME=VALUE"},
		"a variable without a name":      {[]string{"-e", "=x", "asked", "true"}, 255, "", "NAME=VALUE"},
		"the last value counts":          {[]string{"-e", "LEVEL=high", "asked", "sh", "-c", "busybox env | busybox grep LEVEL"}, 0, "LEVEL=high\n", ""},
		"a relative directory":           {[]string{"--cwd", "tmp", "asked", "true"}, 255, "", "process.cwd"},
		"new privileges":                 {[]string{"--no-new-privs=false", "asked", "busybox", "grep", "NoNewPrivs", "/proc/self/status"}, 0, "NoNewPrivs:\t0\n", ""},
		"a negative group":               {[]string{"--additional-gids", "-1", "asked", "true"}, 255, "", "-1"},
		"an unknown capability":          {[]string{"--cap", "CAP_FLY", "asked", "true"}, 0, "", "CAP_FLY"},
		"a socket without a terminal":    {[]string{"--detach", "--console-socket", "/x", "asked", "true"}, 255, "", "--console-socket"},
		"a socket in the foreground":     {[]string{"--tty", "--console-socket", "/x", "asked", "true"}, 255, "", "--console-socket"},
		"a detached terminal without it": {[]string{"--tty", "--detach", "asked", "true"}, 255, "", "--console-socket"},
	} {
		o := e.do(append([]string{"exec"}, tc.args...)...)
		if o.exit != tc.exit || tc.exit == 0 && o.stdout != tc.stdout || !strings.Contains(o.stdout+o.stderr, tc.stderr) {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

// As in the config of "runc spec": the kernel grants no ambient capability that is not
// inheritable, and runc runs such a container without it.
func TestAnAmbientCapabilityThatCannotBeIsLeftOut(t *testing.T) {
	e := newEngine(t, "busybox grep CapAmb /proc/self/status")
	edit(t, e.bundle, func(c map[string]any) {
		c["process"].(map[string]any)["capabilities"] = map[string]any{
			"bounding": []string{"CAP_KILL", "CAP_CHOWN"}, "permitted": []string{"CAP_KILL", "CAP_CHOWN"},
			"effective": []string{"CAP_KILL"}, "inheritable": []string{"CAP_CHOWN"},
			"ambient": []string{"CAP_KILL", "CAP_CHOWN"},
		}
	})
	o := e.do("run", "--bundle", e.bundle, "ambient")
	if o.exit != 0 || o.stdout != "CapAmb:\t0000000000000001\n" || !strings.Contains(o.stderr, "CAP_KILL") {
		t.Errorf("%+v", o)
	}
}

func TestOtherCommandsTakeAndRefuseWhatRuncDoes(t *testing.T) {
	e := newEngine(t, "sleep 100")
	e.ok("create", "--bundle", e.bundle, "other")
	t.Cleanup(func() { e.ok("delete", "--force", "other") })
	for _, tc := range []struct {
		args []string
		exit int
		says string
	}{
		{[]string{"create", "--bundle", e.bundle, "--console-socket", "/x", "more"}, 1, "--console-socket"},
		{[]string{"run", "--bundle", e.bundle, "--console-socket", "/x", "more"}, 1, "--console-socket"},
		{[]string{"pause", "other"}, 0, ""},
		{[]string{"start", "other"}, 1, "cannot start a container in the paused state"},
		{[]string{"resume", "other"}, 0, ""},
		{[]string{"start", "other"}, 0, ""},
		{[]string{"start", "other"}, 1, "cannot start an already running container"},
		{[]string{"ps", "--format", "bogus", "other"}, 1, "bogus"},
		{[]string{"ps", "other", "--bogus-option"}, 1, "option"},
		{[]string{"update", "--kernel-memory", "16M", "--kernel-memory-tcp", "16M", "other"}, 0, "kernel memory"},
		{[]string{"update", "--kernel-memory", "lots", "other"}, 1, "--kernel-memory"},
		{[]string{"update", "--l3-cache-schema", "L3:0=f", "other"}, 1, "--l3-cache-schema"},
		{[]string{"update", "--mem-bw-schema", "MB:0=20", "other"}, 1, "--mem-bw-schema"},
		{[]string{"kill", "--all", "other", "KILL"}, 0, ""},
	} {
		if o := e.do(tc.args...); o.exit != tc.exit || !strings.Contains(o.stdout+o.stderr, tc.says) {
			t.Errorf("%v: %+v", tc.args, o)
		}
	}
	waitFor(t, "the end", func() bool { return strings.Contains(e.ok("state", "other").stdout, "stopped") })
	e.ok("kill", "--all", "other", "0")
}

func TestRootsThatAreNoneAreNamed(t *testing.T) {
	e := newEngine(t, "true")
	if err := os.Symlink("rootfs", filepath.Join(e.bundle, "link")); err != nil {
		t.Fatal(err)
	}
	for root, says := range map[string]string{"none": "no such file", "link": "symbolic link", "config.json": "not a directory"} {
		edit(t, e.bundle, func(c map[string]any) { c["root"].(map[string]any)["path"] = root })
		if o := e.run("rootless"); o.exit != 1 || !strings.HasPrefix(o.stderr, "sbxrun: root.path: ") || !strings.Contains(o.stderr, says) {
			t.Errorf("%s: %+v", root, o)
		}
	}
}

func TestWithoutPivotTheHostsFilesAreOutOfReach(t *testing.T) {
	// The user namespace inside must not get a /proc without the container's masks.
	e := newEngine(t, "ls -d /etc/passwd /proc/1/root/etc/passwd ../../etc/passwd; busybox unshare -mrpf sh -c 'mount -t proc none /proc && echo a whole proc'; echo in")
	edit(t, e.bundle, func(c map[string]any) {
		caps := c["process"].(map[string]any)["capabilities"].(map[string]any)
		for set := range caps { // to be mapped to root
			caps[set] = append(caps[set].([]any), "CAP_SETFCAP")
		}
	})
	host := lookAround(t).mounts
	o := e.do("run", "--no-pivot", "--bundle", e.bundle, "moved")
	if o.stdout != "in\n" || !strings.Contains(o.stderr, "mount: permission denied") {
		t.Errorf("%+v", o)
	}
	edit(t, e.bundle, func(c map[string]any) { c["linux"].(map[string]any)["rootfsPropagation"] = "rshared" })
	if o := e.do("run", "--no-pivot", "--bundle", e.bundle, "moved"); o.exit != 1 || !strings.Contains(o.stderr, "--no-pivot") {
		t.Errorf("a shared root: %+v", o)
	}
	if now := lookAround(t).mounts; now != host {
		t.Errorf("mounts differ:\n%s\nbefore:\n%s", now, host)
	}
}

func TestAnOrdinaryUsersContainerIsLikeRuncs(t *testing.T) {
	needRoot(t)
	needProgram(t, "setpriv")
	bundle := filepath.Dir(busyboxRoot(t))
	state := filepath.Join(filepath.Dir(bundle), "user")
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{state, bundle, filepath.Join(bundle, "rootfs")} {
		if err := os.Chown(name, 54321, 54321); err != nil {
			t.Fatal(err)
		}
	}
	as := func(args ...string) outcome {
		cmd := exec.Command("setpriv", append([]string{"--reuid", "54321", "--regid", "54321", "--clear-groups", sbxrun, "--root", state}, args...)...)
		cmd.Dir = bundle
		return finishCommand(t, cmd)
	}
	if o := as("spec", "--rootless"); o.exit != 0 {
		t.Fatalf("%+v", o)
	}
	text, err := os.ReadFile(filepath.Join(bundle, "config.json"))
	if err != nil || !strings.Contains(string(text), `"/sys/fs/cgroup"`) {
		t.Errorf("spec --rootless has no control groups to see: %v", err)
	}
	edit(t, bundle, func(c map[string]any) {
		p := c["process"].(map[string]any)
		p["terminal"], p["args"] = false, []string{"ls", "-l", "/dev/ptmx"}
		c["linux"].(map[string]any)["devices"] = []map[string]any{{"path": "/dev/ptmx", "type": "c", "major": 5, "minor": 2}}
	})
	if o := as("run", "mine"); o.exit != 0 || !strings.Contains(o.stdout, "/dev/ptmx -> pts/ptmx") {
		t.Errorf("run: %+v", o)
	}
	if o := as("run", "--keep", "mine"); o.exit != 0 {
		t.Errorf("run --keep: %+v", o)
	}
	for _, args := range [][]string{{"kill", "-a", "mine", "0"}, {"kill", "-a", "mine", "KILL"}, {"delete", "mine"}} {
		if o := as(args...); o.exit != 0 {
			t.Errorf("%v: %+v", args, o)
		}
	}
}
