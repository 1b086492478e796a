// This file owns the devices of a container's /dev.

package runtime

import (
	"fmt"
	"path"
	"slices"

	"github.com/moby/sys/userns"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

// defaultDevices are those that config-linux.md#default-devices promises.
var defaultDevices = []struct {
	path         string
	major, minor uint32
}{
	{"/dev/null", 1, 3}, {"/dev/zero", 1, 5}, {"/dev/full", 1, 7},
	{"/dev/random", 1, 8}, {"/dev/urandom", 1, 9}, {"/dev/tty", 5, 0},
}

var defaultLinks = [][2]string{
	{"/proc/self/fd", "/dev/fd"}, {"/proc/self/fd/0", "/dev/stdin"},
	{"/proc/self/fd/1", "/dev/stdout"}, {"/proc/self/fd/2", "/dev/stderr"}, {"pts/ptmx", "/dev/ptmx"},
}

// devices fills a /dev that belongs to the container. One that is the host's,
// because nothing or a bind was mounted there, stays as it is.
func (b *blueprint) devices(root string) error {
	own := root != "/"
	for _, m := range b.spec.Mounts {
		if path.Clean(m.Destination) == "/dev" {
			own = m.Type != "bind" && !slices.Contains(m.Options, "bind") && !slices.Contains(m.Options, "rbind")
		}
	}
	if !own {
		if len(b.spec.Linux.Devices) > 0 {
			return fmt.Errorf("linux.devices: /dev is the host's")
		}
		return nil
	}
	bind := uint64(0)
	if b.has(unix.CLONE_NEWUSER) || userns.RunningInUserNS() { // where there is no mknod
		bind = 1
	}
	listed := map[string]bool{}
	for i, d := range b.spec.Linux.Devices {
		step, err := deviceStep(d, bind)
		if err != nil {
			return fmt.Errorf("linux.devices[%d]: %w", i, err)
		}
		if path.Clean(d.Path) == "/dev/ptmx" {
			continue // the link below is that of the container's own terminals
		}
		listed[path.Clean(d.Path)] = true
		b.plan.Add(sbxinit.OpDevice, step, path.Clean(d.Path))
	}
	for _, d := range defaultDevices {
		if !listed[d.path] {
			b.plan.Add(sbxinit.OpDevice, []uint64{bind, unix.S_IFCHR | 0o666, unix.Mkdev(d.major, d.minor), 0, 0}, d.path)
		}
	}
	for _, l := range defaultLinks {
		b.plan.Add(sbxinit.OpSymlink, nil, l[0], l[1])
	}
	return nil
}

func deviceStep(d specs.LinuxDevice, bind uint64) ([]uint64, error) {
	kind, ok := map[string]uint64{"c": unix.S_IFCHR, "u": unix.S_IFCHR, "b": unix.S_IFBLK, "p": unix.S_IFIFO}[d.Type]
	if !ok {
		return nil, fmt.Errorf("type: unknown %q", d.Type)
	}
	if !path.IsAbs(d.Path) {
		return nil, fmt.Errorf("path: %q is not absolute", d.Path)
	}
	mode, uid, gid := uint64(0o666), uint64(0), uint64(0)
	if d.FileMode != nil {
		mode = uint64(d.FileMode.Perm())
	}
	if d.UID != nil {
		uid = uint64(*d.UID)
	}
	if d.GID != nil {
		gid = uint64(*d.GID)
	}
	dev := unix.Mkdev(uint32(d.Major), uint32(d.Minor))
	if kind == unix.S_IFIFO { // has no numbers, whatever is written there
		dev = 0
	}
	return []uint64{bind, kind | mode, dev, uid, gid}, nil
}
