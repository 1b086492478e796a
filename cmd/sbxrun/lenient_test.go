// This file owns the tests of configurations that are odd but right: engines and
// test suites write them, and other runtimes run them.

package main

import (
	"strings"
	"testing"
)

func TestOddConfigurationsThatOthersWriteRun(t *testing.T) {
	linux := func(c map[string]any) map[string]any { return c["linux"].(map[string]any) }
	mount := func(c map[string]any, options ...string) {
		c["mounts"] = append(c["mounts"].([]any), map[string]any{"destination": "/mnt", "source": "/etc", "options": options})
	}
	for _, tc := range []struct {
		name, script string
		change       func(map[string]any)
		runs         bool
		says         string
	}{
		{"a filter that kills at close_range", "echo runs", func(c map[string]any) {
			linux(c)["seccomp"] = map[string]any{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []any{
				map[string]any{"names": []string{"close_range"}, "action": "SCMP_ACT_KILL_PROCESS"},
			}}
		}, true, "runs"},
		{"a FIFO with a device number", "test -p /dev/pipe && ls -l /dev/pipe", func(c map[string]any) {
			linux(c)["devices"] = []any{map[string]any{"path": "/dev/pipe", "type": "p", "major": 8, "minor": 666, "fileMode": 0o640}}
		}, true, "prw-r-----"},
		{"a bind with data of a tmpfs", "grep -w /mnt /proc/mounts", func(c map[string]any) {
			mount(c, "bind", "nosuid", "mode=755", "size=1k")
		}, true, "nosuid"},
		{"a bind with a word that is not one", "true", func(c map[string]any) {
			mount(c, "bind", "nosiud")
		}, false, `"nosiud" has no meaning for a bind mount`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			e := newEngine(t, tc.script)
			edit(t, e.bundle, tc.change)
			o := call(t, "--root", e.root, "run", "--bundle", e.bundle, "odd")
			if (o.exit == 0) != tc.runs || !strings.Contains(o.stdout+o.stderr, tc.says) {
				t.Errorf("%+v, want %q", o, tc.says)
			}
		})
	}
}
