// This file owns the languages: how source text becomes a program to run.

package runtime

import (
	"fmt"
	"slices"
	"strings"
)

// Language says how source text in a file is run.
type Language struct {
	Name        string
	Extension   string   // of its files, with the dot
	Interpreter []string // the file's name follows
}

var languages = []Language{
	{"python", ".py", []string{"python3"}},
	{"sh", ".sh", []string{"sh"}},
	{"bash", ".bash", []string{"bash"}},
	{"node", ".js", []string{"node"}},
	{"perl", ".pl", []string{"perl"}},
	{"ruby", ".rb", []string{"ruby"}},
}

// Languages are those that Source knows.
func Languages() []Language { return slices.Clone(languages) }

// LanguageNames are their names.
func LanguageNames() (names []string) {
	for _, l := range languages {
		names = append(names, l.Name)
	}
	return names
}

// Source is the command that runs source text: a file "main" of it in the working
// directory, and its language's interpreter, which must be on the host.
func Source(language, text string) (Command, error) {
	for _, l := range languages {
		if l.Name == language {
			name := "main" + l.Extension
			return Command{
				Args:  append(slices.Clone(l.Interpreter), "./"+name),
				Files: []File{{Name: name, Data: []byte(text)}},
			}, nil
		}
	}
	return Command{}, fmt.Errorf("unknown language %q (known: %s)", language, strings.Join(LanguageNames(), ", "))
}
