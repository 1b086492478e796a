// This file owns the Report's forms: the table for a terminal, JUnit, and the tables of
// the README.

package lab

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"slices"
	"strings"

	"github.com/sbxrun/sbxrun/spec"
)

// SetCgroup reads "on", "off" or "", which is on where it can be had.
func (o *Options) SetCgroup(s string) error {
	switch mode := spec.CgroupMode(s); mode {
	case "", spec.CgroupOn, spec.CgroupOff:
		o.Cgroup = mode
		return nil
	}
	return fmt.Errorf("cgroup: %q is neither on nor off", s)
}

// signs are how verdicts are drawn in tables.
var signs = map[Verdict]string{Stopped: "■", GotThrough: "○", NotHere: "·", Wrong: "!"}

const legend = "■ stopped   ○ got through   · not applicable   ! not as it should be"

// sign draws a cell; one that differs from the promise has a cross.
func (c *Cell) sign() string {
	if c.Differs() {
		return signs[c.Verdict] + "✗"
	}
	return signs[c.Verdict]
}

// Text is the report for a terminal.
func (r *Report) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-4s %-26s %s  what it does\n", "", "attack", strings.Join(r.Levels, " "))
	for _, row := range r.Rows {
		fmt.Fprintf(&b, "%-4s %-26s", row.Threat, row.Attack)
		for i := range row.Cells {
			fmt.Fprintf(&b, " %s", pad(row.Cells[i].sign(), 2))
		}
		fmt.Fprintf(&b, "  %s\n", row.What)
	}
	fmt.Fprintf(&b, "%s\n", legend)
	if r.Layers != nil {
		r.ablationText(&b)
	}
	fmt.Fprintf(&b, "\nwhat acted\n")
	for _, row := range r.Rows {
		for _, c := range row.Cells {
			if c.Verdict == Stopped {
				fmt.Fprintf(&b, "%-26s from %s: %s: %s\n%27s%s\n", row.Attack, c.Policy, c.Layer, c.Mechanism, "", c.Evidence)
				break
			}
		}
	}
	r.remarks(&b)
	return b.String()
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-len([]rune(s))))
}

func (r *Report) ablationText(b *strings.Builder) {
	fmt.Fprintf(b, "\nwhich layer stops it alone, and how many do\n%-31s", "")
	for _, l := range r.Layers {
		fmt.Fprintf(b, " %s", pad(short(l), 6))
	}
	fmt.Fprintln(b, " depth")
	for _, row := range r.Rows {
		fmt.Fprintf(b, "%-4s %-26s", row.Threat, row.Attack)
		for i := range row.Alone {
			fmt.Fprintf(b, " %s", pad(row.Alone[i].sign(), 6))
		}
		fmt.Fprintf(b, " %s\n", row.depth())
	}
	fmt.Fprintln(b, "\nsingle mechanisms, each with nothing else")
	for _, row := range r.Rows {
		for i := range row.Parts {
			c := &row.Parts[i]
			fmt.Fprintf(b, "%s %-26s %-26s %s\n", c.sign(), row.Attack, c.Policy, c.Evidence)
		}
	}
}

// short cuts a layer's name for a narrow column.
func short(name string) string { return name[:min(6, len(name))] }

func (r *Report) remarks(b *strings.Builder) {
	for i := range r.Rows {
		row := &r.Rows[i]
		for _, list := range [][]Cell{row.Cells, row.Alone, row.Parts} {
			for j := range list {
				if c := &list[j]; c.First != "" {
					fmt.Fprintf(b, "\ntried twice: %s at %s: the first could not be judged: %s", row.Attack, c.Policy, c.First)
				}
			}
		}
		row.explain(b)
	}
	for _, n := range r.Notes {
		fmt.Fprintf(b, "\nnote: %s", n)
	}
	fmt.Fprintf(b, "\n%d attacks as %s, cgroup %s, in %.0f s: ", len(r.Rows), r.User, r.Cgroup, r.Seconds)
	if r.Differ == 0 {
		fmt.Fprintln(b, "every level keeps its promise")
	} else {
		fmt.Fprintf(b, "%d cells differ from the promise\n", r.Differ)
	}
}

