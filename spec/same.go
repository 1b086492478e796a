// This file owns the check that a compiled config.json still enforces all that its
// policy says: it is compiled again and compared.

package spec

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// unchanged names the first field in which sp is not what p compiles to. A changed
// config whose policy is another one has been read as that policy before; what is
// found here could not be expressed in any.
func (p Policy) unchanged(sp *specs.Spec) error {
	host, err := p.hostOf(sp)
	if err != nil {
		return err
	}
	want, err := Compile(p, host, Process{Args: sp.Process.Args, Env: sp.Process.Env, Cwd: sp.Process.Cwd, Root: sp.Root.Path})
	if err != nil {
		return err
	}
	got, linux := *sp, *sp.Linux
	got.Version, got.Linux = want.Version, &linux
	linux.CgroupsPath = want.Linux.CgroupsPath // where the group is does not matter
	got.Annotations = maps.Clone(sp.Annotations)
	maps.DeleteFunc(got.Annotations, func(k, _ string) bool { return !strings.HasPrefix(k, prefix) })
	if reflect.DeepEqual(&got, want) {
		return nil
	}
	var a, b any
	for _, side := range []struct {
		spec *specs.Spec
		into *any
	}{{&got, &a}, {want, &b}} {
		text, err := json.Marshal(side.spec)
		if err == nil {
			err = json.Unmarshal(text, side.into)
		}
		if err != nil {
			return err
		}
	}
	if where := difference(a, b); where != "" {
		return fmt.Errorf("%s: is not what the policy compiles to; change the policy and compile it again", where)
	}
	return nil
}

// hostOf finds the facts that the config was compiled with.
func (p *Policy) hostOf(sp *specs.Spec) (Host, error) {
	h := Host{UID: sp.Process.User.UID, GID: sp.Process.User.GID}
	if s := sp.Linux.Seccomp; s != nil {
		for goarch, name := range architectures {
			if slices.Contains(s.Architectures, name) {
				h.Arch = goarch
			}
		}
	}
	if !p.Processes.Isolate {
		return h, nil
	}
	u, g := sp.Linux.UIDMappings, sp.Linux.GIDMappings
	if len(u) != 1 || len(g) != 1 {
		return h, fmt.Errorf("linux.uidMappings, linux.gidMappings: a policy maps one id each")
	}
	h.UID, h.GID = u[0].HostID, g[0].HostID
	if h.UID == 0 {
		h.RunID = 0
	}
	return h, nil
}

// difference gives the path of the first difference of two JSON values, "" for none.
func difference(a, b any) string {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok {
			return "."
		}
		keys := map[string]bool{}
		for k := range a {
			keys[k] = true
		}
		for k := range b {
			keys[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(keys)) {
			if where := difference(a[k], b[k]); where != "" {
				return strings.TrimSuffix(k+"."+strings.TrimPrefix(where, "."), ".")
			}
		}
		return ""
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return "."
		}
		for i := range a {
			if difference(a[i], b[i]) != "" {
				return "." // lists are named as a whole
			}
		}
		return ""
	}
	if !reflect.DeepEqual(a, b) {
		return "."
	}
	return ""
}
