// This file owns how a group is stopped and ends: freezing, killing until nothing
// is left, and the removal of its directories.

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	killFile   = "cgroup.kill"
	freezeTime = 2 * time.Second // until a freeze must have taken hold
	killTime   = 10 * time.Second
	deleteTime = 5 * time.Second
)

// wait asks done until it says so, fails, or the time is over. It asks often at
// first: most groups are empty within a millisecond of their kill.
func wait(d time.Duration, done func() (bool, error)) error {
	end := time.Now().Add(d)
	for pause := 50 * time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		ok, err := done()
		if ok || err != nil {
			return err
		}
		if time.Now().After(end) {
			return os.ErrDeadlineExceeded
		}
		time.Sleep(pause)
	}
}

// gone says whether the error means that the group does not exist any more.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) }

// Procs lists the processes of the group and of the groups below, sorted. A
// process that this PID namespace cannot see counts as 0.
func (g *Group) Procs() ([]int, error) {
	var all []int
	for _, d := range g.dirs {
		pids, err := d.procs()
		if err != nil {
			return nil, err
		}
		all = append(all, pids...)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (d *dir) procs() ([]int, error) {
	return d.list("cgroup.procs")
}

// list reads a file of ids from the group and all below.
func (d *dir) list(file string) (pids []int, err error) {
	err = descend(d.file, func(_ int, _ string, group *os.File) error {
		list, err := readPids(group, file)
		pids = append(pids, list...)
		return err
	})
	if err != nil && !gone(err) {
		return nil, fmt.Errorf("list the processes of %s: %w", d.path, err)
	}
	return pids, nil
}

// descend visits every group below dir, deepest first, and then dir itself, for
// which parent is -1. It goes by descriptors: the names are the program's where
// it may make groups of its own. It holds two of them however deep the groups lie:
// ".." leads back, because groups do not change their parent.
func descend(dir *os.File, visit func(parent int, name string, group *os.File) error) error {
	at, below, err := enter(dir, ".")
	if err != nil {
		return err
	}
	defer func() { at.Close() }()
	type level struct {
		name  string
		below []string // still to be visited
	}
	for way := []level{{"", below}}; ; {
		here := &way[len(way)-1]
		if n := len(here.below); n > 0 {
			name := here.below[n-1]
			here.below = here.below[:n-1]
			group, below, err := enter(at, name)
			if gone(err) {
				continue
			}
			if err != nil {
				return err
			}
			at.Close()
			at, way = group, append(way, level{name, below})
			continue
		}
		if len(way) == 1 {
			return visit(-1, "", at)
		}
		up, err := openGroup(at, "..")
		if err != nil {
			return err
		}
		err = visit(int(up.Fd()), here.name, at)
		at.Close()
		if at = up; err != nil && !gone(err) {
			return err
		}
		way = way[:len(way)-1]
	}
}

// enter opens a group and lists those right below.
func enter(dir *os.File, name string) (group *os.File, below []string, err error) {
	if group, err = openGroup(dir, name); err != nil {
		return nil, nil, err
	}
	entries, err := group.ReadDir(-1)
	if err != nil {
		group.Close()
		return nil, nil, err
	}
	for _, e := range entries {
		if e.IsDir() {
			below = append(below, e.Name())
		}
	}
	return group, below, nil
}

func openGroup(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// readPids reads a file of ids. A threaded group has no cgroup.procs: its
// processes are listed further up.
func readPids(group *os.File, file string) ([]int, error) {
	fd, err := unix.Openat(int(group.Fd()), file, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), file)
	defer f.Close()
	var text strings.Builder
	if _, err := f.WriteTo(&text); err != nil {
		if errors.Is(err, unix.EOPNOTSUPP) {
			return nil, nil
		}
		return nil, err
	}
	var pids []int
	for _, word := range strings.Fields(text.String()) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// empty says whether no process is left. The unified hierarchy says so in one
// read; v1 groups, which a process may have left one by one, are listed.
func (g *Group) empty() (bool, error) {
	for _, d := range g.dirs {
		if d.controller == "" {
			populated, err := d.event("populated")
			if populated || err != nil {
				return false, err
			}
		} else if pids, err := d.procs(); len(pids) > 0 || err != nil {
			return false, err
		}
	}
	return true, nil
}

// event reads a flag of cgroup.events. In a group that is gone none is set.
func (d *dir) event(key string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(d.path, "cgroup.events"))
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the state of the group: %w", err)
	}
	n, _ := value(b, key)
	return n == 1, nil
}

// Kill ends every process of the group, also frozen, stopped and forking ones,
// and returns when none is left. After 10 s it gives up with an error that names
// those which stay (in an uninterruptible call, say).
func (g *Group) Kill() error {
	strikes := 0
	err := wait(killTime, func() (bool, error) {
		if done, err := g.empty(); done || err != nil {
			return done, err
		}
		strikes++
		if err := g.strike(strikes > enoughStrikes); err != nil {
			return false, err
		}
		return g.empty()
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		left, _ := g.Procs()
		return fmt.Errorf("kill group %s: processes %v do not end", g, left)
	}
	if err != nil {
		return fmt.Errorf("kill group %s: %w", g, err)
	}
	return nil
}

// enoughStrikes is when cgroup.kill has had its time. It sends its signal to the first
// thread of a process; where that has ended, the others live on.
const enoughStrikes = 4

// strike kills once. What has left the unified group, or all where there is no
// cgroup.kill or each is to be, is killed one by one, frozen meanwhile so that no fork
// outruns it.
func (g *Group) strike(each bool) error {
	rest := g.dirs
	if d := g.unified(); d != nil {
		err := writeFile(filepath.Join(d.path, killFile), "1")
		if err != nil && !gone(err) {
			return err
		}
		if err == nil && !each {
			rest = g.dirs[1:]
		}
	}
	freezer := g.of("freezer")
	frozen := false
	for _, d := range rest {
		pids, err := d.procs()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			continue
		}
		if !frozen && freezer != nil && len(rest) == len(g.dirs) {
			_ = freezer.freeze(true) // at once or not at all: the next round tries again
			frozen = true
		}
		d.signal()
	}
	if freezer != nil && (frozen || freezer.controller != "") {
		// A task of v1 dies only once it is thawed, whoever froze it.
		if err := freezer.freeze(false); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// signal sends SIGKILL to each process of one directory. A pid may be another's
// by the time it is used: a pidfd is taken first and the pid looked up again.
// Spared is a process that has only a side thread here: on v1 that is a caller of
// Enter, whose first thread lives elsewhere.
func (d *dir) signal() {
	before, err := d.procs()
	if err != nil {
		return // the next round meets it again
	}
	fds := map[int]int{}
	for _, pid := range before {
		if fd, err := unix.PidfdOpen(pid, 0); pid > 0 && err == nil {
			fds[pid] = fd
		}
	}
	after, _ := d.procs()
	threads := after
	if d.controller != "" {
		threads, _ = d.list("tasks")
	}
	for pid, fd := range fds {
		if slices.Contains(after, pid) && (slices.Contains(threads, pid) || isZombie(pid)) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // it may have ended: that is what we want
		}
		unix.Close(fd)
	}
}

// isZombie says whether a process's first thread has ended, others may live.
func isZombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	end := bytes.LastIndexByte(b, ')') // of the name, which may hold one too
	return end >= 0 && bytes.HasPrefix(b[end+1:], []byte(" Z"))
}

// freeze asks for the state without waiting for it.
func (d *dir) freeze(on bool) error {
	if d.controller == "" {
		return writeFile(filepath.Join(d.path, "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[on])
	}
	return writeFile(filepath.Join(d.path, "freezer.state"), map[bool]string{true: "FROZEN", false: "THAWED"}[on])
}

// frozen says whether the state has taken hold.
func (d *dir) frozen() (bool, error) {
	if d.controller == "" {
		return d.event("frozen")
	}
	b, err := os.ReadFile(filepath.Join(d.path, "freezer.state"))
	if err != nil {
		return false, fmt.Errorf("read the state of the group: %w", err)
	}
	return strings.TrimSpace(string(b)) == "FROZEN", nil
}

// stuck says whether whoever comes into the group is frozen at once.
func (d *dir) stuck() bool {
	switch d.controller {
	case "": // an empty group does not count as frozen in its events
		return slices.Equal(words(filepath.Join(d.path, "cgroup.freeze")), []string{"1"})
	case "freezer":
		frozen, err := d.frozen()
		return err == nil && frozen
	}
	return false
}

// freezer is the directory that can freeze: the unified one if there is one.
func (g *Group) freezer() (*dir, error) {
	if d := g.unified(); d != nil {
		return d, nil
	}
	if d := g.of("freezer"); d != nil {
		return d, nil
	}
	return nil, missing("freezer", "/sys/fs/cgroup/freezer", fs.ErrNotExist)
}

// Freeze stops all processes and returns when they stand. If they do not within
// 2 s it thaws them again and gives an error.
func (g *Group) Freeze() error { return g.turn(true, "freeze") }

// Thaw lets the processes go on.
func (g *Group) Thaw() error { return g.turn(false, "thaw") }

// turn freezes or thaws. The library's own wait has no bound, and on v2 does not
// wait for the tasks.
func (g *Group) turn(on bool, verb string) error {
	d, err := g.freezer()
	if err != nil {
		return err
	}
	err = wait(freezeTime, func() (bool, error) {
		// v1 wants to be asked again for tasks that were forked meanwhile.
		if err := d.freeze(on); err != nil {
			return false, err
		}
		now, err := d.frozen()
		return now == on, err
	})
	if err != nil {
		if on {
			err = errors.Join(err, d.freeze(false))
		}
		return fmt.Errorf("%s group %s: %w", verb, g, err)
	}
	return nil
}

// Frozen says whether the group is frozen and all its tasks stand.
func (g *Group) Frozen() (bool, error) {
	d, err := g.freezer()
	if err != nil {
		return false, err
	}
	return d.frozen()
}

// Delete waits up to 5 s until the group is empty and removes its directories,
// groups below included, and the shared parent if this was its last. A group that
// is gone already is no error. Of a scope the unit is stopped first. It ends the use of g.
func (g *Group) Delete() error {
	if g.pending != nil { // there is none, and the name may be another's
		return g.Close()
	}
	if err := g.state.Scope.end(true); err != nil {
		return err
	}
	err := wait(deleteTime, func() (bool, error) {
		busy := false
		for _, d := range g.dirs {
			switch err := d.remove(); {
			case errors.Is(err, unix.EBUSY):
				busy = true
			case err != nil && !gone(err):
				return false, fmt.Errorf("remove group %s: %w", d.path, err)
			}
		}
		return !busy, nil
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		left, _ := g.Procs()
		err = fmt.Errorf("remove group %s: processes %v are in it: %w", g, left, unix.EBUSY)
	}
	if err != nil {
		return err
	}
	g.leaveParent()
	return g.Close()
}

// remove removes the groups below and the directory itself.
func (d *dir) remove() error {
	if err := unix.Rmdir(d.path); !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.EBUSY) {
		return err
	}
	// cgroupfs answers EBUSY for children and processes alike.
	err := descend(d.file, func(parent int, name string, _ *os.File) error {
		if parent < 0 {
			return nil
		}
		return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	})
	if err != nil && !gone(err) {
		return err
	}
	return unix.Rmdir(d.path)
}

// RemoveStale removes the groups beside g whose id is stale and that are empty: what
// a supervisor left that was killed. One with a process in it stays.
func (g *Group) RemoveStale(stale func(id string) bool) {
	if !g.state.Shared {
		return
	}
	for _, d := range g.dirs {
		parent := filepath.Dir(d.path)
		entries, err := os.ReadDir(parent)
		if err != nil {
			continue // nothing is promised of the others
		}
		for _, e := range entries {
			if e.IsDir() && stale(e.Name()) {
				_ = unix.Rmdir(filepath.Join(parent, e.Name())) // EBUSY: it is in use
			}
		}
	}
}

// leaveParent removes the shared parents if nobody uses them.
func (g *Group) leaveParent() {
	for _, d := range g.dirs {
		if parent := filepath.Dir(d.path); g.state.Shared && filepath.Base(parent) == shared {
			_ = unix.Rmdir(parent) // in use by others: theirs to remove
		}
	}
}

// undo takes back a Create that failed.
func (g *Group) undo() error {
	var errs []error
	for _, d := range g.dirs {
		if d.adopted {
			continue
		}
		if err := d.remove(); err != nil && !gone(err) {
			errs = append(errs, fmt.Errorf("remove group %s: %w", d.path, err))
		}
	}
	g.leaveParent()
	return errors.Join(append(errs, g.Close())...)
}

// Close lets go of the group without ending it. Closing twice is no error.
func (g *Group) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	var errs []error
	for _, d := range g.dirs {
		if d.file != nil {
			errs = append(errs, d.file.Close())
		}
	}
	for i := range g.counters {
		if f := g.counters[i].file; f != nil {
			errs = append(errs, f.Close())
		}
		g.counters[i] = counter{}
	}
	g.dirs = nil
	return errors.Join(errs...)
}
