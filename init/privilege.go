// This file owns the refusal to work with rights that execve(2) gave to somebody who
// has not got them: under a setuid bit whoever starts the binary could hand any plan to
// an init that is root.

package sbxinit

import "golang.org/x/sys/unix"

// atSecure is AT_SECURE of getauxval(3).
const atSecure = 23

// Elevated says by what this process has more rights than its caller: "setuid",
// "setgid", "file capabilities", or "" when it has none.
func Elevated() string {
	uid, euid, _ := unix.Getresuid()
	gid, egid, _ := unix.Getresgid()
	switch {
	case uid != euid:
		return "setuid"
	case gid != egid:
		return "setgid"
	case euid == 0 || !secure():
		return ""
	}
	// A change of SELinux's domain sets the mark, too, and gives no capabilities.
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	if err := unix.Capget(&head, &sets[0]); err != nil || sets[0].Permitted|sets[1].Permitted != 0 {
		return "file capabilities"
	}
	return ""
}

// secure is the kernel's mark on a process that execve gave more rights.
func secure() bool {
	vector, err := unix.Auxv()
	for _, v := range vector {
		if v[0] == atSecure {
			return v[1] != 0
		}
	}
	return err != nil // not known: then it counts
}
