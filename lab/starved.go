// This file owns the attack on the machine: the lab starts itself once more in a user
// namespace where the kernel gives no network namespace, and asks for a run that needs
// one. The only right answer is a refusal.

package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/sbxrun/sbxrun/lab/attack"
	"github.com/sbxrun/sbxrun/runtime"
	"github.com/sbxrun/sbxrun/spec"
)

// starvedWord is the first argument of the lab's other self.
const starvedWord = "lab-starved"

// Become turns this process into one of the lab's programs if its arguments ask for
// that: an attack, or the lab on a starved machine. It is for the start of main.
func Become() {
	attack.Become()
	if len(os.Args) == 5 && os.Args[1] == starvedWord {
		if err := starved(os.Args[2], os.Args[3], os.Args[4]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// starved takes the kernel's network namespaces away and asks for a run that calls the
// honeypot.
func starved(level, address, mark string) error {
	if err := os.WriteFile("/proc/sys/user/max_net_namespaces", []byte("0"), 0); err != nil {
		return err
	}
	l, err := spec.ParseLevel(level)
	if err != nil {
		return err
	}
	policy := spec.Preset(l)
	policy.Cgroup = spec.CgroupOff // they belong to the namespace outside
	policy.Limits.Memory = 0
	policy.Workdir.Private, policy.Workdir.Size, policy.Workdir.Inodes = false, 0, 0
	policy.Filesystem = spec.Filesystem{} // the program must be found
	host := runtime.ThisHost()
	host.RunID = 0
	sp, err := spec.Compile(policy, host, spec.Process{Args: []string{"/proc/self/exe", attack.Word, "tell", "tcp", address, mark}})
	if err != nil {
		return err
	}
	sp.Process.Args[0], err = os.Executable()
	if err != nil {
		return err
	}
	_, err = runtime.Run(context.Background(), sp, runtime.Options{})
	return err
}

func starvesKernel(t *try) error {
	if !t.policy.Network.Isolate {
		return notHere("the policy asks for no network namespace")
	}
	if !t.matrix {
		t.level = spec.L4
	}
	cmd := exec.CommandContext(t.ctx, t.self, starvedWord, t.level.String(), t.tcp.address, t.mark)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	heard, herr := t.tcp.heard(t.mark)
	if herr != nil {
		return herr
	}
	if heard {
		t.got("the run went on without its namespace, and the honeypot was reached")
		return nil
	}
	line := strings.TrimSpace(string(out))
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !slices.ContainsFunc([]string{"network namespace"}, func(s string) bool { return strings.Contains(line, "unavailable") && strings.Contains(line, s) }) {
		return fmt.Errorf("instead of a refusal: %v %s", err, lastLine(line))
	}
	t.seen, _, _ = strings.Cut(line, " (")
	return nil
}
