//go:build !plants

package runtime

// planted says whether a defect is planted. In every build but the lab's own none is:
// the compiler drops the wrong code and its name.
func planted(string) bool { return false }

// What planted code needs; never used.
const (
	plantCwd   = "/"
	plantDelay = 0
)

var plantEnv []string

func loopbackUp(int) {}
