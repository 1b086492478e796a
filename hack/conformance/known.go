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

// entry is one line. Where the condition does not hold, it says nothing.
type entry struct {
	program, assertion, condition, reason string
	line                                  int
}

type knownList []entry

// conditions say what a machine lacks; "-" holds everywhere.
var conditions = map[string]func() bool{
	"-":                      func() bool { return true },
	"no CAP_SYS_RESOURCE":    func() bool { return !hasCapability(capSysResource) },
	"no blkio.weight":        func() bool { return !anyFile("blkio*/*/blkio.weight") },
	"no net_cls":             func() bool { return !anyFile("net_cls*/cgroup.procs") },
	"no hugetlb of v1":       func() bool { return !anyFile("hugetlb/cgroup.procs") },
	"no SELinux":             func() bool { return !anyFile("/sys/fs/selinux/enforce") },
	"no AppArmor":            func() bool { return !anyFile("/sys/kernel/security/apparmor/profiles") },
	"no hierarchy of v1":     func() bool { return !anyFile("memory/cgroup.procs") },
	"no kernel memory of v1": func() bool { return true },
}

// anyFile looks for a file, below /sys/fs/cgroup unless it is absolute.
func anyFile(pattern string) bool {
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join("/sys/fs/cgroup", pattern)
	}
	found, _ := filepath.Glob(pattern)
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
		if conditions[f[2]] == nil {
			return nil, fmt.Errorf("%s:%d: unknown condition %q", file, n, f[2])
		}
		list = append(list, entry{f[0], f[1], f[2], f[3], n})
	}
	return list, nil
}

// check holds the list against the results, of each runtime the best.
func (l knownList) check(results table, programs []string) []string {
	var faults []string
	explained := map[[2]string]bool{}
	for _, e := range l {
		if !slices.Contains(programs, e.program) || !conditions[e.condition]() {
			continue
		}
		explained[[2]string{e.program, e.assertion}] = true
		for _, name := range runtimes {
			if r := best(results[e.program], name); r.count(e.assertion) > 0 && r.Failed[e.assertion] == 0 {
				faults = append(faults, fmt.Sprintf("STALE known.tsv:%d: %s passes %s: %s", e.line, name, e.program, e.assertion))
			}
		}
		if r := best(results[e.program], "sbxrun"); e.assertion != endsWell && r.Failed[e.assertion] == 0 {
			faults = append(faults, fmt.Sprintf("STALE known.tsv:%d: sbxrun does not fail %s: %s", e.line, e.program, e.assertion))
		}
	}
	for _, p := range programs {
		r := best(results[p], "sbxrun")
		failed := slices.Sorted(maps.Keys(r.Failed))
		if len(failed) == 0 && !r.well() {
			failed = []string{endsWell}
		}
		for _, name := range failed {
			if !explained[[2]string{p, name}] {
				faults = append(faults, fmt.Sprintf("UNEXPLAINED %s: %s\n    sbxrun: %s", p, name, r.words()))
			}
		}
	}
	return faults
}
