// This file owns "sbxrun diff".

package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/spec"
)

// The exit codes of diff and check, as diff and grep have them.
const (
	exitFound    = 1
	exitNotAsked = 2 // the question could not be answered
)

// answering makes a command's errors exit with 2: 1 is an answer.
func answering(action func(*cli.Context) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		err := action(c)
		var status exitStatus
		if err == nil || errors.As(err, &status) {
			return err
		}
		return &failure{err, exitNotAsked}
	}
}

var diffCommand = &cli.Command{
	Name:      "diff",
	Usage:     "say what one policy allows that another does not",
	ArgsUsage: "(LEVEL | POLICY | BUNDLE | config.json) (LEVEL | …)",
	Description: "Says what B, the second, allows that A does not, and the reverse.\n" +
		"Exit code: 0 equal, 1 different, 2 error.",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "exit-wider", Usage: "exit with 1 only when B allows something that A does not"},
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
	},
	Action: answering(func(c *cli.Context) error {
		if c.NArg() != 2 {
			return fmt.Errorf("diff: two of LEVEL, POLICY, BUNDLE or config.json belong here")
		}
		changes, err := difference(c.Args().Get(0), c.Args().Get(1))
		if err != nil {
			return err
		}
		if c.Bool("json") {
			err = printJSON(os.Stdout, changes)
		} else {
			err = show(os.Stdout, changesText(changes))
		}
		if err != nil {
			return err
		}
		wider := slices.ContainsFunc(changes, func(ch spec.Change) bool { return ch.WiderB })
		if len(changes) > 0 && (wider || !c.Bool("exit-wider")) {
			return exitStatus(exitFound)
		}
		return nil
	}),
}

// difference compares as policies where both are, else as configs.
func difference(nameA, nameB string) ([]spec.Change, error) {
	if nameA == "-" && nameB == "-" {
		return nil, fmt.Errorf("diff: stdin can be one of the two, not both")
	}
	a, err := readSubject(nameA)
	if err != nil {
		return nil, err
	}
	b, err := readSubject(nameB)
	if err != nil {
		return nil, err
	}
	left, errA := a.policy()
	right, errB := b.policy()
	switch foreignA, foreignB := errors.Is(errA, spec.ErrNotCompiled), errors.Is(errB, spec.ErrNotCompiled); {
	case foreignA && foreignB:
		return spec.DiffSpecs(a.spec, b.spec)
	case foreignA || foreignB:
		return nil, fmt.Errorf("diff: of a policy and a config.json that sbxrun did not make; compile the policy without its annotations, or use explain on both")
	case errA != nil:
		return nil, fmt.Errorf("%s: %w", nameA, errA)
	case errB != nil:
		return nil, fmt.Errorf("%s: %w", nameB, errB)
	}
	return spec.Diff(left, right), nil
}

// changesText is the difference for people.
func changesText(changes []spec.Change) string {
	var b strings.Builder
	for _, ch := range changes {
		side := "neither allows more"
		switch {
		case ch.WiderA && ch.WiderB:
			side = "each allows what the other does not"
		case ch.WiderA:
			side = "A allows more"
		case ch.WiderB:
			side = "B allows more"
		}
		fmt.Fprintf(&b, "%s: %s\n  A %s\n  B %s\n", ch.Key, side, orNothing(ch.A), orNothing(ch.B))
		for _, f := range ch.Fields {
			fmt.Fprintf(&b, "    %s\n", f)
		}
	}
	return b.String()
}

func orNothing(value string) string {
	if value == "" {
		return "(nothing)"
	}
	return value
}
