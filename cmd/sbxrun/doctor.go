// This file owns "sbxrun doctor": what this machine can do for this user.

package main

import (
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/runtime"
)

var doctorCommand = &cli.Command{
	Name:  "doctor",
	Usage: "say which mechanisms this machine has for this user",
	Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print one JSON object"}},
	Action: func(c *cli.Context) error {
		findings := runtime.Examine()
		healthy := true
		for _, f := range findings {
			healthy = healthy && f.Available
		}
		if err := printFindings(c.Bool("json"), healthy, findings); err != nil {
			return err
		}
		if !healthy {
			return exitStatus(1)
		}
		return nil
	},
}

func printFindings(asJSON, healthy bool, findings []runtime.Finding) error {
	if asJSON {
		return printJSON(os.Stdout, map[string]any{"healthy": healthy, "findings": findings})
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 4, 2, ' ', 0)
	for _, f := range findings {
		word := "yes"
		if !f.Available {
			word = "NO"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\n", word, f.Layer, f.Mechanism)
		if !f.Available {
			fmt.Fprintf(w, "\t\t  why: %s\n\t\t  remedy: %s\n", f.Why, f.Remedy)
		}
	}
	return w.Flush()
}
