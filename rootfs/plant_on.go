//go:build plants

// This file owns the switch of the planted defects: the binary that has them is made
// for the lab, which must find each.

package rootfs

import (
	"os"
)

var plant = os.Getenv("SBXRUN_PLANT")

// planted says whether the defect of that name is planted in this process.
func planted(name string) bool { return plant == name }
