// This file owns the judgement: what sbxrun owes because a peer does it, what nobody
// does and why, and the table.

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

type table map[string]map[contender]*result

// judge names the assertions that a peer passes and sbxrun does not, view by view. A
// peer's program that exits with another status than 0 counts for nothing: it says
// that the container should not have come to its assertions. What sbxrun refuses by
// decision is not owed.
func judge(results table, programs []string, known knownList) []string {
	var faults []string
	for _, p := range programs {
		for c, ours := range results[p] {
			if c.name != "sbxrun" || known.refuses(ours) {
				continue
			}
			owed := map[string]string{}
			most := map[string]int{}
			for peer, r := range results[p] {
				if peer.name == "sbxrun" || peer.view != c.view || r.Exit != 0 {
					continue
				}
				for _, name := range append(slices.Collect(maps.Keys(r.Passed)), endsWell) {
					if n := r.count(name); n > ours.count(name) && n > most[name] && !known.chances(p, name) {
						owed[name], most[name] = peer.name, n
					}
				}
			}
			if len(owed) > 0 {
				faults = append(faults, fault(c, ours, owed, most))
			}
		}
	}
	slices.Sort(faults)
	return faults
}

// fault is a line about one program, with the first few assertions.
func fault(c contender, ours *result, owed map[string]string, most map[string]int) string {
	names := slices.Sorted(maps.Keys(owed))
	var b strings.Builder
	fmt.Fprintf(&b, "FAIL %s, view %s: %d assertions that a peer passes", ours.Program, c.view, len(owed))
	for i, name := range names {
		if i == 5 && !*verbose {
			fmt.Fprintf(&b, "\n    and %d more", len(names)-i)
			break
		}
		fmt.Fprintf(&b, "\n    %s passes %d of ours %d: %s", owed[name], most[name], ours.count(name), name)
	}
	if w := ours.words(); w != "" {
		fmt.Fprintf(&b, "\n    sbxrun: %s", w)
	}
	return b.String()
}

// best gives the result of a runtime in the view where it does best.
func best(results map[contender]*result, runtime string) *result {
	var found *result
	rank := func(r *result) int {
		n := 2*r.OK - r.NotOK
		if r.well() {
			n += 1 << 20
		}
		return n
	}
	for c, r := range results {
		if c.name == runtime && (found == nil || rank(r) > rank(found) || rank(r) == rank(found) && c.view < found.View) {
			found = r
		}
	}
	return found
}

// columnsOf are the runtimes of the table's right side.
var runtimes = []string{"sbxrun", "runc", "crun"}

// printTable prints ok/not ok of each program, and the best of each runtime's views.
func printTable(results table, programs []string, columns []contender) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "program")
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s", c)
	}
	fmt.Fprint(w, "\n")
	for _, p := range programs {
		fmt.Fprint(w, p)
		for _, c := range columns {
			fmt.Fprintf(w, "\t%s", cell(results[p][c]))
		}
		fmt.Fprint(w, "\n")
	}
	fmt.Fprint(w, "total")
	for _, c := range columns {
		ok, notOK := 0, 0
		for _, p := range programs {
			ok, notOK = results[p][c].add(ok, notOK)
		}
		fmt.Fprintf(w, "\t%d/%d", ok, notOK)
	}
	fmt.Fprint(w, "\n")
	w.Flush()
	fmt.Println("ok/not ok; s: skipped, !N: exit status (not in the totals), c: complains without an assertion, ok: says nothing and ends well")
	for _, name := range runtimes {
		ok, notOK, well := 0, 0, 0
		for _, p := range programs {
			r := best(results[p], name)
			ok, notOK = r.add(ok, notOK)
			if r.well() {
				well++
			}
		}
		fmt.Printf("%-6s  %d assertions ok, %d not, %d of %d programs end well, each in its best view\n", name, ok, notOK, well, len(programs))
	}
}

// add adds the assertions, but not those of a program that says by its exit status
// that the container should not have come to them.
func (r *result) add(ok, notOK int) (int, int) {
	if r.Exit != 0 {
		return ok, notOK
	}
	return ok + r.OK, notOK + r.NotOK
}

func cell(r *result) string {
	s := fmt.Sprintf("%d/%d", r.OK, r.NotOK)
	if r.OK+r.NotOK == 0 {
		s = "-"
		if r.well() {
			s = "ok"
		}
	}
	if r.Skipped > 0 {
		s += fmt.Sprintf(" s%d", r.Skipped)
	}
	if r.Exit != 0 {
		s += fmt.Sprintf(" !%d", r.Exit)
	}
	if len(r.Complaints) > 0 {
		s += " c"
	}
	return s
}

// writeJSON writes every result and the judgement.
func writeJSON(file string, results table, columns []contender, faults []string) error {
	all := struct {
		Results []*result `json:"results"`
		Faults  []string  `json:"faults"`
	}{Faults: faults}
	for _, p := range slices.Sorted(maps.Keys(results)) {
		for _, c := range columns {
			all.Results = append(all.Results, results[p][c])
		}
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// capSysResource is CAP_SYS_RESOURCE.
const capSysResource = 24

// hasCapability says whether this process has a capability in effect.
func hasCapability(number int) bool {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), "CapEff:\t")
	mask, err := strconv.ParseUint(strings.SplitN(rest, "\n", 2)[0], 16, 64)
	return err == nil && mask&(1<<number) != 0
}
