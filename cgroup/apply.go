// This file owns the writing of limits: the library first, then the settings that
// it cannot be trusted with.

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// apply writes the resources but for the process limit.
func (g *Group) apply(h *host, res *specs.LinuxResources, fresh bool) error {
	if g.unified() != nil {
		lib, own, err := forV2(*res, h.onV1, fresh && g.state.Shared)
		if err != nil {
			return err
		}
		rules, err := rulesV2(res, h.onV1)
		if err != nil {
			return err
		}
		leaf, err := cgroup2.Load(g.state.Unified, cgroup2.WithMountpoint(g.state.Mount))
		if err != nil {
			return fmt.Errorf("group %s: %w", g.state.Unified, err)
		}
		if err := leaf.Update(lib); err != nil {
			return fmt.Errorf("set the limits of group %s: %w", g.state.Unified, err)
		}
		if len(rules) > 0 {
			if err := g.filterDevices(rules); err != nil {
				return err
			}
		}
		if err := g.write(own); err != nil {
			return err
		}
	}
	if g.lib == nil {
		return nil
	}
	if g.unified() == nil && len(res.Unified) > 0 {
		return unsupported("unified", "there is no cgroup v2 here")
	}
	lib, own := forV1(*res, h.onV1)
	swap, quota := g.swapV1(h, res.Memory), quotaV1(h, res.CPU)
	_ = g.write(swap) // the total must be raised before the limit; lowered, this fails and the second one counts
	if err := g.lib.Update(lib); err != nil {
		return fmt.Errorf("set the limits of the v1 groups: %w", err)
	}
	if n := len(quota); n > 1 {
		_ = g.write(quota[n-1:]) // likewise: a shorter period is refused while the old quota is too much of it
	}
	return g.write(slices.Concat(own, swap, quota))
}

// quotaV1 is a limit of CPU time, the quota last: written twice, both orders come.
func quotaV1(h *host, c *specs.LinuxCPU) (own []setting) {
	if c == nil || !h.onV1("cpu") {
		return nil
	}
	if c.Period != nil {
		own = append(own, setting{"cpu", "cpu.cfs_period_us", strconv.FormatUint(*c.Period, 10)})
	}
	if c.Quota != nil {
		own = append(own, setting{"cpu", "cpu.cfs_quota_us", strconv.FormatInt(*c.Quota, 10)})
	}
	return own
}

// swapV1 is the limit of memory and swap together. An unlimited memory needs an
// unlimited total.
func (g *Group) swapV1(h *host, m *specs.LinuxMemory) []setting {
	switch {
	case m == nil || !h.onV1("memory"):
		return nil
	case m.Swap != nil:
		return []setting{{"memory", memswFile, strconv.FormatInt(*m.Swap, 10)}}
	case m.Limit != nil && *m.Limit < 0:
		return []setting{{"memory", memswFile, "-1"}}
	}
	return nil
}

const (
	memswFile = "memory.memsw.limit_in_bytes"
	swapFile  = "memory.swap.max"
)

// write writes settings in order. A swap limit that the kernel does not have is
// no loss on a machine without swap, and *Missing on one with it.
func (g *Group) write(settings []setting) error {
	for _, s := range settings {
		d := g.of(s.controller)
		if d == nil {
			return missing(s.controller, "/sys/fs/cgroup", fs.ErrNotExist)
		}
		err := writeFile(filepath.Join(d.path, s.file), s.value)
		if other := bfqFiles[s.file]; errors.Is(err, fs.ErrNotExist) && other != "" {
			err = writeFile(filepath.Join(d.path, other), s.value)
		}
		if errors.Is(err, fs.ErrNotExist) && (s.file == swapFile || s.file == memswFile) {
			if !swapping() || s.value == "max" || strings.HasPrefix(s.value, "-") {
				continue
			}
			return &Missing{Controller: "memory", Path: filepath.Join(d.path, s.file), Remedy: remedySwap, Err: err}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return missing(s.controller, filepath.Join(d.path, s.file), err)
		}
		if err != nil {
			return fmt.Errorf("set %s of the group: %w", s.file, err)
		}
	}
	return nil
}

// swapping says whether the machine has swap space; when in doubt, yes.
func swapping() bool {
	b, err := os.ReadFile("/proc/swaps")
	return err != nil || strings.Count(string(b), "\n") > 1
}
