// This file owns "sbxrun compile" and "sbxrun spec": config.json for people who
// read it, and for sbxrun run.

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

var compileCommand = &cli.Command{
	Name:      "compile",
	Usage:     "write the OCI bundle of a policy",
	ArgsUsage: "-- CMD ARG…",
	Flags: append(policyFlags(),
		&cli.StringFlag{Name: "rootfs", Usage: "root file system `DIR`", DefaultText: "the host's /"},
		&cli.StringFlag{Name: "o", Usage: "bundle `DIR` to write, - for config.json on stdout", Value: "-"},
		&cli.BoolFlag{Name: "digest", Usage: "print the digest of the config instead of the config"},
	),
	Action: func(c *cli.Context) error {
		policy, err := policyOf(c)
		if err != nil {
			return err
		}
		if c.NArg() == 0 {
			return fmt.Errorf("nothing to compile: give -- CMD")
		}
		root, err := rootOf(c.String("rootfs"))
		if err != nil {
			return err
		}
		host := runtime.ThisHost()
		host.RunID = spec.BundleRunID // a bundle is the same whenever it is compiled
		sp, err := spec.Compile(policy, host, spec.Process{Args: c.Args().Slice(), Env: os.Environ(), Root: root})
		if err != nil {
			return err
		}
		digest, err := spec.Digest(sp)
		if err != nil {
			return err
		}
		switch {
		case c.String("o") != "-":
			if err := writeBundle(c.String("o"), sp); err != nil {
				return err
			}
			fallthrough
		case c.Bool("digest"):
			_, err = fmt.Println(digest)
			return err
		}
		text, err := spec.Encode(sp)
		if err == nil {
			_, err = os.Stdout.Write(text)
		}
		return err
	},
}

func rootOf(dir string) (string, error) {
	if dir == "" {
		return "", nil
	}
	st, err := os.Stat(dir)
	if err != nil {
		return "", fmt.Errorf("--rootfs: %w", err)
	}
	if !st.IsDir() {
		return "", fmt.Errorf("--rootfs: %s is not a directory", dir)
	}
	return filepath.Abs(dir)
}

// writeBundle makes dir with config.json in it. A config that is there stays.
func writeBundle(dir string, sp *specs.Spec) error {
	text, err := spec.Encode(sp)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(dir, "config.json"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

var specCommand = &cli.Command{
	Name:  "spec",
	Usage: "write a starting config.json",
	Flags: []cli.Flag{
		&cli.StringFlag{Name: "bundle", Aliases: []string{"b"}, Value: ".", Usage: "bundle `DIR`"},
		&cli.BoolFlag{Name: "rootless", Usage: "for an ordinary user"},
	},
	Action: func(c *cli.Context) error {
		if err := atMost(c, 0); err != nil {
			return err
		}
		if _, err := os.ReadDir(c.String("bundle")); err != nil {
			return fmt.Errorf("--bundle: %w", err)
		}
		return writeBundle(c.String("bundle"), starterSpec(c.Bool("rootless")))
	},
}
