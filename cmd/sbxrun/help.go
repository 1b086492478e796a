// This file owns --help, which fits a screen of 24 lines and 80 columns, and what an
// error suggests to somebody who mistyped.

package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/spec"
)

// group marks the commands as those of one kind of user.
func group(title string, commands ...*cli.Command) []*cli.Command {
	for _, c := range commands {
		c.Category = title
	}
	return commands
}

// forEngines are the commands whose names say to their users what they do.
const forEngines = "for engines, as runc has them"

// keyFlags is the category of the flags that each change one key of the policy.
const keyFlags = "keys of the policy"

// printHelp is what the library calls for --help and help.
func printHelp(w io.Writer, _ string, data any) {
	text := ""
	switch d := data.(type) {
	case *cli.App:
		text = appHelp(d)
	case *cli.Command:
		text = commandHelp(d)
	}
	width := usual
	if f, ok := w.(*os.File); ok && widthOf(f) > 0 {
		width = min(width, widthOf(f))
	}
	text = strings.ReplaceAll(fold(text, width), unbroken, " ")
	_, _ = io.WriteString(w, text) // the library does not take an error
}

// appHelp lists the commands by who uses them.
func appHelp(app *cli.App) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s - %s\nusage: %s [GLOBAL OPTION…] COMMAND [OPTION…] [ARGUMENT…]\n", app.Name, app.Usage, app.Name)
	var titles []string
	for _, c := range app.Commands {
		if !c.Hidden && c.Category != "" && !slices.Contains(titles, c.Category) {
			titles = append(titles, c.Category)
		}
	}
	for _, title := range titles {
		b.WriteString(title + ":\n")
		var names []string
		for _, c := range app.Commands {
			switch {
			case c.Hidden || c.Category != title:
			case title == forEngines:
				names = append(names, c.Name)
			default:
				fmt.Fprintf(&b, "  %-10s  %s\n", c.Name, c.Usage)
			}
		}
		if names != nil {
			b.WriteString("  " + strings.Join(names, " ") + "\n")
		}
	}
	b.WriteString("global options:\n  " + strings.Join(synopses(app.Flags, ""), "  ") + "\n")
	fmt.Fprintf(&b, "more: %s COMMAND --help, and the manual pages sbxrun(1) and sbxrun-policy(5)\n", app.Name)
	return b.String()
}

func commandHelp(c *cli.Command) string {
	name := c.HelpName
	if name == "" {
		name = "sbxrun " + c.Name
	}
	args := c.ArgsUsage
	if len(visible(c.Subcommands)) > 0 {
		args = "COMMAND [OPTION…] [ARGUMENT…]"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s - %s\nusage: %s\n", name, c.Usage, strings.TrimSpace(name+" [OPTION…] "+args))
	if c.Description != "" {
		b.WriteString(c.Description + "\n")
	}
	for _, sub := range visible(c.Subcommands) {
		fmt.Fprintf(&b, "  %-10s  %s\n", sub.Name, sub.Usage)
	}
	var rows [][2]string
	wide := 0
	for _, f := range c.Flags {
		if shown(f) && categoryOf(f) != keyFlags {
			rows = append(rows, [2]string{synopsis(f), meaning(f)})
			wide = max(wide, len([]rune(rows[len(rows)-1][0])))
		}
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "  %-*s  %s\n", wide, r[0], r[1])
	}
	if all := synopses(c.Flags, keyFlags); len(all) > 0 {
		b.WriteString(keyFlags + ", each changed by name, see sbxrun-policy(5):\n  " + strings.Join(all, "  ") + "\n")
	}
	return b.String()
}

// visible leaves out what is hidden and the library's own help command.
func visible(commands []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(commands), func(c *cli.Command) bool { return c.Hidden || c.Name == "help" })
}

func shown(f cli.Flag) bool {
	v, ok := f.(cli.VisibleFlag)
	return (!ok || v.IsVisible()) && f.Names()[0] != "help"
}

func categoryOf(f cli.Flag) string {
	if c, ok := f.(cli.CategorizableFlag); ok {
		return c.GetCategory()
	}
	return ""
}

// unbroken is a blank at which no line is folded.
const unbroken = "\u00a0"

// synopses are the flags of a category, each unbroken.
func synopses(flags []cli.Flag, category string) (out []string) {
	for _, f := range flags {
		if shown(f) && categoryOf(f) == category {
			out = append(out, strings.ReplaceAll(synopsis(f), " ", unbroken))
		}
	}
	return out
}

// synopsis is a flag as it is written: "--env K=V, -e".
func synopsis(f cli.Flag) string {
	var names []string
	for _, n := range f.Names() {
		names = append(names, dashed(n))
	}
	return strings.TrimSpace(strings.Join(names, ", ") + " " + valueOf(f))
}

// dashed is a flag's name with one dash or two.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// valueOf names the value that the flag takes, "" of a switch.
func valueOf(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok || !d.TakesValue() {
		return ""
	}
	if part := strings.Split(d.GetUsage(), "`"); len(part) == 3 {
		return part[1]
	}
	switch f.(type) {
	case *cli.StringFlag, *cli.StringSliceFlag:
		return "TEXT"
	case *cli.DurationFlag:
		return "TIME"
	}
	return "N"
}

// meaning is a flag's usage with its default.
func meaning(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	text := strings.ReplaceAll(d.GetUsage(), "`", "")
	if value := defaultOf(f, d); value != "" {
		text += " (" + value + ")"
	}
	return text
}

// defaultOf is the text for people, else the value, of a flag that has one.
func defaultOf(f cli.Flag, d cli.DocGenerationFlag) string {
	text := strings.Trim(d.GetDefaultText(), `"`)
	if _, isSwitch := f.(*cli.BoolFlag); isSwitch && (text == "false" || text == "true") || text == "0" {
		return ""
	}
	return text
}

// didYouMean names what is nearest to a mistyped word.
func didYouMean(word string, known []string, write func(string) string) string {
	if best := spec.Nearest(word, known); best != "" {
		return " (did you mean " + write(best) + "?)"
	}
	return ""
}

// The flag package's words for what it does not like. They are compiled when there is
// such an error: every run would pay for it.
const (
	unknownFlag  = `^flag provided but not defined: -(.*)$`
	missingValue = `^flag needs an argument: -(.*)$`
	invalidValue = `^invalid (?:boolean )?value ("(?:[^"\\]|\\.)*") for (?:flag )?-(\S+): (.*)$`
)

// plainer says in our words what the flag package found, with the nearest flag.
func plainer(err error, flags []cli.Flag) error {
	text := err.Error()
	if m := regexp.MustCompile(missingValue).FindStringSubmatch(text); m != nil {
		return fmt.Errorf("option %s needs a value", dashed(m[1]))
	}
	if m := regexp.MustCompile(invalidValue).FindStringSubmatch(text); m != nil {
		return fmt.Errorf("%s: %s is not a value for it: %s", dashed(m[2]), m[1], m[3])
	}
	m := regexp.MustCompile(unknownFlag).FindStringSubmatch(text)
	if m == nil {
		return err
	}
	var known []string
	for _, f := range flags {
		if shown(f) {
			known = append(known, f.Names()...)
		}
	}
	return fmt.Errorf("unknown option %s%s", dashed(m[1]), didYouMean(m[1], append(known, "help"), dashed))
}
