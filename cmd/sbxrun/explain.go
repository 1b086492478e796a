// This file owns "sbxrun explain", and what a command line names a policy with: a
// level, a policy file, a bundle or a config.json.

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

var explainCommand = &cli.Command{
	Name:      "explain",
	Usage:     "say what a policy or a config.json lets a program do",
	ArgsUsage: "(LEVEL | POLICY | BUNDLE | config.json)",
	Flags: append(policyFlags(),
		&cli.BoolFlag{Name: "json", Usage: "print JSON"},
		&cli.BoolFlag{Name: "markdown", Usage: "print a page of Markdown"},
	),
	Action: func(c *cli.Context) error {
		if c.NArg() > 1 || c.NArg() == 1 && (c.IsSet("level") || c.IsSet("policy")) {
			return fmt.Errorf("explain: one LEVEL, POLICY, BUNDLE or config.json belongs here")
		}
		e, err := explanationOf(c)
		if err != nil {
			return err
		}
		switch {
		case c.Bool("json"):
			return printJSON(os.Stdout, e)
		case c.Bool("markdown"):
			_, err = io.WriteString(os.Stdout, e.Markdown())
		default:
			err = show(os.Stdout, e.Text(colourful(os.Stdout)))
		}
		return err
	},
}

func explanationOf(c *cli.Context) (*spec.Explanation, error) {
	name := c.Args().First()
	s := &subject{name: "L5"}
	var err error
	switch {
	case c.NArg() == 1:
		s, err = readSubject(name)
	case c.IsSet("level"):
		s.name = c.String("level")
	case c.IsSet("policy"):
		s, err = readSubject(c.String("policy"))
	}
	if err != nil {
		return nil, err
	}
	if s.spec != nil {
		for _, f := range policyFlags() {
			if flag := f.Names()[0]; c.IsSet(flag) {
				return nil, fmt.Errorf("explain: --%s changes a policy, %s is a config.json", flag, name)
			}
		}
		return spec.ExplainSpec(s.name, s.spec)
	}
	if s.file == nil {
		level, err := spec.ParseLevel(s.name)
		if err != nil {
			return nil, fmt.Errorf("--level: %w", err)
		}
		s.file = &spec.File{Policy: spec.Preset(level), Origin: map[string]string{}}
	}
	if err := applyFlags(c, s.file); err != nil {
		return nil, err
	}
	host := runtime.ThisHost()
	host.RunID = spec.BundleRunID
	return spec.Explain(s.name, s.file.Policy, host, s.file.Origin)
}

// subject is what a command line names: a policy from a level or a file, or a
// config.json with its text.
type subject struct {
	name string
	file *spec.File
	spec *specs.Spec
	text []byte // of the config.json
}

// policy gives the policy of the subject; a config that no policy was compiled to
// has none, which is spec.ErrNotCompiled.
func (s *subject) policy() (spec.Policy, error) {
	if s.spec != nil {
		return spec.FromSpec(s.spec)
	}
	return s.file.Policy, nil
}

// readSubject finds out what the argument is, and reads it.
func readSubject(name string) (*subject, error) {
	s, err := findSubject(name)
	switch {
	case err != nil || s.file != nil:
		return s, err
	case s.text != nil:
		s.spec = &specs.Spec{}
		if err := json.Unmarshal(s.text, s.spec); err != nil {
			return nil, fmt.Errorf("%s: not an OCI config: %w", s.name, err)
		}
		return s, nil
	}
	s.file, err = spec.LoadPolicy(name, readFile)
	return s, err
}

// findSubject finds out what the argument is: a level by its name, a bundle by its
// directory, a config.json by its "ociVersion"; all else is a policy file, which has
// neither policy nor text yet.
func findSubject(name string) (*subject, error) {
	if level, err := spec.ParseLevel(name); err == nil {
		return &subject{name: name, file: &spec.File{Policy: spec.Preset(level), Origin: map[string]string{}}}, nil
	}
	file := name
	if st, err := os.Stat(name); err == nil && st.IsDir() {
		file = filepath.Join(name, "config.json")
	}
	text, err := readFile(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && file != name:
		return nil, fmt.Errorf("%s is a directory without a config.json", name)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w%s", err, didYouMean(name, levelNames(), strconv.Quote))
	case err != nil:
		return nil, err
	case file == name && !bytes.Contains(text, []byte(`"ociVersion"`)):
		return &subject{name: name}, nil
	}
	return &subject{name: file, text: text}, nil
}

// stdin is read once, for who asks for it twice.
var stdin = sync.OnceValues(func() ([]byte, error) { return readAll(os.Stdin, "stdin") })

// readFile reads a regular file that is not larger than a config may be, or stdin.
func readFile(name string) ([]byte, error) {
	if name == "-" {
		return stdin()
	}
	f, _, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, name)
}

func readAll(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxSource+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(data) > maxSource {
		return nil, fmt.Errorf("%s: larger than %d MiB, which no policy and no config.json is", name, maxSource>>20)
	}
	return data, nil
}
