// This file owns the flags that make a policy, the same for every command that
// takes one.

package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// policyFlag is a flag that sets one key of the policy.
type policyFlag struct{ name, key, usage string }

var policyKeys = []policyFlag{
	{"wall", "limits.wall", "`TIME` of wall clock, e.g. 10s"},
	{"cpu", "limits.cpu", "CPU `TIME`, e.g. 5s"},
	{"memory", "limits.memory", "memory `SIZE`, e.g. 512MiB"},
	{"file-size", "limits.file-size", "`SIZE` of the largest file, e.g. 10MiB"},
	{"files", "limits.files", "`N` open files"},
	{"procs", "processes.max", "`N` processes and threads alive at once"},
	{"output-chars", "limits.output-chars", "`N` characters of each stream in the result"},
	{"output-held", "limits.output-held", "`SIZE` of each stream ever held"},
	{"workdir-size", "workdir.size", "total `SIZE` of the working directory (from L5)"},
	{"cgroup", "cgroup", "`on|off`: off goes without a control group"},
}

func policyFlags() []cli.Flag {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "level", Usage: "preset `LEVEL`, L0 to L5", DefaultText: "L5"},
		&cli.StringFlag{Name: "policy", Usage: "policy `FILE` (YAML or JSON)"},
		&cli.StringSliceFlag{Name: "env", Usage: "set `K=V` for the program"},
		&cli.StringSliceFlag{Name: "hide", Usage: "hide `PATH` from the program (from L5)"},
		&cli.BoolFlag{Name: "workdir", Usage: "a private working directory; from L2 on there is one", Category: keyFlags},
	}
	for _, k := range policyKeys {
		flags = append(flags, &cli.StringFlag{Name: k.name, Usage: k.usage, Category: keyFlags})
	}
	return flags
}

// policyOf makes the policy: the preset or the file, then the flags.
func policyOf(c *cli.Context) (spec.Policy, error) {
	f, err := basePolicy(c)
	if err != nil {
		return spec.Policy{}, err
	}
	return f.Policy, applyFlags(c, f)
}

// applyFlags changes the policy by the flags that are given.
func applyFlags(c *cli.Context, f *spec.File) error {
	set := func(flag, key, value string) error {
		if err := f.Policy.Set(key, value); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		f.Origin[key] = "flag --" + flag
		return nil
	}
	for _, k := range policyKeys {
		if !c.IsSet(k.name) {
			continue
		}
		if err := set(k.name, k.key, c.String(k.name)); err != nil {
			return err
		}
	}
	if c.IsSet("workdir") {
		if err := set("workdir", "workdir.private", fmt.Sprint(c.Bool("workdir"))); err != nil {
			return err
		}
	}
	for _, e := range c.StringSlice("env") {
		if err := set("env", "environment.set", e); err != nil {
			return err
		}
	}
	for _, h := range c.StringSlice("hide") {
		if err := set("hide", "filesystem.hide", h); err != nil {
			return err
		}
	}
	return f.Policy.Validate()
}

func basePolicy(c *cli.Context) (*spec.File, error) {
	if c.IsSet("level") && c.IsSet("policy") {
		return nil, fmt.Errorf("--level and --policy contradict each other: name the level in the policy file")
	}
	if c.IsSet("policy") {
		return spec.LoadPolicy(c.String("policy"), func(name string) ([]byte, error) {
			warnShared(name)
			return readFile(name)
		})
	}
	name := "L5"
	if c.IsSet("level") {
		name = c.String("level")
	}
	level, err := spec.ParseLevel(name)
	if err != nil {
		return nil, fmt.Errorf("--level: %w", err)
	}
	return &spec.File{Policy: spec.Preset(level), Origin: map[string]string{}}, nil
}

// warnShared names a file that root is about to obey and that others can change.
func warnShared(name string) {
	// What cannot be looked at cannot be read either: that is told then.
	if how, err := runtime.Shared(name); err == nil && how != "" {
		report("warning", fmt.Errorf("warning: %s, who can change what root runs under %s", how, name))
	}
}
