// This file owns the box in which one program runs: a directory of its own, private
// mounts and processes. What a program or a runtime leaves behind ends with it.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// insideName is argv[0] of this program in the box, as its PID 1.
const insideName = "conformance-box"

// beside are the files that a program looks for in its working directory.
func beside() []string { return []string{"runtimetest", "rootfs-" + runtime.GOARCH + ".tar.gz"} }

// runOne runs a program in a box. The box's first process is this program again:
// somebody must reap, a runtime takes a container that is a zombie for a running one.
func runOne(program string, c contender, tmp string) *result {
	dir := filepath.Join(tmp, c.name+"-"+c.view+"-"+program)
	built, err := filepath.Abs(*cache)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "tmp"), 0o755); err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	for _, name := range beside() {
		if err := os.Link(filepath.Join(tmp, name), filepath.Join(dir, name)); err != nil {
			log.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), *limit+30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", c.view, c.path, limit.String(), filepath.Join(built, program))
	cmd.Args[0] = insideName
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "RUNTIME="+c.path, "TMPDIR="+filepath.Join(dir, "tmp"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	start := time.Now()
	err = cmd.Run()
	r := readTAP(stdout.String())
	r.Program, r.Runtime, r.View = program, c.name, c.view
	r.Seconds, r.Stderr = time.Since(start).Seconds(), stderr.String()
	if r.Exit = cmd.ProcessState.ExitCode(); r.Exit < 0 || r.Exit == timedOut {
		r.Exit, r.Complaints = timedOut, append(r.Complaints, "took longer than "+limit.String())
	} else if err != nil && !errors.As(err, new(*exec.ExitError)) {
		log.Fatalf("%s: %v", program, err)
	}
	if *rawOut != "" {
		keep(filepath.Join(*rawOut, program+"."+c.name+"."+c.view), stdout.Bytes(), stderr.Bytes())
	}
	return r
}

func keep(file string, stdout, stderr []byte) {
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file+".tap", stdout, 0o644)
	}
	if err == nil {
		err = os.WriteFile(file+".stderr", stderr, 0o644)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// timedOut is the exit status of a program that was stopped, as timeout(1) says it.
const timedOut = 124

// inside is PID 1 of the box.
func inside(args []string) {
	view, path, program := args[0], args[1], args[3]
	limit, err := time.ParseDuration(args[2])
	if err == nil {
		err = private(view)
	}
	if err != nil {
		log.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	timer := time.AfterFunc(limit, func() { cmd.Process.Kill() })
	status := 0
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, 0, nil)
		if err == syscall.EINTR {
			continue
		} else if err != nil {
			log.Fatal(err)
		}
		if pid == cmd.Process.Pid {
			status = ws.ExitStatus()
			break
		}
	}
	if !timer.Stop() {
		status = timedOut
	}
	deleteLeft(path)
	os.Exit(status)
}

// private gives the box its own /proc, /run (where runtimes keep their state) and
// /dev/null (which runc and crun hand to the container's user), and the view.
func private(view string) error {
	type mount struct {
		source, target, kind string
		flags                uintptr
	}
	for _, m := range []mount{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{"tmpfs", "/run", "tmpfs", 0},
	} {
		if err := syscall.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	const null = "/run/null"
	if err := syscall.Mknod(null, syscall.S_IFCHR|0o666, 1<<8|3); err != nil {
		return fmt.Errorf("mknod %s: %w", null, err)
	}
	if err := os.Chmod(null, 0o666); err != nil {
		return err
	}
	if err := syscall.Mount(null, "/dev/null", "", syscall.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount /dev/null: %w", err)
	}
	if view != pureView {
		return nil
	}
	if err := syscall.Unmount("/sys/fs/cgroup", syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmount the hierarchies in this box: %w", err)
	}
	if err := syscall.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		return fmt.Errorf("mount cgroup2: %w", err)
	}
	return nil
}

// deleteLeft lets the runtime remove the containers that its state says are there.
func deleteLeft(path string) {
	for _, state := range []string{"/run/sbxrun", "/run/runc", "/run/crun"} {
		entries, err := os.ReadDir(state)
		if err != nil {
			continue
		}
		for _, e := range entries {
			cmd := exec.Command(path, "delete", "--force", e.Name())
			cmd.Run() // what stays of it, removeNewGroups and the end of the box remove
		}
	}
}

// groupsOf lists the groups that the suite's containers are in: named by a random
// UUID, or by the two names that its programs use.
var groupsOf = regexp.MustCompile(`^(testdir|cgrouptest|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)

// groupsNow lists them below our own groups of the host.
func groupsNow() []string {
	var list []string
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		part := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(part) != 3 {
			continue
		}
		for _, mounted := range []string{strings.TrimPrefix(part[1], "name="), "unified", ""} {
			for _, own := range []string{"/", part[2]} {
				dir := filepath.Join("/sys/fs/cgroup", mounted, own)
				entries, err := os.ReadDir(dir)
				if err != nil {
					continue // not every hierarchy is mounted everywhere
				}
				for _, e := range entries {
					if e.IsDir() && groupsOf.MatchString(e.Name()) {
						list = append(list, filepath.Join(dir, e.Name()))
					}
				}
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// removeNewGroups removes those that were not there before. One that is in use stays:
// rmdir takes only empty ones.
func removeNewGroups(before []string) {
	for _, dir := range groupsNow() {
		if slices.Contains(before, dir) {
			continue
		}
		var list []string
		filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				list = append(list, p)
			}
			return nil
		})
		for _, p := range slices.Backward(list) {
			syscall.Rmdir(p)
		}
	}
}

// withoutMemlock gives a crun that works without CAP_SYS_RESOURCE: for its device
// filter it raises RLIMIT_MEMLOCK without limit and gives up when it cannot, though
// since Linux 5.11 nothing of BPF counts against that limit.
func withoutMemlock(crun, tmp string) string {
	if hasCapability(capSysResource) {
		return crun
	}
	const source = `
int prlimit64(int, int, const void *, void *);
static int set(int resource, const unsigned long *limit)
{
	int r = prlimit64(0, resource, limit, 0);
	return r && resource == 8 && limit[0] == -1UL && limit[1] == -1UL ? 0 : r;
}
int setrlimit(int resource, const unsigned long *limit) { return set(resource, limit); }
int setrlimit64(int resource, const unsigned long *limit) { return set(resource, limit); }
`
	shim, wrapper := filepath.Join(tmp, "memlock.so"), filepath.Join(tmp, "crun")
	cmd := exec.Command("gcc", "-shared", "-fPIC", "-nostdlib", "-O2", "-x", "c", "-o", shim, "-")
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		log.Fatalf("gcc: %v\n%s", err, out)
	}
	script := fmt.Sprintf("#!/bin/sh\nLD_PRELOAD=%s exec %s \"$@\"\n", shim, crun)
	if err := os.WriteFile(wrapper, []byte(script), 0o755); err != nil {
		log.Fatal(err)
	}
	return wrapper
}
