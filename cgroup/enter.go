// This file owns how processes come into the group.

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Enter runs start, which makes a process (os.StartProcess with FD in its
// SysProcAttr), so that the process is born in every group of g. On v2 that is
// CLONE_INTO_CGROUP's doing and Enter only calls start. A v1 group has no such
// thing, but a child starts where the thread that makes it stands: start runs on
// a thread which has stepped into the v1 groups for that time. A thread that
// moves itself (0 into tasks) does not wait for the kernel's lock of all forks:
// 0.2 ms where moving a made process takes 5 to 18 ms on an idle machine.
func (g *Group) Enter(start func() error) error {
	if g.lib == nil {
		return start()
	}
	if d := g.of("freezer"); d != nil && d.controller != "" {
		if frozen, err := d.frozen(); err != nil || frozen { // the thread would stand still in it
			return errors.Join(err, fmt.Errorf("enter the group: it is frozen: %w", unix.EBUSY))
		}
	}
	done := make(chan error, 1)
	go g.onThread(start, done)
	return <-done
}

// onThread runs start in the v1 groups. The memory of a process is counted where
// its first thread stands, so that one is not used: it waits, held by this
// goroutine, while another goroutine gets another thread.
func (g *Group) onThread(start func() error, done chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == os.Getpid() {
		inner := make(chan error, 1)
		go g.onThread(start, inner)
		done <- <-inner
		runtime.UnlockOSThread()
		return
	}
	back, err := g.homeTasks()
	if err == nil {
		for _, d := range g.dirs {
			if d.controller != "" && err == nil {
				err = writeFile(filepath.Join(d.path, "tasks"), "0")
			}
		}
	}
	if err != nil {
		err = fmt.Errorf("enter the group: %w", err)
	} else {
		err = start()
	}
	home := true
	for _, tasks := range back {
		home = writeFile(tasks, "0") == nil && home
	}
	if home { // else the thread ends with this goroutine
		runtime.UnlockOSThread()
	}
	done <- err
}

// homeTasks lists the tasks files of the v1 groups in which this thread stands.
func (g *Group) homeTasks() ([]string, error) {
	h, err := machine()
	if err != nil {
		return nil, err
	}
	at, err := h.stands("/proc/thread-self/cgroup")
	if err != nil {
		return nil, err
	}
	var files []string
	for name := range g.state.V1 {
		files = append(files, filepath.Join(h.v1[name].mount, at.v1[name], "tasks"))
	}
	return files, nil
}

// Add moves a process that waits into the v1 groups of g, all its threads; on v2
// it does nothing. It is for a process that could not be made by way of Enter.
func (g *Group) Add(pid int) error {
	if g.lib == nil {
		return nil
	}
	if err := g.lib.AddProc(uint64(pid)); err != nil {
		return fmt.Errorf("move process %d into the group: %w", pid, err)
	}
	return nil
}

// Adopt moves a process into every group of g. It is for one that joins later, since the
// run's own processes are born in their groups, and for the first of a group of CreateScope.
func (g *Group) Adopt(pid int) error {
	if g.pending != nil {
		return g.place(pid)
	}
	return g.AdoptBelow(pid, 0, nil)
}

// AdoptBelow moves a process into groups below those of g, by controller: "" is the
// unified hierarchy and what is not named otherwise. The groups must be there. Where
// none is named and the unified leaf takes no process, since the container has given
// its groups controllers and moved beside them, it is put where init stands now.
func (g *Group) AdoptBelow(pid, init int, below map[string]string) error {
	for controller, sub := range below {
		if controller != "" && !g.knows(controller) {
			return fmt.Errorf("unknown controller %s", controller)
		}
		if !filepath.IsLocal(strings.TrimLeft(sub, "/")) && strings.Trim(sub, "/") != "" {
			return fmt.Errorf("bad group: %s is not a sub cgroup path", sub)
		}
	}
	for _, d := range g.dirs {
		sub, ok := below[d.controller]
		if !ok {
			sub = below[""]
		}
		name := filepath.Join(d.path, filepath.Clean("/"+sub), "cgroup.procs")
		err := writeFile(name, strconv.Itoa(pid))
		if d.controller == "" && errors.Is(err, unix.EBUSY) && !ok && init > 0 {
			err = d.adoptBeside(pid, init)
		}
		if g.state.Scope != nil && errors.Is(err, fs.ErrPermission) { // a user's, from elsewhere
			err = g.state.Scope.attach(pid, filepath.Clean("/"+sub))
		}
		if err != nil {
			return fmt.Errorf("error adding pid %d to the group: %w", pid, err)
		}
	}
	return nil
}

// adoptBeside moves a process to where init stands, which must be below d: init is
// the container's, and may have been moved elsewhere or have ended.
func (d *dir) adoptBeside(pid, init int) error {
	h, err := machine()
	if err != nil {
		return err
	}
	at, err := h.stands(fmt.Sprintf("/proc/%d/cgroup", init))
	if err != nil {
		return err
	}
	sub, err := filepath.Rel(d.path, filepath.Join(h.unified.mount, at.unified))
	if err != nil || !filepath.IsLocal(sub) {
		return fmt.Errorf("the container's first process is not below %s: %w", d.path, unix.EBUSY)
	}
	// By descriptors: the names below are the container's.
	how := unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV}
	fd, err := unix.Openat2(int(d.file.Fd()), filepath.Join(sub, "cgroup.procs"), &how)
	if err != nil {
		return fmt.Errorf("open the group of the container's first process: %w", err)
	}
	_, err = unix.Write(fd, []byte(strconv.Itoa(pid)))
	return errors.Join(err, unix.Close(fd))
}

// knows says whether the controller acts on g, on whichever side.
func (g *Group) knows(controller string) bool {
	return slices.ContainsFunc(g.dirs, func(d *dir) bool {
		return d.controller == controller || d.controller == "" && slices.Contains(words(filepath.Join(d.path, "cgroup.controllers")), controller)
	})
}

// KillFile opens cgroup.kill write-only: "1" written to it kills the whole group.
// It is nil where there is none (v1, or a kernel before 5.14).
func (g *Group) KillFile() (*os.File, error) {
	d := g.unified()
	if d == nil {
		return nil, nil
	}
	f, err := os.OpenFile(filepath.Join(d.path, killFile), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return f, err
}

// String names the group in errors.
func (g *Group) String() string {
	var paths []string
	for _, d := range g.dirs {
		paths = append(paths, d.path)
	}
	if len(paths) > 1 {
		return fmt.Sprintf("%s (and %d more)", paths[0], len(paths)-1)
	}
	return strings.Join(paths, "")
}
