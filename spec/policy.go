// Package spec says what a run may do. A Policy is a value in a person's words;
// Compile turns it into an OCI runtime-spec config and FromSpec reads it back.
// The package touches nothing on the machine: no system calls, no files.
//
// This file owns the Policy type and the six presets.
package spec

import "time"

// Level names a preset. Each level is the one below plus one layer.
type Level int

// The six presets, from a bare child to a full box.
const (
	L0 Level = iota // bare child: a 4 s watchdog and nothing else
	L1              // + limits
	L2              // + environment and private working directory
	L3              // + own process tree (user, PID, IPC, UTS, mount namespace for /proc), process cap
	L4              // + empty network namespace
	L5              // + hidden paths, read-only root, no capabilities, no new privileges, syscall filter
)

// Policy says what one run may do, one field group per layer. The zero value of
// a limit means "no limit"; the presets are made by Preset.
type Policy struct {
	Level        Level
	Limits       Limits
	Environment  Environment
	Workdir      Workdir
	Processes    Processes
	Network      Network
	Filesystem   Filesystem
	Capabilities Capabilities
	Syscalls     Syscalls
	// Cgroup is the accounting and enforcement group of the run. CgroupOff is
	// the explicit way to go without one; the result shows it.
	Cgroup CgroupMode
}

// Limits bounds what a run may use (layer "limits", from L1).
type Limits struct {
	Wall        time.Duration // wall clock from the program's execve to the kill
	CPU         time.Duration // CPU time: RLIMIT_CPU soft (hard is one second more), whole seconds
	Memory      int64         // bytes: cgroup memory.max, or RLIMIT_AS with cgroup off
	FileSize    int64         // bytes per file: RLIMIT_FSIZE
	Files       int64         // open file descriptors: RLIMIT_NOFILE
	OutputHeld  int64         // bytes of each stream ever held in the supervisor's memory
	OutputChars int64         // characters of each stream returned in the Result
	Sweep       bool          // kill what the program left running
}

// Environment says which variables the program sees (layer "environment", from L2).
type Environment struct {
	Scrub bool              // start from PATH, LANG, HOME, TMPDIR only, not from the caller's
	Set   map[string]string // further variables, in both modes
}

// Workdir is the private working directory (layer "workdir", from L2).
type Workdir struct {
	Private bool  // a fresh 0700 directory that goes away with the run
	Size    int64 // total bytes, enforced from L5 on by a sized tmpfs
	Inodes  int64 // total files, enforced likewise
}

// Processes isolates and caps the process tree (layer "processes", from L3).
type Processes struct {
	Isolate bool          // own user, PID, IPC, UTS and cgroup namespaces and an own /proc
	Max     int64         // tasks of the program alive at once: cgroup pids.max, witnessed by the monitor
	Monitor time.Duration // interval of the monitor
}

// Network says which network the program sees (layer "network", from L4).
type Network struct {
	Isolate bool // an empty network namespace; not even loopback is up
}

// Filesystem says what of the file system is kept from the program (layer "filesystem", L5).
type Filesystem struct {
	Isolate bool     // read-only root, own /dev, /dev/shm and /tmp
	Hide    []string // absolute paths: a directory becomes an empty one whose writes go nowhere, a file /dev/null
}

// Capabilities (layer "capabilities", L5).
type Capabilities struct {
	Drop            bool // no capability in any of the five sets
	NoNewPrivileges bool
}

// Syscalls (layer "syscalls", L5).
type Syscalls struct {
	Filter bool // refuse what no program of this kind needs; see DefaultFilter
}

// CgroupMode says whether a run gets a control group of its own.
type CgroupMode string

// The cgroup modes.
const (
	CgroupOn  CgroupMode = "on"  // required: without one the run is refused
	CgroupOff CgroupMode = "off" // not used: memory falls back to RLIMIT_AS, the process cap to the monitor
)
