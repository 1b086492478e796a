// The manual page of the command line, made from the table of the commands. It is made
// here, since a binary that is started twice for each run should carry no generator.

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/spec"
)

const manPage = "../../hack/man/sbxrun.1"

func TestTheManPageOfTheCommandsIsFresh(t *testing.T) {
	got := man(newApp())
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(manPage, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(manPage)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s is not what the commands say; run make man and look at the difference", manPage)
	}
}

func TestTheManPagesAreCleanRoff(t *testing.T) {
	needProgram(t, "groff")
	for _, page := range []string{manPage, "../../hack/man/sbxrun-policy.5"} {
		o := finishCommand(t, exec.Command("groff", "-man", "-t", "-Kutf8", "-Tutf8", "-ww", page))
		if o.exit != 0 || o.stderr != "" || !strings.Contains(o.stdout, "sbxrun") {
			t.Errorf("%s: exit %d: %s", page, o.exit, o.stderr)
		}
	}
}

// man is sbxrun(1).
func man(app *cli.App) string {
	r := spec.Roff
	var b strings.Builder
	b.WriteString(`.\" Written by a test from the table of the commands: make man` + "\n")
	b.WriteString(".TH SBXRUN 1 \"\" sbxrun \"User Commands\"\n.ad l\n.nh\n.SH NAME\n" + r(app.Name+" - "+app.Usage) + "\n")
	b.WriteString(".SH SYNOPSIS\n.B sbxrun\n" + r("[GLOBAL OPTION…] COMMAND [OPTION…] [ARGUMENT…]") + "\n")
	b.WriteString(".SH DESCRIPTION\n" + r("sbxrun runs a program under a policy. A policy has one of six levels, L0 to L5, each the one below plus a layer. "+
		"What comes back is the program's output and a verdict: it finished, or it was stopped, by which limit. "+
		"A policy that names a mechanism which is missing on the machine is refused; there is no weaker run in its place.") + "\n")
	b.WriteString(".SH GLOBAL OPTIONS\n")
	manFlags(&b, app.Flags)
	b.WriteString(".SH COMMANDS\n")
	title := ""
	for _, words := range everyCommand(app.Commands) {
		c := app.Command(words[0])
		if len(words) == 1 && c.Category != title {
			title = c.Category
			fmt.Fprintf(&b, ".SS %s\n", r(strings.ToUpper(title[:1])+title[1:]))
		}
		for _, word := range words[1:] {
			c = named(c.Subcommands, word)
		}
		fmt.Fprintf(&b, ".PP\n.B %s\n%s\n.RS 4\n%s.\n", r("sbxrun "+strings.Join(words, " ")), r("[OPTION…] "+c.ArgsUsage), r(strings.ToUpper(c.Usage[:1])+c.Usage[1:]))
		for _, line := range strings.FieldsFunc(c.Description, func(r rune) bool { return r == '\n' }) {
			b.WriteString(".br\n" + r(line) + "\n")
		}
		manFlags(&b, c.Flags)
		b.WriteString(".RE\n")
	}
	b.WriteString(manRest)
	return b.String()
}

func manFlags(b *strings.Builder, flags []cli.Flag) {
	for _, f := range flags {
		if shown(f) {
			fmt.Fprintf(b, ".TP\n.B %s\n%s\n", spec.Roff(synopsis(f)), spec.Roff(meaning(f)))
		}
	}
}

const manRest = `.SH EXIT STATUS
.TP
.B of code, and of run with a policy
the program's; 128 + signal when a signal ended it, its own or a limit's; 125 when nothing ran
.TP
.B of diff and check
0 nothing found, 1 something found, 2 the question could not be answered
.TP
.B of the commands for engines
as runc's
.SH ENVIRONMENT
.TP
.B NO_COLOR
no colours on a terminal
.SH EXAMPLES
.nf
sbxrun explain L3
sbxrun code \-\-lang python \-\-wall 5s program.py
sbxrun diff \-\-exit\-wider old.yaml new.yaml
sbxrun check \-\-require all bundle/config.json
.fi
.SH SEE ALSO
.BR sbxrun\-policy (5)
`
