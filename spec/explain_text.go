// This file owns how an Explanation looks: as aligned text, and as Markdown.

package spec

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// maxField is how much of a field's value the text shows; JSON has all of it.
const maxField = 240

// The colours of a terminal.
const (
	bold, green, yellow, red, plain = "\x1b[1m", "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[0m"
)

// enforced says who keeps what the settings below say.
const enforced = "what this machine cannot do of it is refused, never left out; annotations are kept by the supervisor, all other fields by the kernel"

// headline says what is explained and which level it amounts to.
func (e *Explanation) headline() string {
	if e.Compiled {
		return fmt.Sprintf("%s: a policy of level %v", e.Subject, e.Level)
	}
	amounts := e.Level.String()
	if next := e.Level + 1; next <= L5 {
		amounts += fmt.Sprintf("; what is missing to %v stands below", next)
	}
	return fmt.Sprintf("%s: not made by sbxrun (so no wall clock, output cap, sweep), amounts to %s", e.Subject, amounts)
}

// lists gives the lists of a layer with their headings.
func (l *LayerInForce) lists() []struct {
	name  string
	items []string
} {
	return []struct {
		name  string
		items []string
	}{{"allowed", l.Allowed}, {"not allowed", l.NotAllowed}, {"not stopped", l.Remains}, {"lacks", l.Missing}, {"init's steps", joinedOrNone(l.Steps)}}
}

// joinedOrNone makes one item of many.
func joinedOrNone(items []string) []string {
	if len(items) == 0 {
		return nil
	}
	return []string{strings.Join(items, ", ")}
}

// summary is the state of every layer in a line.
func (e *Explanation) summary() string {
	var out []string
	for _, l := range e.Layers {
		out = append(out, l.Layer+" "+l.InForce)
	}
	return strings.Join(out, ", ")
}

// fields are those of the layer's settings that the config has, each once.
func (l *LayerInForce) fields() (out []string) {
	for _, s := range l.Settings {
		for _, f := range s.Fields {
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// Text is the explanation for people, with the colours of a terminal if asked for.
func (e *Explanation) Text(colour bool) string {
	paint := func(with, s string) string {
		if colour {
			return with + s + plain
		}
		return s
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nlayers  %s\nconfig  %s\n", paint(bold, e.headline()), e.summary(), e.Digest)
	if len(e.Wider) > 0 {
		fmt.Fprintf(&b, "%s\n", paint(yellow, "wider than the preset: "+strings.Join(e.Wider, ", ")))
	}
	if len(e.Answers) > 0 {
		fmt.Fprintf(&b, "        %s\n\n", enforced)
	}
	for _, a := range e.Answers {
		fmt.Fprintf(&b, "%-46s %s\n", a.Question, a.Answer)
	}
	for _, l := range e.Layers {
		state := map[string]string{"on": green, "partly": yellow, "off": red}[l.InForce]
		fmt.Fprintf(&b, "\n%s %s\n", paint(bold, fmt.Sprintf("%s (from %v):", l.Layer, l.From)), paint(state, l.InForce))
		for _, list := range l.lists() {
			for i, item := range list.items {
				name := list.name
				if i > 0 {
					name = ""
				}
				fmt.Fprintf(&b, "  %-12s %s\n", name, item)
			}
		}
		if e.Compiled {
			b.WriteString(l.table())
			continue
		}
		name := "config.json"
		for _, f := range l.fields() {
			fmt.Fprintf(&b, "  %-12s %s\n", name, shorten(f, maxField))
			name = ""
		}
	}
	if len(e.Start) > 0 {
		fmt.Fprintf(&b, "\nsteps of init that start the program: %s\n", strings.Join(e.Start, ", "))
	}
	return b.String()
}

// table lines up the settings of a layer, each with its fields below it.
func (l *LayerInForce) table() string {
	var b, rows strings.Builder
	var shown []string
	w := tabwriter.NewWriter(&rows, 0, 0, 2, ' ', 0)
	for _, s := range l.Settings {
		value := s.Value
		if s.Wider {
			value += " (wider)"
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", s.Key, shorten(value, 40), s.Source, s.Mechanism)
	}
	w.Flush() //nolint:errcheck // a strings.Builder takes everything
	for i, line := range strings.Split(strings.TrimSuffix(rows.String(), "\n"), "\n") {
		b.WriteString(strings.TrimRight(line, " ") + "\n")
		for _, f := range l.Settings[i].Fields {
			if !slices.Contains(shown, f) {
				b.WriteString("      " + shorten(f, maxField) + "\n")
			}
			shown = append(shown, f)
		}
	}
	return b.String()
}

// shorten keeps at most n characters.
func shorten(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

// cell escapes what would end a Markdown table's cell.
func cell(s string) string { return strings.NewReplacer("|", "\\|", "\n", " ").Replace(s) }

// Markdown is the explanation as a page.
func (e *Explanation) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nLayers: %s\n\nConfig `%s`\n", e.headline(), e.summary(), e.Digest)
	if len(e.Answers) > 0 {
		fmt.Fprintf(&b, "\n%s%s.\n", strings.ToUpper(enforced[:1]), enforced[1:])
		b.WriteString("\n| question | answer |\n|---|---|\n")
	}
	for _, a := range e.Answers {
		fmt.Fprintf(&b, "| %s | %s |\n", cell(a.Question), cell(a.Answer))
	}
	for _, l := range e.Layers {
		fmt.Fprintf(&b, "\n## %s (from %v): %s\n\n", l.Layer, l.From, l.InForce)
		for _, list := range l.lists() {
			for _, item := range list.items {
				fmt.Fprintf(&b, "- %s: %s\n", list.name, item)
			}
		}
		if !e.Compiled {
			for _, f := range l.fields() {
				fmt.Fprintf(&b, "- config.json: `%s`\n", shorten(f, maxField))
			}
			continue
		}
		b.WriteString("\n| key | value | from | enforced by | setting |\n|---|---|---|---|---|\n")
		for _, s := range l.Settings {
			var fields []string
			for _, f := range s.Fields {
				fields = append(fields, "`"+cell(shorten(f, maxField))+"`")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Key, cell(s.Value), cell(s.Source), cell(s.Mechanism), strings.Join(fields, " "))
		}
	}
	return b.String()
}
