package lab

import (
	"context"
	"crypto/rand"
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sbxrun/sbxrun/spec"
)

func TestMain(m *testing.M) {
	Become()
	os.Exit(m.Run())
}

func TestEveryPolicyOfTheAblationIsValid(t *testing.T) {
	for _, l := range layers {
		if err := l.alone().Validate(); err != nil {
			t.Errorf("layer %s: %v", l.name, err)
		}
	}
	for _, a := range attacks {
		for _, p := range a.Parts {
			policy := bare()
			p.on(&policy)
			if err := policy.Validate(); err != nil {
				t.Errorf("%s, %s: %v", a.Name, p.name, err)
			}
			if slices.Contains(layerNames(), p.name) {
				t.Errorf("%s: a mechanism and a layer are called %s", a.Name, p.name)
			}
		}
	}
}

func TestEveryAttackSaysWhichKeysStopIt(t *testing.T) {
	seen := map[string]bool{}
	for _, a := range attacks {
		if seen[a.Name] {
			t.Errorf("two attacks are called %s", a.Name)
		}
		seen[a.Name] = true
		for _, key := range a.By {
			if layer, _ := layerOf(key); layer == "" && key != always {
				t.Errorf("%s: there is no key %q", a.Name, key)
			}
		}
		if preset := spec.Preset(a.Stops); a.Stops <= spec.L5 && a.mechanism == "" {
			try := try{attack: &a, policy: preset}
			if layer, _ := try.acted(); layer == "" {
				t.Errorf("%s: none of %v is on at %v, which promises to stop it", a.Name, a.By, a.Stops)
			}
		}
	}
}

// The whole lab as root, with every layer alone, is what the README's test runs.
func TestEveryLevelKeepsItsPromise(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("as root the whole lab is run where its table is compared with the README's")
	}
	report, err := Run(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if t.Log(report.Text()); report.Differ != 0 {
		t.Errorf("%d cells differ from the promise", report.Differ)
	}
}

func TestATryThatCannotBeJudgedIsMadeOnceMore(t *testing.T) {
	st, err := newStage()
	if err != nil {
		t.Fatal(err)
	}
	defer st.close()
	for _, first := range []struct {
		verdict Verdict
		again   int
	}{{Wrong, 1}, {GotThrough, 0}, {Stopped, 0}} {
		again := 0
		a := &Attack{Name: "sample", try: func(t *try) error { again++; t.got("everything"); return nil }}
		c := &Cell{Policy: "L0", Promised: Stopped, Verdict: first.verdict, Evidence: "what was seen first"}
		st.askAgain(context.Background(), []job{{a, spec.Preset(spec.L0), c, true}})
		if again != first.again {
			t.Errorf("%s: tried %d times more, not %d", first.verdict, again, first.again)
		}
		if again > 0 && (c.Verdict != GotThrough || c.First != "what was seen first" || !c.Differs()) {
			t.Errorf("%+v", c)
		}
	}
}

func TestSomeAttacksForReal(t *testing.T) {
	report, err := Run(context.Background(), Options{Only: []string{"reads-environment", "calls-tcp", "overwrites-nearby"}, Ablation: true})
	if err != nil {
		t.Fatal(err)
	}
	if report.Differ != 0 || len(report.Rows) != 3 {
		t.Error(report.Text())
	}
	for _, row := range report.Rows {
		if *row.Depth == 0 {
			t.Errorf("%s: no layer stops it alone", row.Attack)
		}
	}
}

// The levels promise the same of a prepared init as of one that is made for its program.
func TestAttacksThroughAWarmPoolEndAsInAColdRun(t *testing.T) {
	t.Setenv(canaryName, "CANARY-"+rand.Text()) // sessions have this process's environment
	var again []string
	for i := range attacks { // their promises at L4 are those of one of these two
		again = append(again, attacks[i].Name+"/L3", attacks[i].Name+"/L5")
	}
	for round := 0; round < 3 && (round == 0 || len(again) > 0); round++ {
		report, err := Run(context.Background(), Options{Only: again, Warm: true})
		if err != nil {
			t.Fatal(err)
		}
		again = nil
		for _, row := range report.Rows {
			for _, c := range row.Cells {
				switch {
				case c.Verdict == Wrong && strings.Contains(c.Evidence, errCold.Error()):
					again = append(again, row.Attack+"/"+c.Policy)
				case c.Differs():
					t.Errorf("%s at %s: %s, promised is %s: %s", row.Attack, c.Policy, c.Verdict, c.Promised, c.Evidence)
				case c.Policy == "L5" && c.Verdict == NotHere && c.Evidence != "":
					t.Logf("%s was not tried: %s", row.Attack, c.Evidence)
				}
			}
		}
		t.Logf("%d attacks in %.1f s, %d once more", len(report.Rows), report.Seconds, len(again))
	}
	if len(again) > 0 {
		t.Errorf("no prepared init was used for %v", again)
	}
}

// sample is a report with one cell that differs and text that would break a page.
func sample() *Report {
	depth := 0
	return &Report{Levels: []string{"L0"}, Layers: []string{"limits"}, Differ: 1, Rows: []Row{{
		Threat: "A0", Attack: "sample", What: "tries <script>", Depth: &depth,
		Cells: []Cell{{Policy: "L0", Verdict: GotThrough, Promised: Stopped, Evidence: `"]]><script>alert(1)</script>`}},
		Alone: []Cell{{Policy: "limits", Verdict: Stopped}},
		Parts: []Cell{{Policy: "limits.cpu", Verdict: Wrong, Promised: Stopped}},
	}}}
}

func TestReportsTellABrokenPromise(t *testing.T) {
	r := sample()
	if text := r.Text(); !strings.Contains(text, "DIFFERS sample at L0: got through, promised is stopped") || !strings.Contains(text, "○✗") {
		t.Error(text)
	}
	var suites struct {
		Suites []struct {
			Failures int `xml:"failures,attr"`
			Cases    []struct {
				Failure string `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(r.JUnit(), &suites); err != nil || len(suites.Suites) != 2 {
		t.Fatalf("%v %+v", err, suites)
	}
	for i, want := range []string{"got through", "wrong"} {
		if s := suites.Suites[i]; s.Failures != 1 || !strings.Contains(s.Cases[0].Failure, want) {
			t.Errorf("not %s: %+v", want, s)
		}
	}
	page := string(r.HTML())
	if !strings.Contains(page, "cell through differs") || strings.Contains(page, "<script") || regexp.MustCompile(`(src|href)=`).MatchString(page) {
		t.Error(page)
	}
}

func TestTheShippedBinaryHasNoPlants(t *testing.T) {
	source, err := os.ReadFile("plants_on.go")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("../go.mod"); err != nil || testing.Short() {
		t.Skip("this builds sbxrun twice, from sources that are not here or too slowly")
	}
	names := regexp.MustCompile(`(?m)^\t\{"([a-z-]+)", "`).FindAllStringSubmatch(string(source), -1)
	if len(names) < 20 {
		t.Fatalf("only %d plants", len(names))
	}
	for tags, want := range map[string]bool{"urfave_cli_no_docs": false, "urfave_cli_no_docs,plants": true} {
		out := filepath.Join(t.TempDir(), "sbxrun")
		cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-tags", tags, "-o", out, "../cmd/sbxrun")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, text)
		}
		binary, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			// Some names are words that may stand elsewhere; what they say does not.
			if strings.Contains(string(binary), n[1]) != want {
				t.Errorf("%s: %q is in the binary: %v", tags, n[1], !want)
			}
		}
	}
}
