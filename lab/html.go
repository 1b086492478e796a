// This file owns the page: one self-contained file with the matrix as a picture, for a
// screen of any width and for paper.

package lab

import (
	"bytes"
	"fmt"
	"strings"
)

// style is all there is to the page's looks: no script, nothing fetched.
const style = `
:root { --stopped:#1b7f5c; --through:#c8442c; --none:#d9d9d4; --wrong:#8a2be2; --ink:#222; --paper:#fff }
@media (prefers-color-scheme:dark) { @media screen { :root { --ink:#e6e6e6; --paper:#16181a; --none:#3a3d40 } } }
body { font:15px/1.45 system-ui,sans-serif; color:var(--ink); background:var(--paper); margin:0 auto; padding:1rem; max-width:64rem }
h1 { font-size:1.4rem } h2 { font-size:1.1rem; margin-top:2rem }
table { border-collapse:collapse; width:100% }
th,td { text-align:left; padding:.15rem .3rem; vertical-align:top }
th.c,td.c { text-align:center; width:2.2rem } thead th { vertical-align:bottom }
.key { white-space:nowrap; margin-right:1rem; line-height:1.8 }
tbody tr { border-top:1px solid var(--none) }
td small { color:var(--ink); opacity:.7 }
.cell { display:inline-block; width:1.7rem; height:1.25rem; line-height:1.25rem; border-radius:.25rem; color:#fff; font-size:.8rem; text-align:center;
  print-color-adjust:exact; -webkit-print-color-adjust:exact }
.stopped { background:var(--stopped) } .through { background:var(--through) } .none { background:var(--none); color:var(--ink) } .wrong { background:var(--wrong) }
.differs { outline:3px solid var(--wrong) }
.down { writing-mode:vertical-rl; transform:rotate(180deg); font-weight:normal }
details { margin:.2rem 0 } summary { cursor:pointer }
.wide { overflow-x:auto }
@media (max-width:40rem) { body { font-size:13px; padding:.5rem } td small { display:none } .cell { width:1.35rem } th.c,td.c { width:1.5rem; padding:.15rem .05rem } }
@media print { body { font-size:9.5px; max-width:none } tr { break-inside:avoid } details { display:none } }
`

// classes and marks draw verdicts: the mark says it without colour.
var (
	classes = map[Verdict]string{Stopped: "stopped", GotThrough: "through", NotHere: "none", Wrong: "wrong"}
	said    = map[Verdict]string{Stopped: "stopped", GotThrough: "got through", NotHere: "not applicable", Wrong: "not as it should be"}
	marks   = map[Verdict]string{Stopped: "✓", GotThrough: "→", NotHere: "·", Wrong: "!"}
)

// HTML is the report as one page.
func (r *Report) HTML() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<title>sbxrun lab</title><style>%s</style></head><body>\n<h1>sbxrun lab</h1>\n", style)
	fmt.Fprintf(&b, "<p>%d attacks on this machine, as %s, control group %s, in %.0f s. ", len(r.Rows), r.User, escaped(r.Cgroup), r.Seconds)
	if r.Differ == 0 {
		fmt.Fprint(&b, "<b>Every level keeps its promise.</b></p>\n")
	} else {
		fmt.Fprintf(&b, "<b>%d cells differ from what the level promises.</b></p>\n", r.Differ)
	}
	fmt.Fprint(&b, "<p>")
	for _, v := range []Verdict{Stopped, GotThrough, NotHere, Wrong} {
		fmt.Fprintf(&b, "<span class=\"key\"><span class=\"cell %s\">%s</span> %s</span> ", classes[v], marks[v], said[v])
	}
	fmt.Fprint(&b, "</p>\n<h2>Which level stops what</h2>\n")
	r.picture(&b, r.Levels, func(row *Row) []Cell { return row.Cells }, false)
	if r.Layers != nil {
		fmt.Fprint(&b, "<h2>Which layer stops it alone</h2>\n")
		r.picture(&b, r.Layers, func(row *Row) []Cell { return row.Alone }, true)
	}
	fmt.Fprint(&b, "<h2>What acted</h2>\n")
	for i := range r.Rows {
		r.Rows[i].details(&b)
	}
	fmt.Fprint(&b, "<h2>Notes</h2>\n<ul>\n")
	for _, n := range r.Notes {
		fmt.Fprintf(&b, "<li>%s</li>\n", escaped(n))
	}
	fmt.Fprint(&b, "</ul></body></html>\n")
	return b.Bytes()
}

// picture draws a table of cells.
func (r *Report) picture(b *bytes.Buffer, columns []string, cells func(*Row) []Cell, depth bool) {
	fmt.Fprint(b, "<div class=\"wide\"><table><thead><tr><th>attack</th>")
	for _, c := range columns {
		fmt.Fprintf(b, "<th class=\"c\"><span class=\"%s\">%s</span></th>", map[bool]string{true: "down"}[depth], c)
	}
	if depth {
		fmt.Fprint(b, "<th class=\"c\">depth</th>")
	}
	fmt.Fprint(b, "</tr></thead><tbody>\n")
	for i := range r.Rows {
		row := &r.Rows[i]
		fmt.Fprintf(b, "<tr><td>%s<br><small>%s</small></td>", row.Attack, escaped(row.What))
		list := cells(row)
		for j := range list {
			c := &list[j]
			class := classes[c.Verdict]
			if c.Differs() {
				class += " differs"
			}
			fmt.Fprintf(b, "<td class=\"c\"><span class=\"cell %s\" title=\"%s at %s: %s\">%s</span></td>", class, c.Verdict, c.Policy, escaped(c.Evidence), marks[c.Verdict])
		}
		if depth {
			fmt.Fprintf(b, "<td class=\"c\">%s</td>", row.depth())
		}
		fmt.Fprint(b, "</tr>\n")
	}
	fmt.Fprint(b, "</tbody></table></div>\n")
}

// details lists what was seen at each level.
func (row *Row) details(b *bytes.Buffer) {
	fmt.Fprintf(b, "<details><summary>%s: %s</summary><ul>\n", row.Attack, escaped(row.What))
	for i := range row.Cells {
		c := &row.Cells[i]
		line := string(c.Verdict)
		if c.Differs() {
			line += ", promised is " + string(c.Promised)
		}
		if c.Layer != "" {
			line += " by " + c.Layer + ": " + c.Mechanism
		}
		if c.First != "" {
			line += ", at the second try, since the first could not be judged (" + c.First + ")"
		}
		fmt.Fprintf(b, "<li>%s %s</li>\n", c.Policy, escaped(strings.TrimSuffix(line+" — "+c.Evidence+" "+c.Why, " — ")))
	}
	fmt.Fprint(b, "</ul></details>\n")
}
