// This file owns Diff: what one policy allows that another does not.

package spec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// Change is one key, layer or field in which A and B differ.
type Change struct {
	Key    string   `json:"key"`
	A      string   `json:"a"`
	B      string   `json:"b"`
	WiderA bool     `json:"wider_a"` // A allows something that B does not
	WiderB bool     `json:"wider_b"` // both may hold; neither: it is a difference without more
	Fields []string `json:"fields"`  // where in config.json it stands
}

// Diff compares two policies key by key. Lists and maps are compared as sets.
func Diff(a, b Policy) []Change {
	out := []Change{}
	if a.Level != b.Level {
		out = append(out, Change{Key: "level", A: a.Level.String(), B: b.Level.String(), Fields: []string{"annotations[" + keyLevel + "]"}})
	}
	for _, k := range keys {
		c := Change{Key: k.Name, A: k.get(&a), B: k.get(&b), WiderA: k.wider(&a, &b), WiderB: k.wider(&b, &a), Fields: k.Fields}
		if k.Name == "filesystem.hide" {
			c.A = strings.Join(without(a.Filesystem.Hide, b.Filesystem.Hide), ",")
			c.B = strings.Join(without(b.Filesystem.Hide, a.Filesystem.Hide), ",")
		}
		if c.A != c.B || k.Name == "environment.set" && !maps.Equal(a.Environment.Set, b.Environment.Set) {
			out = append(out, c)
		}
	}
	return out
}

// without lists what is in a and not in b, sorted.
func without(a, b []string) []string {
	var out []string
	for _, s := range slices.Sorted(slices.Values(a)) {
		if !slices.Contains(b, s) {
			out = append(out, s)
		}
	}
	return out
}

// DiffSpecs compares two config.json. What makes a layer is told in the layer's
// words; of any other field that differs nobody can say which side allows more, so
// both sides count as wider.
func DiffSpecs(a, b *specs.Spec) ([]Change, error) {
	out := []Change{}
	for _, l := range layers {
		for _, n := range l.needs {
			hasA, hasB := n.has(a), n.has(b)
			if hasA != hasB {
				out = append(out, Change{Key: l.name + ": " + n.say, A: fmt.Sprint(hasA), B: fmt.Sprint(hasB), WiderA: hasB, WiderB: hasA, Fields: []string{}})
			}
		}
	}
	left, err := tree(a)
	if err != nil {
		return nil, err
	}
	right, err := tree(b)
	if err != nil {
		return nil, err
	}
	one, two := map[string]string{}, map[string]string{}
	flatten("", left, one)
	flatten("", right, two)
	all := maps.Clone(one)
	maps.Copy(all, two)
	for _, at := range slices.Sorted(maps.Keys(all)) {
		if one[at] != two[at] && at != "ociVersion" {
			out = append(out, Change{Key: at, A: one[at], B: two[at], WiderA: true, WiderB: true, Fields: []string{at}})
		}
	}
	return out, nil
}

// flatten gives each field that is no object by its path. Lists whose order says
// nothing are sorted.
func flatten(at string, v any, into map[string]string) {
	if m, ok := v.(map[string]any); ok {
		for k, e := range m {
			flatten(strings.TrimPrefix(at+"."+k, "."), e, into)
		}
		return
	}
	list, ok := v.([]any)
	if !ok || at == "mounts" || at == "process.args" || at == "linux.seccomp.syscalls" || strings.HasPrefix(at, "hooks") || at == "linux.resources.devices" {
		into[at] = field(v, "")
		return
	}
	var items []string
	for _, e := range list {
		items = append(items, field(e, ""))
	}
	slices.Sort(items)
	into[at] = "[" + strings.Join(items, ",") + "]"
}
