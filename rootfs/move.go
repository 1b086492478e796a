// This file owns the change of root where the host runs from a ramdisk, which
// pivot_root refuses: the container's root moves on top of "/". It is the weaker way,
// for callers who ask for it (--no-pivot).

package rootfs

import (
	"errors"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Move puts the root in the place of "/" and makes it the process's root. The old root
// stays mounted below, out of reach of paths.
func (r *Root) Move() error {
	defer r.close()
	if r.place {
		return nil
	}
	if err := r.hideKernelFiles(); err != nil {
		return err
	}
	if err := r.Chdir(); err != nil {
		return err
	}
	if err := unix.MoveMount(r.fd, "", unix.AT_FDCWD, "/", unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return wrap("move_mount", "/", err)
	}
	if err := unix.Chroot("."); err != nil {
		return wrap("chroot", ".", err)
	}
	return wrap("chdir", "/", unix.Chdir("/"))
}

// hideKernelFiles takes away the whole proc and sysfs mounts that stay below. As long
// as the mount namespace has one, the kernel lets a user namespace inside the container
// mount a new one, which has none of the container's masks.
func (r *Root) hideKernelFiles() error {
	var st unix.Statx_t
	if err := unix.Statx(r.fd, "", unix.AT_EMPTY_PATH, unix.STATX_MNT_ID, &st); err != nil {
		return wrap("statx", "root", err)
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	places := wholeMounts(string(text), strconv.FormatUint(st.Mnt_id, 10))
	for i := len(places) - 1; i >= 0; i-- { // what lies on others first
		if err := hide(places[i]); err != nil {
			return err
		}
	}
	return nil
}

// wholeMounts lists where proc and sysfs are mounted as a whole, but for what lies in
// the tree of the mount root.
func wholeMounts(mountinfo, root string) (places []string) {
	inside := map[string]bool{root: true}
	for line := range strings.Lines(mountinfo) {
		mount, rest, _ := strings.Cut(line, " - ")
		f, kind := strings.Fields(mount), strings.Fields(rest)
		if len(f) < 5 || len(kind) == 0 {
			continue
		}
		if inside[f[1]] { // mountinfo names parents first
			inside[f[0]] = true
		}
		if !inside[f[0]] && f[3] == "/" && (kind[0] == "proc" || kind[0] == "sysfs") {
			places = append(places, octal.Replace(f[4]))
		}
	}
	return places
}

// octal undoes how mountinfo writes what separates its fields.
var octal = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

// hide unmounts a mount, or covers it where it is locked because it came from another
// user namespace.
func hide(place string) error {
	slave := unix.MountAttr{Propagation: unix.MS_SLAVE}
	err := unix.MountSetattr(unix.AT_FDCWD, place, unix.AT_RECURSIVE, &slave) // the host keeps its own
	if err == nil {
		err = unix.Unmount(place, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	}
	switch {
	case errors.Is(err, unix.ENOENT): // it went with another
		return nil
	case errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPERM):
		err = unix.Mount("tmpfs", place, "tmpfs", 0, "")
	}
	return wrap("hide", place, err)
}
