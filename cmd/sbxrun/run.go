// This file owns "sbxrun run": execute a bundle.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

var runCommand = &cli.Command{
	Name:      "run",
	Usage:     "run a bundle; a compiled policy in it is obeyed",
	ArgsUsage: "[ID | DIR]",
	Flags: append(launchFlags(), bundleFlag,
		&cli.StringFlag{Name: "result", Usage: "write the Result to `FILE`"},
		&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "return as soon as the program runs"},
		&cli.BoolFlag{Name: "keep", Usage: "leave the container there when its program has ended"},
		&cli.BoolFlag{Name: "no-subreaper", Usage: "no effect: sbxrun is no subreaper", Hidden: true},
		&cli.BoolFlag{Name: "no-pivot", Usage: "move the root to / instead of pivot_root, for a host that runs from a ramdisk"},
		&cli.BoolFlag{Name: "no-new-keyring", Usage: "stay in the caller's session keyring"}),
	Action: func(c *cli.Context) error {
		dir, id, err := bundleOf(c)
		if err != nil {
			return &failure{err, 1}
		}
		warnShared(filepath.Join(dir, "config.json"))
		sp, err := runtime.LoadBundle(dir)
		if err != nil {
			return &failure{err, 1}
		}
		if spec.IsCompiled(sp) && !c.Bool("detach") {
			for _, flag := range []string{"keep", "pid-file", "console-socket", "preserve-fds", "no-pivot"} {
				if c.IsSet(flag) {
					return fmt.Errorf("--%s: not for a bundle with a policy in the foreground", flag)
				}
			}
			return runCompiled(c, sp, runtime.Options{ID: id, Bundle: dir, Systemd: c.Bool("systemd-cgroup")})
		}
		return runContainer(c, sp, id, dir)
	},
}

// runContainer runs a bundle as runc does, with state that other commands see.
func runContainer(c *cli.Context, sp *specs.Spec, id, dir string) error {
	if c.IsSet("result") {
		return &failure{errors.New("--result: there is no policy compiled into the bundle, so there is no verdict"), 1}
	}
	keep, err := keptFiles(c)
	if err != nil {
		return &failure{err, 1}
	}
	store, err := openStore(c)
	if err != nil {
		return &failure{err, 1}
	}
	code, err := store.Run(sp, runtime.RunOptions{CreateOptions: createOptions(c, id, dir, keep), Detach: c.Bool("detach"), Leave: c.Bool("keep")})
	switch {
	case err != nil:
		return &failure{err, 1}
	case code != 0:
		return exitStatus(code)
	}
	return nil
}

// bundleOf tells "run ID" and "run DIR" apart: what is a directory with a
// config.json, or looks like a path, is a bundle.
func bundleOf(c *cli.Context) (dir, id string, err error) {
	if c.NArg() > 1 {
		return "", "", fmt.Errorf("unexpected argument %q", c.Args().Get(1))
	}
	dir, id = c.String("bundle"), c.Args().First()
	if c.NArg() == 1 && id == "" {
		return "", "", fmt.Errorf("%w: it is empty", runtime.ErrID)
	}
	if dir == "" {
		dir = "."
		if _, err := os.Stat(filepath.Join(id, "config.json")); id != "" && err == nil {
			dir, id = id, ""
		} else if _, here := os.Stat("config.json"); here != nil {
			return "", "", fmt.Errorf("open the bundle: there is no config.json here, nor in %q", id)
		}
	}
	dir, err = filepath.Abs(dir)
	return dir, id, err
}

func runCompiled(c *cli.Context, sp *specs.Spec, opt runtime.Options) error {
	opt.Stdin = os.Stdin
	res, err := supervise(sp, opt)
	err = errors.Join(err, printOutput(res))
	if name := c.String("result"); name != "" {
		text, marshal := json.Marshal(res)
		err = errors.Join(err, marshal, os.WriteFile(name, append(text, '\n'), 0o600))
	}
	if err != nil {
		return err
	}
	return exitOf(res)
}
