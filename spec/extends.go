// This file owns policy files that extend one another, variables for paths, and
// where each value came from.

package spec

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxExtends bounds the chain of files that extend one another.
const maxExtends = 8

// File is a policy as its files say it.
type File struct {
	Policy Policy
	// Origin says for each key that a file sets where it does, "policy.yaml:3:10".
	Origin map[string]string
}

// LoadPolicy reads a policy file and those that it extends. read gets the name of a
// file; that of an extended one is taken from the directory of the file that names it.
// The base says the level; lists replace those of the base. ${NAME} in a path is the
// variable that "vars" sets, in the file or in one that extends it, which wins.
func LoadPolicy(name string, read func(name string) ([]byte, error)) (*File, error) {
	l := loader{vars: map[string]string{}, origin: map[string]string{}}
	if err := l.collect(name, read); err != nil {
		return nil, err
	}
	p := Preset(L5)
	for i := len(l.files) - 1; i >= 0; i-- { // the base first
		f := l.files[i]
		if err := l.apply(&p, f); err != nil {
			return nil, placed(f.name, err)
		}
	}
	if err := p.Validate(); err != nil {
		key, _, _ := strings.Cut(err.Error(), ":")
		if at := l.origin[key]; at != "" {
			return nil, fmt.Errorf("%s: %w", at, err)
		}
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &File{Policy: p, Origin: l.origin}, nil
}

// placed adds name and, where it is known, line to an error.
func placed(name string, err error) error {
	var at *lineError
	if errors.As(err, &at) {
		return fmt.Errorf("%s: %w", placeIn(name, at.line, at.column), at.err)
	}
	return fmt.Errorf("%s: %w", name, err)
}

// placeIn writes a place in a file, "policy.yaml:3:10".
func placeIn(name string, line, column int) string {
	if column == 0 {
		return fmt.Sprintf("%s:%d", name, line)
	}
	return fmt.Sprintf("%s:%d:%d", name, line, column)
}

// SplitPlace takes such a place apart; line is 0 in what is none.
func SplitPlace(place string) (file string, line, column int) {
	m := regexp.MustCompile(`^(.*?):(\d{1,9})(?::(\d{1,9}))?$`).FindStringSubmatch(place)
	if m == nil {
		return place, 0, 0
	}
	line, _ = strconv.Atoi(m[2]) // digits only
	column, _ = strconv.Atoi(m[3])
	return m[1], line, column
}

type loadedFile struct {
	name    string
	entries []pair
}

type loader struct {
	files  []loadedFile // each extends the next
	vars   map[string]string
	origin map[string]string
}

func (l *loader) collect(name string, read func(string) ([]byte, error)) error {
	for {
		for _, f := range l.files {
			if f.name == name {
				return fmt.Errorf("%s: extends itself", name)
			}
		}
		if len(l.files) == maxExtends {
			return fmt.Errorf("%s: more than %d files extend one another", name, maxExtends)
		}
		data, err := read(name)
		if err != nil {
			return fmt.Errorf("read the policy: %w", err)
		}
		root, err := parseYAML(data)
		if err != nil {
			return placed(name, err)
		}
		entries, err := pairs(root)
		if err != nil {
			return placed(name, err)
		}
		l.files = append(l.files, loadedFile{name, entries})
		base, err := l.frame(entries)
		if err != nil {
			return placed(name, err)
		}
		if base == "" {
			return nil
		}
		if !path.IsAbs(base) {
			base = path.Join(path.Dir(name), base)
		}
		name = base
	}
}

// frame reads what a file says beside the policy's keys: the file that it extends
// and variables.
func (l *loader) frame(entries []pair) (base string, err error) {
	for _, e := range entries {
		switch e.key.Value {
		case "extends":
			if e.value.Kind != yaml.ScalarNode || e.value.Value == "" || e.value.Tag == "!!null" {
				return "", atLine(e.value, "extends: the name of a policy file belongs here")
			}
			base = e.value.Value
		case "vars":
			vars, err := pairs(e.value)
			if err != nil {
				return "", err
			}
			for _, v := range vars {
				if v.value.Kind != yaml.ScalarNode || v.key.Value == "" || strings.ContainsAny(v.key.Value, "${}") {
					return "", atLine(v.key, "vars: %q: a name and a text belong here", v.key.Value)
				}
				if _, ok := l.vars[v.key.Value]; !ok { // the file that extends came first
					l.vars[v.key.Value] = v.value.Value
				}
			}
		}
	}
	for _, e := range entries {
		if e.key.Value == "level" && base != "" {
			return "", atLine(e.key, "level: the file that this one extends says it")
		}
	}
	return base, nil
}

func (l *loader) apply(p *Policy, f loadedFile) error {
	for _, e := range f.entries {
		if e.key.Value != "level" {
			continue
		}
		level, err := ParseLevel(e.value.Value)
		if err != nil {
			return atLine(e.value, "%v", err)
		}
		*p = Preset(level)
		l.origin["level"] = placeIn(f.name, e.key.Line, e.key.Column)
	}
	for _, e := range f.entries {
		switch e.key.Value {
		case "level", "extends", "vars":
			continue
		}
		if err := l.entry(p, f.name, e); err != nil {
			return err
		}
	}
	return nil
}

// entry takes one entry of the top level: a key of its own, or a group of keys.
func (l *loader) entry(p *Policy, file string, e pair) error {
	if _, err := find(e.key.Value); err == nil {
		l.origin[e.key.Value] = placeIn(file, e.key.Line, e.key.Column)
		return p.set(e.key.Value, e, l.vars)
	}
	if !isGroup(e.key.Value) {
		return atLine(e.key, "%v", unknown(e.key.Value, groups()))
	}
	entries, err := pairs(e.value)
	if err != nil {
		return fmt.Errorf("%s: %w", e.key.Value, err)
	}
	for _, sub := range entries {
		name := e.key.Value + "." + sub.key.Value
		if err := p.set(name, sub, l.vars); err != nil {
			return err
		}
		l.origin[name] = placeIn(file, sub.key.Line, sub.key.Column)
	}
	return nil
}

// expand puts the variables into a path.
func expand(s string, vars map[string]string) (string, error) {
	var out strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "${")
		out.WriteString(before)
		if !ok {
			return out.String(), nil
		}
		name, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", fmt.Errorf("%q: a variable is written ${NAME}", s)
		}
		value, ok := vars[name]
		if !ok {
			return "", fmt.Errorf("${%s} is not among vars", name)
		}
		out.WriteString(value)
		s = after
	}
}
