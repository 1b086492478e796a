// This file owns what a security module wants to know: the AppArmor profile and the
// SELinux labels of a config. A module that the kernel has not enabled is refused.

package runtime

import (
	"errors"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/rootfs"
)

var (
	errNoAppArmor = errors.New("process.apparmorProfile: AppArmor is not enabled on this machine")
	errNoSELinux  = errors.New("selinux label is specified in config, but selinux is disabled or not supported")
)

// unlabelled are file systems that know their labels themselves.
var unlabelled = []string{"proc", "sysfs", "cgroup", "cgroup2", "mqueue"}

// mountLabel gives the option that labels a mount of a file system. Without SELinux
// nobody could tell the label's files from others: there is nothing to refuse.
func (b *blueprint) mountLabel(m rootfs.Mount) []string {
	l := b.spec.Linux.MountLabel
	if l == "" || m.Bind || m.Remount || slices.Contains(unlabelled, m.Type) || !hasSELinux() {
		return nil
	}
	return []string{"context=" + l}
}

// labels plans what execve will change to.
func (b *blueprint) labels() error {
	p := b.spec.Process
	if p.SelinuxLabel != "" && !hasSELinux() {
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
