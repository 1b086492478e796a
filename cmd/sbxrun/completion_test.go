// Tests of completion: the words that are offered, and the scripts in real shells.

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sbxrun/sbxrun/runtime"
)

// offered gives the words, without what they mean.
func offered(t *testing.T, typed ...string) (words []string) {
	t.Helper()
	o := call(t, append([]string{"completion", "words"}, typed...)...)
	if o.exit != 0 || o.stderr != "" {
		t.Fatalf("%v: %+v", typed, o)
	}
	for line := range strings.Lines(o.stdout) {
		word, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		words = append(words, word)
	}
	return words
}

func TestTheWordsThatMayComeNext(t *testing.T) {
	levels := []string{"L0", "L1", "L2", "L3", "L4", "L5"}
	for _, tc := range []struct {
		typed []string
		want  []string
	}{
		{[]string{"ex"}, []string{"explain", "exec"}},
		{[]string{"--ro"}, []string{"--root"}},
		{[]string{"--root", "/x", "di"}, []string{"diff"}},
		{[]string{"--root", ""}, []string{asFiles}},
		{[]string{"help", "do"}, []string{"doctor"}},
		{[]string{"explain", "L"}, append(slices.Clone(levels), asFiles)},
		{[]string{"explain", "--js"}, []string{"--json"}},
		{[]string{"explain", "--json", "L3"}, []string{"L3", asFiles}},
		{[]string{"diff", "L3", "L4"}, []string{"L4", asFiles}},
		{[]string{"code", "--level", ""}, levels},
		{[]string{"code", "--level=L4"}, []string{"--level=L4"}}, // zsh and fish
		{[]string{"code", "--level", "=", "L4"}, []string{"L4"}}, // bash
		{[]string{"code", "--level", "="}, levels},
		{[]string{"code", "--cgroup", "o"}, []string{"on", "off"}},
		{[]string{"code", "--lang", "p"}, []string{"python", "perl"}},
		{[]string{"code", "--policy", "x"}, []string{asFiles}},
		{[]string{"code", "--wall", ""}, nil},
		{[]string{"code", "--", "--le"}, []string{asFiles}},
		{[]string{"check", "--require", "no-l"}, []string{"no-limit"}},
		{[]string{"completion", ""}, []string{"bash", "zsh", "fish"}},
		{[]string{"list", "--format", ""}, []string{"table", "json"}},
		{[]string{"--root", t.TempDir(), "state", ""}, nil},
		{[]string{"nonsense", ""}, nil},
		{nil, nil},
	} {
		if got := offered(t, tc.typed...); !slices.Equal(got, tc.want) {
			t.Errorf("%q: %q, want %q", tc.typed, got, tc.want)
		}
	}
	if all := offered(t, ""); len(all) < 24 || slices.Contains(all, "") {
		t.Errorf("the commands are %q", all)
	}
}

func TestContainersAreOffered(t *testing.T) {
	root := t.TempDir()
	for _, id := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(root, id), 0o700); err != nil { // damaged, to be deleted
			t.Fatal(err)
		}
	}
	if got := offered(t, "--root", root, "delete", "--force", "t"); !slices.Equal(got, []string{"two"}) {
		t.Errorf("got %q", got)
	}
	if err := os.MkdirAll(filepath.Join(root, runtime.SessionsDir, "s1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := offered(t, "--root", root, "session", "run", ""); !slices.Equal(got, []string{"s1"}) {
		t.Errorf("sessions: %q", got)
	}
	if got := offered(t, "--root", root, "session", "run", "s1", ""); !slices.Equal(got, []string{asFiles}) {
		t.Errorf("what a session runs: %q", got)
	}
	if got := offered(t, "session", "rm"); !slices.Equal(got, []string{"rm-file", "rm"}) {
		t.Errorf("commands of session: %q", got)
	}
	if got := offered(t, "--root", root, "delete", "two", ""); got != nil {
		t.Errorf("after the id: %q", got)
	}
}

// shells says for each how it is asked what it would offer for a line whose end is the
// cursor.
var shells = map[string]string{
	"bash": `source <("$1" completion bash)
COMP_LINE=$2 COMP_POINT=${#2}
read -ra COMP_WORDS <<<"${2//=/ = }" # as readline breaks it
[[ $2 == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
compopt() { :; } # it complains outside of a completion
complete -p sbxrun | grep -q -- '-F _sbxrun' || exit 1
_sbxrun "$1"
printf '%s\n' "${COMPREPLY[@]}"`,
	"fish": `$argv[1] completion fish | source
complete --do-complete $argv[2]`,
	// The completion system works within the line editor only: these stand in for its functions.
	"zsh": `compdef() { [[ "$*" == '_sbxrun sbxrun' ]] || exit 1 }
_describe() { print -rl -- "${(@)${(P)2}%%:*}" }
_files() { print -rl -- $words[CURRENT]*(N) }
source <("$1" completion zsh)
words=("${(@z)2}"); [[ $2 == *' ' ]] && words+=('')
CURRENT=$#words
_sbxrun`,
}

func complete(t *testing.T, shell, line, dir string) []string {
	t.Helper()
	args := []string{"-c", shells[shell]}
	if shell != "fish" {
		args = append(args, shell)
	}
	args = append(map[string][]string{"bash": {"--norc"}, "zsh": {"-f"}, "fish": {"--no-config"}}[shell], args...)
	cmd := exec.Command(shell, append(args, sbxrun, line)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(sbxrun)+":"+os.Getenv("PATH"), "HOME="+dir, "TERM=dumb")
	o := finishCommand(t, cmd)
	if o.exit != 0 {
		t.Fatalf("%s: %+v", shell, o)
	}
	var words []string
	for line := range strings.Lines(o.stdout) {
		if word, _, _ := strings.Cut(strings.TrimSpace(line), "\t"); word != "" {
			words = append(words, word)
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

func TestCompletionInRealShells(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"policy one.yaml", "policy.yaml", "other"} {
		write(t, dir, name, "level: L5\n")
	}
	for _, shell := range []string{"bash", "fish", "zsh"} {
		t.Run(shell, func(t *testing.T) {
			needProgram(t, shell)
			for _, tc := range []struct {
				line string
				want []string
			}{
				{"sbxrun expl", []string{"explain"}},
				{"sbxrun explain --mark", []string{"--markdown"}},
				{"sbxrun code --level ", []string{"L0", "L1", "L2", "L3", "L4", "L5"}},
				{"sbxrun check --require no-f", []string{"no-filter"}},
				{"sbxrun code --policy pol", []string{"policy one.yaml", "policy.yaml"}},
				{"sbxrun diff L3 o", []string{"other"}},
			} {
				got := complete(t, shell, tc.line, dir)
				for i := range got {
					got[i] = strings.ReplaceAll(got[i], `\ `, " ")
				}
				if !slices.Equal(got, tc.want) {
					t.Errorf("%q: %q, want %q", tc.line, got, tc.want)
				}
			}
		})
	}
	// In bash "=" ends a word, elsewhere it is part of one.
	if got := complete(t, "bash", "sbxrun code --level=L", dir); len(got) != 6 || got[0] != "L0" {
		t.Errorf("after = bash offers %q", got)
	}
}
