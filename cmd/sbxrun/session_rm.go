// This file owns the end of sessions and the look at all of them: "session rm", "list"
// and "gc". None of them depends on the good will of the process that holds a session.

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/runtime"
)

const (
	politeTime = 10 * time.Second // for a holder to hear of its end, and again to come to it
	killedTime = 10 * time.Second // for killed processes to be gone
)

var sessionRm = &cli.Command{
	Name: "rm", Usage: "end sessions and remove all that is in them", ArgsUsage: "ID…",
	Flags: []cli.Flag{&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "all sessions"}},
	Action: func(c *cli.Context) error {
		s, err := openSessions(c)
		if err != nil {
			return err
		}
		ids := c.Args().Slice()
		if all := c.Bool("all"); all == (len(ids) > 0) {
			return errors.New("session rm: give the ids of sessions, or --all")
		} else if all {
			if ids, err = s.ids(); err != nil {
				return err
			}
		}
		errs := make([]error, len(ids))
		var wg sync.WaitGroup
		turns := make(chan struct{}, 16)
		for i, id := range ids {
			wg.Go(func() {
				turns <- struct{}{}
				errs[i] = s.remove(id)
				if c.Bool("all") && errors.Is(errs[i], errNoSession) {
					errs[i] = nil // it ended by itself meanwhile
				}
				<-turns
			})
		}
		wg.Wait()
		runtime.RemoveAbandoned()
		return errors.Join(errs...)
	},
}

var sessionGC = &cli.Command{
	Name: "gc", Usage: "remove what is left of sessions whose process was killed",
	Action: func(c *cli.Context) error {
		if c.NArg() > 0 {
			return fmt.Errorf("session gc: unexpected argument %q", c.Args().First())
		}
		s, err := openSessions(c)
		if err != nil {
			return err
		}
		ids, err := s.ids()
		errs := []error{err}
		for _, id := range ids {
			if dir, err := s.at(id); err == nil && !held(dir) {
				errs = append(errs, s.clear(id))
			}
		}
		runtime.RemoveAbandoned()
		return errors.Join(errs...)
	},
}

// remove ends the session id: politely, else by force, and removes what is left.
func (s *sessionDir) remove(id string) error {
	dir, err := s.find(id)
	if err != nil {
		return err
	}
	if held(dir) {
		if err := endHolder(dir); err != nil {
			return fmt.Errorf("session %q: %w", id, err)
		}
	}
	return s.clear(id)
}

// endHolder makes the holder of the session in dir end, and what hangs on it.
func endHolder(dir string) error {
	pid := 0
	conn, err := reachHolder(dir, politeTime)
	if err == nil {
		defer conn.conn.Close()
		pid = conn.pid
	} else if pid = holderPid(dir); pid == 0 {
		if !held(dir) {
			return nil
		}
		return fmt.Errorf("who holds it cannot be told: %w", err)
	}
	fd, gone := unix.PidfdOpen(pid, 0)
	if gone != nil {
		return nil
	}
	defer unix.Close(fd)
	if conn != nil {
		if _, err := conn.ask(request{Op: "end"}, nil); err == nil && awaitPidfd(fd, politeTime) {
			return nil
		}
	}
	if !held(dir) { // else the pid is the holder's still: it has the lock
		return nil
	}
	return killHolder(pid, fd)
}

// holderPid is the holder's pid by the session's state, 0 when that is another process's.
func holderPid(dir string) int {
	r, err := readRecord(dir)
	if err != nil || r.Pid <= 1 || r.Start == 0 || runtime.StartTime(r.Pid) != r.Start {
		return 0
	}
	return r.Pid
}

// killHolder kills the holder, and waits for it and for those that it has started: they
// end with it, and everything of a run ends with them.
func killHolder(pid, fd int) error {
	fds := []int{fd}
	for _, child := range childrenOf(pid) {
		if f, err := unix.PidfdOpen(child, 0); err == nil {
			defer unix.Close(f)
			fds = append(fds, f)
		}
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("kill the process that holds it: %w", err)
	}
	for _, f := range fds {
		if !awaitPidfd(f, killedTime) {
			return fmt.Errorf("the process that holds it, %d, was killed; what it started does not end", pid)
		}
	}
	return nil
}

// childrenOf are the children of all threads of a process; proc_pid_task_tid_children(5).
func childrenOf(pid int) (pids []int) {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		text, _ := os.ReadFile(f) // a thread that is gone has none
		for _, word := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(word); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

// awaitPidfd says whether the process ended in that time.
func awaitPidfd(fd int, wait time.Duration) bool {
	for end := time.Now().Add(wait); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, time.Until(end)).Milliseconds()))
		if err != unix.EINTR {
			return n > 0
		}
	}
}

