// Tests of the trusted helper that is tricked (threats B1 to B8), in sessions. The
// gateway's own tests have the rest: B1 TestNothingButOwnRegularFilesComesOut, B2 and B4
// the races of gateway_race_test.go, B3 TestNamesThatLeadAstrayAreRefused, B5
// TestNothingGoesInThroughALink and TestOnTheHostAFileIsWholeOrNotThere.

package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// B2: a program exchanges a file and a link while the host copies, both directions.
// B4: it goes on while the session is removed, which follows nothing either.
func TestB2B4ARunningProgramThatExchangesLinksGainsNothing(t *testing.T) {
	needRoot(t)
	needProgram(t, "python3")
	copies := 3_000 // of each kind; the gateway's test has 10^5
	if testing.Short() {
		copies = 300
	}
	s := newSessions(t)
	outside := t.TempDir()
	secret := filepath.Join(outside, "secret")
	if err := os.WriteFile(secret, []byte("the secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.create("a", "--level", "L2", "--cpu", "0", "--wall", "280s")
	cmd := s.command("run", "--lang", "python", "a", "-")
	cmd.Stdin = strings.NewReader(`
import os
print("started", flush=True)
n = 0
def attempt(f, *args):
    try: f(*args)
    except OSError: pass
while True:
    n += 1
    attempt(os.symlink, "` + secret + `", "l"); attempt(os.rename, "l", "f")
    attempt(os.rename, "d", "old%d" % (n % 500)); attempt(os.symlink, "` + outside + `", "d")
    open("own", "w").write("own"); attempt(os.rename, "own", "f")
    attempt(os.unlink, "d"); attempt(os.mkdir, "d")
`)
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out.Read(make([]byte, 8))
	dir := &sessionDir{filepath.Join(s.root, "sessions")}
	conn, err := dir.connect("a")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.conn.Close()
	r, err := readRecord(filepath.Join(dir.path, "a"))
	if err != nil || r.Dir == "" {
		t.Fatalf("%+v, %v", r, err)
	}
	leaked, got, put := 0, 0, 0
	for range copies {
		if text, _ := os.ReadFile(filepath.Join(r.Dir, "f")); string(text) == "the secret" { // the careless copy
			leaked++
		}
		var text bytes.Buffer
		if _, err := conn.Get("f", &text); err == nil {
			got++
		}
		if b := text.String(); b != "" && b != "own" {
			t.Fatalf("B2: got %q", b)
		}
		for _, name := range []string{"f", "d/secret"} {
			again, err := dir.connect("a") // a refusal of put ends its connection
			if err != nil {
				t.Fatal(err)
			}
			if _, err := again.Put(name, strings.NewReader("own"), 0o600); err == nil {
				put++
			}
			again.conn.Close()
		}
	}
	s.works("rm", "a")
	cmd.Wait()
	text, _ := os.ReadFile(secret)
	left, _ := os.ReadDir(outside)
	if string(text) != "the secret" || len(left) != 1 {
		t.Errorf("outside there is %v with %q", left, text)
	}
	if leaked == 0 || got == 0 || put == 0 {
		t.Errorf("the race proves nothing: %d careless copies leaked, %d gets and %d puts worked", leaked, got, put)
	}
	t.Logf("of %d: %d careless copies leaked, %d gets and %d puts worked", copies, leaked, got, put)
}

// B6: what comes out is bytes. No archive that the sandbox made is parsed: the binary
// has no code for it.
func TestB6NoArchiveIsParsed(t *testing.T) {
	needProgram(t, "go")
	cmd := exec.Command("go", "list", "-deps", ".")
	text, err := cmd.Output()
	if err != nil {
		t.Skipf("go list does not work here: %v", err)
	}
	for pkg := range strings.Lines(string(text)) {
		if p := strings.TrimSpace(pkg); strings.HasPrefix(p, "archive/") {
			t.Errorf("%s is linked", p)
		}
	}
}

// B8: a protected path that does not exist yet cannot be made from inside.
func TestB8AHiddenPathThatIsNotThereCannotBeMade(t *testing.T) {
	needRoot(t)
	s := newSessions(t)
	later := filepath.Join(s.dir, "later")
	for _, level := range []string{"L2", "L5"} {
		flags := []string{"--level", level}
		if level == "L5" {
			flags = append(flags, "--hide", later)
		}
		s.create("a", flags...)
		s.call("run", "a", "--", "/bin/sh", "-c", "mkdir -p "+later+"; echo evil >"+later+"/config")
		_, err := os.Stat(later + "/config")
		if made := err == nil; made != (level == "L2") {
			t.Errorf("%s: made %v", level, made)
		}
		os.RemoveAll(later)
		s.works("rm", "a")
	}
}
