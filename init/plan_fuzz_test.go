package sbxinit

import (
	"bytes"
	"reflect"
	"testing"
)

// FuzzPlan reads any bytes as a plan. Those that are one come back the same.
func FuzzPlan(f *testing.F) {
	var p Plan
	p.Add(OpMount, make([]uint64, mountNums), "proc", "/proc", "proc", "hidepid=2")
	p.Add(OpReady, nil)
	p.Add(OpExec, []uint64{1, 0}, "/bin/true", "A=b")
	f.Add(p.Encode()[4:])
	f.Add([]byte{byte(OpExec), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := decode(data)
		if err != nil {
			return
		}
		again, err := decode(p.Encode()[4:])
		if err != nil || len(again) != len(p) {
			t.Fatalf("%v comes back as %v, %v", p, again, err)
		}
		for i, s := range p {
			if s.Op != again[i].Op || !reflect.DeepEqual(s.Strs, again[i].Strs) || !reflect.DeepEqual(s.Nums, again[i].Nums) {
				t.Fatalf("step %d: %v comes back as %v", i, s, again[i])
			}
			if len(s.Nums) < table[s.Op].nums || len(s.Strs) < table[s.Op].strs {
				t.Fatalf("step %d has too few arguments: %v", i, s)
			}
		}
	})
}

// FuzzFailure reads any bytes as an init's report.
func FuzzFailure(f *testing.F) {
	f.Add((&Failure{"mount", "filesystem", "move_mount", "/x", 2}).Encode()[5:])
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		got := DecodeFailure(data)
		if got == nil || got.Error() == "" && !bytes.Equal(data, make([]byte, len(data))) && got.Op != "" {
			t.Fatalf("%q is read as %v", data, got)
		}
	})
}
