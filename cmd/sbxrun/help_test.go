// Tests of what somebody finds out who does not know sbxrun yet: help, suggestions.

package main

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/urfave/cli/v2"
)

// everyCommand gives the words of each command, those of commands in commands too.
func everyCommand(all []*cli.Command, before ...string) (out [][]string) {
	for _, c := range visible(all) {
		words := append(slices.Clone(before), c.Name)
		out = append(append(out, words), everyCommand(c.Subcommands, words...)...)
	}
	return out
}

func TestEveryHelpFitsAScreen(t *testing.T) {
	commands := append(everyCommand(newApp().Commands), nil)
	if len(commands) < 24 {
		t.Fatalf("only %d commands found", len(commands))
	}
	for _, words := range commands {
		o := call(t, append(slices.Clone(words), "--help")...)
		lines := strings.Split(strings.TrimSuffix(o.stdout, "\n"), "\n")
		// One line of the 24 is the shell's prompt.
		if o.exit != 0 || o.stderr != "" || len(lines) > 23 || !strings.Contains(o.stdout, "usage: sbxrun") {
			t.Errorf("%v --help: exit %d, %d lines, stderr %q:\n%s", words, o.exit, len(lines), o.stderr, o.stdout)
		}
		for _, line := range lines {
			if utf8.RuneCountInString(line) > usual {
				t.Errorf("%v --help: wider than %d: %s", words, usual, line)
			}
		}
		again := call(t, append([]string{"help"}, words...)...)
		if len(words) < 2 && again.stdout != o.stdout {
			t.Errorf("help %v says other things than --help:\n%s", words, again.stdout)
		}
	}
}

func TestHelpNamesEveryCommandInAGroupAndEveryOption(t *testing.T) {
	app := newApp()
	root := call(t, "--help").stdout
	for _, c := range visible(app.Commands) {
		if c.Category == "" || c.Usage == "" || !strings.Contains(root, " "+c.Name) {
			t.Errorf("%s: group %q, usage %q; is it in the help?", c.Name, c.Category, c.Usage)
		}
	}
	for _, words := range everyCommand(app.Commands) {
		c := app.Command(words[0])
		for _, word := range words[1:] {
			c = named(c.Subcommands, word)
		}
		text := strings.Join(strings.Fields(call(t, append(words, "--help")...).stdout), " ")
		for _, f := range c.Flags {
			if shown(f) && !strings.Contains(text, synopsis(f)) {
				t.Errorf("%v --help lacks %q", words, synopsis(f))
			}
		}
	}
}

func TestAMistypedWordIsToldTheNearest(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
		exit int
	}{
		{[]string{"explian", "L3"}, `did you mean "explain"?`, 3},
		{[]string{"help", "dif"}, "No help topic for 'dif'", 125},
		{[]string{"xyz"}, `unknown command "xyz": No help topic for 'xyz', see sbxrun --help`, 3},
		{[]string{"--rot", "/x", "list"}, "unknown option --rot (did you mean --root?), see sbxrun --help", 1},
		{[]string{"code", "--wal", "3s", "--", "true"}, "code: unknown option --wal (did you mean --wall?), see sbxrun code --help", 125},
		{[]string{"diff", "--exit-widr", "L1", "L2"}, "(did you mean --exit-wider?)", 2},
		{[]string{"check", "--requires", "all", "L5"}, "(did you mean --require?)", 2},
		{[]string{"update", "--memroy", "64M", "x"}, "(did you mean --memory?)", 1},
		{[]string{"explain", "--fortnight", "L5"}, "explain: unknown option --fortnight, see sbxrun explain --help", 125},
		{[]string{"explain", "--wall"}, "option --wall needs a value", 125},
		{[]string{"explain", "--json=maybe", "L5"}, `--json: "maybe" is not a value for it`, 125},
		{[]string{"session", "creat"}, `session: unknown command "creat" (did you mean "create"?)`, 125},
		{[]string{"explain", "L33"}, `(did you mean "L3"?)`, 125},
		{[]string{"check", "--require", "no-fliter", "L5"}, `(did you mean "no-filter"?)`, 2},
		{[]string{"code", "--lang", "pyton", "-"}, `(did you mean "python"?)`, 125},
	} {
		o := call(t, tc.args...)
		if o.exit != tc.exit || o.stdout != "" || strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, tc.want) {
			t.Errorf("%v: %+v, want exit %d and one line with %q", tc.args, o, tc.exit, tc.want)
		}
	}
}

// What somebody wrote first and remembers the option afterwards must work.
func TestOptionsMayStandAfterTheArguments(t *testing.T) {
	for _, args := range [][]string{{"explain", "L3", "--json"}, {"diff", "L3", "L3", "--json"}, {"check", "L5", "--require", "all", "--json"}} {
		if o := call(t, args...); o.exit != 0 || !strings.HasPrefix(o.stdout, "{") && !strings.HasPrefix(o.stdout, "[") {
			t.Errorf("%v: %+v", args, o)
		}
	}
}

func TestLinesAreFoldedBeneathTheirLastColumn(t *testing.T) {
	for _, tc := range []struct {
		text, want string
		width      int
	}{
		{"short\n", "short\n", 30},
		{"  name  one two three four five six seven\n", "  name  one two three four\n        five six seven\n", 30},
		{"one two three four five six seven eight\n", "one two three four five six\n  seven eight\n", 30},
		{"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\n", "abcdefghijklmnopqrstuvwxyzabcd\n  efghijklmnopqrstuvwxyz\n", 30},
		{"\x1b[1mone two three four five six\x1b[0m seven\n", "\x1b[1mone two three four five six\x1b[0m\n  seven\n", 30},
		{"ääääääääää öööööööööö üüüüüüüüüü\n", "ääääääääää öööööööööö\n  üüüüüüüüüü\n", 30},
		{"\n\n", "\n\n", 30},
		{"", "", 30},
	} {
		if got := fold(tc.text, tc.width); got != tc.want {
			t.Errorf("fold(%q, %d) is %q, want %q", tc.text, tc.width, got, tc.want)
		}
	}
	words := strings.Fields(strings.Repeat("a bb ccc dddddddddddddddddddddd ", 40))
	for width := narrowest; width < 120; width++ {
		folded := fold("  key     value  "+strings.Join(words, " ")+"\n", width)
		if got := strings.Join(strings.Fields(folded), ""); got != "keyvalue"+strings.Join(words, "") {
			t.Fatalf("width %d: words are lost:\n%s", width, folded)
		}
		for line := range strings.Lines(folded) {
			if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > width {
				t.Fatalf("width %d: too wide: %q", width, line)
			}
		}
	}
}
