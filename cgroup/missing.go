// This file owns the refusal: the error for a controller that cannot be had, and
// the trial that finds it out beforehand.

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Missing says that a controller which the resources need cannot be had here. It
// comes instead of a group without the limit, never beside one.
type Missing struct {
	Controller string // as in cgroup.controllers, the OCI field that has no counterpart, or "systemd"
	Path       string // where it was looked for
	Remedy     string // what would mend it
	Err        error  // the cause
}

// Error names controller, place and cause on one line; Remedy is apart.
func (m *Missing) Error() string {
	if m.Controller == systemdName {
		return fmt.Sprintf("no systemd at %s: %v", m.Path, m.Err)
	}
	return fmt.Sprintf("no %s controller at %s: %v", m.Controller, m.Path, m.Err)
}

// Unwrap gives the cause.
func (m *Missing) Unwrap() error { return m.Err }

const (
	remedyOff      = ", or set cgroup: off in the policy (--cgroup off)"
	remedyMount    = "mount the control groups: mount -t cgroup2 none /sys/fs/cgroup" + remedyOff
	remedyKernel   = "the kernel must offer it there: see cgroup.controllers, cgroup_enable= and cgroup_no_v1= of the boot command line" + remedyOff
	remedyDelegate = "start it below a delegated group, e.g. systemd-run --user --scope -p Delegate=yes sbxrun …" + remedyOff
	remedyWrite    = "mount the control groups writable" + remedyOff
	remedySwap     = "turn swap off, or boot with swapaccount=1" + remedyOff
	remedyBPF      = "the kernel must have CONFIG_CGROUP_BPF and let this process load programs (CAP_BPF, CAP_NET_ADMIN), or leave the device rules out"
	remedyField    = "leave it out of linux.resources"
	remedyDriver   = ", or leave out --systemd-cgroup"
	remedySession  = "systemd must run and be reachable, of an ordinary user his own (loginctl enable-linger, XDG_RUNTIME_DIR)" + remedyDriver
	remedyUser     = "let systemd delegate it: Delegate=cpu cpuset io memory pids for user@.service" + remedyDriver

	systemdName = "systemd"
)

func noSystemd(path string, err error) error {
	return &Missing{Controller: systemdName, Path: path, Remedy: "run it on a machine that systemd has booted" + remedyDriver, Err: err}
}

// missing makes the error for a controller from what the kernel answered.
func missing(controller, path string, err error) error {
	remedy := remedyKernel
	switch {
	case errors.Is(err, unix.EROFS):
		remedy = remedyWrite
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EBUSY), errors.Is(err, unix.EOPNOTSUPP):
		remedy = remedyDelegate
	}
	return &Missing{Controller: controller, Path: path, Remedy: remedy, Err: err}
}

// unsupported refuses a field of the resources.
func unsupported(field, why string) error {
	return &Missing{Controller: field, Path: "linux.resources", Remedy: remedyField, Err: errors.New(why)}
}

// Probe tries whether this user can have a group with a memory limit and a
// process limit here, by making one and removing it. The error is what Create
// would give.
func Probe() error {
	limit, pids := int64(64<<20), int64(16)
	g, err := Create("", "probe-"+strconv.Itoa(os.Getpid())+"-"+strconv.FormatInt(probes.Add(1), 10), &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &limit, Swap: &limit},
		Pids:   &specs.LinuxPids{Limit: &pids},
	})
	if err != nil {
		return err
	}
	return errors.Join(g.Arm(), g.Delete())
}
