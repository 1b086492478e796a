// This file owns "sbxrun lab": the sandbox attacked on the user's own machine.

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/lab"
)

var labCommand = &cli.Command{
	Name:        "lab",
	Usage:       "attack the sandbox on this machine at each level",
	ArgsUsage:   "[ATTACK…]",
	Description: "Exit code: 1 when a level does not keep its promise.",
	Flags: []cli.Flag{
		&cli.BoolFlag{Name: "ablation", Usage: "also try each layer alone: how deep the defence is"},
		&cli.BoolFlag{Name: "plants", Usage: "plant defects and see that each is caught (a binary built with the tag plants)"},
		&cli.BoolFlag{Name: "json", Usage: "print one JSON object"},
		&cli.BoolFlag{Name: "junit", Usage: "print JUnit XML"},
		&cli.BoolFlag{Name: "markdown", Usage: "print the table of the README (with --ablation)"},
		&cli.StringFlag{Name: "html", Usage: "write one self-contained page to `FILE`"},
		&cli.StringFlag{Name: "cgroup", Usage: "`on|off`; without it, on where it can be had"},
	},
	Action: runLab,
}

func runLab(c *cli.Context) error {
	if c.Bool("json") && c.Bool("junit") {
		return fmt.Errorf("--json and --junit contradict each other")
	}
	if c.Bool("markdown") && !c.Bool("ablation") {
		return fmt.Errorf("--markdown: its table has the depth of defence, add --ablation")
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	opt := lab.Options{Only: c.Args().Slice(), Ablation: c.Bool("ablation"), Progress: progressBar(os.Stderr)}
	if err := opt.SetCgroup(c.String("cgroup")); err != nil {
		return err
	}
	if c.Bool("plants") {
		caught, err := lab.Plants(ctx, os.Stdout, c.Args().Slice())
		if err != nil {
			return fmt.Errorf("lab: %w", err)
		}
		if !caught {
			return exitStatus(1)
		}
		return nil
	}
	report, err := lab.Run(ctx, opt)
	if err != nil {
		return fmt.Errorf("lab: %w", err)
	}
	if err := writeReport(c, report); err != nil {
		return err
	}
	if report.Differ > 0 {
		return exitStatus(1)
	}
	return nil
}

func writeReport(c *cli.Context, report *lab.Report) error {
	if name := c.String("html"); name != "" {
		if err := os.WriteFile(name, report.HTML(), 0o644); err != nil {
			return fmt.Errorf("--html: %w", err)
		}
	}
	switch {
	case c.Bool("json"):
		return printJSON(os.Stdout, report)
	case c.Bool("markdown"):
		if report.Differ > 0 { // the table does not say why
			fmt.Fprint(os.Stderr, report.Text())
		}
		_, err := io.WriteString(os.Stdout, report.Markdown())
		return err
	case c.Bool("junit"):
		_, err := os.Stdout.Write(report.JUnit())
		return err
	}
	_, err := io.WriteString(os.Stdout, report.Text())
	return err
}

// progressBar draws on a terminal, and nil elsewhere draws nothing.
func progressBar(out *os.File) func(done, all int) {
	if _, err := unix.IoctlGetTermios(int(out.Fd()), unix.TCGETS); err != nil {
		return nil
	}
	return func(done, all int) {
		const width = 40
		full := width * done / all
		fmt.Fprintf(out, "\r[%s%s] %d of %d", strings.Repeat("█", full), strings.Repeat("·", width-full), done, all)
		if done == all {
			fmt.Fprint(out, "\r\x1b[K")
		}
	}
}
