// This file owns the units: sizes, counts, durations and switches as people write
// them, both ways.

package spec

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// sizeUnits in the order of printing. As with docker and Go, KiB is 1024 and kB 1000.
var sizeUnits = []struct {
	name   string
	factor int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3},
	{"g", 1 << 30}, {"m", 1 << 20}, {"k", 1 << 10}, {"G", 1 << 30}, {"M", 1 << 20}, {"K", 1 << 10},
	{"B", 1},
}

// none is how "no limit" is written, beside 0.
const none = "off"

func parseSize(s string) (int64, error) {
	if s == none {
		return 0, nil
	}
	number, factor := strings.TrimSpace(s), int64(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(number, u.name); ok {
			number, factor = strings.TrimSpace(n), u.factor
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a size like 512MiB", s)
	}
	if n > math.MaxInt64/factor {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return n * factor, nil
}

func formatSize(n int64) string {
	for _, u := range sizeUnits[:3] {
		if n != 0 && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

func parseCount(s string) (int64, error) {
	if s == none {
		return 0, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("%q is not a count", s)
	}
	return n, nil
}

func formatCount(n int64) string { return strconv.FormatInt(n, 10) }

func parseDuration(s string) (time.Duration, error) {
	if s == none {
		return 0, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration like 1.5s", s)
	}
	return d, nil
}

func parseSwitch(s string) (bool, error) {
	switch s {
	case "true", "on", "yes":
		return true, nil
	case "false", "off", "no":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

func parseCgroup(s string) (CgroupMode, error) {
	on, err := parseSwitch(s)
	switch {
	case err != nil:
		return "", fmt.Errorf("%q is neither on nor off", s)
	case on:
		return CgroupOn, nil
	}
	return CgroupOff, nil
}
