// This file owns how the kernel is to schedule a container's process: scheduler, I/O
// priority, CPUs, and its personality (OCI runtime-spec, config.md#process).

package runtime

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

var schedulers = map[specs.LinuxSchedulerPolicy]uint64{
	specs.SchedOther: unix.SCHED_NORMAL, specs.SchedFIFO: unix.SCHED_FIFO, specs.SchedRR: unix.SCHED_RR,
	specs.SchedBatch: unix.SCHED_BATCH, specs.SchedIdle: unix.SCHED_IDLE, specs.SchedDeadline: unix.SCHED_DEADLINE,
}

var schedulerFlags = map[specs.LinuxSchedulerFlag]uint64{
	specs.SchedFlagResetOnFork: unix.SCHED_FLAG_RESET_ON_FORK, specs.SchedFlagReclaim: unix.SCHED_FLAG_RECLAIM,
	specs.SchedFlagDLOverrun: unix.SCHED_FLAG_DL_OVERRUN, specs.SchedFlagKeepPolicy: unix.SCHED_FLAG_KEEP_POLICY,
	specs.SchedFlagKeepParams: unix.SCHED_FLAG_KEEP_PARAMS, specs.SchedFlagUtilClampMin: unix.SCHED_FLAG_UTIL_CLAMP_MIN,
	specs.SchedFlagUtilClampMax: unix.SCHED_FLAG_UTIL_CLAMP_MAX,
}

var ioClasses = map[specs.IOPriorityClass]uint64{
	specs.IOPRIO_CLASS_RT: 1, specs.IOPRIO_CLASS_BE: 2, specs.IOPRIO_CLASS_IDLE: 3,
}

// personalities are the domains of personality(2).
var personalities = map[specs.LinuxPersonalityDomain]uint64{specs.PerLinux: 0, specs.PerLinux32: 8}

// scheduling plans these while init still has the rights that some of them need.
func (b *blueprint) scheduling() error {
	p := b.spec.Process
	if s := p.Scheduler; s != nil {
		policy, ok := schedulers[s.Policy]
		if !ok {
			return fmt.Errorf("process.scheduler.policy: %q is not supported", s.Policy)
		}
		var flags uint64
		for _, f := range s.Flags {
			bit, ok := schedulerFlags[f]
			if !ok {
				return fmt.Errorf("process.scheduler.flags: unknown %q", f)
			}
			flags |= bit
		}
		b.plan.Add(sbxinit.OpScheduler, []uint64{policy, flags, uint64(uint32(s.Nice)), uint64(uint32(s.Priority)), s.Runtime, s.Deadline, s.Period})
	}
	if io := p.IOPriority; io != nil {
		class, ok := ioClasses[io.Class]
		if !ok || io.Priority < 0 || io.Priority > 7 {
			return fmt.Errorf("process.ioPriority: class %q with priority %d is not supported", io.Class, io.Priority)
		}
		b.plan.Add(sbxinit.OpIOPriority, []uint64{class<<13 | uint64(io.Priority)})
	}
	if per := b.spec.Linux.Personality; per != nil {
		domain, ok := personalities[per.Domain]
		if !ok || len(per.Flags) > 0 {
			return fmt.Errorf("linux.personality: domain %q with flags %v is not supported", per.Domain, per.Flags)
		}
		b.plan.Add(sbxinit.OpPersonality, []uint64{domain})
	}
	return nil
}

// affinity reads the CPUs of process.execCPUAffinity: where an executed process starts,
// and where it stays once it is in the container's group.
func affinity(p *specs.Process) (initial, final []uint64, err error) {
	if p.ExecCPUAffinity == nil {
		return nil, nil, nil
	}
	if initial, err = cpuList(p.ExecCPUAffinity.Initial); err != nil {
		return nil, nil, fmt.Errorf("process.execCPUAffinity.initial: %w", err)
	}
	if final, err = cpuList(p.ExecCPUAffinity.Final); err != nil {
		return nil, nil, fmt.Errorf("process.execCPUAffinity.final: %w", err)
	}
	return initial, final, nil
}

// cpuList reads "0-2,5".
func cpuList(text string) (cpus []uint64, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		a, err := strconv.ParseUint(first, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no list of CPUs", text)
		}
		b := a
		if isRange {
			if b, err = strconv.ParseUint(last, 10, 16); err != nil || b < a {
				return nil, fmt.Errorf("%q is no list of CPUs", text)
			}
		}
		for ; a <= b; a++ {
			if a >= 1024 { // what unix.CPUSet holds
				return nil, fmt.Errorf("CPU %d is out of range", a)
			}
			cpus = append(cpus, a)
		}
	}
	return cpus, nil
}

// startOn moves the process pid to the CPUs.
func startOn(pid int, cpus []uint64) error {
	var set unix.CPUSet
	for _, c := range cpus {
		set.Set(int(c))
	}
	if err := unix.SchedSetaffinity(pid, &set); err != nil {
		return fmt.Errorf("process.execCPUAffinity.initial: %w", err)
	}
	return nil
}
