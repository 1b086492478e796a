// This file owns the test binary's other lives: helpers that tests run as processes.

package runtime

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "seccomp-child" {
		seccompChild()
	}
	os.Exit(m.Run())
}
