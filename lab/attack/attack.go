// Package attack is a collection of small programs that try what a sandbox must
// stop, one for each row of the threat table. Each prints one JSON line about what
// it saw; whether it got through is judged by whoever runs it, from outside.
//
//	attack NAME [ARG…]
//
// Every attack is bounded: run bare, it harms nothing beyond what its arguments name.
//
// This file owns the table of the programs and what they print.
package attack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
)

// attack is one program: what it is told and what it tries.
type attack struct {
	row, name, args, what string
	run                   func(args []string)
}

var attacks []attack

func register(list ...attack) { attacks = append(attacks, list...) }

// Word is the first argument with which another binary becomes an attack program.
const Word = "lab-attack"

// words stand before a program's name when this binary starts itself again.
var words []string

// Become turns this process into an attack program if its arguments ask for that.
func Become() {
	if len(os.Args) > 1 && os.Args[1] == Word {
		words = []string{Word}
		Main(os.Args[2:])
		os.Exit(0)
	}
}

// Main runs the program that args name and returns; with a wrong name it lists them
// and exits with 2.
func Main(args []string) {
	if len(args) > 0 {
		for _, a := range attacks {
			if a.name == args[0] {
				a.run(args[1:])
				return
			}
		}
	}
	for _, a := range attacks {
		fmt.Fprintf(os.Stderr, "%-4s %-14s %-20s %s\n", a.row, a.name, a.args, a.what)
	}
	os.Exit(2)
}

// saw prints what an attack saw. err nil means that it got through.
func saw(what string, err error) {
	line := map[string]any{"what": what, "got_through": err == nil}
	if err != nil {
		line["detail"] = err.Error()
		var errno syscall.Errno
		if errors.As(err, &errno) {
			line["errno"] = int(errno)
		}
	}
	text, _ := json.Marshal(line)
	fmt.Println(string(text))
}

// arg gives the i-th argument or ends with a complaint.
func arg(args []string, i int) string {
	if i >= len(args) {
		fmt.Fprintln(os.Stderr, "attack: an argument is missing")
		os.Exit(2)
	}
	return args[i]
}
