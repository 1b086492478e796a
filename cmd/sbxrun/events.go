// This file owns what the runtime says about containers and about itself: events and
// features.

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/runtime"
)

var eventsCommand = &cli.Command{
	Name: "events", Usage: "print a container's counters and memory kills as JSON lines", ArgsUsage: "ID",
	Flags: []cli.Flag{
		&cli.DurationFlag{Name: "interval", Value: 5 * time.Second, Usage: "time between two prints of the counters"},
		&cli.BoolFlag{Name: "stats", Usage: "print the counters once"},
	},
	Action: func(c *cli.Context) error {
		if _, err := idOf(c); err != nil {
			return err
		}
		interval := c.Duration("interval")
		if interval <= 0 {
			return fmt.Errorf("duration interval must be greater than 0")
		}
		tell := func(e runtime.Event) error { return printJSON(os.Stdout, e) }
		return look(c, func(ct *runtime.Container) error {
			if c.Bool("stats") {
				e, err := ct.Stats()
				if err != nil {
					return err
				}
				return tell(e)
			}
			return ct.Events(context.Background(), interval, tell)
		})
	},
}

var featuresCommand = &cli.Command{
	Name: "features", Usage: "print what of the OCI runtime-spec is implemented, as JSON",
	Action: func(c *cli.Context) error {
		if err := atMost(c, 0); err != nil {
			return err
		}
		text, err := json.MarshalIndent(runtime.Features(version), "", "  ")
		if err != nil {
			return err
		}
		fmt.Println(string(text))
		return nil
	},
}
