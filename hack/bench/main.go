// Command bench measures the start of a busybox "true" bundle with sbxrun, crun, runc
// and bwrap, and of the same program in a session of the Go package, in turns and in one
// run, and what supervising a run costs. All of them see a hierarchy of pure cgroup v2,
// because crun takes no hybrid.
//
//	go run ./hack/bench [-n PAIRS] [-runs N] [-sessions N] [-json FILE] [-bin SBXRUN]
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// peer is one way to run the bundle.
type peer struct {
	name  string
	argv  func(id string) []string // of a command
	run   func() time.Duration     // instead, in this process
	times []float64                // ms
}

// report is what -json writes.
type report struct {
	Pairs  int                    `json:"pairs"`
	Median map[string]float64     `json:"median_ms"`
	P90    map[string]float64     `json:"p90_ms"`
	Ratio  map[string]float64     `json:"sbxrun_ratio"`
	Bars   []bar                  `json:"bars"`
	Many   []many                 `json:"sessions"`
	Cost   map[string]supervision `json:"supervision"`
}

// supervision is the cost of watching one run of a few seconds.
type supervision struct {
	CPUPercent float64 `json:"cpu_percent_of_a_core"`
	PeakMiB    float64 `json:"peak_mib"`
	Overshoot  float64 `json:"wall_overshoot_ms"`
}

var (
	pairs    = flag.Int("n", 40, "runs of each")
	runs     = flag.Int("runs", 1000, "runs of one session")
	sessions = flag.Int("sessions", 200, "sessions beside each other")
	out      = flag.String("json", "", "write the figures to this file")
	bin      = flag.String("bin", "bin/sbxrun", "the sbxrun to measure")
	inside   = flag.Bool("inside", false, "already in the private view")
	before   = flag.String("outside", "", "what was measured outside of it, as JSON")
)

