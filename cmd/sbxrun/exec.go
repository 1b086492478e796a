// This file owns "sbxrun exec": a further process in a container.

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/runtime"
)

var execCommand = &cli.Command{
	Name: "exec", Usage: "run a further process in a container", ArgsUsage: "ID [CMD ARG…]",
	Flags: append(launchFlags(),
		&cli.StringFlag{Name: "process", Aliases: []string{"p"}, Usage: "OCI process object in `FILE`"},
		&cli.BoolFlag{Name: "detach", Aliases: []string{"d"}, Usage: "return as soon as it runs"},
		&cli.StringFlag{Name: "cwd", Usage: "working directory `DIR`"},
		&cli.StringSliceFlag{Name: "env", Aliases: []string{"e"}, Usage: "set `K=V`"},
		&cli.StringFlag{Name: "user", Aliases: []string{"u"}, Usage: "run as `UID[:GID]`"},
		&cli.Int64SliceFlag{Name: "additional-gids", Aliases: []string{"g"}, Usage: "further group `GID`"},
		&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give it a terminal"},
		&cli.StringSliceFlag{Name: "cap", Aliases: []string{"c"}, Usage: "add the capability `NAME`"},
		&cli.BoolFlag{Name: "no-new-privs", Usage: "no new privileges"},
		&cli.StringFlag{Name: "process-label", Usage: "SELinux `LABEL`"},
		&cli.StringFlag{Name: "apparmor", Usage: "AppArmor profile `NAME`"},
		&cli.StringSliceFlag{Name: "cgroup", Usage: "run in a group below the container's: `[CONTROLLER,…:]PATH`"},
		&cli.BoolFlag{Name: "ignore-paused", Usage: "wait in a paused container instead of failing"},
	),
	Action: func(c *cli.Context) error {
		keep, err := keptFiles(c)
		if err != nil {
			return err
		}
		groups, err := groupsOf(c.StringSlice("cgroup"))
		if err != nil {
			return err
		}
		code := 0
		err = with(c, func(ct *runtime.Container) error {
			p, err := processOf(c, ct)
			if err != nil {
				return err
			}
			opt := runtime.ExecOptions{
				Process: p, PidFile: c.String("pid-file"), ConsoleSocket: c.String("console-socket"), Keep: keep,
				Detach: c.Bool("detach"), IgnorePaused: c.Bool("ignore-paused"), Groups: groups,
			}
			code, err = ct.Exec(opt)
			return err
		})
		if err == nil && code != 0 {
			return exitStatus(code)
		}
		return err
	},
}

// groupsOf reads --cgroup.
func groupsOf(flags []string) (map[string]string, error) {
	groups := map[string]string{}
	for _, f := range flags {
		controllers, group, ok := strings.Cut(f, ":")
		switch {
		case strings.Contains(group, ":"):
			return nil, fmt.Errorf("--cgroup: %q is not [CONTROLLER,…:]PATH", f)
		case !ok && len(flags) > 1:
			return nil, fmt.Errorf("--cgroup: %q names no controller, so there must be no other", f)
		case !ok:
			controllers, group = "", f
		}
		for _, c := range strings.Split(controllers, ",") {
			groups[c] = group
		}
	}
	return groups, nil
}

// processOf makes the process: from the file, or the container's own with changes.
func processOf(c *cli.Context, ct *runtime.Container) (*specs.Process, error) {
	if file := c.String("process"); file != "" {
		p, err := runtime.ReadProcess(file)
		if err != nil {
			return nil, fmt.Errorf("--process: %w", err)
		}
		return p, nil
	}
	if c.NArg() < 2 {
		return nil, fmt.Errorf("nothing to execute: give a command or --process")
	}
	p := ct.NewProcess(c.Args().Tail())
	if c.String("cwd") != "" {
		p.Cwd = c.String("cwd")
	}
	p.Env = append(p.Env, c.StringSlice("env")...)
	p.Terminal = c.Bool("tty")
	if c.IsSet("process-label") {
		p.SelinuxLabel = c.String("process-label")
	}
	if c.IsSet("apparmor") {
		p.ApparmorProfile = c.String("apparmor")
	}
	if c.IsSet("no-new-privs") {
		p.NoNewPrivileges = c.Bool("no-new-privs")
	}
	for _, g := range c.Int64Slice("additional-gids") {
		if g < 0 || g > math.MaxUint32 {
			return nil, fmt.Errorf("--additional-gids: %d is no group id", g)
		}
		p.User.AdditionalGids = append(p.User.AdditionalGids, uint32(g))
	}
	if caps := c.StringSlice("cap"); len(caps) > 0 {
		p.Capabilities = moreCapabilities(p.Capabilities, caps)
	}
	return p, setUser(p, c.String("user"))
}

func moreCapabilities(old *specs.LinuxCapabilities, add []string) *specs.LinuxCapabilities {
	sets := specs.LinuxCapabilities{}
	if old != nil {
		sets = *old
	}
	for _, set := range []*[]string{&sets.Bounding, &sets.Effective, &sets.Permitted} {
		*set = append(append([]string{}, *set...), add...)
	}
	return &sets
}

func setUser(p *specs.Process, s string) error {
	if s == "" {
		return nil
	}
	uid, gid, both := strings.Cut(s, ":")
	n, err := strconv.ParseUint(uid, 10, 32)
	if err != nil {
		return fmt.Errorf("--user: %q is not UID[:GID]", s)
	}
	p.User.UID = uint32(n)
	if both {
		if n, err = strconv.ParseUint(gid, 10, 32); err != nil {
			return fmt.Errorf("--user: %q is not UID[:GID]", s)
		}
		p.User.GID = uint32(n)
	}
	return nil
}
