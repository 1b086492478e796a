// The test of a container that exchanges directories and links on a volume while other
// containers are made that mount into it (CVE-2021-30465 and its kin).

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// SBXRUN_TEST_CREATES=10000 is the long form.
func TestNoMountLandsOutsideWhileAVolumeIsExchanged(t *testing.T) {
	racer := newEngine(t, "cd /vol; attack swap dir link")
	image := filepath.Join(racer.bundle, "rootfs")
	program, err := os.ReadFile(attackProgram)
	if err != nil {
		t.Fatal(err)
	}
	vol, outside := filepath.Join(racer.bundle, "vol"), filepath.Join(openDir(t), "outside")
	if err := firstOf(os.WriteFile(image+"/bin/attack", program, 0o755), os.MkdirAll(vol+"/dir", 0o755), os.MkdirAll(outside, 0o755),
		os.Symlink("../../../../../../../.."+outside, vol+"/link")); err != nil {
		t.Fatal(err)
	}
	bound := map[string]any{"destination": "/vol", "type": "bind", "source": vol, "options": []string{"rbind"}}
	racer.withMount(bound)
	victim := newEngine(t, "cat /proc/self/mounts")
	victim.withMount(bound)
	// One target is there, the others are made on the way.
	victim.withMount(map[string]any{"destination": "/vol/dir/a/b", "type": "tmpfs", "source": "landed"})
	victim.withMount(map[string]any{"destination": "/vol/dir", "type": "tmpfs", "source": "landed"})
	edit(t, victim.bundle, func(c map[string]any) { linux(c)["maskedPaths"] = []string{"/vol/dir/c"} })
	before := lookAround(t)
	racer.ok("create", "--bundle", racer.bundle, "racer")
	defer racer.do("delete", "--force", "racer")
	racer.ok("start", "racer")
	made, refused := 0, 0
	for i := range moments(t, "SBXRUN_TEST_CREATES", 60) {
		o := victim.run(fmt.Sprintf("victim-%d", i))
		switch {
		case o.exit == 0:
			made++
			for line := range strings.Lines(o.stdout) {
				if f := strings.Fields(line); f[0] == "landed" && !strings.HasPrefix(f[1], "/vol/") && !strings.HasPrefix(f[1], outside) {
					t.Fatalf("a mount landed at %s", f[1])
				}
			}
		case o.exit == 1 && strings.HasPrefix(o.stderr, "sbxrun: ") && strings.Count(o.stderr, "\n") == 1:
			refused++
		default:
			t.Fatalf("container %d: %+v", i, o)
		}
		if left, err := os.ReadDir(outside); err != nil || len(left) > 0 {
			t.Fatalf("after container %d there is outside: %v %v", i, left, err)
		}
	}
	t.Logf("%d made, %d refused", made, refused)
	racer.is("racer", "running")
	racer.ok("delete", "--force", "racer")
	nothingLeft(t, before)
}
