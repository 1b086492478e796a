// This file owns Stats: all that the kernel counts for a group, in the shape that
// readers of "runc events" know. Where a controller or a file is missing, its part
// stays empty.

package cgroup

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Stats is the data of a "stats" event. Times are nanoseconds, sizes bytes.
type Stats struct {
	CPU               CPUStats             `json:"cpu"`
	CPUSet            CPUSetStats          `json:"cpuset"`
	Memory            MemoryStats          `json:"memory"`
	Pids              PidsStats            `json:"pids"`
	Blkio             BlkioStats           `json:"blkio"`
	Hugetlb           map[string]HugeStats `json:"hugetlb"`
	IntelRdt          struct{}             `json:"intel_rdt"`
	NetworkInterfaces []struct{}           `json:"network_interfaces"`
}

// CPUStats is the time used, and withheld by a quota.
type CPUStats struct {
	Usage struct {
		Total        uint64   `json:"total,omitempty"`
		Percpu       []uint64 `json:"percpu,omitempty"`
		PercpuKernel []uint64 `json:"percpu_kernel,omitempty"`
		PercpuUser   []uint64 `json:"percpu_user,omitempty"`
		Kernel       uint64   `json:"kernel"`
		User         uint64   `json:"user"`
	} `json:"usage"`
	Throttling struct {
		Periods          uint64 `json:"periods,omitempty"`
		ThrottledPeriods uint64 `json:"throttledPeriods,omitempty"`
		ThrottledTime    uint64 `json:"throttledTime,omitempty"`
	} `json:"throttling"`
}

// CPUSetStats is where the group may run.
type CPUSetStats struct {
	CPUs                  []uint16 `json:"cpus,omitempty"`
	CPUExclusive          uint64   `json:"cpu_exclusive"`
	Mems                  []uint16 `json:"mems,omitempty"`
	MemHardwall           uint64   `json:"mem_hardwall"`
	MemExclusive          uint64   `json:"mem_exclusive"`
	MemoryMigrate         uint64   `json:"memory_migrate"`
	MemorySpreadPage      uint64   `json:"memory_spread_page"`
	MemorySpreadSlab      uint64   `json:"memory_spread_slab"`
	MemoryPressure        uint64   `json:"memory_pressure"`
	SchedLoadBalance      uint64   `json:"sched_load_balance"`
	SchedRelaxDomainLevel int64    `json:"sched_relax_domain_level"`
}

// MemoryStats is what memory is used for, and how much of it there may be.
type MemoryStats struct {
	Cache     uint64            `json:"cache,omitempty"`
	Usage     MemoryEntry       `json:"usage"`
	Swap      MemoryEntry       `json:"swap"`
	Kernel    MemoryEntry       `json:"kernel"`
	KernelTCP MemoryEntry       `json:"kernelTCP"`
	Raw       map[string]uint64 `json:"raw,omitempty"`
}

// MemoryEntry is one kind of memory. On v1 a limit of none is a number of 63 bits,
// on v2 of 64, as runc says it.
type MemoryEntry struct {
	Limit   uint64 `json:"limit"`
	Usage   uint64 `json:"usage,omitempty"`
	Max     uint64 `json:"max,omitempty"`
	Failcnt uint64 `json:"failcnt"`
}

// PidsStats counts tasks. A limit of 0 is none.
type PidsStats struct {
	Current uint64 `json:"current,omitempty"`
	Limit   uint64 `json:"limit,omitempty"`
}

// BlkioStats counts transfers, by device and direction.
type BlkioStats struct {
	ServiceBytes []BlkioEntry `json:"ioServiceBytesRecursive,omitempty"`
	Serviced     []BlkioEntry `json:"ioServicedRecursive,omitempty"`
	Queued       []BlkioEntry `json:"ioQueuedRecursive,omitempty"`
	ServiceTime  []BlkioEntry `json:"ioServiceTimeRecursive,omitempty"`
	WaitTime     []BlkioEntry `json:"ioWaitTimeRecursive,omitempty"`
	Merged       []BlkioEntry `json:"ioMergedRecursive,omitempty"`
	Time         []BlkioEntry `json:"ioTimeRecursive,omitempty"`
	Sectors      []BlkioEntry `json:"sectorsRecursive,omitempty"`
}

