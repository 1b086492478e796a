// This file owns "sbxrun completion": the scripts for shells, and the words that these
// ask for. The scripts know nothing of the commands, so they do not grow old.

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// askWords is the argument with which a script asks.
const askWords = "words"

// asFiles is the line of an answer that says: names of files fit here, too.
const asFiles = ":files"

var completionCommand = &cli.Command{
	Name: "completion", Usage: "print the completion script of a shell", ArgsUsage: "(bash | zsh | fish)",
	Description: "bash: source <(sbxrun completion bash)       in ~/.bashrc\n" +
		"zsh:  source <(sbxrun completion zsh)        in ~/.zshrc, after compinit\n" +
		"fish: sbxrun completion fish | source        in ~/.config/fish/config.fish",
	Action: func(c *cli.Context) error {
		if c.Args().First() == askWords {
			return offer(os.Stdout, c.App, c.Args().Tail())
		}
		script, ok := completionScripts[c.Args().First()]
		if !ok || c.NArg() != 1 {
			return fmt.Errorf("completion: one of bash, zsh, fish belongs here")
		}
		_, err := io.WriteString(os.Stdout, script)
		return err
	},
}

var completionScripts = map[string]string{
	"bash": `_sbxrun() {
	local line cur=${COMP_WORDS[COMP_CWORD]}
	[[ $cur == = ]] && cur=
	COMPREPLY=()
	while IFS= read -r line; do
		if [[ $line == ` + asFiles + ` ]]; then
			compopt -o filenames
			while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$cur")
		else
			COMPREPLY+=("${line%%$'\t'*}")
		fi
	done < <("${1/#\~/$HOME}" completion ` + askWords + ` "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _sbxrun sbxrun
`,
	"zsh": `#compdef sbxrun
_sbxrun() {
	local line files=
	local -a found
	for line in "${(@f)$(${~words[1]} completion ` + askWords + ` "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
		case $line in
		` + asFiles + `) files=yes ;;
		*$'\t'*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
		?*) found+=("${line//:/\\:}") ;;
		esac
	done
	(( $#found )) && _describe sbxrun found
	if [[ -n $files ]]; then _files; fi
}
compdef _sbxrun sbxrun
`,
	"fish": `function __sbxrun_words
	set -l typed (commandline -opc) (commandline -ct)
	for line in ($typed[1] completion ` + askWords + ` $typed[2..-1] 2>/dev/null)
		if test "$line" = ` + asFiles + `
			__fish_complete_path (commandline -ct)
		else
			echo $line
		end
	end
end
complete -c sbxrun -f -a '(__sbxrun_words)'
`,
}

// typing is where somebody is on a command line.
type typing struct {
	app     *cli.App
	command *cli.Command // nil before there is one
	parent  *cli.Command // of a command in a command
	place   int          // how many arguments of the command stand before
	root    string       // --root
	words   io.Writer
}

// offer prints the words that may stand in place of the last of those typed, each with
// a tab and what it means.
func offer(w io.Writer, app *cli.App, typed []string) error {
	if len(typed) == 0 {
		return nil
	}
	typed, apart := joined(typed)
	t := typing{app: app, words: w}
	last := typed[len(typed)-1]
	if flag, dashes := t.read(typed[:len(typed)-1]); dashes {
		return t.say(last, asFiles)
	} else if flag != nil {
		return t.offerValue(flag, "", last)
	}
	if word, value, ok := strings.Cut(last, "="); ok && strings.HasPrefix(word, "-") {
		prefix := word + "="
		if apart {
			prefix = ""
		}
		if flag := flagOf(t.flags(), word); flag != nil {
			return t.offerValue(flag, prefix, value)
		}
		return nil
	}
	if strings.HasPrefix(last, "-") {
		return t.offerFlags(last)
	}
	if commands := t.commands(); len(commands) > 0 && t.place == 0 {
		var words []string
		for _, c := range commands {
			words = append(words, c.Name+"\t"+c.Usage)
		}
		return t.say(last, words...)
	}
	return t.offerArgument(last)
}

// read goes through what stands before: the flag whose value is to come, or whether
// another program's arguments do, after "--".
func (t *typing) read(before []string) (flag cli.Flag, dashes bool) {
	for i := 0; i < len(before); i++ {
		word := before[i]
		switch next := named(t.commands(), word); {
		case word == "--":
			return nil, true
		case strings.HasPrefix(word, "-") && word != "-":
			name, value, written := strings.Cut(word, "=")
			if !written && takesNext(t.flags(), word) > 0 {
				if i++; i == len(before) {
					return flagOf(t.flags(), name), false
				}
				value = before[i]
			}
			if t.command == nil && strings.TrimLeft(name, "-") == "root" {
				t.root = value
			}
		case next != nil && t.place == 0:
			t.parent, t.command = t.command, next
		default:
			t.place++
		}
	}
	return nil, false
}

