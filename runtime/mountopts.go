// This file owns the translation of config.json's mounts to what the kernel's
// mount interface takes.

package runtime

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/rootfs"
)

// attrOption is an option that becomes a MOUNT_ATTR_* of the mount. With the
// prefix "r" it holds for everything below as well (rro, rnosuid, …).
type attrOption struct{ set, clear uint64 }

var attrOptions = map[string]attrOption{
	"ro":            {unix.MOUNT_ATTR_RDONLY, 0},
	"rw":            {0, unix.MOUNT_ATTR_RDONLY},
	"nosuid":        {unix.MOUNT_ATTR_NOSUID, 0},
	"suid":          {0, unix.MOUNT_ATTR_NOSUID},
	"nodev":         {unix.MOUNT_ATTR_NODEV, 0},
	"dev":           {0, unix.MOUNT_ATTR_NODEV},
	"noexec":        {unix.MOUNT_ATTR_NOEXEC, 0},
	"exec":          {0, unix.MOUNT_ATTR_NOEXEC},
	"nodiratime":    {unix.MOUNT_ATTR_NODIRATIME, 0},
	"diratime":      {0, unix.MOUNT_ATTR_NODIRATIME},
	"nosymfollow":   {unix.MOUNT_ATTR_NOSYMFOLLOW, 0},
	"symfollow":     {0, unix.MOUNT_ATTR_NOSYMFOLLOW},
	"relatime":      {unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME},
	"norelatime":    {unix.MOUNT_ATTR_STRICTATIME, unix.MOUNT_ATTR__ATIME},
	"noatime":       {unix.MOUNT_ATTR_NOATIME, unix.MOUNT_ATTR__ATIME},
	"atime":         {unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME},
	"strictatime":   {unix.MOUNT_ATTR_STRICTATIME, unix.MOUNT_ATTR__ATIME},
	"nostrictatime": {unix.MOUNT_ATTR_RELATIME, unix.MOUNT_ATTR__ATIME},
}

var propagationOptions = map[string]uint64{
	"private": unix.MS_PRIVATE, "shared": unix.MS_SHARED, "slave": unix.MS_SLAVE, "unbindable": unix.MS_UNBINDABLE,
}

// noOptions say what holds anyway.
var noOptions = map[string]bool{
	"defaults": true, "async": true, "nolazytime": true, "nomand": true, "noiversion": true, "loud": true,
}

// decodeMount translates one entry of mounts. field names it in errors.
func decodeMount(m specs.Mount, field, bundle string) (rootfs.Mount, error) {
	out := rootfs.Mount{Target: path.Clean(m.Destination), Type: m.Type, Source: m.Source}
	if !path.IsAbs(m.Destination) {
		return out, fmt.Errorf("%s.destination: %q is not an absolute path", field, m.Destination)
	}
	for _, o := range m.Options {
		addOption(&out, o)
	}
	if out.Type == "bind" {
		out.Bind = true
	}
	if out.Bind {
		// A bind takes no data: the kernel ignores "mode=755", as mount(8) and the
		// suite of runtime-tools know. A word alone may be a flag with a mistake in it.
		out.Options = slices.DeleteFunc(out.Options, func(o string) bool { return strings.Contains(o, "=") })
	}
	switch {
	case out.Bind && len(out.Options) > 0:
		return out, fmt.Errorf("%s.options: %q has no meaning for a bind mount", field, out.Options[0])
	case out.Bind && m.Source == "" && !out.Remount:
		return out, fmt.Errorf("%s.source: a bind mount needs one", field)
	case out.Bind && !path.IsAbs(m.Source):
		out.Source = path.Join(bundle, m.Source)
	case !out.Bind && out.Type == "" && !out.Remount:
		return out, fmt.Errorf("%s.type: missing", field)
	case out.CopyUp && out.Type != "tmpfs":
		return out, fmt.Errorf("%s.options: \"tmpcopyup\" is for a tmpfs", field)
	}
	return out, nil
}

// addOption files one option under the attribute, propagation or file system it concerns.
func addOption(out *rootfs.Mount, o string) {
	base, recursive := strings.CutPrefix(o, "r")
	if _, plain := attrOptions[o]; plain {
		base, recursive = o, false
	}
	switch attr, isAttr := attrOptions[base]; {
	case o == "bind":
		out.Bind = true
	case o == "rbind":
		out.Bind, out.Recursive = true, true
	case isAttr && recursive:
		out.RecSet, out.RecClear = out.RecSet&^attr.clear|attr.set, out.RecClear&^attr.set|attr.clear
	case isAttr:
		out.Set, out.Clear = out.Set&^attr.clear|attr.set, out.Clear&^attr.set|attr.clear
	case propagationOptions[o] != 0:
		out.Propagation, out.RecPropagation = propagationOptions[o], false
	case propagationOptions[base] != 0:
		out.Propagation, out.RecPropagation = propagationOptions[base], true
	case noOptions[o], o == "idmap", o == "ridmap": // the latter two: mappingOf
	case o == "remount":
		out.Remount = true
	case o == "tmpcopyup":
		out.CopyUp = true
	default: // of the file system: "size=64m", "newinstance", "sync"
		out.Options = append(out.Options, o)
	}
}
