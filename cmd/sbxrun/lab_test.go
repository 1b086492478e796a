// Tests of "sbxrun lab" as a user calls it.

package main

import (
	"os"
	"strings"
	"testing"
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
	o := call(t, "lab", "--ablation", "--markdown")
	if o.stdout != want { // some attacks are races; on a busy machine a second look is fair
		t.Logf("the first run: exit %d\n%s", o.exit, o.stdout)
		o = call(t, "lab", "--ablation", "--markdown")
	}
	if o.exit != 0 {
		t.Errorf("exit %d: %s", o.exit, o.stderr)
	}
	if o.stdout != want {
		t.Errorf("run make lab-docs; the README has\n%s\nthe lab gives\n%s", want, o.stdout)
	}
}
