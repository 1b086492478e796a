// This file owns the examination of a machine: each mechanism that a policy can
// ask for, tried for real, as the current user.

package runtime

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/rootfs"
)

// Finding says whether one mechanism is available here.
type Finding struct {
	Layer     string `json:"layer"`
	Mechanism string `json:"mechanism"`
	Available bool   `json:"available"`
	Why       string `json:"why,omitempty"`    // what was seen instead
	Remedy    string `json:"remedy,omitempty"` // what would mend it
}

// mechanism is one thing to try.
type mechanism struct {
	layer, name, remedy string
	try                 func() error
}

// Examine tries every mechanism. It leaves nothing behind.
func Examine() []Finding {
	var list []mechanism
	for _, n := range namespaceTable {
		list = append(list, mechanism{n.layer, n.name, n.unavailable(nil).Remedy, func() error { return probeNamespace(n.flag) }})
	}
	list = append(list,
		mechanism{"processes", "executable memfd for the reaper", "set sysctl vm.memfd_noexec to 0 or 1", func() error { _, err := reaperImage(); return err }},
		mechanism{"processes", "pidfd", "Linux 5.3 or later", tryPidfd},
		mechanism{"processes", "own /proc", "an outer container must leave /proc unmasked", func() error { return tryPlan(procOnly) }},
		mechanism{"filesystem", "mount interface (open_tree, mount_setattr)", "Linux 5.12 or later", func() error { return tryPlan(readonlyTree) }},
		mechanism{"filesystem", "openat2", "Linux 5.6 or later", tryOpenat2},
		mechanism{"syscalls", "seccomp filter", remedies["syscalls"], tryFilter},
	)
	out := make([]Finding, len(list), len(list)+2)
	var wg sync.WaitGroup
	for i, m := range list {
		wg.Go(func() { out[i] = finding(m.layer, m.name, m.remedy, m.try()) })
	}
	wg.Wait()
	remedy := ""
	err := cgroup.Probe()
	if un, ok := unavailableCgroup(err).(*UnavailableError); err != nil && ok {
		remedy = un.Remedy
	}
	return append(out, finding("limits", "cgroup with memory and pids", remedy, err))
}

func finding(layer, name, remedy string, err error) Finding {
	f := Finding{Layer: layer, Mechanism: name, Available: err == nil}
	if err != nil {
		f.Why, f.Remedy = err.Error(), remedy
	}
	return f
}

func tryPidfd() error {
	fd, err := unix.PidfdOpen(os.Getpid(), 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func tryOpenat2() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS})
	if err == unix.EXDEV { // "/" is not beneath: the call itself is there
		return nil
	}
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

// tryFilter asks the kernel for the actions that filters use; it changes nothing.
func tryFilter() error {
	var action uint32 = unix.SECCOMP_RET_KILL_PROCESS
	_, _, e := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	if e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}

// tryPlan runs an init with a few steps up to its barrier and ends it there.
func tryPlan(steps func(*sbxinit.Plan)) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	b := examined()
	steps(&b.plan)
	b.plan.Add(sbxinit.OpReady, nil)
	c, err := b.start(nil, stdio{null, null, null}, more{})
	if err != nil {
		return err
	}
	defer c.abandon()
	return c.prepare(b.plan, nil)
}

func procOnly(p *sbxinit.Plan) {
	p.Add(sbxinit.OpPropagation, []uint64{unix.MS_SLAVE | unix.MS_REC})
	p.Add(sbxinit.OpRoot, []uint64{0, 0, 0}, "/")
	nums, strs := sbxinit.MountStep(procMount)
	p.Add(sbxinit.OpMount, nums, strs...)
}

func readonlyTree(p *sbxinit.Plan) {
	p.Add(sbxinit.OpPropagation, []uint64{unix.MS_SLAVE | unix.MS_REC})
	p.Add(sbxinit.OpRoot, []uint64{0, 0, 0}, "/")
	p.Add(sbxinit.OpRootBelow, nil)
}

var procMount = rootfs.Mount{Source: "proc", Target: "/proc", Type: "proc"}

// examined is the blueprint of a trial: the namespaces of a policy, no program.
func examined() *blueprint {
	ids := func(id int) []specs.LinuxIDMapping {
		return []specs.LinuxIDMapping{{ContainerID: 0, HostID: uint32(id), Size: 1}}
	}
	return &blueprint{
		clone: unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		spec:  &specs.Spec{Linux: &specs.Linux{UIDMappings: ids(os.Geteuid()), GIDMappings: ids(os.Getegid())}},
	}
}
