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
	case name != "":
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

// readSubject finds out what the argument is: a level by its name, a bundle by its
// directory, a config.json by its "ociVersion"; all else is a policy file.
func readSubject(name string) (*subject, error) {
	if level, err := spec.ParseLevel(name); err == nil {
		return &subject{name: name, file: &spec.File{Policy: spec.Preset(level), Origin: map[string]string{}}}, nil
	}
	file := name
	if st, err := os.Stat(name); err == nil && st.IsDir() {
		file = filepath.Join(name, "config.json")
	}
	text, err := readFile(file)
	if err != nil {
		hint := ""
		if errors.Is(err, fs.ErrNotExist) && file == name {
			hint = didYouMean(name, levelNames(), strconv.Quote)
		}
		return nil, fmt.Errorf("%w%s", err, hint)
	}
	var probe struct {
		Version *json.RawMessage `json:"ociVersion"`
	}
	if json.Unmarshal(text, &probe) == nil && probe.Version != nil || file != name {
		sp := &specs.Spec{}
		dec := json.NewDecoder(bytes.NewReader(text))
		if err := dec.Decode(sp); err != nil {
			return nil, fmt.Errorf("%s: not an OCI config: %w", file, err)
		}
		if _, err := dec.Token(); err != io.EOF {
			return nil, fmt.Errorf("%s: something follows the JSON object", file)
		}
		return &subject{name: name, spec: sp, text: text}, nil
	}
	f, err := spec.LoadPolicy(name, readFile)
	if err != nil {
		return nil, err
	}
	return &subject{name: name, file: f}, nil
}

// readFile reads a regular file that is not larger than a config may be.
func readFile(name string) ([]byte, error) {
	f, _, err := openRegular(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSource+1))
	if err == nil && len(data) > maxSource {
		err = errors.New(name + ": too large")
	}
	return data, err
}
