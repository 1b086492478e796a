// This file owns policy files, YAML or JSON: a level, and keys that differ from it.

package spec

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxPolicy bounds a policy file.
const maxPolicy = 1 << 20

// ParsePolicy reads a policy file. It starts from the preset that "level" names,
// L5 without one, and changes the keys that follow; a list replaces the preset's.
// Unknown keys, keys given twice, aliases and further documents are refused with
// name, line and key.
func ParsePolicy(data []byte, name string) (Policy, error) {
	f, err := LoadPolicy(name, func(file string) ([]byte, error) {
		if file != name {
			return nil, fmt.Errorf("%s: a policy that is not in a file extends nothing", file)
		}
		return data, nil
	})
	if err != nil {
		return Policy{}, err
	}
	return f.Policy, nil
}

// lineError is an error with its place in the file.
type lineError struct {
	line, column int // column 0 where it is not known
	err          error
}

func (e *lineError) Error() string { return e.err.Error() }

func atLine(n *yaml.Node, format string, args ...any) error {
	return &lineError{n.Line, n.Column, fmt.Errorf(format, args...)}
}

// parseYAML gives the one mapping that the file is; nil for an empty file.
func parseYAML(data []byte) (*yaml.Node, error) {
	if len(data) > maxPolicy {
		return nil, fmt.Errorf("larger than %d bytes", maxPolicy)
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := dec.Decode(&doc); err == io.EOF {
		return nil, errors.New("the policy is empty")
	} else if err != nil {
		return nil, oneLine(err)
	}
	if err := dec.Decode(&more); err != io.EOF {
		return nil, errors.New("something follows the policy")
	}
	root := doc.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, atLine(root, "a policy is a mapping of keys")
	}
	return root, nil
}

// oneLine is an error of the YAML library, with its place as ours have it.
func oneLine(err error) error {
	text := strings.Join(strings.Fields(err.Error()), " ")
	line := 0
	if n, _ := fmt.Sscanf(text, "yaml: line %d:", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
		_, text, _ = strings.Cut(text, ": ")
		return &lineError{line, 0, errors.New("not YAML: " + text)}
	}
	return errors.New("not YAML: " + strings.TrimPrefix(text, "yaml: "))
}

// pair is one entry of a mapping.
type pair struct{ key, value *yaml.Node }

// pairs gives the entries of a mapping, each key once.
func pairs(n *yaml.Node) ([]pair, error) {
	if n.Kind != yaml.MappingNode {
		return nil, atLine(n, "a mapping belongs here")
	}
	seen := map[string]bool{}
	var out []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode:
			return nil, atLine(k, "a key must be a word")
		case v.Kind == yaml.AliasNode || v.Anchor != "":
			return nil, atLine(v, "%s: anchors and aliases are not allowed", k.Value)
		case seen[k.Value]:
			return nil, atLine(k, "%s: given twice", k.Value)
		}
		seen[k.Value] = true
		out = append(out, pair{k, v})
	}
	return out, nil
}

func isGroup(name string) bool {
	for _, k := range keys {
		if group, _, ok := strings.Cut(k.Name, "."); ok && group == name {
			return true
		}
	}
	return false
}

// groups lists the words that may stand at the top level.
func groups() []string {
	out := []string{"level", "extends", "vars"}
	for _, k := range keys {
		group, _, _ := strings.Cut(k.Name, ".")
		out = append(out, group)
	}
	return out
}

// set gives the key name the value of the entry, with the variables in paths.
func (p *Policy) set(name string, e pair, vars map[string]string) error {
	k, err := find(name)
	if err != nil {
		return atLine(e.key, "%v", err)
	}
	values, err := valuesOf(k.Type, e.value)
	if err != nil {
		return err
	}
	switch k.Type {
	case "paths":
		p.Filesystem.Hide = nil
	case "variables":
		p.Environment.Set = nil
	}
	for _, v := range values {
		if k.Type == "paths" {
			if v, err = expand(v, vars); err != nil {
				return atLine(e.value, "%s: %v", name, err)
			}
		}
		if err := k.set(p, v); err != nil {
			return atLine(e.value, "%s: %v", name, err)
		}
	}
	return nil
}

// valuesOf flattens a value to what Set takes, one string for each element.
func valuesOf(typ string, n *yaml.Node) ([]string, error) {
	switch {
	case typ == "paths" && n.Kind == yaml.SequenceNode:
		var out []string
		for _, item := range n.Content {
			if item.Kind != yaml.ScalarNode {
				return nil, atLine(item, "a path belongs here")
			}
			out = append(out, item.Value)
		}
		return out, nil
	case typ == "variables" && n.Kind == yaml.MappingNode:
		entries, err := pairs(n)
		var out []string
		for _, e := range entries {
			if e.value.Kind != yaml.ScalarNode {
				return nil, atLine(e.value, "%s: a text belongs here", e.key.Value)
			}
			out = append(out, e.key.Value+"="+e.value.Value)
		}
		return out, err
	case typ != "paths" && typ != "variables" && n.Kind == yaml.ScalarNode && n.Tag != "!!null":
		return []string{n.Value}, nil
	}
	return nil, atLine(n, "%s belongs here", map[string]string{"paths": "a list of paths", "variables": "a mapping of variables"}[typ]+article(typ))
}

func article(typ string) string {
	if typ == "paths" || typ == "variables" {
		return ""
	}
	return "a " + typ
}
