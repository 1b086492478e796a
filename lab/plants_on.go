//go:build plants

// This file owns the trial of the checks themselves: a defect is planted into a run of
// the whole lab, and some check that isolates its layer must see it.

package lab

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// plants lists the planted defects. Where each is: grep for its name.
var plants = []struct{ name, layer, what string }{
	{"fail-open", "network", "a namespace that cannot be had is left out"},
	{"head-only", "limits", "only the head of the output is kept"},
	{"output-unbounded", "limits", "output is drained without bound"},
	{"pipe-held", "limits", "a leftover that holds the pipe is waited for"},
	{"cpu-soft-only", "limits", "only the soft limit on CPU time is set"},
	{"no-file-size", "limits", "RLIMIT_FSIZE is forgotten"},
	{"no-nofile", "limits", "RLIMIT_NOFILE is forgotten"},
	{"no-watchdog", "limits", "the wall clock is not watched"},
	{"timeout-exited", "limits", "the Result of a timed-out run says exited"},
	{"oom-from-text", "limits", "oom is believed from text alone"},
	{"no-sweep", "limits", "what the program left is not swept"},
	{"kill-child-only", "limits", "only the direct child is killed"},
	{"environment-inherited", "environment", "the caller's environment is inherited"},
	{"callers-cwd", "workdir", "the program starts in the caller's directory"},
	{"workdir-left", "workdir", "the private directory is not removed"},
	{"link-followed", "workdir", "files are copied out through symbolic links"},
	{"nproc-trusted", "processes", "pids.max is not set, RLIMIT_NPROC is trusted"},
	{"pids-max-late", "processes", "pids.max is written after the start"},
	{"no-monitor", "processes", "the monitor is not started"},
	{"host-ipc", "processes", "the IPC namespace is the host's"},
	{"host-network", "network", "the network namespace is the host's"},
	{"loopback-up", "network", "the loopback device is up"},
	{"masks-first", "filesystem", "paths are hidden before later mounts cover them"},
	{"root-left-writable", "filesystem", "the root stays writable"},
	{"caps-effective-only", "capabilities", "only the effective set is emptied"},
	{"bounding-left", "capabilities", "the bounding set is left"},
	{"no-new-privs-left-out", "capabilities", "no_new_privs is left out"},
	{"filter-missing", "syscalls", "the system call filter is left out"},
}

// Plants runs every check, or those of the attacks that only names, against every
// planted defect. It says whether each was caught by a check that isolates its layer.
func Plants(ctx context.Context, out io.Writer, only []string) (bool, error) {
	healthy, err := planted(ctx, "", only)
	if err != nil {
		return false, err
	}
	if healthy.Differ > 0 {
		return false, fmt.Errorf("levels differ from their promise with nothing planted: run the lab without plants")
	}
	useful, all := map[string]int{}, true
	for _, p := range plants {
		sick, err := planted(ctx, p.name, only)
		if err != nil {
			return false, fmt.Errorf("plant %s: %w", p.name, err)
		}
		alone, levels := compare(healthy, sick, useful)
		verdict := "caught"
		if len(alone) == 0 {
			verdict, all = "NOT CAUGHT", false
		}
		fmt.Fprintf(out, "%-10s %-22s %-12s %s\n", verdict, p.name, p.layer, p.what)
		if len(alone) > 0 {
			fmt.Fprintf(out, "%11salone: %s\n", "", strings.Join(alone, ", "))
		}
		for _, l := range levels {
			fmt.Fprintf(out, "%11s%s\n", "", l)
		}
	}
	for _, r := range healthy.Rows {
		if useful[r.Attack] == 0 {
			fmt.Fprintf(out, "useless: %s catches no planted defect\n", r.Attack)
		}
	}
	return all, nil
}

// planted is the report of a run of the lab with a defect in it.
func planted(ctx context.Context, name string, only []string) (*Report, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(stageBase, "sbxrun-lab-cwd-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o777); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, append([]string{"lab", "--ablation", "--json"}, only...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "SBXRUN_PLANT="+name, canaryName+"=CANARY-"+rand.Text())
	var errs bytes.Buffer
	cmd.Stderr = &errs
	text, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) {
		return nil, fmt.Errorf("%w: %s", err, errs.String())
	}
	var r Report
	return &r, json.Unmarshal(text, &r)
}

// compare lists the single layers and mechanisms at which the defect shows, and for
// each attack that shows it, at which levels it does and at which another layer hides it.
func compare(healthy, sick *Report, useful map[string]int) (alone, levels []string) {
	for i := range healthy.Rows {
		h, s := &healthy.Rows[i], &sick.Rows[i]
		before := len(alone)
		for _, pair := range [][2][]Cell{{h.Alone, s.Alone}, {h.Parts, s.Parts}} {
			for j := range pair[0] {
				if pair[0][j].Verdict != pair[1][j].Verdict {
					alone = append(alone, h.Attack+"/"+pair[0][j].Policy)
				}
			}
		}
		var seen, hidden []string
		for j := range h.Cells {
			switch {
			case h.Cells[j].Verdict != s.Cells[j].Verdict:
				seen = append(seen, h.Cells[j].Policy)
			case h.Cells[j].Verdict == Stopped:
				hidden = append(hidden, h.Cells[j].Policy)
			}
		}
		if len(alone) > before || len(seen) > 0 {
			useful[h.Attack]++
			levels = append(levels, fmt.Sprintf("%s: seen at %s, hidden at %s", h.Attack, orNone(seen), orNone(hidden)))
		}
	}
	return slices.Compact(alone), levels
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}
