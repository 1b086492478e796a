// This file owns what a container without a policy needs: its group, and signals
// passed on to it while sbxrun waits for it.

package runtime

import (
	"os"
	"os/signal"

	"github.com/moby/sys/userns"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/sbxrun/sbxrun/cgroup"
)

// groupFor makes the container's group, with every controller: a container may be
// updated in all that it was made without. An ordinary user without a delegated one
// goes without, as with runc, as long as the config asks for no limit.
func groupFor(sp *specs.Spec, opt CreateOptions, announce cgroup.Announce) (*cgroup.Group, error) {
	if opt.Systemd {
		group, err := cgroup.CreateScope(sp.Linux.CgroupsPath, opt.ID, sp.Linux.Resources, sp.Annotations)
		if err != nil {
			return nil, unavailableCgroup(err)
		}
		return group, nil
	}
	group, err := cgroup.CreateWhole(sp.Linux.CgroupsPath, opt.ID, sp.Linux.Resources, announce)
	if err == nil {
		return group, nil
	}
	ordinary := os.Geteuid() != 0 || userns.RunningInUserNS()
	if res := sp.Linux.Resources; ordinary && sp.Linux.CgroupsPath == "" && (res == nil || limitless(res)) {
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
