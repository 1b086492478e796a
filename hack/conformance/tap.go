// This file owns the reading of what a program prints: TAP, and what it says beside.

package main

import (
	"encoding/json"
	"regexp"
	"strings"
)

// result is what one program said of one contender.
type result struct {
	Program    string         `json:"program"`
	Runtime    string         `json:"runtime"`
	View       string         `json:"view"`
	Exit       int            `json:"exit"`
	Seconds    float64        `json:"seconds"`
	OK         int            `json:"ok"`
	NotOK      int            `json:"not_ok"`
	Skipped    int            `json:"skipped"`
	Passed     map[string]int `json:"-"`      // assertions by name, and how often
	Failed     map[string]int `json:"failed"` // likewise
	Complaints []string       `json:"complaints,omitempty"`
	Stderr     string         `json:"stderr,omitempty"`
}

// endsWell is the assertion that every program makes without words: that it exits
// with 0 and has nothing to complain about. Some make no other.
const endsWell = "the program ends well"

var (
	line   = regexp.MustCompile(`^(not )?ok\b(?:\s+\d+)?(?:\s+-)?\s*(.*)$`)
	skip   = regexp.MustCompile(`(?i)#\s*skip`)
	bundle = regexp.MustCompile(`/[^ ":]*/ocitest\d+`)
	status = regexp.MustCompile(`exit status [1-9]\d*`)
	id     = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// readTAP counts assertions by name. Names that hold random parts get the same ones.
//
// Programs that were written before their authors decided on assertions print only a
// YAML block with an error when something is wrong. A block belongs to the assertion
// before it; one that follows none is a complaint of its own.
func readTAP(text string) *result {
	r := &result{Passed: map[string]int{}, Failed: map[string]int{}}
	asserted := false
	var block []string
	in := false
	for l := range strings.Lines(text) {
		l = strings.TrimRight(l, "\r\n")
		trimmed := strings.TrimSpace(l)
		switch m := line.FindStringSubmatch(l); {
		case in && trimmed == "...":
			in = false
			if e := errorOf(block); e != "" && !asserted {
				r.Complaints = append(r.Complaints, plain(e))
			}
			asserted = false
		case in:
			block = append(block, l)
		case trimmed == "---":
			in, block = true, nil
		case strings.HasPrefix(l, "Bail out!"):
			r.Complaints = append(r.Complaints, plain(l))
		case m == nil:
		case skip.MatchString(l):
			r.Skipped, asserted = r.Skipped+1, true
		case m[1] == "":
			r.OK, asserted = r.OK+1, true
			r.Passed[plain(m[2])]++
		default:
			r.NotOK, asserted = r.NotOK+1, true
			r.Failed[plain(m[2])]++
		}
	}
	return r
}

// errorOf gives the error of a block, which is JSON as YAML may be.
func errorOf(block []string) string {
	var fields struct {
		Error string `json:"error"`
	}
	if err := json.Unmarshal([]byte(strings.Join(block, "\n")), &fields); err != nil {
		return "" // not a block of the suite's
	}
	return fields.Error
}

// plain replaces what differs from run to run, or from runtime to runtime.
func plain(s string) string {
	return status.ReplaceAllString(id.ReplaceAllString(bundle.ReplaceAllString(s, "BUNDLE"), "ID"), "exit status N")
}

// well says whether the program had nothing against the contender.
func (r *result) well() bool { return r.Exit == 0 && r.NotOK == 0 && len(r.Complaints) == 0 }

// count says how often an assertion was made and passed.
func (r *result) count(name string) int {
	if name != endsWell {
		return r.Passed[name]
	} else if r.well() {
		return 1
	}
	return 0
}

// words is what the program or the runtime said when something went wrong.
func (r *result) words() string {
	var list []string
	for _, c := range r.Complaints {
		list = append(list, strings.TrimSpace(c))
	}
	for l := range strings.Lines(r.Stderr) {
		l = strings.TrimSpace(l)
		if l == "" || strings.HasPrefix(l, "failed to ") || strings.HasPrefix(l, "exit status ") {
			continue
		}
		list = append(list, plain(l))
	}
	return strings.Join(list, " | ")
}
