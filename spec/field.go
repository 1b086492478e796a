// This file owns looking up a field of a config.json by the path that the key
// table names it with.

package spec

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// path0 cleans a path as a container sees it.
func path0(p string) string { return path.Clean("/" + p) }

// tree gives the config as JSON values.
func tree(sp *specs.Spec) (any, error) {
	text, err := json.Marshal(sp)
	if err != nil {
		return nil, fmt.Errorf("write the config: %w", err)
	}
	var v any
	err = json.Unmarshal(text, &v)
	return v, err
}

// field gives the value at a path such as process.rlimits[RLIMIT_CPU], as compact
// JSON, "" when there is none.
func field(v any, at string) string {
	for at != "" && v != nil {
		var name string
		if key, ok := strings.CutPrefix(at, "["); ok {
			name, at, _ = strings.Cut(key, "]")
			at = strings.TrimPrefix(at, ".")
			v = element(v, name)
			continue
		}
		end := strings.IndexAny(at, ".[")
		if end < 0 {
			end = len(at)
		}
		name, at = at[:end], strings.TrimPrefix(at[end:], ".")
		m, _ := v.(map[string]any)
		v = m[name]
	}
	if v == nil {
		return ""
	}
	text, _ := json.Marshal(v) // it came from JSON: cannot fail
	return string(text)
}

// element finds what brackets name: a key of a map, or the element of a list with
// that type or destination.
func element(v any, name string) any {
	if m, ok := v.(map[string]any); ok {
		return m[name]
	}
	list, _ := v.([]any)
	for _, e := range list {
		if m, ok := e.(map[string]any); ok && (m["type"] == name && m["destination"] == nil || m["destination"] == name) {
			return e
		}
	}
	return nil
}