// clear removes what a dead holder has left of the session id, but for what
// runtime.RemoveAbandoned finds without knowing of it.
func (s *sessionDir) clear(id string) error {
	dir, err := s.at(id)
	if err != nil {
		return err
	}
	if r, err := readRecord(dir); err == nil && r.Dir != "" {
		if err := runtime.RemoveDir(r.Dir); err != nil {
			return fmt.Errorf("session %q: %w", id, err)
		}
	}
	return s.alone(func() error {
		if held(dir) { // another session with that id has begun
			return nil
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("session %q: %w", id, err)
		}
		return nil
	})
}

// sessionStatus is a line of "session list".
type sessionStatus struct {
	ID      string    `json:"id"`
	State   string    `json:"state"` // "starting", "idle", "running", "silent", "dead" or "damaged"
	Level   string    `json:"level,omitempty"`
	Pid     int       `json:"pid,omitempty"`
	Created time.Time `json:"created,omitzero"`
	Idle    float64   `json:"idle_seconds"`
	TTL     float64   `json:"ttl_seconds"`
	Detail  string    `json:"detail,omitempty"`
}

// silentTime is how long a list waits for a holder.
const silentTime = 5 * time.Second

// status looks at a session; false when it is gone meanwhile.
func (s *sessionDir) status(id string) (st sessionStatus, there bool) {
	dir := filepath.Join(s.path, id)
	alive := held(dir)
	r, err := readRecord(dir)
	st.ID = id
	if _, gone := os.Lstat(dir); errors.Is(gone, fs.ErrNotExist) {
		return st, false
	}
	if err != nil {
		st.State, st.Detail = "damaged", err.Error()
		if alive && errors.Is(err, fs.ErrNotExist) {
			st.State, st.Detail = "starting", ""
		}
		return st, true
	}
	st.Level, st.Pid, st.Created, st.TTL = r.Level.String(), r.Pid, r.Created, r.TTL.Seconds()
	switch {
	case !alive:
		st.State = "dead"
		return st, true
	case !r.Ready:
		st.State = "starting"
		return st, true
	}
	st.State = "silent"
	conn, err := reachHolder(dir, silentTime)
	var ans *answer
	if err == nil {
		defer conn.conn.Close()
		if err = conn.conn.SetReadDeadline(time.Now().Add(silentTime)); err == nil {
			ans, err = conn.ask(request{Op: "info"}, nil)
		}
	}
	if err != nil || ans.Info == nil {
		st.Detail = fmt.Sprint(err)
		_, gone := os.Lstat(dir)
		return st, gone == nil
	}
	st.Idle, st.State = ans.Info.Idle.Seconds(), "idle"
	if ans.Info.Running {
		st.State = "running"
	}
	return st, true
}

var sessionList = &cli.Command{
	Name: "list", Usage: "list the sessions",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "json", Usage: "print one array of objects"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "ids only"},
	},
	Action: func(c *cli.Context) error {
		if c.NArg() > 0 {
			return fmt.Errorf("session list: unexpected argument %q", c.Args().First())
		}
		s, err := openSessions(c)
		if err != nil {
			return err
		}
		ids, err := s.ids()
		if err != nil {
			return err
		}
		if c.Bool("quiet") {
			for _, id := range ids {
				fmt.Println(id)
			}
			return nil
		}
		return printSessions(c.Bool("json"), s.statuses(ids))
	},
}

// statuses looks at all of them at once: those that are silent take their time.
func (s *sessionDir) statuses(ids []string) []sessionStatus {
	all, there := make([]sessionStatus, len(ids)), make([]bool, len(ids))
	var wg sync.WaitGroup
	for i, id := range ids {
		wg.Go(func() { all[i], there[i] = s.status(id) })
	}
	wg.Wait()
	out := []sessionStatus{}
	for i := range all {
		if there[i] {
			out = append(out, all[i])
		}
	}
	return out
}

func printSessions(asJSON bool, all []sessionStatus) error {
	if asJSON {
		return printJSON(os.Stdout, all)
	}
	w := tabwriter.NewWriter(os.Stdout, 12, 1, 3, ' ', 0)
	fmt.Fprintln(w, "ID\tLEVEL\tAGE\tIDLE\tTTL\tSTATE")
	for _, s := range all {
		age, idle, ttl := "-", "-", "never"
		if !s.Created.IsZero() {
			age = time.Since(s.Created).Round(time.Second).String()
		}
		if s.State == "idle" || s.State == "running" {
			idle = time.Duration(s.Idle * float64(time.Second)).Round(time.Second).String()
		}
		if s.TTL > 0 {
			ttl = time.Duration(s.TTL * float64(time.Second)).String()
		} else if s.Level == "" {
			ttl = "-"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, s.Level, age, idle, ttl, s.State)
	}
	return w.Flush()
}
