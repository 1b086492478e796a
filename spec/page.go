// This file owns the page of the policy language, POLICY.md, made from the tables.

package spec

import (
	"fmt"
	"strings"
)

// Page is the policy language as Markdown: keys, types, presets, mechanisms, rules.
func Page() string {
	var b strings.Builder
	b.WriteString("# The policy language\n\n<!-- Written by a test from the tables in table.go, layer.go and check.go: UPDATE=1 go test ./spec -run Page -->\n\n" +
		"A policy file is YAML or JSON: `level` names a preset (L5 without one), the keys below differ from it.\n" +
		"Keys of a group may stand in a mapping: `limits: {wall: 1s}`. A list replaces the one that it changes.\n\n" +
		"- `extends: FILE` starts from another policy file, beside this one; that file says the level.\n" +
		"- `vars: {NAME: TEXT}` are variables for paths, used as `${NAME}`; those of a file that extends win.\n\n" +
		"| type | how it is written |\n|---|---|\n" +
		"| duration | `1.5s`, `500ms`, `2m`; `off` is none |\n| size | bytes, or with KiB, MiB, GiB (1024), kB, MB, GB (1000); `off` is none |\n" +
		"| count | a number; `off` is none |\n| switch | `true`, `on`, `yes`, `false`, `off`, `no` |\n| paths | a list of absolute paths |\n| variables | a mapping of names to texts |\n")
	for _, l := range layers {
		fmt.Fprintf(&b, "\n## %s (from %v)\n\n", l.name, l.from)
		for _, item := range l.denied {
			fmt.Fprintf(&b, "- the program cannot: %s\n", item)
		}
		for _, item := range l.remains {
			fmt.Fprintf(&b, "- not stopped: %s\n", item)
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