// explain says what differs from the promise, and why the promise differs from the
// usual: once for levels with the same reason.
func (row *Row) explain(b *strings.Builder) {
	levels := map[string][]string{}
	var order []string
	cells := slices.Concat(row.Cells, row.Parts)
	for i := range cells {
		c, text := &cells[i], ""
		switch {
		case c.Differs():
			fmt.Fprintf(b, "\nDIFFERS %s at %s: %s, promised is %s: %s", row.Attack, c.Policy, c.Verdict, c.Promised, c.Evidence)
		case c.Why != "":
			text = fmt.Sprintf("%s: %s", c.Verdict, c.Why)
		case c.Verdict == NotHere && c.Evidence != "":
			text = fmt.Sprintf("%s: %s", c.Verdict, c.Evidence)
		}
		if text != "" && levels[text] == nil {
			order = append(order, text)
		}
		levels[text] = append(levels[text], c.Policy)
	}
	for _, text := range order {
		fmt.Fprintf(b, "\n%s at %s: %s", row.Attack, strings.Join(levels[text], " "), text)
	}
}

// JUnit is the report as the XML that build servers read: a suite for each level, and
// with ablation one for the mechanisms that were on alone.
func (r *Report) JUnit() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s<testsuites>\n", xml.Header)
	for i, level := range r.Levels {
		suite(&b, level, r.Rows, func(row *Row) []Cell { return row.Cells[i : i+1] })
	}
	if len(r.Layers) > 0 {
		suite(&b, "mechanisms", r.Rows, func(row *Row) []Cell { return row.Parts })
	}
	fmt.Fprintln(&b, "</testsuites>")
	return b.Bytes()
}

// suite writes those cells of each row as one suite.
func suite(b *bytes.Buffer, name string, rows []Row, of func(*Row) []Cell) {
	var cases bytes.Buffer
	tests, failures, skipped := 0, 0, 0
	for i := range rows {
		for _, c := range of(&rows[i]) {
			test := rows[i].Attack
			if c.Policy != name {
				test += "/" + c.Policy
			}
			tests++
			fmt.Fprintf(&cases, "<testcase classname=%q name=%q time=\"%.3f\">", name, test, float64(c.WallMS)/1000)
			text := escaped(fmt.Sprintf("%s: %s", c.Verdict, c.Evidence))
			switch {
			case c.Differs():
				failures++
				fmt.Fprintf(&cases, "<failure message=\"promised is %s\">%s</failure>", c.Promised, text)
			case c.Verdict == NotHere:
				skipped++
				fmt.Fprintf(&cases, "<skipped/>")
			default:
				fmt.Fprintf(&cases, "<system-out>%s</system-out>", text)
			}
			fmt.Fprintln(&cases, "</testcase>")
		}
	}
	fmt.Fprintf(b, "<testsuite name=%q tests=\"%d\" failures=\"%d\" skipped=\"%d\">\n%s</testsuite>\n", "sbxrun lab "+name, tests, failures, skipped, &cases)
}

// escaped makes text safe for XML and HTML.
func escaped(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a Buffer takes everything
	return b.String()
}

// Markdown is the matrix with the depth of defence, and for each attack what acts: the
// part of the README that is made from a run. Nothing in it changes from run to run.
func (r *Report) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| attack: the program … | %s | depth | what stops it first |\n|---|%s---|---|\n", strings.Join(r.Levels, " | "), strings.Repeat("---|", len(r.Levels)))
	for i := range r.Rows {
		row := &r.Rows[i]
		fmt.Fprintf(&b, "| %s |", row.What)
		acts := ""
		for i := range row.Cells {
			c := &row.Cells[i]
			fmt.Fprintf(&b, " %s |", c.sign())
			if acts == "" && c.Verdict == Stopped {
				acts = c.Layer + ": " + c.Mechanism
			}
		}
		fmt.Fprintf(&b, " %s | %s |\n", row.depth(), acts)
	}
	return b.String()
}

// depth is how many layers stop the attack alone; what nothing switches off always does.
func (row *Row) depth() string {
	if row.Depth == nil || *row.Depth == 0 && (len(row.Alone) == 0 || row.Alone[0].Verdict != GotThrough) {
		return "always"
	}
	return fmt.Sprint(*row.Depth)
}
