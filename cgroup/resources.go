// This file owns what OCI linux.resources mean in files of a group, beyond what
// containerd/cgroups gets right. Each setting here stands for a value that the
// library drops, mangles or cannot express; nothing is dropped silently.
// https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#control-groups

package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/cgroups/v3/cgroup2"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// meant takes out the zeros: engines send them for what is not set, and none of these
// numbers means anything as zero.
func meant(in *specs.LinuxResources) *specs.LinuxResources {
	res := *in
	if res.Memory != nil {
		m := *res.Memory
		m.Limit, m.Reservation, m.Swap, m.KernelTCP = nonZero(m.Limit), nonZero(m.Reservation), nonZero(m.Swap), nonZero(m.KernelTCP)
		res.Memory = &m
	}
	if res.CPU != nil {
		c := *res.CPU
		c.Shares, c.Quota, c.Period = nonZero(c.Shares), nonZero(c.Quota), nonZero(c.Period)
		c.RealtimeRuntime, c.RealtimePeriod = nonZero(c.RealtimeRuntime), nonZero(c.RealtimePeriod)
		res.CPU = &c
	}
	if res.BlockIO != nil {
		b := *res.BlockIO
		b.Weight, b.LeafWeight = nonZero(b.Weight), nonZero(b.LeafWeight)
		res.BlockIO = &b
	}
	res.Devices = slices.Clone(res.Devices)
	for i := range res.Devices { // letters that mean nothing are let pass by runc, and found in the wild
		res.Devices[i].Access = strings.Map(func(r rune) rune {
			if strings.ContainsRune("rwm", r) {
				return r
			}
			return -1
		}, res.Devices[i].Access)
	}
	return &res
}

func nonZero[T int64 | uint64 | uint16](v *T) *T {
	if v != nil && *v == 0 {
		return nil
	}
	return v
}

// setting is one value for one file of the group of a controller.
type setting struct{ controller, file, value string }

// bfqFiles are the names that weights have where the BFQ scheduler keeps them: each is
// written where the other is not there. BFQ's weights are those of v1.
var bfqFiles = map[string]string{
	"blkio.weight": "blkio.bfq.weight", "blkio.weight_device": "blkio.bfq.weight_device",
}

// weightsV1 are the weights of block devices.
func weightsV1(b *specs.LinuxBlockIO) (own []setting) {
	if b.Weight != nil {
		own = append(own, setting{"io", "blkio.weight", strconv.FormatUint(uint64(*b.Weight), 10)})
	}
	for _, d := range b.WeightDevice {
		if d.Weight != nil {
			own = append(own, setting{"io", "blkio.weight_device", fmt.Sprintf("%d:%d %d", d.Major, d.Minor, *d.Weight)})
		}
	}
	return own
}

// demands lists the controllers that the resources need, in v2's names.
func demands(res *specs.LinuxResources) (need []string) {
	add := func(controller string, wanted bool) {
		if wanted && !slices.Contains(need, controller) {
			need = append(need, controller)
		}
	}
	if m := res.Memory; m != nil {
		add("memory", m.Limit != nil || m.Swap != nil || m.Reservation != nil || m.Swappiness != nil || m.KernelTCP != nil || isTrue(m.DisableOOMKiller))
	}
	add("pids", res.Pids != nil && res.Pids.Limit != nil)
	if c := res.CPU; c != nil {
		add("cpu", c.Shares != nil || c.Quota != nil || c.Period != nil || c.Burst != nil || c.Idle != nil || c.RealtimePeriod != nil || c.RealtimeRuntime != nil)
		add("cpuset", c.Cpus != "" || c.Mems != "")
	}
	if b := res.BlockIO; b != nil {
		add("io", b.Weight != nil || b.LeafWeight != nil || len(b.WeightDevice)+len(b.ThrottleReadBpsDevice)+len(b.ThrottleWriteBpsDevice)+len(b.ThrottleReadIOPSDevice)+len(b.ThrottleWriteIOPSDevice) > 0)
	}
	add("hugetlb", len(res.HugepageLimits) > 0)
	add("rdma", len(res.Rdma) > 0)
	if n := res.Network; n != nil {
		add("net_cls", n.ClassID != nil)
		add("net_prio", len(n.Priorities) > 0)
	}
	add("devices", len(res.Devices) > 0)
	for _, file := range slices.Sorted(maps.Keys(res.Unified)) {
		controller, _, _ := strings.Cut(file, ".")
		add(controller, controller != "cgroup")
	}
	return need
}

func isTrue(b *bool) bool { return b != nil && *b }

