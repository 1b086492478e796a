// This file owns what limits are called as properties of a systemd unit,
// systemd.resource-control(5), and the properties that annotations give.

package cgroup

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/docker/go-units"
	bus "github.com/godbus/dbus/v5"
	"github.com/opencontainers/runtime-spec/specs-go"
)

const (
	annotationPrefix = "org.systemd.property."
	infinity         = uint64(math.MaxUint64)
)

// limitProperties maps resources to properties, but for the process limit, which Arm
// sets. What systemd has no property for is in the group's files alone.
func limitProperties(res *specs.LinuxResources) (list []dbus.Property, err error) {
	if m := res.Memory; m != nil {
		list = append(list, bytesProperty("MemoryMax", m.Limit)...)
		list = append(list, bytesProperty("MemoryLow", m.Reservation)...)
		swap := m.Swap
		if swap != nil && *swap >= 0 && m.Limit != nil && *m.Limit >= 0 { // v2 counts swap apart
			rest := *swap - *m.Limit
			swap = &rest
		}
		list = append(list, bytesProperty("MemorySwapMax", swap)...)
	}
	if c := res.CPU; c != nil {
		if c.Shares != nil {
			list = append(list, property("CPUWeight", weightOf(*c.Shares)))
		}
		list = append(list, quotaProperties(c.Quota, c.Period)...)
		sets, err := setProperties(c.Cpus, c.Mems)
		if err != nil {
			return nil, err
		}
		list = append(list, sets...)
	}
	if b := res.BlockIO; b != nil && b.Weight != nil {
		list = append(list, property("IOWeight", ioWeightOf(*b.Weight)))
	}
	for _, file := range slices.Sorted(maps.Keys(res.Unified)) {
		more, err := fileProperties(file, strings.TrimSpace(res.Unified[file]))
		if err != nil {
			return nil, fmt.Errorf("linux.resources.unified[%q]: %w", file, err)
		}
		list = append(list, more...)
	}
	return list, nil
}

// tasksProperty is the process limit.
func tasksProperty(limit int64) []dbus.Property { return bytesProperty("TasksMax", &limit) }

// bytesProperty is a number of which any below 0 means none.
func bytesProperty(name string, limit *int64) []dbus.Property {
	switch {
	case limit == nil:
		return nil
	case *limit < 0:
		return []dbus.Property{property(name, infinity)}
	}
	return []dbus.Property{property(name, uint64(*limit))}
}

// weightOf is cpu.weight for the shares of v1.
func weightOf(shares uint64) uint64 {
	return 1 + (min(max(shares, 2), 262144)-2)*9999/262142
}

// ioWeightOf is io.weight for the weight of v1.
func ioWeightOf(weight uint16) uint64 { return 1 + (uint64(max(weight, 10))-10)*9999/990 }

// quotaProperties: systemd thinks of CPU time for each second, in whole percents.
func quotaProperties(quota *int64, period *uint64) (list []dbus.Property) {
	if quota == nil && period == nil {
		return nil
	}
	each := uint64(100_000)
	if period != nil {
		each = *period
		list = append(list, property("CPUQuotaPeriodUSec", each))
	}
	second := infinity
	if quota != nil && *quota > 0 {
		const percent = 10_000
		second = uint64(*quota) * 1_000_000 / each
		second = (second + percent - 1) / percent * percent
	}
	return append(list, property("CPUQuotaPerSecUSec", second))
}

// setProperties are processors and memory nodes, as systemd has them: bits.
func setProperties(cpus, mems string) (list []dbus.Property, err error) {
	for _, set := range []struct{ name, value string }{{"AllowedCPUs", cpus}, {"AllowedMemoryNodes", mems}} {
		if set.value == "" {
			continue
		}
		bits, err := bitsOf(set.value)
		if err != nil {
			return nil, err
		}
		list = append(list, property(set.name, bits))
	}
	return list, nil
}