// BlkioEntry is one count.
type BlkioEntry struct {
	Major uint64 `json:"major,omitempty"`
	Minor uint64 `json:"minor,omitempty"`
	Op    string `json:"op,omitempty"`
	Value uint64 `json:"value,omitempty"`
}

// HugeStats counts huge pages of one size.
type HugeStats struct {
	Usage   uint64 `json:"usage,omitempty"`
	Max     uint64 `json:"max,omitempty"`
	Failcnt uint64 `json:"failcnt"`
}

// Stats reads all counters.
func (g *Group) Stats() (*Stats, error) {
	s := &Stats{Hugetlb: map[string]HugeStats{}}
	r := &reading{}
	for _, d := range g.dirs {
		if d.controller == "" {
			r.unified(d, s)
		} else {
			r.v1(d, s)
		}
	}
	return s, r.err
}

// reading reads files of a group; a file that is not there reads as nothing.
type reading struct{ err error }

func (r *reading) text(d *dir, name string) string {
	fd, err := unix.Openat(int(d.file.Fd()), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	if err != nil {
		r.err = errors.Join(r.err, &fs.PathError{Op: "open", Path: filepath.Join(d.path, name), Err: err})
		return ""
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
		r.err = errors.Join(r.err, err)
	}
	return string(text)
}

// number reads a file that holds one number; "max" is the largest.
func (r *reading) number(d *dir, name string) uint64 {
	text := strings.TrimSpace(r.text(d, name))
	if text == "max" {
		return ^uint64(0)
	}
	n, _ := strconv.ParseUint(text, 10, 64) // a negative one means nothing here
	return n
}

// table reads a file of lines "key number".
func (r *reading) table(d *dir, name string) map[string]uint64 {
	out := map[string]uint64{}
	for line := range strings.Lines(r.text(d, name)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseUint(value, 10, 64); err == nil {
			out[key] = n
		}
	}
	return out
}

// numbers reads a file of numbers.
func (r *reading) numbers(d *dir, name string) (out []uint64) {
	for _, f := range strings.Fields(r.text(d, name)) {
		if n, err := strconv.ParseUint(f, 10, 64); err == nil {
			out = append(out, n)
		}
	}
	return out
}

// list reads a list of numbers as cpuset writes it: "0-2,5".
func (r *reading) list(d *dir, name string) (out []uint16) {
	for part := range strings.SplitSeq(strings.TrimSpace(r.text(d, name)), ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, err := strconv.ParseUint(first, 10, 16)
		b := a
		if err == nil && isRange {
			b, err = strconv.ParseUint(last, 10, 16)
		}
		for n := a; err == nil && n <= b; n++ {
			out = append(out, uint16(n))
		}
	}
	return out
}

func (r *reading) unified(d *dir, s *Stats) {
	if cpu := r.table(d, "cpu.stat"); len(cpu) > 0 {
		u, t := &s.CPU.Usage, &s.CPU.Throttling
		if u.Total == 0 { // else v1 has told
			u.Total, u.User, u.Kernel = cpu["usage_usec"]*1000, cpu["user_usec"]*1000, cpu["system_usec"]*1000
		}
		t.Periods, t.ThrottledPeriods, t.ThrottledTime = cpu["nr_periods"], cpu["nr_throttled"], cpu["throttled_usec"]*1000
	}
	if raw := r.table(d, "memory.stat"); len(raw) > 0 {
		m := &s.Memory
		m.Raw, m.Cache = raw, raw["file"]
		m.Usage = MemoryEntry{Limit: r.number(d, "memory.max"), Usage: r.number(d, "memory.current"), Max: r.number(d, "memory.peak"), Failcnt: r.table(d, "memory.events")["max"]}
		// As v1 counts it: memory and swap.
		m.Swap = MemoryEntry{Limit: r.number(d, "memory.swap.max"), Usage: r.number(d, "memory.swap.current") + m.Usage.Usage, Failcnt: r.table(d, "memory.swap.events")["max"]}
		if m.Swap.Limit != ^uint64(0) && m.Usage.Limit != ^uint64(0) {
			m.Swap.Limit += m.Usage.Limit
		}
	}
	s.CPUSet.CPUs = append(s.CPUSet.CPUs, r.list(d, "cpuset.cpus.effective")...)
	s.CPUSet.Mems = append(s.CPUSet.Mems, r.list(d, "cpuset.mems.effective")...)
	if text := r.text(d, "pids.current"); text != "" {
		s.Pids = r.pids(d)
	}
	r.ioStat(d, &s.Blkio)
	r.huge(d, s, ".current", ".max", func(size string) uint64 { return r.table(d, "hugetlb."+size+".events")["max"] })
}

// pids reads either version's files, which are the same.
func (r *reading) pids(d *dir) PidsStats {
	p := PidsStats{Current: r.number(d, "pids.current"), Limit: r.number(d, "pids.max")}
	if p.Limit == ^uint64(0) {
		p.Limit = 0
	}
	return p
}

// ioStat reads lines "8:0 rbytes=1 wbytes=2 rios=3 …".
func (r *reading) ioStat(d *dir, b *BlkioStats) {
	for line := range strings.Lines(r.text(d, "io.stat")) {
		device, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		major, minor, ok := deviceNumber(device)
		if !ok {
			continue
		}
		for field := range strings.FieldsSeq(rest) {
			key, value, _ := strings.Cut(field, "=")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				continue
			}
			entry := func(op string) BlkioEntry { return BlkioEntry{major, minor, op, n} }
			switch key {
			case "rbytes":
				b.ServiceBytes = append(b.ServiceBytes, entry("Read"))
			case "wbytes":
				b.ServiceBytes = append(b.ServiceBytes, entry("Write"))
			case "rios":
				b.Serviced = append(b.Serviced, entry("Read"))
			case "wios":
				b.Serviced = append(b.Serviced, entry("Write"))
			}
		}
	}
}

