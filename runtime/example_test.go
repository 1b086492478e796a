// The README's example of a Go caller, as it is.

package runtime_test

import (
	"context"
	"fmt"
	"os"
	goruntime "runtime"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// Running a program under a policy and reading the verdict.
func ExampleRun() {
	policy := spec.Preset(spec.L5)
	policy.Cgroup = spec.CgroupOff // so that the example runs without a delegated group
	host := spec.Host{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), RunID: runtime.RunID(), Arch: goruntime.GOARCH}
	config, err := spec.Compile(policy, host, spec.Process{Args: []string{"/bin/echo", "hello"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := runtime.Run(context.Background(), config, runtime.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Print(result.Reason, " ", *result.ExitCode, " ", result.Stdout.Text)
	// Output:
	// exited 0 hello
}
