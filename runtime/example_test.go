// The README's example of a Go caller, as it is.

package runtime_test

import (
	"context"
	"fmt"

	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// Running a program under a policy and reading the verdict.
func ExampleRun() {
	policy := spec.Preset(spec.L5)
	policy.Cgroup = spec.CgroupOff // so that the example runs without a delegated group
	config, err := spec.Compile(policy, runtime.ThisHost(), spec.Process{Args: []string{"/bin/echo", "hello"}})
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

// A session keeps its working directory from run to run.
func ExampleSession() {
	policy := spec.Preset(spec.L5)
	policy.Cgroup = spec.CgroupOff
	session, err := runtime.NewSession(policy, runtime.SessionOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer session.Close()
	for _, code := range []string{"echo 42 >answer", "cat answer"} {
		command, _ := runtime.Source("sh", code)
		result, err := session.Run(context.Background(), command)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %q\n", result.Reason, result.Stdout.Text)
	}
	// Output:
	// exited ""
	// exited "42\n"
}