// forV2 splits the resources whose controllers are in the unified hierarchy into
// what the library maps and the settings to write after it. oomGroup asks that
// memory kills take the whole group, unless the unified map says otherwise.
func forV2(res specs.LinuxResources, onV1 func(string) bool, oomGroup bool) (*cgroup2.Resources, []setting, error) {
	var own []setting
	lib := specs.LinuxResources{}
	for _, c := range []struct {
		controller string
		convert    func(in, lib *specs.LinuxResources) ([]setting, error)
	}{{"memory", memoryV2}, {"cpu", cpuV2}, {"io", ioV2}, {"rdma", rdmaV2}} {
		if onV1(c.controller) {
			continue
		}
		more, err := c.convert(&res, &lib)
		if err != nil {
			return nil, nil, err
		}
		own = append(own, more...)
	}
	if c := res.CPU; c != nil && !onV1("cpuset") {
		// By hand, since the library would enable cpu for a cpuset alone.
		own = append(own, nonEmpty("cpuset", "cpuset.cpus", c.Cpus)...)
		own = append(own, nonEmpty("cpuset", "cpuset.mems", c.Mems)...)
	}
	if !onV1("hugetlb") {
		lib.HugepageLimits = res.HugepageLimits
	}
	for _, file := range slices.Sorted(maps.Keys(res.Unified)) {
		controller, _, ok := strings.Cut(file, ".")
		if !ok || strings.ContainsAny(file, "/\x00") || onV1(controller) || file == "cgroup.procs" || file == "cgroup.threads" {
			return nil, nil, unsupported("unified["+strconv.Quote(file)+"]", "invalid configuration: no such file of a v2 controller here")
		}
		own = append(own, setting{controller, file, res.Unified[file]})
	}
	out := cgroup2.ToResources(&lib)
	if oomGroup && out.Memory != nil && out.Memory.Max != nil {
		if _, asked := res.Unified["memory.oom.group"]; !asked {
			out.Memory.OOMGroup = &oomGroup
		}
	}
	return out, own, nil
}

func nonEmpty(controller, file, value string) []setting {
	if value == "" {
		return nil
	}
	return []setting{{controller, file, value}}
}

// memoryV2: ToResources writes -1 as -1, which the kernel refuses (it wants
// "max"), subtracts the limit even from swap -1, and takes a memory+swap sum
// without a memory limit for swap. What v2 has no file for it ignores.
func memoryV2(in, lib *specs.LinuxResources) ([]setting, error) {
	m := in.Memory
	if m == nil {
		return nil, nil
	}
	switch {
	case isTrue(m.DisableOOMKiller):
		return nil, unsupported("memory.disableOOMKiller", "cgroup v2 cannot turn the OOM killer off")
	case m.Swappiness != nil:
		return nil, unsupported("memory.swappiness", "cgroup v2 has no swappiness of a group")
	case m.KernelTCP != nil:
		return nil, unsupported("memory.kernelTCP", "cgroup v2 counts kernel memory in memory.max")
	}
	var own []setting
	keep := &specs.LinuxMemory{}
	if m.Limit != nil && *m.Limit < 0 {
		own = append(own, setting{"memory", "memory.max", "max"})
	} else {
		keep.Limit = m.Limit
	}
	if m.Reservation != nil && *m.Reservation < 0 {
		own = append(own, setting{"memory", "memory.low", "max"})
	} else {
		keep.Reservation = m.Reservation
	}
	switch {
	case m.Swap == nil:
	case *m.Swap < 0:
		own = append(own, setting{"memory", "memory.swap.max", "max"})
	case m.Limit == nil || *m.Limit < 0 || *m.Swap < *m.Limit:
		return nil, errors.New("linux.resources.memory.swap is memory plus swap, it must be at least memory.limit")
	default:
		// By hand, for the sake of kernels without swap accounting: see write.
		own = append(own, setting{"memory", "memory.swap.max", strconv.FormatInt(*m.Swap-*m.Limit, 10)})
	}
	if keep.Limit != nil || keep.Reservation != nil {
		lib.Memory = keep
	}
	return own, nil
}

// cpuV2: ToResources drops a quota without a period, writes quota -1 and shares
// 0 (unset) as they are, and ignores idle, burst and realtime.
func cpuV2(in, lib *specs.LinuxResources) (own []setting, _ error) {
	c := in.CPU
	if c == nil {
		return nil, nil
	}
	if c.RealtimePeriod != nil || c.RealtimeRuntime != nil {
		return nil, unsupported("cpu.realtime", "cgroup v2 has no limit of realtime tasks")
	}
	if c.Shares != nil {
		lib.CPU = &specs.LinuxCPU{Shares: c.Shares}
	}
	if c.Quota != nil || c.Period != nil {
		value := "max"
		if c.Quota != nil && *c.Quota > 0 {
			value = strconv.FormatInt(*c.Quota, 10)
		}
		if c.Period != nil {
			value += " " + strconv.FormatUint(*c.Period, 10)
		}
		own = append(own, setting{"cpu", "cpu.max", value})
	}
	if c.Burst != nil {
		own = append(own, setting{"cpu", "cpu.max.burst", strconv.FormatUint(*c.Burst, 10)})
	}
	if c.Idle != nil {
		own = append(own, setting{"cpu", "cpu.idle", strconv.FormatInt(*c.Idle, 10)})
	}
	return own, nil
}

