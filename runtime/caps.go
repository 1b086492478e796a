// This file owns the names of capabilities.

package runtime

import (
	"fmt"
	"slices"

	"github.com/sbxrun/sbxrun/spec"
)

// capMask gives the bit mask of a list of names. An unknown name is refused where a
// policy is meant to hold; elsewhere it is noted and left out, as by runc: a config may
// be written for a newer kernel than this.
func (b *blueprint) capMask(field string, names []string) (uint64, error) {
	var mask uint64
	for _, name := range names {
		bit := slices.Index(spec.CapabilityNames, name)
		switch {
		case bit >= 0:
			mask |= 1 << bit
		case b.policy != nil:
			return 0, fmt.Errorf("%s: unknown capability %q", field, name)
		case !slices.Contains(b.unknownCaps, name):
			b.unknownCaps = append(b.unknownCaps, name)
		}
	}
	return mask, nil
}

// grantable leaves out of an ambient set what is not permitted and inheritable as well:
// the kernel refuses it, and a config that asks for it (that of "runc spec" does) is to
// be warned of, not refused. Where a policy is meant to hold, init refuses it.
func (b *blueprint) grantable(ambient, allowed uint64) uint64 {
	if b.policy != nil {
		return ambient
	}
	for bit, name := range spec.CapabilityNames {
		if ambient&^allowed&(1<<bit) != 0 {
			b.deniedCaps = append(b.deniedCaps, name)
		}
	}
	return ambient & allowed
}
