// Command conformance runs the validation programs of opencontainers/runtime-tools on
// sbxrun, runc and crun side by side and compares what they assert. It fails when
//
//   - sbxrun does not pass an assertion that a peer passes in the same view,
//   - sbxrun fails one that known.tsv does not explain, or
//   - known.tsv holds a line that is not true any more.
//
// The programs come with the module, pinned in go.mod as tools. A view is the hierarchy
// of control groups that a runtime sees: the host's own, and one of pure cgroup v2,
// because crun takes no hybrid. Run it as root, from its own directory:
//
//	go run . [-bin SBXRUN] [-run REGEXP] [-j N] [-json FILE] [-out DIR] [-v]
//
// This file owns the command line and the order of things.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

var (
	bin     = flag.String("bin", "../../bin/sbxrun", "the sbxrun to judge")
	cache   = flag.String("cache", "../../.cache/conformance", "where the programs are built")
	only    = flag.String("run", "", "only the programs that this matches")
	workers = flag.Int("j", 3, "programs at the same time; they sleep most of it")
	jsonOut = flag.String("json", "", "write everything to this file")
	rawOut  = flag.String("out", "", "keep what the programs print in this directory")
	verbose = flag.Bool("v", false, "with the words of each failure")
	limit   = flag.Duration("limit", 2*time.Minute, "time that one program may take")
)

// The views, see above.
const (
	hostView = "host"
	pureView = "v2"
)

// contender is one runtime in one view, a column of the table.
type contender struct {
	name, view, path string
}

func (c contender) String() string { return c.name + "/" + c.view }

func main() {
	log.SetFlags(0)
	log.SetPrefix("conformance: ")
	if len(os.Args) > 1 && os.Args[0] == insideName {
		inside(os.Args[1:])
	}
	flag.Parse()
	if os.Geteuid() != 0 {
		log.Fatal("must be root: it mounts, and the peers are run as root")
	}
	known, err := readKnown("known.tsv")
	if err != nil {
		log.Fatal(err)
	}
	programs := build()
	tmp, err := os.MkdirTemp("", "sbxrun-conformance-")
	if err == nil {
		err = os.Chmod(tmp, 0o755) // ids that a container is mapped to must reach its bundle
	}
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range beside() {
		if err := copyFile(filepath.Join(*cache, name), filepath.Join(tmp, name)); err != nil {
			log.Fatal(err)
		}
	}
	columns := contenders(tmp)
	groups := groupsNow()
	results := runAll(programs, columns, known, tmp)
	removeNewGroups(groups)
	os.RemoveAll(tmp)

	printTable(results, programs, columns)
	faults := append(judge(results, programs, known), known.check(results, programs)...)
	if *jsonOut != "" {
		if err := writeJSON(*jsonOut, results, columns, faults); err != nil {
			log.Fatal(err)
		}
	}
	if refusals := known.decisions(results); len(refusals) > 0 {
		fmt.Printf("refused by decision, whatever peers do: %s\n", strings.Join(refusals, ", "))
	}
	for _, f := range faults {
		fmt.Println(f)
	}
	if len(faults) > 0 {
		os.Exit(1)
	}
	fmt.Println("sbxrun passes what runc or crun pass; the rest is explained in known.tsv")
}

// build makes the programs of the module and gives the names of those to run.
func build() []string {
	if err := os.MkdirAll(*cache, 0o755); err != nil {
		log.Fatal(err)
	}
	goCommand("build", "-o", *cache+"/", "tool") // fetches the module
	var list []string
	dir := strings.TrimSpace(goCommand("list", "-m", "-f", "{{.Dir}}", suite))
	pinned := map[string]bool{}
	for _, tool := range strings.Fields(goCommand("list", "tool")) {
		pinned[tool] = true
	}
	entries, err := os.ReadDir(filepath.Join(dir, "validation"))
	if err != nil {
		log.Fatal(err)
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() || e.Name() == "util" {
			continue
		}
		if !pinned[suite+"/validation/"+e.Name()] {
			log.Fatalf("%s has a program %s that go.mod does not list as a tool", suite, e.Name())
		}
		if pattern.MatchString(e.Name()) {
			list = append(list, e.Name())
		}
	}
	if err := copyFile(filepath.Join(dir, beside()[1]), filepath.Join(*cache, beside()[1])); err != nil {
		log.Fatalf("the root file system of the suite: %v", err)
	}
	return list
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o755)
}

const suite = "github.com/opencontainers/runtime-tools"

func goCommand(args ...string) string {
	cmd := exec.Command("go", args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatalf("go %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// contenders gives the columns. A peer that is not installed is an error: without it
// there is nothing to be held against.
func contenders(tmp string) []contender {
	sbxrun, err := filepath.Abs(*bin)
	if err == nil {
		_, err = os.Stat(sbxrun)
	}
	if err != nil {
		log.Fatal(err)
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		log.Fatal(err)
	}
	crun, err := exec.LookPath("crun")
	if err != nil {
		log.Fatal(err)
	}
	crun = withoutMemlock(crun, tmp)
	list := []contender{
		{"sbxrun", pureView, sbxrun}, {"runc", pureView, runc}, {"crun", pureView, crun},
	}
	var st syscall.Statfs_t
	const cgroup2Magic = 0x63677270
	if err := syscall.Statfs("/sys/fs/cgroup", &st); err == nil && st.Type == cgroup2Magic {
		return list // the host's own is the pure one
	}
	return append([]contender{{"sbxrun", hostView, sbxrun}, {"runc", hostView, runc}}, list...)
}

// runAll runs every program on every contender.
func runAll(programs []string, columns []contender, known knownList, tmp string) table {
	type job struct {
		program string
		on      contender
	}
	jobs := make(chan job)
	results := table{}
	for _, p := range programs {
		results[p] = map[contender]*result{}
	}
	// Many programs use the same two control groups: one of them at a time.
	var groups, mu sync.Mutex
	var wg sync.WaitGroup
	for range max(1, *workers) {
		wg.Go(func() {
			for j := range jobs {
				alone := strings.HasPrefix(j.program, "linux_cgroups") || j.program == "delete_resources"
				if alone {
					groups.Lock()
				}
				r := runOne(j.program, j.on, tmp)
				for n := 1; n < 5 && !r.well() && known.races(j.program); n++ {
					r = runOne(j.program, j.on, tmp)
				}
				if alone {
					groups.Unlock()
				}
				mu.Lock()
				results[j.program][j.on] = r
				mu.Unlock()
			}
		})
	}
	for _, p := range programs {
		for _, c := range columns {
			jobs <- job{p, c}
		}
	}
	close(jobs)
	wg.Wait()
	return results
}
