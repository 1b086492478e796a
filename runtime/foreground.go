// This file owns running a bundle without a policy in the foreground, as runc
// does: the program is the container's first process and has sbxrun's stdio.

package runtime

import (
	"errors"
	"os"
	"os/signal"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
)

// Foreground runs the bundle's program and returns its exit code, 128 + signal
// when a signal ended it. Signals that sbxrun gets go on to the program.
func Foreground(sp *specs.Spec, opt Options) (code int, err error) {
	id, err := checkID(opt.ID)
	if err != nil {
		return 0, err
	}
	plan, err := draw(sp, nil, opt.Bundle)
	if err != nil {
		return 0, err
	}
	group, err := groupFor(sp, id)
	if err != nil {
		return 0, err
	}
	if group != nil {
		defer func() { err = errors.Join(err, group.Kill(), group.Delete()) }()
	}
	c, err := plan.start(group, stdio{os.Stdin, os.Stdout, os.Stderr}, more{})
	if err != nil {
		return 0, err
	}
	defer c.close()
	if err := c.run(plan, group); err != nil {
		c.abandon()
		return 0, explain(err)
	}
	return c.wait(sp.Process.Terminal)
}

// run takes a started init up to its execve.
func (c *child) run(plan *blueprint, group *cgroup.Group) error {
	if err := c.prepare(plan.plan); err != nil {
		return err
	}
	if err := arm(group); err != nil {
		return err
	}
	return c.release(plan.reaped)
}

// groupFor makes the container's group. An ordinary user without a delegated one
// goes without, as with runc, as long as the config asks for no limit.
func groupFor(sp *specs.Spec, id string) (*cgroup.Group, error) {
	group, err := cgroup.Create(sp.Linux.CgroupsPath, id, sp.Linux.Resources)
	if err == nil {
		return group, nil
	}
	if res := sp.Linux.Resources; os.Geteuid() != 0 && sp.Linux.CgroupsPath == "" && (res == nil || limitless(res)) {
		return nil, nil
	}
	return nil, unavailableCgroup(err)
}

// limitless says whether the resources bound nothing but devices, which a user
// namespace cannot make anyway.
func limitless(res *specs.LinuxResources) bool {
	return res.Memory == nil && res.CPU == nil && res.Pids == nil && res.BlockIO == nil &&
		len(res.HugepageLimits) == 0 && res.Network == nil && len(res.Rdma) == 0 && len(res.Unified) == 0
}

// forwardSignals hands signals on to the program until the function it returns is
// called. SIGCHLD, SIGURG, SIGPIPE and SIGWINCH are sbxrun's own business.
func forwardSignals(p *os.Process) (stop func()) {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	go func() {
		for s := range signals {
			switch s {
			case unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGWINCH:
			default:
				_ = p.Signal(s) // the program may have ended meanwhile
			}
		}
	}()
	return func() { signal.Stop(signals); close(signals) }
}