func deviceNumber(text string) (major, minor uint64, ok bool) {
	a, b, _ := strings.Cut(text, ":")
	major, err := strconv.ParseUint(a, 10, 32)
	minor, err2 := strconv.ParseUint(b, 10, 32)
	return major, minor, err == nil && err2 == nil
}

func (r *reading) v1(d *dir, s *Stats) {
	switch d.controller {
	case "cpuacct":
		u, ticks := &s.CPU.Usage, r.table(d, "cpuacct.stat")
		u.Total, u.Percpu = r.number(d, "cpuacct.usage"), r.numbers(d, "cpuacct.usage_percpu")
		u.User, u.Kernel = ticks["user"]*tick, ticks["system"]*tick
		u.PercpuKernel, u.PercpuUser = r.numbers(d, "cpuacct.usage_percpu_sys"), r.numbers(d, "cpuacct.usage_percpu_user")
	case "cpu":
		t, stat := &s.CPU.Throttling, r.table(d, "cpu.stat")
		t.Periods, t.ThrottledPeriods, t.ThrottledTime = stat["nr_periods"], stat["nr_throttled"], stat["throttled_time"]
	case "cpuset":
		r.cpuset(d, &s.CPUSet)
	case "memory":
		m := &s.Memory
		m.Raw = r.table(d, "memory.stat")
		m.Cache = m.Raw["cache"]
		m.Usage, m.Swap = r.memory(d, "memory"), r.memory(d, "memory.memsw")
		m.Kernel, m.KernelTCP = r.memory(d, "memory.kmem"), r.memory(d, "memory.kmem.tcp")
	case "pids":
		s.Pids = r.pids(d)
	case "blkio":
		s.Blkio = r.blkio(d)
	case "hugetlb":
		r.huge(d, s, ".usage_in_bytes", ".max_usage_in_bytes", func(size string) uint64 { return r.number(d, "hugetlb."+size+".failcnt") })
	}
}

