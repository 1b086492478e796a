//go:build !plants

package rootfs

// planted says whether a defect is planted. In every build but the lab's own none is:
// the compiler drops the wrong code and its name.
func planted(string) bool { return false }
