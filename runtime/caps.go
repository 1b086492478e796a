// This file owns the names of capabilities.

package runtime

import (
	"fmt"

	"github.com/sbxrun/sbxrun/spec"
)

// capMask gives the bit mask of a list of names. An unknown name is refused.
func capMask(field string, names []string) (uint64, error) {
	var mask uint64
next:
	for _, name := range names {
		for i, c := range spec.CapabilityNames {
			if c == name {
				mask |= 1 << i
				continue next
			}
		}
		return 0, fmt.Errorf("%s: unknown capability %q", field, name)
	}
	return mask, nil
}
