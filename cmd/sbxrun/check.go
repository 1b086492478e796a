// This file owns "sbxrun check".

package main

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
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
		found, err := findingsOf(c.Args().First())
		if err != nil {
			return err
		}
		switch {
		case c.Bool("sarif"):
			err = printJSON(os.Stdout, sarif(found))
		case c.Bool("json"):
			err = printJSON(os.Stdout, found)
		default:
			err = show(os.Stdout, spec.FindingsText(found))
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
	s, err := findSubject(name)
	if err != nil {
		return nil, err
	}
	if s.text != nil {
		return spec.Check(s.name, s.text), nil
	}
	if s.file == nil {
		if s.file, err = spec.LoadPolicy(name, readFile); err != nil {
			return []spec.Finding{spec.InvalidPolicy(name, err)}, nil
		}
	}
	return spec.CheckPolicy(s.file), nil
}

// The part of the Static Analysis Results Interchange Format that is used: what code
// scanning services show, and where.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool struct {
			Driver sarifDriver `json:"driver"`
		} `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifDriver struct {
		Name    string      `json:"name"`
		Version string      `json:"version"`
		Rules   []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID      string    `json:"id"`
		Short   sarifText `json:"shortDescription"`
		Help    sarifText `json:"help"`
		Default struct {
			Level spec.Severity `json:"level"`
		} `json:"defaultConfiguration"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		Level     spec.Severity   `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact struct {
			URI string `json:"uri"`
		} `json:"artifactLocation"`
		Region sarifRegion `json:"region"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn,omitempty"`
	}
	sarifLogical struct {
		Name string `json:"fullyQualifiedName"`
	}
)

func sarif(found []spec.Finding) sarifLog {
	run := sarifRun{Results: []sarifResult{}}
	run.Tool.Driver = sarifDriver{Name: "sbxrun", Version: version}
	for _, r := range spec.Rules() {
		rule := sarifRule{ID: r.ID, Short: sarifText{r.Says}, Help: sarifText{r.Advice}}
		rule.Default.Level = r.Severity
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, rule)
	}
	for _, f := range found {
		var at sarifLocation
		at.Physical.Artifact.URI = uriOf(f.File)
		at.Physical.Region = sarifRegion{max(f.Line, 1), f.Column} // the format wants a line always
		if strings.HasPrefix(f.Place, "/") && f.Place != f.File {
			at.Logical = []sarifLogical{{f.Place}}
		}
		run.Results = append(run.Results, sarifResult{f.Rule, f.Severity, sarifText{f.Message + "; " + f.Advice}, []sarifLocation{at}})
	}
	return sarifLog{"https://json.schemastore.org/sarif-2.1.0.json", "2.1.0", []sarifRun{run}}
}

// uriOf is a file's name as a URI reference; stdin has none of its own.
func uriOf(file string) string {
	if file == "-" {
		file = "stdin"
	}
	u := url.URL{Path: filepath.ToSlash(file)}
	if filepath.IsAbs(file) {
		u.Scheme = "file"
	}
	return u.String()
}
