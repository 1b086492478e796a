// Command attack is the attack programs of lab/attack as a binary of their own, for
// tests: attack NAME [ARG…].
package main

import (
	"os"

	"github.com/sbxrun/sbxrun/lab/attack"
)

func main() { attack.Main(os.Args[1:]) }
