// The test that SECURITY.md names only tests that there are.

package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestEveryPromiseNamesTestsThatExist(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err = filepath.WalkDir("../..", func(name string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		source, err := os.ReadFile(name)
		for _, m := range declared.FindAllSubmatch(source, -1) {
			have[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## What is promised")
	table, _, _ = strings.Cut(table, "## What is not promised")
	named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`")
	promises := 0
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| promise") {
			continue
		}
		promises++
		tests := named.FindAllStringSubmatch(line, -1)
		if len(tests) == 0 {
			t.Errorf("a promise without a test: %s", line)
		}
		for _, m := range tests {
			if !have[m[1]] {
				t.Errorf("SECURITY.md names %s, which is not there", m[1])
			}
		}
	}
	if promises < 20 {
		t.Errorf("only %d promises were found", promises)
	}
}
