// This file owns the host ids that runs by root are mapped to.

package runtime

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sbxrun/sbxrun/spec"
)

// runIDBase is the first of them. From 2^31 on no distribution hands out ids
// (systemd's documentation of uid ranges).
const runIDBase = 1 << 31

const (
	runPids       = 1 << 22 // pids are below
	runPerProcess = 1 << 8
)

var runs atomic.Uint32

// keptIDs are the run ids of sessions, which last.
var keptIDs sync.Map

func keepRunID(id uint32) { keptIDs.Store(id, true) }
func dropRunID(id uint32) { keptIDs.Delete(id) }

// RunID gives the host id that inside id 0 of a run by root is mapped to. It is
// unused: made of the supervisor's pid and the run's number, so that two runs at
// the same time never share one, and with it never signal or trace each other.
// Inside a user namespace that has no such id it is one of the ids there are, 0
// when the namespace has nothing else: root is an ordinary user there.
func RunID() (id uint32) {
	for range runPerProcess {
		id = nextRunID()
		if _, kept := keptIDs.Load(id); !kept {
			break
		}
	}
	return id
}

func nextRunID() uint32 {
	number := uint32(os.Getpid()%runPids)*runPerProcess + runs.Add(1)%runPerProcess
	uids, gids := idRanges("/proc/self/uid_map"), idRanges("/proc/self/gid_map")
	if id := uint32(runIDBase) + number; inRanges(uids, id) && inRanges(gids, id) {
		return id
	}
	for _, r := range uids {
		// The upper half of a range: the lower numbers are the container's own users.
		if half := r.count / 2; half > 0 {
			if id := r.first + half + number%half; inRanges(gids, id) {
				return id
			}
		}
	}
	return 0
}

// ThisHost is what spec.Compile has to know of this machine and of the caller, with a
// RunID for one run.
func ThisHost() spec.Host {
	return spec.Host{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()), RunID: RunID(), Arch: goarch}
}

// checkMapping refuses a policy's run that would be host root inside.
func checkMapping(sp *specs.Spec) error {
	if sp.Linux == nil || os.Geteuid() != 0 || !inRanges(idRanges("/proc/self/uid_map"), runIDBase) {
		return nil // 0 is an ordinary user here
	}
	for _, m := range append(slices.Clone(sp.Linux.UIDMappings), sp.Linux.GIDMappings...) {
		if m.HostID == 0 {
			return fmt.Errorf("linux.uidMappings, linux.gidMappings: a policy's run must not be host root inside")
		}
	}
	return nil
}

// idRange is a line of a user namespace's id map, from inside.
type idRange struct{ first, count uint32 }

func idRanges(file string) (out []idRange) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		var first, outside, count uint32
		if n, _ := fmt.Sscan(line, &first, &outside, &count); n == 3 {
			out = append(out, idRange{first, count})
		}
	}
	return out
}

func inRanges(ranges []idRange, id uint32) bool {
	for _, r := range ranges {
		if id >= r.first && id-r.first < r.count {
			return true
		}
	}
	return false
}

// setgroupsAllowed says whether this user namespace has setgroups(2) at all; one
// that an ordinary user made has not, user_namespaces(7).
func setgroupsAllowed() bool {
	text, err := os.ReadFile("/proc/self/setgroups")
	return err == nil && strings.TrimSpace(string(text)) == "allow"
}
