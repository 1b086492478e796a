// This file owns how a program of device rules comes into force in a group of
// cgroup v2.

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/moby/sys/userns"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// filterDevices puts the rules in force for the unified leaf. An ordinary user
// may not load the program; such a user's container has no more devices than the
// user, so the rules are left out there, as by other runtimes.
func (g *Group) filterDevices(rules []deviceRule) error {
	err := attachDevices(g.FD(), rules)
	var refused *ebpf.VerifierError
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrPermission) && (os.Geteuid() != 0 || userns.RunningInUserNS()):
		return nil
	case errors.Is(err, unix.ENOSYS), errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.EINVAL) && !errors.As(err, &refused), errors.Is(err, fs.ErrPermission):
		return &Missing{Controller: "devices", Path: g.String(), Remedy: remedyBPF, Err: err}
	}
	return fmt.Errorf("set the device rules of group %s: %w", g, err)
}

// attachDevices loads the program and attaches it, beside what the groups above
// have. What was in force in this very group goes after the new one has come:
// meanwhile both must allow, so at no moment is more allowed than by one of them,
// and what both allow is never refused.
func attachDevices(group int, rules []deviceRule) error {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: "sbxrun_devices", Type: ebpf.CGroupDevice, License: "Apache-2.0", Instructions: deviceProgram(rules),
	})
	if err != nil {
		return err
	}
	defer func() { _ = prog.Close() }() // the group holds it
	old, err := attachedDevices(group)
	if err != nil {
		return err
	}
	err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: group, Program: prog, Attach: ebpf.AttachCGroupDevice, Flags: unix.BPF_F_ALLOW_MULTI})
	for _, p := range old {
		if err == nil {
			err = link.RawDetachProgram(link.RawDetachProgramOptions{Target: group, Program: p, Attach: ebpf.AttachCGroupDevice})
		}
		_ = p.Close()
	}
	return err
}

// attachedDevices opens the programs of this very group.
func attachedDevices(group int) (progs []*ebpf.Program, err error) {
	found, err := link.QueryPrograms(link.QueryOptions{Target: group, Attach: ebpf.AttachCGroupDevice})
	if err != nil {
		return nil, err
	}
	for _, f := range found.Programs {
		p, err := ebpf.NewProgramFromID(f.ID)
		if errors.Is(err, fs.ErrNotExist) {
			continue // gone meanwhile
		}
		if err != nil {
			for _, p := range progs {
				_ = p.Close()
			}
			return nil, fmt.Errorf("open the device rules in force: %w", err)
		}
		progs = append(progs, p)
	}
	return progs, nil
}

// rulesV2 are the device rules that this hierarchy has to enforce.
func rulesV2(res *specs.LinuxResources, onV1 func(string) bool) ([]deviceRule, error) {
	if len(res.Devices) == 0 || onV1("devices") {
		return nil, nil
	}
	return deviceRules(res.Devices)
}
