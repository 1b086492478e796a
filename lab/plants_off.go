//go:build !plants

package lab

import (
	"context"
	"fmt"
	"io"
)

// Plants sees whether every planted defect is caught. This build has none.
func Plants(context.Context, io.Writer, []string) (bool, error) {
	return false, fmt.Errorf("this binary has no defects to plant: make lab-plants builds one that has")
}
