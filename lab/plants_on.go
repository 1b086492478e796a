//go:build plants

// This file owns the trial of the checks themselves: a defect is planted into runs of
// the lab, and some check that isolates its layer must see it, twice.

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

// plant is a planted defect.
type plant struct{ name, layer, what string }

// plants lists them. Where each is: grep for its name.
var plants = []plant{
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
	{"callers-keyring", "processes", "the session keyring is the caller's"},
	{"host-network", "network", "the network namespace is the host's"},
	{"loopback-up", "network", "the loopback device is up"},
	{"masks-first", "filesystem", "paths are hidden before later mounts cover them"},
	{"root-left-writable", "filesystem", "the root stays writable"},
	{"caps-effective-only", "capabilities", "only the effective set is emptied"},
	{"bounding-left", "capabilities", "the bounding set is left"},
	{"no-new-privs-left-out", "capabilities", "no_new_privs is left out"},
	{"filter-missing", "syscalls", "the system call filter is left out"},
}

// Plants asks, for every planted defect, the tries which the healthy build stops: those
// that leave the defect's layer alone, and then the levels of the attacks that showed
// it. It says whether each was caught by the former. Words limit the attacks, or, as
// names of plants, the defects.
func Plants(ctx context.Context, out io.Writer, words []string) (bool, error) {
	chosen, only := plants, []string(nil)
	if len(words) > 0 {
		chosen = nil
	}
	for _, w := range words {
		if i := slices.IndexFunc(plants, func(p plant) bool { return p.name == w }); i >= 0 {
			chosen = append(chosen, plants[i])
		} else {
			only = append(only, w)
		}
	}
	if chosen == nil {
		chosen = plants
	}
	healthy, err := planted(ctx, "", only)
	if err != nil {
		return false, err
	}
	if healthy.Differ > 0 {
		return false, fmt.Errorf("levels differ from their promise with nothing planted: run the lab without plants")
	}
	useful, all := map[string]bool{}, true
	for i := range chosen {
		caught, err := chosen[i].trial(ctx, out, healthy, useful)
		if err != nil {
			return false, fmt.Errorf("plant %s: %w", chosen[i].name, err)
		}
		all = all && caught
	}
	if len(chosen) == len(plants) {
		for _, r := range healthy.Rows {
			if !useful[r.Attack] {
				fmt.Fprintf(out, "catches no planted defect: %s\n", r.Attack)
			}
		}
	}
	return all, nil
}

// trial sees whether the defect is caught. A catch counts when it is there again: what
// shows once is luck.
func (p *plant) trial(ctx context.Context, out io.Writer, healthy *Report, useful map[string]bool) (bool, error) {
	first, err := caught(ctx, p.name, p.isolating(healthy))
	if err != nil {
		return false, err
	}
	second, err := caught(ctx, p.name, first)
	if err != nil {
		return false, err
	}
	verdict := "caught"
	if len(second) == 0 {
		verdict = "NOT CAUGHT"
	}
	fmt.Fprintf(out, "%-10s %-22s %-12s %s\n", verdict, p.name, p.layer, p.what)
	for _, try := range first {
		if !slices.Contains(second, try) {
			fmt.Fprintf(out, "%11sluck: %s was seen once, and not again\n", "", try)
		}
	}
	if len(second) == 0 {
		return false, nil
	}
	fmt.Fprintf(out, "%11salone: %s\n", "", strings.Join(second, ", "))
	return true, p.levels(ctx, out, healthy, second, useful)
}

// isolating lists the tries that the healthy build stops where the defect's layer, or
// what no policy switches off, stands alone.
func (p *plant) isolating(healthy *Report) (tries []string) {
	for i := range healthy.Rows {
		r := &healthy.Rows[i]
		for _, c := range slices.Concat(r.Alone, r.Parts) {
			if c.Verdict == Stopped && (c.Policy == p.layer || c.Layer == p.layer || c.Layer == always) {
				tries = append(tries, r.Attack+"/"+c.Policy)
			}
		}
	}
	return tries
}

// levels says of each attack that caught the defect at which levels it shows, and at
// which another layer hides it.
func (p *plant) levels(ctx context.Context, out io.Writer, healthy *Report, alone []string, useful map[string]bool) error {
	var tries []string
	for i := range healthy.Rows {
		r := &healthy.Rows[i]
		if !slices.ContainsFunc(alone, func(try string) bool { return strings.HasPrefix(try, r.Attack+"/") }) {
			continue
		}
		useful[r.Attack] = true
		for _, c := range r.Cells {
			if c.Verdict == Stopped {
				tries = append(tries, r.Attack+"/"+c.Policy)
			}
		}
	}
	seen, err := caught(ctx, p.name, tries)
	if err != nil {
		return err
	}
	at, hidden := map[string][]string{}, map[string][]string{}
	var order []string
	for _, try := range tries {
		attack, level, _ := strings.Cut(try, "/")
		if !slices.Contains(order, attack) {
			order = append(order, attack)
		}
		if slices.Contains(seen, try) {
			at[attack] = append(at[attack], level)
		} else {
			hidden[attack] = append(hidden[attack], level)
		}
	}
	for _, attack := range order {
		fmt.Fprintf(out, "%11s%s: seen at %s, hidden at %s\n", "", attack, orNone(at[attack]), orNone(hidden[attack]))
	}
	return nil
}

// caught gives those of the tries that are not stopped with the defect planted.
func caught(ctx context.Context, name string, tries []string) (seen []string, err error) {
	if len(tries) == 0 {
		return nil, nil
	}
	sick, err := planted(ctx, name, tries)
	if err != nil {
		return nil, err
	}
	for i := range sick.Rows {
		r := &sick.Rows[i]
		for _, c := range slices.Concat(r.Cells, r.Alone, r.Parts) {
			if c.Verdict == GotThrough || c.Verdict == Wrong {
				seen = append(seen, r.Attack+"/"+c.Policy)
			}
		}
	}
	return seen, nil
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

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(list, " ")
}
