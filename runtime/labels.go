// This file owns what a security module wants to know: the AppArmor profile and the
// SELinux labels of a config. A module that the kernel has not enabled is refused.

package runtime

import (
	"errors"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

var (
	errNoAppArmor = errors.New("process.apparmorProfile: AppArmor is not enabled on this machine")
	errNoSELinux  = errors.New("selinux label is specified in config, but selinux is disabled or not supported")
)

// unlabelled are file systems that know their labels themselves.
var unlabelled = []string{"proc", "sysfs", "cgroup", "cgroup2", "mqueue"}

// labels plans what execve will change to.
func (b *blueprint) labels() error {
	p := b.spec.Process
	if (p.SelinuxLabel != "" || b.spec.Linux.MountLabel != "") && !hasSELinux() {
		return errNoSELinux
	}
	if p.SelinuxLabel != "" {
		b.plan.Add(sbxinit.OpLabel, nil, "exec", p.SelinuxLabel)
	}
	if p.ApparmorProfile == "" || p.ApparmorProfile == "unconfined" && !hasAppArmor() {
		return nil
	}
	if !hasAppArmor() {
		return errNoAppArmor
	}
	file := "exec"
	if _, err := os.Stat("/proc/self/attr/apparmor/exec"); err == nil { // where modules are stacked
		file = "apparmor/exec"
	}
	b.plan.Add(sbxinit.OpLabel, nil, file, "exec "+p.ApparmorProfile)
	return nil
}

func hasAppArmor() bool {
	text, err := os.ReadFile("/sys/module/apparmor/parameters/enabled")
	return err == nil && strings.HasPrefix(string(text), "Y")
}

func hasSELinux() bool {
	var st unix.Statfs_t
	return unix.Statfs("/sys/fs/selinux", &st) == nil && st.Type == unix.SELINUX_MAGIC
}
