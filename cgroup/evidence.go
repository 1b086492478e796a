// This file owns the counters: what the kernel says the group used and hit.

package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Evidence is what the kernel counted for the group and all below it. A value is
// zero where the kernel or the hierarchy does not count it.
type Evidence struct {
	OOMKills    int64         // processes killed by the OOM killer, whoever's limit it was (memory.events, memory.oom_control)
	OOMEvents   int64         // times this group's own memory limit led to an OOM kill; v1 has only the kills
	PidsMax     int64         // forks refused by the process limit
	PidsPeak    int64         // most tasks at once (pids.peak, Linux 6.1)
	PidsCurrent int64         // tasks now
	MemoryPeak  int64         // bytes (memory.peak, Linux 5.19)
	MemoryLimit int64         // bytes, 0 for none
	CPUUsage    time.Duration // user and system time of all, living and dead
}

type counterID int

const (
	oomKills counterID = iota
	oomEvents
	memoryPeak
	memoryLimit
	memoryNow
	pidsHit
	pidsPeak
	pidsNow
	cpuUsage
	counterCount
)

// source is a file of a group and the key of the wanted line, "" for a file that
// holds one number.
type source struct {
	file, key string
	unit      int64
}

// sources says where each counter is, the better source first. The process limit
// is read from pids.events.local because since Linux 6.12 pids.events also counts
// the limits of groups below; before, it counts where the fork failed, which in
// a group without children is the same.
var sources = [counterCount]struct {
	controller string
	v2, v1     []source
}{
	oomKills:    {"memory", []source{{"memory.events", "oom_kill", 1}}, []source{{"memory.oom_control", "oom_kill", 1}}},
	oomEvents:   {"memory", []source{{"memory.events", "oom", 1}}, []source{{"memory.oom_control", "oom_kill", 1}}},
	memoryPeak:  {"memory", []source{{"memory.peak", "", 1}}, []source{{"memory.max_usage_in_bytes", "", 1}}},
	memoryLimit: {"memory", []source{{"memory.max", "", 1}}, []source{{"memory.limit_in_bytes", "", 1}}},
	memoryNow:   {"memory", []source{{"memory.current", "", 1}}, []source{{"memory.usage_in_bytes", "", 1}}},
	pidsHit:     {"pids", []source{{"pids.events.local", "max", 1}, {"pids.events", "max", 1}}, []source{{"pids.events", "max", 1}}},
	pidsPeak:    {"pids", []source{{"pids.peak", "", 1}}, []source{{"pids.peak", "", 1}}},
	pidsNow:     {"pids", []source{{"pids.current", "", 1}}, []source{{"pids.current", "", 1}}},
	cpuUsage:    {"cpuacct", []source{{"cpu.stat", "usage_usec", 1000}}, []source{{"cpuacct.usage", "", 1}}},
}

// counter is an opened source; one that is not there stays without a file.
type counter struct {
	opened bool
	file   *os.File
	source source
	fd     int // of file, which is asked once
}

// Evidence reads all counters. It must be called before Delete.
func (g *Group) Evidence() (Evidence, error) {
	var n [counterCount]int64
	for id := range n {
		var err error
		if n[id], err = g.read(counterID(id)); err != nil {
			return Evidence{}, err
		}
	}
	limit := n[memoryLimit]
	if limit >= math.MaxInt64>>1 { // v1 rounds "no limit" to pages
		limit = 0
	}
	return Evidence{
		OOMKills: n[oomKills], OOMEvents: n[oomEvents],
		PidsMax: n[pidsHit], PidsPeak: n[pidsPeak], PidsCurrent: n[pidsNow],
		MemoryPeak: n[memoryPeak], MemoryLimit: limit,
		CPUUsage: time.Duration(n[cpuUsage]),
	}, nil
}

// PidsHit is how often the process limit refused a fork. Like the other single
// reads it is cheap enough for every few milliseconds.
func (g *Group) PidsHit() (int64, error) { return g.read(pidsHit) }

// PidsEvents is a descriptor on which poll(2) reports POLLPRI once the process limit
// was hit since PidsHit was read last; -1 where there is none. It belongs to g.
func (g *Group) PidsEvents() int {
	if _, err := g.read(pidsHit); err != nil || g.counters[pidsHit].file == nil {
		return -1
	}
	return g.counters[pidsHit].fd
}

// PidsCurrent is how many tasks there are now.
func (g *Group) PidsCurrent() (int64, error) { return g.read(pidsNow) }

// OOMKills is how many processes the OOM killer has killed.
func (g *Group) OOMKills() (int64, error) { return g.read(oomKills) }

// CPUUsage is the CPU time of all processes, living and dead.
func (g *Group) CPUUsage() (time.Duration, error) {
	n, err := g.read(cpuUsage)
	return time.Duration(n), err
}

// read reads a counter from its open file, without allocating.
func (g *Group) read(id counterID) (int64, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := &g.counters[id]
	if !c.opened {
		if err := g.openCounter(id); err != nil {
			return 0, err
		}
	}
	if c.file == nil {
		return 0, nil
	}
	// One call: these files are shorter than the buffer, and ReadAt would ask again.
	n, err := unix.Pread(c.fd, g.buf[:], 0)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", c.source.file, err)
	}
	v, ok := value(g.buf[:n], c.source.key)
	if !ok {
		return 0, fmt.Errorf("read %s: no number for %q", c.file.Name(), c.source.key)
	}
	return v * c.source.unit, nil
}

// openCounter opens the first source that is there.
func (g *Group) openCounter(id counterID) error {
	if g.dirs == nil {
		return fmt.Errorf("read the counters: %w", fs.ErrClosed)
	}
	d := g.of(sources[id].controller)
	candidates := sources[id].v2
	if d != nil && d.controller != "" {
		candidates = sources[id].v1
	}
	if u := g.unified(); id == cpuUsage && u != nil {
		d, candidates = u, sources[id].v2 // there without any controller, also on a hybrid
	}
	for _, s := range candidates {
		f, err := os.Open(filepath.Join(d.path, s.file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("open a counter: %w", err)
		}
		g.counters[id] = counter{opened: true, file: f, fd: int(f.Fd()), source: s}
		return nil
	}
	if _, err := os.Stat(d.path); err != nil { // nothing counted and nothing there differ
		return fmt.Errorf("open a counter: %w", err)
	}
	g.counters[id].opened = true
	return nil
}

// value finds a number in a file of a group: that of the line "key number", or
// the only one. "max" is 0. A number beyond int64 counts as the largest.
func value(text []byte, key string) (int64, bool) {
	for len(text) > 0 {
		line, rest, _ := bytes.Cut(text, []byte{'\n'})
		text = rest
		if key != "" {
			name, number, ok := bytes.Cut(line, []byte{' '})
			if !ok || string(name) != key {
				continue
			}
			line = number
		}
		return number(bytes.TrimSpace(line))
	}
	return 0, false
}

func number(digits []byte) (int64, bool) {
	if string(digits) == "max" {
		return 0, true
	}
	n, err := strconv.ParseInt(string(digits), 10, 64)
	if errors.Is(err, strconv.ErrRange) && n > 0 {
		err = nil
	}
	if err != nil || n < 0 {
		return 0, false
	}
	return n, true
}
