// Tests of the comparison of policies.

package spec

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
)

func TestDiffIsEmptyOnItselfAndAntisymmetricAndFindsEveryChange(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	changed := map[string]int{}
	for range 10000 {
		p := generated(r)
		if d := Diff(p, p); len(d) != 0 {
			t.Fatalf("%+v differs from itself: %+v", p, d)
		}
		q := p
		mutate(r, &q)
		there, back := Diff(p, q), Diff(q, p)
		for i := range back {
			c := &back[i]
			c.A, c.B, c.WiderA, c.WiderB = c.B, c.A, c.WiderB, c.WiderA
		}
		if !reflect.DeepEqual(there, back) {
			t.Fatalf("not antisymmetric:\n%+v\n%+v", there, back)
		}
		if same := reflect.DeepEqual(p, q); same != (len(there) == 0) || len(there) > 1 {
			t.Fatalf("same is %v, diff %+v of\n%+v\n%+v", same, there, p, q)
		}
		for _, c := range there {
			changed[c.Key]++
			if !c.WiderA && !c.WiderB {
				t.Fatalf("a change without a direction: %+v", c)
			}
		}
	}
	for _, k := range keys {
		if changed[k.Name] == 0 {
			t.Errorf("%s was never changed, so nothing is proved of it", k.Name)
		}
	}
}

func TestDiffDoesNotSeeOrder(t *testing.T) {
	a, b := Preset(L5), Preset(L5)
	slices.Reverse(b.Filesystem.Hide)
	if d := Diff(a, b); len(d) != 0 {
		t.Errorf("order shows: %+v", d)
	}
	one, _ := Compile(a, rootHost, program)
	two, _ := Compile(a, rootHost, program)
	slices.Reverse(two.Linux.MaskedPaths)
	slices.Reverse(two.Linux.Namespaces)
	if d, err := DiffSpecs(one, two); err != nil || len(d) != 0 {
		t.Errorf("order shows: %+v (%v)", d, err)
	}
}

func TestDiffOfConfigsSaysWhichLayerIsWider(t *testing.T) {
	one, _ := Compile(Preset(L5), rootHost, program)
	two, _ := Compile(Preset(L5), rootHost, program)
	two.Mounts = append(two.Mounts, specs.Mount{Destination: "/mnt", Type: "bind", Source: "/", Options: []string{"rbind"}})
	d, err := DiffSpecs(one, two)
	if err != nil || len(d) == 0 || d[0].WiderA || !d[0].WiderB {
		t.Errorf("got %+v (%v)", d, err)
	}
}
