// Tests of the gateway and of RemoveAll against a process that exchanges what they
// look at for links to the outside (CVE-2018-15664).

package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// exchange swaps a directory and a file with links to the outside, as fast as it can,
// and now and then plants the file and its link anew.
func exchange(args []string) {
	dir := args[0]
	fmt.Println("ready")
	for i := 0; ; i++ {
		_ = unix.Renameat2(unix.AT_FDCWD, dir+"/link", unix.AT_FDCWD, dir+"/sub", unix.RENAME_EXCHANGE)
		_ = unix.Renameat2(unix.AT_FDCWD, dir+"/filelink", unix.AT_FDCWD, dir+"/file", unix.RENAME_EXCHANGE)
		if len(args) > 1 && i%16 == 0 { // Put replaces what is at the name
			_ = os.Symlink(args[1]+"/secret", dir+"/again")
			_ = os.Rename(dir+"/again", dir+"/filelink")
			_ = os.WriteFile(dir+"/again", []byte("own"), 0o600)
			_ = os.Rename(dir+"/again", dir+"/file")
		}
	}
}

// bait makes what exchange swaps.
func bait(t *testing.T, dir, outside string) {
	t.Helper()
	must(t, errors.Join(os.MkdirAll(dir+"/sub/deeper", 0o755), os.WriteFile(dir+"/sub/secret", []byte("own"), 0o600),
		os.WriteFile(dir+"/file", []byte("own"), 0o600), os.Symlink(outside, dir+"/link"), os.Symlink(outside+"/secret", dir+"/filelink")))
}

func TestARaceOfRenamesNeverLeadsOutside(t *testing.T) {
	dir, outside, g := quickBox(t)
	g.caps.TotalSize = 1 << 40
	bait(t, dir, outside)
	helper(t, nil, "exchange", dir, outside)
	copies := 50_000 // of each of two kinds, and into each
	if testing.Short() {
		copies = 2_000
	}
	leaked, got, put := 0, 0, 0
	for range copies {
		for _, name := range []string{"sub/secret", "file"} {
			if text, err := careless(dir, name); err == nil && string(text) == secret {
				leaked++
			}
			var out bytes.Buffer
			if _, err := g.Get(name, &out); err == nil {
				got++
			}
			if s := out.String(); s != "" && s != "own" {
				t.Fatalf("read %q", s)
			}
		}
		for _, name := range []string{"sub/new", "file"} {
			if _, err := g.Put(name, strings.NewReader("own"), 0o600); err == nil {
				put++
			}
		}
	}
	untouched(t, outside)
	if leaked == 0 || got == 0 || put == 0 {
		t.Errorf("the race proves nothing: %d careless copies leaked, %d gets and %d puts worked", leaked, got, put)
	}
	t.Logf("of %d copies in and out, each, %d careless ones leaked; %d gets and %d puts worked", 2*copies, leaked, got, put)
}

func TestAListingOfWhatChangesIsNoError(t *testing.T) {
	dir, outside, g := quickBox(t)
	bait(t, dir, outside)
	helper(t, nil, "exchange", dir, outside)
	for range 5_000 {
		entries, err := g.List()
		must(t, err)
		for _, e := range entries {
			if e.Err != nil && !errors.Is(e.Err, ErrLink) || strings.HasPrefix(e.Name, "link/secret") && e.Size != 3 {
				t.Fatalf("listed %+v", e)
			}
		}
	}
}

func TestARaceOfRenamesNeverRemovesOutside(t *testing.T) {
	dir, outside, _ := quickBox(t)
	helper(t, nil, "exchange", dir)
	parent, err := os.Open(filepath.Dir(dir))
	must(t, err)
	defer parent.Close()
	rounds := 1_000
	if testing.Short() {
		rounds = 100
	}
	for range rounds {
		bait(t, dir, outside)
		if err := RemoveAll(parent, "box"); err != nil {
			t.Fatal(err)
		}
	}
	untouched(t, outside)
}
