// Tests of "sbxrun lab" as a user calls it.

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sbxrun/sbxrun/lab"
)

func TestTheReadmeHasWhatTheLabGives(t *testing.T) {
	needRoot(t)
	needProgram(t, "python3", "setsid")
	if testing.Short() {
		t.Skip("the whole lab takes minutes on a slow machine")
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(readme), "<!-- made by make lab-docs -->\n")
	want, _, ok := strings.Cut(rest, "<!-- end -->")
	if !ok {
		t.Fatal("the README has no place for the lab's table")
	}
	o := call(t, "lab", "--ablation", "--json")
	var report lab.Report
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil {
		t.Fatalf("exit %d: %v %s", o.exit, err, o.stderr)
	}
	if o.exit != 0 {
		t.Errorf("exit %d: %s\n%s", o.exit, o.stderr, report.Text())
	}
	if got := strings.Count(want, "\n"); got != len(report.Rows)+2 {
		t.Errorf("the README has %d lines, the lab %d attacks: run make lab-docs", got, len(report.Rows))
	}
	for _, row := range report.Rows {
		if why := notTried(row); why != "" {
			t.Logf("%s: not compared: %s", row.Attack, why)
			continue
		}
		one := report
		one.Rows = []lab.Row{row}
		table := strings.Split(one.Markdown(), "\n")
		if line := table[len(table)-2]; !strings.Contains(want, line+"\n") {
			one.Differ, one.Notes = 0, nil
			t.Errorf("run make lab-docs if this is as it should be; the README does not have\n%s\n%s", line, one.Text())
		}
	}
}

// notTried says why this machine has no place for the attack.
func notTried(row lab.Row) string {
	if c := row.Cells[len(row.Cells)-1]; c.Verdict == lab.NotHere { // at L5 it can be made if anywhere
		return c.Evidence
	}
	return ""
}

func TestALabOfSingleTries(t *testing.T) {
	needRoot(t)
	o := call(t, "lab", "--ablation", "--json", "reads-environment/L2", "reads-environment/environment", "opens-files/RLIMIT_NOFILE")
	var report lab.Report
	if err := json.Unmarshal([]byte(o.stdout), &report); err != nil || o.exit != 0 {
		t.Fatalf("exit %d: %v %s", o.exit, err, o.stderr)
	}
	stopped := 0
	for _, row := range report.Rows {
		for _, c := range slices.Concat(row.Cells, row.Alone, row.Parts) {
			if c.Verdict == lab.Stopped {
				stopped++
			} else if c.Verdict != lab.NotHere {
				t.Errorf("%s at %s: %s: %s", row.Attack, c.Policy, c.Verdict, c.Evidence)
			}
		}
	}
	if stopped != 3 {
		t.Errorf("%d tries, not 3:\n%s", stopped, o.stdout)
	}
	for _, wrong := range []string{"no-attack", "reads-environment/L9", "reads-environment/environment"} {
		if o := call(t, "lab", wrong); o.exit == 0 || !strings.Contains(o.stderr, "there is no ") {
			t.Errorf("%s: exit %d, %s", wrong, o.exit, o.stderr)
		}
	}
}

// The whole is "make lab-plants", which takes long.
func TestAPlantedDefectTurnsTheLabRed(t *testing.T) {
	needRoot(t)
	if _, err := os.Stat("../../go.mod"); err != nil || testing.Short() {
		t.Skip("this builds sbxrun, from sources that are not here or too slowly")
	}
	sick := filepath.Join(t.TempDir(), "sbxrun")
	if err := build(sick, ".", "plants"); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, plant string
		args        []string
		exit        int
		says        string
	}{
		{"with nothing planted it is green", "", []string{"reads-environment"}, 0, ""},
		{"a level that differs", "no-nofile", []string{"opens-files"}, 1, "DIFFERS opens-files at L1: got through"},
		{"as JSON", "no-nofile", []string{"--json", "opens-files"}, 1, `"verdict":"got through","promised":"stopped"`},
		{"a mechanism that differs", "no-nofile", []string{"--ablation", "opens-files/RLIMIT_NOFILE"}, 1, "DIFFERS opens-files at RLIMIT_NOFILE: got through"},
		{"a check that isolates the layer", "", []string{"--plants", "environment-inherited", "reads-environment"}, 0, "caught     environment-inherited"},
		{"only checks that do not", "", []string{"--plants", "environment-inherited", "calls-tcp"}, 1, "NOT CAUGHT environment-inherited"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cmd := exec.Command(sick, append([]string{"lab"}, tc.args...)...)
			cmd.Env = append(os.Environ(), "SBXRUN_PLANT="+tc.plant)
			if o := finishCommand(t, cmd); o.exit != tc.exit || !strings.Contains(o.stdout, tc.says) {
				t.Errorf("%+v", o)
			}
		})
	}
}
