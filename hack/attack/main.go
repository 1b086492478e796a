// Command attack is a collection of small programs that try what a sandbox must
// stop, one for each row of the threat table. Each prints one JSON line about what
// it saw; whether it got through is judged by whoever runs it, from outside.
//
//	attack NAME [ARG…]
//
// Every attack is bounded: run bare, it harms nothing beyond what its arguments name.
package main

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

func main() {
	if len(os.Args) > 1 {
		for _, a := range attacks {
			if a.name == os.Args[1] {
				a.run(os.Args[2:])
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
