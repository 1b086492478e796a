// This file owns the manual page of the policy language, made from the same tables as
// POLICY.md.

package spec

import (
	"fmt"
	"strings"
)

// ManPage is sbxrun-policy(5).
func ManPage() string {
	var b strings.Builder
	b.WriteString(`.\" Written by a test from the tables in table.go, layer.go and check.go: make man` + "\n")
	b.WriteString(".TH SBXRUN-POLICY 5 \"\" sbxrun \"File Formats\"\n.ad l\n.nh\n.SH NAME\nsbxrun\\-policy \\- what a program may do, in words for people\n.SH DESCRIPTION\n")
	for _, line := range intro {
		b.WriteString(Roff(strings.ReplaceAll(line, "`", "")) + "\n.PP\n")
	}
	b.WriteString(".SH TYPES\n")
	for _, t := range types {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", t[0], Roff(strings.ReplaceAll(t[1], "`", "")))
	}
	b.WriteString(".SH KEYS\n")
	for _, l := range layers {
		fmt.Fprintf(&b, ".SS %s (from %v)\n", l.name, l.from)
		for _, item := range l.denied {
			b.WriteString(Roff("The program cannot: "+item) + ".\n.br\n")
		}
		for _, item := range l.remains {
			b.WriteString(Roff("Not stopped: "+item.say) + ".\n.br\n")
		}
		for _, k := range keys {
			if k.Layer == l.name {
				fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", Roff(k.Name+": "+k.Type), Roff(fmt.Sprintf("%s. %s. Enforced by: %s. In config.json: %s.",
					sentence(k.Meaning), k.byLevel(), k.Mechanism, strings.Join(k.Fields, ", "))))
			}
		}
	}
	b.WriteString(".SH RULES OF CHECK\n")
	for _, r := range rules {
		fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", Roff(r.ID+" ("+string(r.Severity)+")"), Roff(sentence(r.Says)+". "+sentence(r.Advice)+"."))
	}
	b.WriteString(".SH SEE ALSO\n.BR sbxrun (1)\n")
	return b.String()
}

func sentence(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

// byLevel says which levels of the presets have which value.
func (k *Key) byLevel() string {
	var out []string
	from, value := L0, ""
	for level := L0; level <= L5+1; level++ {
		p := Preset(min(level, L5))
		if v := k.get(&p); level > L5 || level > L0 && v != value {
			span := from.String()
			if last := level - 1; last > from {
				span += " to " + last.String()
			}
			switch value {
			case "":
				value = "none"
			case "0", "0s":
				value = "off"
			}
			out, from = append(out, span+": "+strings.ReplaceAll(value, ",", ", ")), level
		}
		value = k.get(&p)
	}
	return strings.Join(out, "; ")
}

// Roff writes text so that roff takes it as it is.
func Roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n", " ", ",/", `,\:/`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
