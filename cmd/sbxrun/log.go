// This file owns the log, which is where an engine looks for the last error of a
// command. Its entries have runc's form.

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// log is the log of this call. Without a file warnings and what --debug tells go to
// stderr.
var log struct {
	file        *os.File
	json, debug bool
}

// openLog makes the file at once: who names one looks into it, whatever happens.
func openLog(name string, json, debug bool) (err error) {
	log.json, log.debug = json, debug
	if name != "" {
		if log.file, err = os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY|os.O_SYNC, 0o644); err != nil {
			return fmt.Errorf("--log: %w", err)
		}
	}
	return nil
}

// report tells people and the log of an error, as one line each, of anything less
// only the log.
func report(level string, err error) {
	line := plain(strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; "))
	if level == "error" || log.file == nil {
		fmt.Fprintln(os.Stderr, "sbxrun:", line)
	}
	if log.file != nil {
		enter(log.file, level, line)
	}
}

// plain writes what would steer a terminal as Go does: an error has names in it that
// an image or a program chose.
func plain(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if q := strconv.QuoteRune(r); unicode.IsPrint(r) || r == '\t' {
			b.WriteRune(r)
		} else {
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// debugf tells what is done.
func debugf(format string, args ...any) {
	switch {
	case !log.debug:
	case log.file == nil:
		enter(os.Stderr, "debug", fmt.Sprintf(format, args...))
	default:
		enter(log.file, "debug", fmt.Sprintf(format, args...))
	}
}

// enter writes one entry.
func enter(to *os.File, level, line string) {
	stamp := time.Now().UTC().Format(time.RFC3339Nano)
	entry := fmt.Appendf(nil, "time=%q level=%s msg=%q\n", stamp, level, line)
	if log.json {
		entry, _ = json.Marshal(map[string]string{"level": level, "msg": line, "time": stamp}) // strings only: cannot fail
		entry = append(entry, '\n')
	}
	if _, err := to.Write(entry); err != nil && to != os.Stderr {
		fmt.Fprintln(os.Stderr, "sbxrun: write the log:", err)
	}
}
