// This file owns the page of the policy language, POLICY.md, made from the tables.

package spec

import (
	"fmt"
	"strings"
)

// intro and types are the words before the tables.
var intro = []string{
	"A policy file is YAML or JSON: `level` names a preset (L5 without one), the keys below differ from it. " +
		"Keys of a group may stand in a mapping: `limits: {wall: 1s}`. A list replaces the one that it changes.",
	"`extends: FILE` starts from another policy file, beside this one; that file says the level. " +
		"`vars: {NAME: TEXT}` are variables for paths, used as `${NAME}`; those of a file that extends win.",
	"The digest of a policy is the SHA-256 of the config.json that `sbxrun compile` prints of it, as `sha256sum` prints it too. " +
		"A config.json that was formatted otherwise has the digest of the text that compile would have printed. " +
		"At L0 and L1 the program's environment is the caller's, and so part of it.",
}

var types = [][2]string{
	{"duration", "`1.5s`, `500ms`, `2m`; `off` is none"},
	{"size", "bytes, or with KiB, MiB, GiB (1024), kB, MB, GB (1000); `off` is none"},
	{"count", "a number; `off` is none"},
	{"switch", "`true`, `on`, `yes`, `false`, `off`, `no`"},
	{"paths", "a list of absolute paths"},
	{"variables", "a mapping of names to texts"},
}

// Page is the policy language as Markdown: keys, types, presets, mechanisms, rules.
func Page() string {
	var b strings.Builder
	b.WriteString("# The policy language\n\n<!-- Written by a test from the tables in table.go, layer.go and check.go: UPDATE=1 go test ./spec -run Page -->\n\n")
	for _, line := range intro {
		b.WriteString(line + "\n\n")
	}
	b.WriteString("| type | how it is written |\n|---|---|\n")
	for _, t := range types {
		fmt.Fprintf(&b, "| %s | %s |\n", t[0], t[1])
	}
	for _, l := range layers {
		fmt.Fprintf(&b, "\n## %s (from %v)\n\n", l.name, l.from)
		for _, item := range l.denied {
			fmt.Fprintf(&b, "- the program cannot: %s\n", item)
		}
		for _, item := range l.remains {
			fmt.Fprintf(&b, "- not stopped: %s\n", item.say)
		}
		b.WriteString("\n| key | type | meaning | L0 | L1 | L2 | L3 | L4 | L5 | enforced by | in config.json |\n|---|---|---|---|---|---|---|---|---|---|---|\n")
		for _, k := range keys {
			if k.Layer != l.name {
				continue
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s |", k.Name, k.Type, cell(k.Meaning))
			for level := L0; level <= L5; level++ {
				p := Preset(level)
				fmt.Fprintf(&b, " %s |", strings.ReplaceAll(k.get(&p), ",", " "))
			}
			fmt.Fprintf(&b, " %s | `%s` |\n", cell(k.Mechanism), strings.Join(k.Fields, "` `"))
		}
	}
	b.WriteString("\n# The rules of check\n\nThe examples are merge patches (RFC 7396) to a config without findings.\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "\n## %s (%s)\n\nFinds: %s. Advice: %s.\n", r.ID, r.Severity, r.Says, r.Advice)
		if r.Bad != "" {
			fmt.Fprintf(&b, "\nFails: `%s`\n\nPasses: `%s`\n", r.Bad, r.Good)
		}
	}
	return b.String()
}
