// This file owns "sbxrun check".

package main

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/spec"
)

var checkCommand = &cli.Command{
	Name:      "check",
	Usage:     "look for holes and contradictions in a policy or a config.json",
	ArgsUsage: "(LEVEL | POLICY | BUNDLE | config.json)",
	Description: "Exit code: 0 no error, 1 a finding of severity error or of a required rule,\n" +
		"2 the question could not be answered.",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "require", Usage: "`RULES` that must find nothing, separated by commas, or all"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		&cli.BoolFlag{Name: "sarif", Usage: "print SARIF 2.1.0"},
		&cli.BoolFlag{Name: "rules", Usage: "list the rules"},
	},
	Action: answering(func(c *cli.Context) error {
		if c.Bool("rules") {
			for _, r := range spec.Rules() {
				fmt.Printf("%-22s %-8s %s\n", r.ID, r.Severity, r.Says)
			}
			return nil
		}
		required, err := requiredRules(c.String("require"))
		if err != nil {
			return err
		}
		if c.NArg() != 1 {
			return fmt.Errorf("check: one POLICY, BUNDLE or config.json belongs here")
		}
		name := c.Args().First()
		found, err := findingsOf(name)
		if err != nil {
			return err
		}
		switch {
		case c.Bool("sarif"):
			err = printJSON(os.Stdout, sarif(name, found))
		case c.Bool("json"):
			err = printJSON(os.Stdout, found)
		default:
			_, err = io.WriteString(os.Stdout, spec.FindingsText(name, found))
		}
		if err == nil && slices.ContainsFunc(found, func(f spec.Finding) bool {
			return f.Severity == spec.SeverityError || slices.Contains(required, f.Rule)
		}) {
			err = exitStatus(exitFound)
		}
		return err
	}),
}

func requiredRules(list string) ([]string, error) {
	var all, out []string
	for _, r := range spec.Rules() {
		all = append(all, r.ID)
	}
	if list == "all" {
		return all, nil
	}
	for _, id := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' }) {
		if !slices.Contains(all, id) {
			return nil, fmt.Errorf("--require: there is no rule %q%s, see sbxrun check --rules", id, didYouMean(id, all, strconv.Quote))
		}
		out = append(out, id)
	}
	return out, nil
}

// findingsOf checks what the argument names. A file that is there but does not
// read is a finding; one that is not there is an error.
func findingsOf(name string) ([]spec.Finding, error) {
	if _, err := os.Stat(name); err != nil {
		if s, levelErr := readSubject(name); levelErr == nil {
			return spec.CheckPolicy(s.file), nil
		}
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	s, err := readSubject(name)
	if err != nil {
		place := ""
		if m := regexp.MustCompile(`^(.*?:\d+): `).FindStringSubmatch(err.Error()); m != nil {
			place = m[1]
		}
		return []spec.Finding{spec.InvalidPolicy(place, err)}, nil
	}
	if s.spec != nil {
		return spec.Check(s.text), nil
	}
	return spec.CheckPolicy(s.file), nil
}

// sarif gives the findings in the Static Analysis Results Interchange Format.
func sarif(name string, found []spec.Finding) any {
	type m = map[string]any
	ruleList, results := []m{}, []m{}
	for _, r := range spec.Rules() {
		ruleList = append(ruleList, m{"id": r.ID, "shortDescription": m{"text": r.Says}, "help": m{"text": r.Advice}, "defaultConfiguration": m{"level": r.Severity}})
	}
	for _, f := range found {
		physical := m{"artifactLocation": m{"uri": name}}
		location := m{"physicalLocation": physical}
		if i := strings.LastIndexByte(f.Place, ':'); i > 0 {
			if line, err := strconv.Atoi(f.Place[i+1:]); err == nil {
				physical["artifactLocation"], physical["region"] = m{"uri": f.Place[:i]}, m{"startLine": line}
			}
		} else if f.Place != "" {
			location["logicalLocations"] = []m{{"fullyQualifiedName": f.Place}}
		}
		results = append(results, m{"ruleId": f.Rule, "level": f.Severity, "message": m{"text": f.Message}, "locations": []m{location}})
	}
	return m{
		"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0",
		"runs": []m{{"tool": m{"driver": m{"name": "sbxrun", "version": version, "rules": ruleList}}, "results": results}},
	}
}
