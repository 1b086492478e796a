// This file owns looking up a field of a config.json by the path that the key
// table names it with, and finding where in the file it stands.

package spec

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

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

// pointerTo turns such a path into a JSON pointer, as far as the config has it.
func pointerTo(v any, at string) string {
	out := ""
	for at != "" && v != nil {
		name, bracket := "", strings.HasPrefix(at, "[")
		if bracket {
			name, at, _ = strings.Cut(at[1:], "]")
		} else {
			end := strings.IndexAny(at+".", ".[")
			name, at = at[:end], at[end:]
		}
		at = strings.TrimPrefix(at, ".")
		switch c := v.(type) {
		case map[string]any:
			v = c[name]
		case []any:
			i := slices.IndexFunc(c, func(e any) bool { return isNamed(e, name) })
			if n, err := strconv.Atoi(name); err == nil && n < len(c) {
				i = n
			}
			if i < 0 {
				return out
			}
			v, name = c[i], strconv.Itoa(i)
		default:
			return out
		}
		if v != nil {
			out += pointer(name)
		}
	}
	return out
}

// isNamed holds for the element of a list that brackets name.
func isNamed(e any, name string) bool {
	m, ok := e.(map[string]any)
	return ok && (m["type"] == name && m["destination"] == nil || m["destination"] == name)
}

// locate gives line and column of what a JSON pointer names in a text, or of the
// nearest thing around it that is there.
func locate(text []byte, pointer string) (line, column int) {
	dec := json.NewDecoder(bytes.NewReader(text))
	begin := func() int { // of the next token
		at := int(dec.InputOffset())
		return at + len(text[at:]) - len(bytes.TrimLeft(text[at:], " \t\r\n,:"))
	}
	at := begin()
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		open, err := dec.Token()
		if err != nil {
			break
		}
		found := -1
		for i := 0; open == json.Delim('{') || open == json.Delim('['); i++ {
			if !dec.More() {
				break
			}
			here, name := begin(), strconv.Itoa(i)
			if open == json.Delim('{') {
				key, err := dec.Token()
				if err != nil {
					break
				}
				name = key.(string) // what else is no JSON, which Token tells
			}
			if strings.EqualFold(name, part) { // as encoding/json finds a field
				found = here
				break
			}
			var skipped json.RawMessage
			if dec.Decode(&skipped) != nil {
				break
			}
		}
		if found < 0 {
			break
		}
		at = found
	}
	return position(text, at)
}

// position gives line and column of an offset, both from 1.
func position(text []byte, offset int) (line, column int) {
	before := text[:min(max(offset, 0), len(text))]
	start := bytes.LastIndexByte(before, '\n') + 1
	return bytes.Count(before, []byte("\n")) + 1, utf8.RuneCount(before[start:]) + 1
}

// element finds what brackets name: a key of a map, or the element of a list with
// that type or destination.
func element(v any, name string) any {
	if m, ok := v.(map[string]any); ok {
		return m[name]
	}
	list, _ := v.([]any)
	for _, e := range list {
		if isNamed(e, name) {
			return e
		}
	}
	return nil
}