// tick is a clock tick of cpuacct.stat: USER_HZ is 100 on every architecture of ours.
const tick = 1e9 / 100

func (r *reading) cpuset(d *dir, c *CPUSetStats) {
	c.CPUs, c.Mems = r.list(d, "cpuset.cpus"), r.list(d, "cpuset.mems")
	for _, one := range []struct {
		file string
		to   *uint64
	}{
		{"cpu_exclusive", &c.CPUExclusive}, {"mem_hardwall", &c.MemHardwall}, {"mem_exclusive", &c.MemExclusive},
		{"memory_migrate", &c.MemoryMigrate}, {"memory_spread_page", &c.MemorySpreadPage}, {"memory_spread_slab", &c.MemorySpreadSlab},
		{"memory_pressure", &c.MemoryPressure}, {"sched_load_balance", &c.SchedLoadBalance},
	} {
		*one.to = r.number(d, "cpuset."+one.file)
	}
	c.SchedRelaxDomainLevel, _ = strconv.ParseInt(strings.TrimSpace(r.text(d, "cpuset.sched_relax_domain_level")), 10, 64)
}

func (r *reading) memory(d *dir, kind string) MemoryEntry {
	return MemoryEntry{
		Limit: r.number(d, kind+".limit_in_bytes"), Usage: r.number(d, kind+".usage_in_bytes"),
		Max: r.number(d, kind+".max_usage_in_bytes"), Failcnt: r.number(d, kind+".failcnt"),
	}
}

// blkio prefers the files of a proportional scheduler, which the kernel may lack.
func (r *reading) blkio(d *dir) BlkioStats {
	entries := func(names ...string) []BlkioEntry {
		for _, name := range names {
			if out := blkioEntries(r.text(d, "blkio."+name)); len(out) > 0 {
				return out
			}
		}
		return nil
	}
	return BlkioStats{
		ServiceBytes: entries("bfq.io_service_bytes_recursive", "throttle.io_service_bytes_recursive", "throttle.io_service_bytes"),
		Serviced:     entries("bfq.io_serviced_recursive", "throttle.io_serviced_recursive", "throttle.io_serviced"),
		Queued:       entries("bfq.io_queued_recursive", "io_queued_recursive"),
		ServiceTime:  entries("bfq.io_service_time_recursive", "io_service_time_recursive"),
		WaitTime:     entries("bfq.io_wait_time_recursive", "io_wait_time_recursive"),
		Merged:       entries("bfq.io_merged_recursive", "io_merged_recursive"),
		Time:         entries("bfq.time_recursive", "time_recursive"),
		Sectors:      entries("bfq.sectors_recursive", "sectors_recursive"),
	}
}

// blkioEntries reads lines "8:0 Read 42" and "8:0 42".
func blkioEntries(text string) (out []BlkioEntry) {
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 2 {
			continue
		}
		major, minor, ok := deviceNumber(f[0])
		n, err := strconv.ParseUint(f[len(f)-1], 10, 64)
		if !ok || err != nil {
			continue // "Total 42"
		}
		e := BlkioEntry{Major: major, Minor: minor, Value: n}
		if len(f) > 2 {
			e.Op = f[1]
		}
		out = append(out, e)
	}
	return out
}

// huge reads the files of every size of huge pages.
func (r *reading) huge(d *dir, s *Stats, usage, limit string, failcnt func(size string) uint64) {
	names, err := os.ReadDir(d.path)
	if err != nil {
		r.err = errors.Join(r.err, err)
		return
	}
	for _, e := range names {
		size, ok := strings.CutSuffix(strings.TrimPrefix(e.Name(), "hugetlb."), usage)
		if !ok || !strings.HasPrefix(e.Name(), "hugetlb.") || strings.Contains(size, "rsvd") {
			continue
		}
		h := HugeStats{Usage: r.number(d, "hugetlb."+size+usage), Failcnt: failcnt(size)}
		if limit != ".max" { // on v2 that is the limit, and there is no peak
			h.Max = r.number(d, "hugetlb."+size+limit)
		}
		s.Hugetlb[size] = h
	}
}
