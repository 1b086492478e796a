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
