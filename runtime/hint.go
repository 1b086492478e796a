// This file owns hints: one sentence on a Result for whoever has to change the program,
// a model for example.

package runtime

import (
	_ "embed"
	"fmt"
	"strings"
)

// ResultSchema is the JSON schema of a Result.
//
//go:embed result.schema.json
var ResultSchema string

// hints has the sentence for each reason; %s is the limit's value.
var hints = map[Reason]struct{ mechanism, text string }{
	WallClock: {"wall clock", "The program was stopped because it had not ended after %s of wall clock: look for an endless loop or a wait for something that never comes, or do less work in one run."},
	CPU:       {"RLIMIT_CPU", "The program was stopped because it used up %s of CPU time: look for an endless loop, use a faster algorithm, or do less work in one run."},
	OOM:       {"memory", "The program was stopped because it needed more than %s of memory: process the data in pieces instead of holding all of it."},
	Processes: {"pids", "The program was stopped because it wanted more than %s alive at once: start fewer processes or threads, and wait for each to end."},
	FileSize:  {"RLIMIT_FSIZE", "The program was stopped because a file would have become larger than %s: write less, or several smaller files."},
	Output:    {"output cap", "The program was stopped because its output could not be taken (limit: %s): print less, and leave nothing running that holds the output open."},
	Syscall:   {"", "The program was stopped because it made a system call that the policy forbids: do it without special rights, without the network and without changing the system."},
	Canceled:  {"", "The run was cancelled before the program ended: nothing is known to be wrong with the program."},
}

// Hint says in one sentence what happened and what to change. It has the program's exit
// code or signal and the limits' values, but none of the program's own words.
func (r *Result) Hint() string {
	switch r.Reason {
	case Exited:
		return r.hintOfExit()
	case Signaled:
		return fmt.Sprintf("The program was ended by %s, which no limit explains: it crashed, or a signal was sent to it; stderr may say more.", r.Signal)
	case Unavailable, Internal:
		return r.hintOfFailure()
	}
	h, ok := hints[r.Reason]
	if !ok {
		return fmt.Sprintf("The run ended with reason %s.", r.Reason)
	}
	if h.mechanism == "" {
		return h.text
	}
	return fmt.Sprintf(h.text, r.limit(h.mechanism))
}

func (r *Result) hintOfExit() string {
	cut := ""
	if r.Stdout.OmittedBytes+r.Stderr.OmittedBytes > 0 {
		cut = "; the middle of its output was left out because there was more than the policy allows, so print less or write to a file"
	}
	if r.ExitCode == nil || *r.ExitCode == 0 {
		return "The program ended by itself with exit code 0" + cut + "."
	}
	return fmt.Sprintf("The program ended by itself with exit code %d, no limit stopped it; stderr may say why%s.", *r.ExitCode, cut)
}

func (r *Result) hintOfFailure() string {
	if r.Error == nil {
		return "sbxrun itself failed: another program would not help."
	}
	message := strings.TrimSuffix(r.Error.Message, ".")
	if r.Reason == Unavailable {
		return "Nothing ran, because this machine lacks what the policy asks for (" + message + "): changing the program does not help, whoever runs sbxrun must."
	}
	return "There is no verdict on the program: " + message + "."
}

// limit is the value in force of the limit whose mechanism's name has the word.
func (r *Result) limit(word string) string {
	for _, rec := range r.Receipt {
		if rec.Layer != "limits" && rec.Layer != "processes" {
			continue
		}
		monitored := word == "pids" && rec.Mechanism == "monitor"
		address := word == "memory" && rec.Mechanism == "RLIMIT_AS"
		if monitored || address || strings.Contains(rec.Mechanism, word) {
			return inUnits(rec.Requested)
		}
	}
	return "the limit"
}

// inUnits makes "268435456 bytes" "256 MiB", where nothing is lost by it.
func inUnits(value string) string {
	var n int64
	if _, err := fmt.Sscanf(value, "%d bytes", &n); err != nil || n <= 0 || value != fmt.Sprintf("%d bytes", n) {
		return value
	}
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return value
}
