// Command summary reads the output of "go test -v" runs and says what it comes to:
// what failed, what was skipped and why, and the counts. With CI=true a test that was
// skipped without a reason is a failure.
//
//	go run ./hack/summary FILE…
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
)

var (
	current = regexp.MustCompile(`^=== (?:RUN|NAME|CONT)\s+(\S+)`)
	said    = regexp.MustCompile(`^\s+\w+\.go:\d+: (.+)`)
	ended   = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)
)

// tally is what one or more runs came to.
type tally struct {
	passed, failed int
	skipped        map[string]string // test to reason
	failures       []string
}

func main() {
	log.SetFlags(0)
	t := tally{skipped: map[string]string{}}
	for _, name := range os.Args[1:] {
		if err := t.read(name); err != nil {
			log.Fatal(err)
		}
	}
	os.Exit(t.print())
}

func (t *tally) read(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	run := filepath.Base(name)
	reasons, test := map[string]string{}, ""
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := current.FindStringSubmatch(line); m != nil {
			test = m[1]
		} else if m := said.FindStringSubmatch(line); m != nil {
			reasons[test] = m[1]
		} else if m := ended.FindStringSubmatch(line); m != nil {
			switch m[1] {
			case "PASS":
				t.passed++
			case "FAIL":
				t.failed++
				t.failures = append(t.failures, run+" "+m[2]+": "+reasons[m[2]])
			case "SKIP":
				t.skipped[run+" "+m[2]] = reasons[m[2]]
			}
		}
	}
	return lines.Err()
}

func (t *tally) print() (status int) {
	var names []string
	for name := range t.skipped {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		reason := t.skipped[name]
		if reason == "" {
			reason = "WITHOUT A REASON"
			if os.Getenv("CI") == "true" {
				status = 1
			}
		}
		fmt.Printf("skipped: %s: %s\n", name, reason)
	}
	// Failures last: a log is often kept only by its end.
	for _, f := range t.failures {
		fmt.Println("failed:", f)
		status = 1
	}
	fmt.Printf("%d passed, %d failed, %d skipped\n", t.passed, t.failed, len(t.skipped))
	return status
}
