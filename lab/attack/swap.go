// This file owns the attack on whoever looks a path up twice.

package attack

import (
	"os"

	"golang.org/x/sys/unix"
)

func init() {
	register(attack{"C3", "swap", "A B", "exchanges two names for ever", swap})
}

// swap ends when one of the names is gone.
func swap(args []string) {
	for unix.Renameat2(unix.AT_FDCWD, args[0], unix.AT_FDCWD, args[1], unix.RENAME_EXCHANGE) == nil {
	}
	os.Exit(1)
}