// bitsOf turns a list as in cpuset.cpus, "0-2,5", into bytes, the lowest first.
func bitsOf(list string) ([]byte, error) {
	var out []byte
	for _, part := range strings.Split(strings.TrimSpace(list), ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		if !isRange {
			high = low
		}
		first, err := strconv.ParseUint(low, 10, 13)
		last, err2 := strconv.ParseUint(high, 10, 13)
		if err := errors.Join(err, err2); err != nil || first > last {
			return nil, fmt.Errorf("%q is no list of processors or memory nodes", list)
		}
		for n := first; n <= last; n++ {
			for uint64(len(out)) <= n/8 {
				out = append(out, 0)
			}
			out[n/8] |= 1 << (n % 8)
		}
	}
	return out, nil
}

// fileProperties are those that a value for a file of v2 stands for.
func fileProperties(file, value string) ([]dbus.Property, error) {
	name := map[string]string{
		"memory.min": "MemoryMin", "memory.low": "MemoryLow", "memory.high": "MemoryHigh", "memory.max": "MemoryMax",
		"memory.swap.max": "MemorySwapMax", "pids.max": "TasksMax", "cpu.weight": "CPUWeight", "io.weight": "IOWeight",
	}[file]
	switch {
	case name != "":
		n := int64(-1)
		if value != "max" {
			var err error
			if n, err = units.RAMInBytes(strings.TrimPrefix(value, "default ")); err != nil {
				return nil, err
			}
		}
		return bytesProperty(name, &n), nil
	case file == "cpuset.cpus":
		return setProperties(value, "")
	case file == "cpuset.mems":
		return setProperties("", value)
	case file == "cpu.max":
		return cpuMaxProperties(value)
	}
	return nil, nil
}

func cpuMaxProperties(value string) ([]dbus.Property, error) {
	quota, period := int64(-1), uint64(100_000)
	words := strings.Fields(value)
	var errs [2]error
	if len(words) > 0 && words[0] != "max" {
		quota, errs[0] = strconv.ParseInt(words[0], 10, 64)
	}
	if len(words) > 1 {
		period, errs[1] = strconv.ParseUint(words[1], 10, 64)
	}
	if err := errors.Join(errs[:]...); err != nil || len(words) == 0 || len(words) > 2 || period == 0 {
		return nil, fmt.Errorf("%q is no limit of CPU time", value)
	}
	return quotaProperties(&quota, &period), nil
}

// annotated reads annotations named org.systemd.property.X: the value is a GVariant in
// its text form. A property in seconds is one in microseconds on the bus.
func annotated(annotations map[string]string) (list []dbus.Property, err error) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		name, ok := strings.CutPrefix(key, annotationPrefix)
		if !ok {
			continue
		}
		letter := func(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' }
		if len(name) < 3 || strings.TrimFunc(name, letter) != "" {
			return nil, fmt.Errorf("annotations: %s is no name of a property", key)
		}
		value, err := bus.ParseVariant(annotations[key], bus.Signature{})
		if err != nil {
			return nil, fmt.Errorf("annotations: %s: %w", key, err)
		}
		if stem, ok := strings.CutSuffix(name, "Sec"); ok && !strings.HasSuffix(name, "USec") {
			name = stem + "USec"
			if value, err = microseconds(value); err != nil {
				return nil, fmt.Errorf("annotations: %s: %w", key, err)
			}
		}
		list = append(list, dbus.Property{Name: name, Value: value})
	}
	return list, nil
}

func microseconds(v bus.Variant) (bus.Variant, error) {
	seconds, err := strconv.ParseFloat(fmt.Sprint(v.Value()), 64)
	if _, text := v.Value().(string); err != nil || text || !(seconds >= 0) || seconds > math.MaxInt64/1e6 {
		return v, fmt.Errorf("%v is no number of seconds", v)
	}
	return bus.MakeVariant(uint64(math.Round(seconds * 1e6))), nil
}