func (t *typing) flags() []cli.Flag {
	if t.command == nil {
		return t.app.Flags
	}
	return t.command.Flags
}

// commands are those that may come next; help's argument is one, too.
func (t *typing) commands() []*cli.Command {
	switch {
	case t.command == nil:
		return append(visible(t.app.Commands), named(t.app.Commands, "help"))
	case t.command.Name == "help":
		return visible(t.app.Commands)
	}
	return visible(t.command.Subcommands)
}

func flagOf(flags []cli.Flag, word string) cli.Flag {
	name := strings.TrimLeft(word, "-")
	if i := slices.IndexFunc(flags, func(f cli.Flag) bool { return slices.Contains(f.Names(), name) }); i >= 0 {
		return flags[i]
	}
	return nil
}

func named(commands []*cli.Command, name string) *cli.Command {
	if i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(name) }); i >= 0 {
		return commands[i]
	}
	return nil
}

// joined puts together what a shell that breaks words at "=" took apart.
func joined(words []string) (out []string, apart bool) {
	for i := 0; i < len(words); i++ {
		if words[i] == "=" && len(out) > 0 && strings.HasPrefix(out[len(out)-1], "-") {
			out[len(out)-1] += "="
			apart = i+2 >= len(words)
			if i+1 < len(words) {
				i++
				out[len(out)-1] += words[i]
			}
			continue
		}
		out = append(out, words[i])
	}
	return out, apart
}

// say prints those of the words that begin as typed; the line for files always.
func (t *typing) say(typed string, words ...string) error {
	for _, word := range words {
		if strings.HasPrefix(word, typed) || word == asFiles {
			if _, err := fmt.Fprintln(t.words, word); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *typing) offerFlags(typed string) error {
	words := []string{"--help\tsay more of it"}
	for _, f := range t.flags() {
		for _, n := range f.Names() {
			if shown(f) {
				words = append(words, dashed(n)+"\t"+meaning(f))
			}
		}
	}
	return t.say(typed, words...)
}

// offerValue offers what a flag may be set to, with a prefix before each.
func (t *typing) offerValue(flag cli.Flag, prefix, typed string) error {
	var words []string
	switch name, value := flag.Names()[0], valueOf(flag); {
	case name == "level":
		words = levelNames()
	case name == "lang":
		words = runtime.LanguageNames()
	case name == "require":
		for _, r := range spec.Rules() {
			words = append(words, r.ID)
		}
		words = append(words, "all")
	case strings.Contains(value, "|"):
		words = strings.Split(value, "|")
	case namesFiles(value):
		return t.say(typed, asFiles)
	}
	for i := range words {
		words[i] = prefix + words[i]
	}
	return t.say(prefix+typed, words...)
}

// namesFiles says whether files fit where a usage has that word.
func namesFiles(usage string) bool {
	return slices.ContainsFunc([]string{"FILE", "DIR", "PATH", "HOST", "POLICY", "BUNDLE", "CMD"}, func(s string) bool { return strings.Contains(usage, s) })
}

// offerArgument offers what the command's usage names.
func (t *typing) offerArgument(typed string) error {
	if t.command == nil {
		return nil
	}
	var words []string
	usage := t.command.ArgsUsage
	switch {
	case t.command.Name == "completion":
		words = []string{"bash", "zsh", "fish"}
	case strings.HasPrefix(usage, "ID"):
		if t.place == 0 {
			return t.say(typed, t.ids()...)
		}
	case strings.Contains(usage, "LEVEL"):
		words = levelNames()
	}
	if namesFiles(usage) {
		words = append(words, asFiles)
	}
	return t.say(typed, words...)
}

// ids are those of the containers, or sessions, that the user may see; whatever goes
// wrong, there are none.
func (t *typing) ids() (ids []string) {
	store, err := runtime.OpenStore(t.root, func(error) {})
	if err != nil {
		return nil
	}
	if t.parent != nil {
		root := t.root
		if root == "" {
			root = runtime.DefaultRoot()
		}
		entries, _ := os.ReadDir(filepath.Join(root, runtime.SessionsDir))
		for _, e := range entries {
			ids = append(ids, e.Name())
		}
		return ids
	}
	all, _ := store.List()
	for _, ct := range all {
		ids = append(ids, ct.ID())
	}
	return ids
}

func levelNames() (names []string) {
	for l := spec.L0; l <= spec.L5; l++ {
		names = append(names, l.String())
	}
	return names
}