// ioV2: ToResources computes the weight in 16 bits, where 990*9999 does not fit.
func ioV2(in, lib *specs.LinuxResources) ([]setting, error) {
	b := in.BlockIO
	if b == nil {
		return nil, nil
	}
	if b.LeafWeight != nil || len(b.WeightDevice) > 0 {
		return nil, unsupported("blockIO.leafWeight and weightDevice", "only v1 has them")
	}
	keep := *b
	keep.Weight = nil
	if keep.ThrottleReadBpsDevice != nil || keep.ThrottleWriteBpsDevice != nil || keep.ThrottleReadIOPSDevice != nil || keep.ThrottleWriteIOPSDevice != nil {
		lib.BlockIO = &keep
	}
	if b.Weight == nil {
		return nil, nil
	}
	if *b.Weight < 10 || *b.Weight > 1000 {
		return nil, fmt.Errorf("linux.resources.blockIO.weight %d is not in 10..1000", *b.Weight)
	}
	weight := 1 + (uint64(*b.Weight)-10)*9999/990
	return []setting{{"io", "io.weight", strconv.FormatUint(weight, 10)}}, nil
}

// rdmaV2: the library drops a device of which only one limit is set, on v1 also
// every device but the first.
func rdmaV2(in, _ *specs.LinuxResources) ([]setting, error) { return rdma(in.Rdma), nil }

func rdma(devices map[string]specs.LinuxRdma) (own []setting) {
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		value := name
		if n := devices[name].HcaHandles; n != nil {
			value += " hca_handle=" + strconv.FormatUint(uint64(*n), 10)
		}
		if n := devices[name].HcaObjects; n != nil {
			value += " hca_object=" + strconv.FormatUint(uint64(*n), 10)
		}
		own = append(own, setting{"rdma", "rdma.max", value})
	}
	return own
}

// forV1 splits the resources likewise for the v1 hierarchies. On v1 the library
// ignores cpu idle and burst, and cannot update hugetlb. pids.max is not its business: see Arm.
func forV1(res specs.LinuxResources, onV1 func(string) bool) (*specs.LinuxResources, []setting) {
	lib := res
	lib.Pids, lib.Rdma, lib.HugepageLimits = nil, nil, nil
	if len(res.Devices) > 0 {
		lib.Devices = append(slices.Clone(res.Devices), defaultDevices()...)
	}
	var own []setting
	if res.CPU != nil {
		c := res.CPU
		rest := *c // without quota and period, see quotaV1
		rest.Quota, rest.Period = nil, nil
		lib.CPU = &rest
		if c.Burst != nil {
			own = append(own, setting{"cpu", "cpu.cfs_burst_us", strconv.FormatUint(*c.Burst, 10)})
		}
		if c.Idle != nil {
			own = append(own, setting{"cpu", "cpu.idle", strconv.FormatInt(*c.Idle, 10)})
		}
	}
	if res.Memory != nil {
		// Without swap, see swapV1, and without the limit of kernel memory, which
		// OCI lets a runtime ignore and kernels since 5.4 do.
		lib.Memory = &specs.LinuxMemory{
			Limit: res.Memory.Limit, Reservation: res.Memory.Reservation, KernelTCP: res.Memory.KernelTCP,
			Swappiness: res.Memory.Swappiness, DisableOOMKiller: res.Memory.DisableOOMKiller,
		}
	}
	if b := res.BlockIO; b != nil {
		own = append(own, weightsV1(b)...)
		rest := *b
		rest.Weight = nil
		rest.WeightDevice = slices.DeleteFunc(slices.Clone(b.WeightDevice), func(d specs.LinuxWeightDevice) bool { return d.LeafWeight == nil })
		lib.BlockIO = &rest
	}
	for _, h := range res.HugepageLimits {
		own = append(own, setting{"hugetlb", "hugetlb." + h.Pagesize + ".limit_in_bytes", strconv.FormatUint(h.Limit, 10)})
	}
	own = append(own, rdma(res.Rdma)...)
	return &lib, slices.DeleteFunc(own, func(s setting) bool { return !onV1(s.controller) })
}