func main() {
	log.SetFlags(0)
	flag.Parse()
	if os.Geteuid() != 0 {
		log.Fatal("bench: must be root, the peers are run as root")
	}
	sbxrun, err := filepath.Abs(*bin)
	if err != nil {
		log.Fatal(err)
	}
	if !*inside {
		// On the host's own hierarchy, where a run has its whole group.
		enter(report{Cost: map[string]supervision{"L5": supervise(sbxrun, "L5")}, Many: onHost(sbxrun)})
	}
	dir, err := os.MkdirTemp("", "sbxrun-bench-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	makeBundle(sbxrun, dir)
	cold, warm := openSession(sbxrun, bareL5(), 0), openSession(sbxrun, bareL5(), 1)
	peers := append(present(sbxrun, dir), inSession("cold", cold, 0), inSession("warm", warm, 1))
	measure(peers)
	must(errors.Join(cold.Close(), warm.Close()))
	var r report
	must(json.Unmarshal([]byte(*before), &r))
	r.summarize(peers)
	r.Many = append(r.Many, beside(sbxrun)...)
	print(r, peers)
	if *out != "" {
		text, _ := json.MarshalIndent(r, "", "  ")
		if err := os.WriteFile(*out, append(text, '\n'), 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// enter starts this program again in a mount namespace with pure cgroup v2.
func enter(r report) {
	const view = `umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && exec "$@"`
	exe, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	text, err := json.Marshal(r)
	must(err)
	args := []string{"-m", "--propagation", "private", "sh", "-c", view, "sh", exe, "-inside", "-outside", string(text)}
	cmd := exec.Command("unshare", append(args, os.Args[1:]...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		log.Fatalf("bench: %v", err)
	}
	os.Exit(0)
}

// makeBundle writes the bundle that all runtimes get: the common namespaces and
// mounts, no limits, since this view has no controllers.
func makeBundle(sbxrun, dir string) {
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		log.Fatalf("bench: busybox-static is missing: %v", err)
	}
	bindir := filepath.Join(dir, "rootfs", "bin")
	must(os.MkdirAll(bindir, 0o755))
	must(os.WriteFile(filepath.Join(bindir, "true"), busybox, 0o755))
	for _, d := range []string{"proc", "dev", "sys"} {
		must(os.Mkdir(filepath.Join(dir, "rootfs", d), 0o755))
	}
	must(exec.Command(sbxrun, "spec", "--bundle", dir).Run())
	file := filepath.Join(dir, "config.json")
	text, err := os.ReadFile(file)
	must(err)
	var config map[string]any
	must(json.Unmarshal(text, &config))
	config["ociVersion"] = "1.0.2"
	delete(config["linux"].(map[string]any), "resources") // crun's device filter needs CAP_SYS_RESOURCE
	process := config["process"].(map[string]any)
	process["terminal"], process["args"] = false, []string{"/bin/true"}
	text, err = json.Marshal(config)
	must(err)
	must(os.WriteFile(file, text, 0o644))
}

func must(err error) {
	if err != nil {
		log.Fatalf("bench: %v", err)
	}
}

// present lists sbxrun and the peers that are installed, and names the others.
func present(sbxrun, dir string) []*peer {
	list := []*peer{
		{name: "sbxrun", argv: func(id string) []string { return []string{sbxrun, "run", "--bundle", dir, id} }},
		{name: "crun", argv: func(id string) []string { return []string{"crun", "--root", dir + "/crun", "run", "--bundle", dir, id} }},
		{name: "runc", argv: func(id string) []string { return []string{"runc", "--root", dir + "/runc", "run", "--bundle", dir, id} }},
		{name: "bwrap", argv: func(string) []string {
			return []string{"bwrap", "--unshare-all", "--bind", dir + "/rootfs", "/", "--proc", "/proc", "--dev", "/dev", "/bin/true"}
		}},
	}
	return slices.DeleteFunc(list, func(p *peer) bool {
		_, err := exec.LookPath(p.argv("")[0])
		if err != nil {
			fmt.Printf("%s is not installed and left out\n", p.name)
		}
		return err != nil
	})
}

// measure runs all in turns, so that what disturbs the machine disturbs each.
func measure(peers []*peer) {
	for i := range *pairs + 3 {
		for _, p := range peers {
			took := p.once(i)
			if i >= 3 { // the first warm the caches
				p.times = append(p.times, ms(took))
			}
		}
	}
}

func (p *peer) once(i int) time.Duration {
	if p.run != nil {
		return p.run()
	}
	argv := p.argv(fmt.Sprintf("bench-%s-%d", p.name, i))
	// Pipes, not /dev/null: runc and crun hand that to the container's user.
	cmd := exec.Command(argv[0], argv[1:]...)
	var both strings.Builder
	cmd.Stdout, cmd.Stderr = &both, &both
	start := time.Now()
	err := cmd.Run()
	took := time.Since(start)
	if err != nil {
		log.Fatalf("bench: %v: %v\n%s", argv, err, both.String())
	}
	return took
}

func ms(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *report) summarize(peers []*peer) {
	r.Pairs, r.Median, r.P90, r.Ratio = *pairs, map[string]float64{}, map[string]float64{}, map[string]float64{}
	for _, p := range peers {
		slices.Sort(p.times)
		r.Median[p.name], r.P90[p.name] = p.times[len(p.times)/2], p.times[len(p.times)*9/10]
	}
	for _, p := range peers[1:] {
		r.Ratio[p.name] = r.Median["sbxrun"] / r.Median[p.name]
	}
	for _, b := range []bar{{Of: "cold", Bar: 0.5}, {Of: "crun", Bar: 0.35}} {
		if median := r.Median[b.Of]; median > 0 {
			b.Warm = r.Median["warm"] / median
			r.Bars = append(r.Bars, b)
		}
	}
}

// supervise watches the supervisor of a sleeping run that is stopped after 5 s.
func supervise(sbxrun, level string) supervision {
	const wall = 5 * time.Second
	cmd := exec.Command(sbxrun, "code", "--json", "--level", level, "--wall", wall.String(), "--", "/bin/sleep", "60")
	text, _ := cmd.Output() // exits non-zero: it is stopped
	var result struct {
		Usage struct {
			Wall float64 `json:"wall_ms"`
		}
	}
	must(json.Unmarshal(text, &result))
	usage := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return supervision{
		CPUPercent: 100 * float64(cpu) / float64(wall),
		PeakMiB:    float64(usage.Maxrss) / 1024,
		Overshoot:  result.Usage.Wall - float64(wall.Milliseconds()),
	}
}

func print(r report, peers []*peer) {
	fmt.Printf("start of a busybox \"true\" bundle, pure cgroup v2, %d runs each, in turns\n\n", r.Pairs)
	fmt.Printf("%-8s %10s %10s %16s\n", "", "median ms", "p90 ms", "sbxrun is × of it")
	for _, p := range peers {
		ratio := ""
		if v, ok := r.Ratio[p.name]; ok {
			ratio = strconv.FormatFloat(v, 'f', 2, 64)
		}
		fmt.Printf("%-8s %10.1f %10.1f %16s\n", p.name, r.Median[p.name], r.P90[p.name], ratio)
	}
	fmt.Println("\ncold and warm: the same program at L5 in a session of the Go package, without and with a prepared init")
	for _, b := range r.Bars {
		fmt.Println(b)
	}
	fmt.Println()
	for _, m := range r.Many {
		fmt.Println(m)
	}
	for level, c := range r.Cost {
		fmt.Printf("\nsupervising a sleeping run at %s: %.2f %% of a core (start and end included), peak %.1f MiB, wall overshoot %.1f ms\n",
			level, c.CPUPercent, c.PeakMiB, c.Overshoot)
	}
}
