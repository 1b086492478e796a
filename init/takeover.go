// This file owns the moment when a process turns out to be an init.

package sbxinit

import (
	"os"

	"golang.org/x/sys/unix"
)

// Name is argv[0] of an init. Nothing else starts a process under it.
const Name = "sbxrun-init"

// init takes over before main and before packages that the plan does not need
// are initialised: their start-up time would be paid by every run. It stays on
// the main thread, as all package initialisation does.
func init() {
	if len(os.Args) != 1 || os.Args[0] != Name {
		return
	}
	if Elevated() != "" {
		unix.Exit(125) // the command says why; here anybody may listen on the channel
	}
	unix.Umask(0o022) // the caller's may be anything; the program's comes with its user
	f := &Failure{Step: "init", Op: "read the plan"}
	b, err := receivePlan()
	var p Plan
	if err == nil {
		p, err = decode(b)
	}
	if err == nil {
		f = perform(p)
	} else if e, ok := err.(unix.Errno); ok {
		f.Errno = e
	}
	// Nobody is left to hear about a failure to report it.
	_ = writeFull(channel, f.Encode())
	unix.Exit(125)
}
