package runtime

import (
	"os"
	"testing"
)

func TestJoinedInitStartsInTheNamespacesOfAnotherProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("joining the host's namespaces needs root")
	}
	var ns []*os.File
	for _, n := range []string{"ipc", "uts", "net", "pid", "mnt"} {
		f, err := os.Open("/proc/self/ns/" + n)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		ns = append(ns, f)
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	null, _ := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	defer null.Close()
	for range 50 {
		p, err := new(joint).start(ns, exe, []*os.File{null, null, null, null})
		if err != nil {
			t.Fatal(err)
		}
		st, err := p.Wait()
		if err != nil || st.ExitCode() != 125 {
			t.Fatal(st, err)
		}
	}
}
