// This file owns known.tsv: assertions that sbxrun fails and no runtime passes, each
// with the reason. A line is: program, assertion, condition, reason.

package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// entry is one line. Where a condition does not hold, it says nothing.
type entry struct {
	program, assertion string
	conditions         []string
	line               int
}

func (e entry) is(condition string) bool { return slices.Contains(e.conditions, condition) }

func (e entry) holds() bool {
	return !slices.ContainsFunc(e.conditions, func(c string) bool { return !conditions[c]() })
}

type knownList []entry

// Conditions that are not about the machine.
const (
	always  = "-"
	refused = "refused" // sbxrun says the words in the place of the assertion
	race    = "race"    // the program fails now and then, and must pass in one of some attempts
	chance  = "chance"  // it is not for the runtime to say whether the assertion passes
)

// conditions say what a machine lacks.
var conditions = map[string]func() bool{
	always:                func() bool { return true },
	refused:               func() bool { return true },
	race:                  func() bool { return true },
	chance:                func() bool { return true },
	"no CAP_SYS_RESOURCE": func() bool { return !hasCapability(capSysResource) },
	"no net_cls":          func() bool { return !mounted("net_cls*") },
	"no hugetlb of v1":    func() bool { return !mounted("hugetlb") },
	"no SELinux":          func() bool { return !exists("/sys/fs/selinux/enforce") },
	"no AppArmor":         func() bool { return !reads("/sys/module/apparmor/parameters/enabled", "Y\n") },
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func reads(path, want string) bool {
	text, err := os.ReadFile(path)
	return err == nil && string(text) == want
}

// mounted says whether a controller has a hierarchy of v1.
func mounted(controller string) bool {
	found, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup", controller, "cgroup.procs"))
	return len(found) > 0
}

func readKnown(file string) (knownList, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list knownList
	n := 0
	for l := range strings.Lines(string(text)) {
		n++
		l = strings.TrimRight(l, "\n")
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		f := strings.Split(l, "\t")
		if len(f) != 4 || f[3] == "" {
			return nil, fmt.Errorf("%s:%d: want program, assertion, condition and reason between tabs", file, n)
		}
		e := entry{f[0], f[1], strings.Split(f[2], ", "), n}
		for _, c := range e.conditions {
			if conditions[c] == nil {
				return nil, fmt.Errorf("%s:%d: unknown condition %q", file, n, c)
			}
		}
		list = append(list, e)
	}
	return list, nil
}

// races says whether a program may fail now and then.
func (l knownList) races(program string) bool {
	return slices.ContainsFunc(l, func(e entry) bool { return e.program == program && e.is(race) })
}

// chances says whether an assertion passes or fails by chance, and the program with it.
func (l knownList) chances(program, assertion string) bool {
	return slices.ContainsFunc(l, func(e entry) bool {
		return e.program == program && e.is(chance) && (e.assertion == assertion || assertion == endsWell)
	})
}

// refuses says whether sbxrun refuses what a program asks for, in the words of the list.
func (l knownList) refuses(r *result) bool {
	return slices.ContainsFunc(l, func(e entry) bool {
		return e.program == r.Program && e.is(refused) && e.holds() && strings.Contains(r.words(), e.assertion)
	})
}

// decisions names the programs whose demand sbxrun refuses.
func (l knownList) decisions(results table) []string {
	var list []string
	for p := range results {
		if l.refuses(best(results[p], "sbxrun")) {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list
}

// check holds the list against the results, of each runtime the best.
func (l knownList) check(results table, programs []string) []string {
	var faults []string
	explained := map[[2]string]bool{}
	for _, e := range l {
		if !slices.Contains(programs, e.program) || !e.holds() || e.is(race) {
			continue
		}
		explained[[2]string{e.program, e.assertion}] = true
		if why := e.stale(results[e.program]); why != "" && !e.is(chance) {
			faults = append(faults, fmt.Sprintf("STALE known.tsv:%d: %s: %s: %s", e.line, e.program, why, e.assertion))
		}
	}
	for _, p := range programs {
		r := best(results[p], "sbxrun")
		failed := slices.Sorted(maps.Keys(r.Failed))
		if len(failed) == 0 && !r.well() {
			failed = []string{endsWell}
		}
		for _, name := range failed {
			if !explained[[2]string{p, name}] && !l.refuses(r) {
				faults = append(faults, fmt.Sprintf("UNEXPLAINED %s: %s\n    sbxrun: %s", p, name, r.words()))
			}
		}
	}
	return faults
}

// stale says why an entry is not true any more.
func (e entry) stale(results map[contender]*result) string {
	ours := best(results, "sbxrun")
	if e.is(refused) {
		if !strings.Contains(ours.words(), e.assertion) {
			return "sbxrun does not refuse it with these words"
		}
		return ""
	}
	if e.assertion != endsWell && ours.Failed[e.assertion] == 0 {
		return "sbxrun does not fail it"
	}
	for _, name := range runtimes {
		if r := best(results, name); r.count(e.assertion) > 0 && r.Failed[e.assertion] == 0 {
			return name + " passes it"
		}
	}
	return ""
}
