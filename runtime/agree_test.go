// A test that what explain says of init's steps is what init does.

package runtime

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	sbxinit "github.com/sbxrun/sbxrun/init"
	"github.com/sbxrun/sbxrun/spec"
)

// variations are the presets, each also with every switch turned and every number
// unbounded, as far as that makes sense.
func variations() (out []spec.Policy) {
	for level := spec.L0; level <= spec.L5; level++ {
		out = append(out, spec.Preset(level))
		for _, k := range spec.Keys() {
			for _, value := range []string{"on", "off"} {
				p := spec.Preset(level)
				if p.Set(k.Name, value) == nil && p.Validate() == nil {
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// stepsOf draws the plan of the policy and gives the names of its steps by layer, ""
// being what belongs to none.
func stepsOf(t *testing.T, p spec.Policy, root string) (plan map[string]string, e *spec.Explanation) {
	t.Helper()
	host := spec.Host{RunID: spec.BundleRunID, Arch: "amd64"}
	sp, err := spec.Compile(p, host, spec.Process{Args: []string{"/bin/true"}, Root: root})
	if err != nil {
		t.Fatal(err)
	}
	if e, err = spec.ExplainSpec("x", sp); err != nil {
		t.Fatal(err)
	}
	b := &blueprint{spec: sp, policy: &p, waits: true}
	if err := b.draw("/"); err != nil {
		t.Fatal(err)
	}
	plan = map[string]string{}
	for _, step := range b.plan {
		plan[step.Op.Name()] = step.Op.Layer()
	}
	return plan, e
}

func TestExplainNamesTheStepsThatInitPerforms(t *testing.T) {
	everSeen := map[string]bool{}
	for _, p := range variations() {
		for _, root := range []string{"", t.TempDir()} {
			if root != "" && !p.Processes.Isolate {
				continue
			}
			plan, e := stepsOf(t, p, root)
			said := map[string]bool{}
			for _, l := range e.Layers {
				for _, name := range l.Steps {
					said[name] = true
				}
			}
			for _, name := range e.Start {
				if plan[name] != "" {
					t.Errorf("%q is said to belong to no layer, init says %q", name, plan[name])
				}
				said[name] = true
			}
			got, want := slices.Sorted(maps.Keys(said)), slices.Sorted(maps.Keys(plan))
			if !slices.Equal(got, want) {
				t.Fatalf("explain says that init does\n%q, it does\n%q of\n%+v", got, want, p)
			}
			for name := range plan {
				everSeen[name] = true
			}
		}
	}
	// What a compiled policy can never have is not missed.
	foreign := []sbxinit.Op{sbxinit.OpSysctl, sbxinit.OpDirectory, sbxinit.OpRootReadonly, sbxinit.OpHooks, sbxinit.OpHook, sbxinit.OpChroot, sbxinit.OpDomainname,
		sbxinit.OpLoopback, sbxinit.OpConsole, sbxinit.OpTerminal, sbxinit.OpLookup, sbxinit.OpHome, sbxinit.OpOOMScore, sbxinit.OpScheduler,
		sbxinit.OpIOPriority, sbxinit.OpAffinity, sbxinit.OpPersonality, sbxinit.OpLabel, sbxinit.OpExec,
		sbxinit.OpMore, sbxinit.OpKeep} // these two are a session's
	for op := sbxinit.Op(1); op.Name() != ""; op++ {
		if !everSeen[op.Name()] && !slices.Contains(foreign, op) {
			t.Errorf("%q is in no plan of a policy; if it cannot be, name it here", op.Name())
		}
	}
}

// The layer by which a failed step is reported must be one that names the step.
func TestInitReportsAStepUnderALayerThatExplainKnowsItOf(t *testing.T) {
	named := map[string]bool{}
	for _, p := range variations() {
		_, e := stepsOf(t, p, "")
		for _, l := range e.Layers {
			for _, name := range l.Steps {
				named[fmt.Sprint(l.Layer, name)] = true
			}
		}
	}
	for _, p := range variations() {
		plan, _ := stepsOf(t, p, "")
		for name, layer := range plan {
			if layer != "" && !named[fmt.Sprint(layer, name)] {
				t.Errorf("init says that %q serves %q, explain does not", name, layer)
			}
		}
	}
}
