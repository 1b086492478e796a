// A test that executes every command of the README.

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sbxrun/sbxrun/spec"
)

// blocks gives the README's code blocks of a language.
func blocks(t *testing.T, language string) (out []string) {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for i, part := range strings.Split(string(text), "```") {
		if body, ok := strings.CutPrefix(part, language+"\n"); ok && i%2 == 1 {
			out = append(out, body)
		}
	}
	return out
}

func TestEveryCommandOfTheReadmeWorks(t *testing.T) {
	if testing.Short() {
		t.Skip("the presets' 1.5 s of wall clock are not enough for Python on a slow machine")
	}
	needRoot(t)
	needProgram(t, "python3")
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(sbxrun, filepath.Join(dir, "bin", "sbxrun")); err != nil {
		t.Fatal(err)
	}
	all := blocks(t, "sh")
	if len(all) < 6 {
		t.Fatalf("only %d blocks found", len(all))
	}
	want := map[int]string{1: "45\nhello from /tmp/work\n", 3: "3\n", 4: "0\n"}
	for i, script := range all {
		if strings.Contains(script, "make test") {
			continue // this is it
		}
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = dir
		o := finishCommand(t, cmd)
		if o.exit != 0 || want[i] != "" && o.stdout != want[i] {
			t.Errorf("block %d:\n%s\nexit %d, stdout %q, stderr %q", i, script, o.exit, o.stdout, o.stderr)
		}
	}
	left, _ := os.ReadDir(dir)
	if len(left) != 1 {
		t.Errorf("the README leaves files behind: %v", left)
	}
}

func TestTheReadmeListsEveryKeyOfAPolicy(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range spec.Keys() {
		if row := "| `" + k.Name + "` | " + k.Type + " | " + k.Mechanism + " |"; !strings.Contains(string(readme), row) {
			t.Errorf("the README lacks the row %s", row)
		}
	}
}

func TestTheMakeTargetsOfTheReadmeExist(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"demo", "test", "bench", "help"} {
		if !strings.Contains(string(readme), "make "+target) || !strings.Contains(string(makefile), "\n"+target+":") {
			t.Errorf("make %s is not in both README and Makefile", target)
		}
	}
}
