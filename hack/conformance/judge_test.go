package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTAPIsCountedByNameAndWhatItSaysBesideIsKept(t *testing.T) {
	r := readTAP(`TAP version 13
ok 1 - limit is set
  ---
  {"error": "exit status 1", "reference": "of the assertion before"}
  ...
not ok 2 - limit is set
ok 3 # SKIP not here
ok 4 - has /tmp/x/ocitest123/rootfs of 2d862d52-213d-481b-8627-542e9ecc6e93
okay, this is no assertion
  ---
  {"stdout": "not ok 1 - of the container", "stderr": ""}
  ...
not ok 5 - exit status 125
  ---
  {"reference": "of 5"}
  ...
  ---
  {"error": "hooks MUST run"}
  ...
Bail out! no more
1..5
`)
	if r.OK != 2 || r.NotOK != 2 || r.Skipped != 1 {
		t.Errorf("ok %d, not ok %d, skipped %d", r.OK, r.NotOK, r.Skipped)
	}
	if r.Passed["limit is set"] != 1 || r.Failed["limit is set"] != 1 || r.Passed["has BUNDLE/rootfs of ID"] != 1 || r.Failed["exit status N"] != 1 {
		t.Errorf("passed %v, failed %v", r.Passed, r.Failed)
	}
	if got := strings.Join(r.Complaints, ";"); got != "hooks MUST run;Bail out! no more" {
		t.Errorf("complaints %q", got)
	}
}

// said is the result of a program that printed this.
func said(name, view, text string, exit int) (contender, *result) {
	r := readTAP(text)
	r.Program, r.Runtime, r.View, r.Exit = "p", name, view, exit
	return contender{name: name, view: view}, r
}

func TestSbxrunOwesWhatAPeerPassesInTheSameView(t *testing.T) {
	for _, tc := range []struct {
		name, ours, peer, want string
		exit                   int
		view                   string
	}{
		{"both pass", "ok 1 - a\n", "ok 1 - a\n", "", 0, pureView},
		{"sbxrun fails", "not ok 1 - a\n", "ok 1 - a\n", "crun passes 1 of ours 0: a", 0, pureView},
		{"sbxrun does not come to it", "", "ok 1 - a\n", "crun passes 1 of ours 0: a", 0, pureView},
		{"of a name that comes twice sbxrun passes one", "ok 1 - a\nnot ok 2 - a\n", "ok 1 - a\nok 2 - a\n", "crun passes 2 of ours 1: a", 0, pureView},
		{"the peer's program says that it should not have passed", "", "ok 1 - a\n", "", 1, pureView},
		{"it is another view", "not ok 1 - a\n", "ok 1 - a\n", "", 0, hostView},
		{"a silent program has a complaint", "  ---\n{\"error\": \"late\"}\n  ...\n", "", endsWell, 0, pureView},
	} {
		t.Run(tc.name, func(t *testing.T) {
			us, ours := said("sbxrun", pureView, tc.ours, 0)
			them, theirs := said("crun", tc.view, tc.peer, tc.exit)
			got := strings.Join(judge(table{"p": {us: ours, them: theirs}}, []string{"p"}, nil), "\n")
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestTheListMustExplainEveryFailureAndBeTrue(t *testing.T) {
	for _, tc := range []struct{ name, list, ours, stderr, peer, want string }{
		{"nothing fails, nothing is listed", "", "ok 1 - a\n", "", "ok 1 - a\n", ""},
		{"a failure that is not listed", "", "not ok 1 - a\n", "", "not ok 1 - a\n", "UNEXPLAINED p: a"},
		{"a failure that is", "p\ta\t-\twhy\n", "not ok 1 - a\n", "", "not ok 1 - a\n", ""},
		{"a peer passes it", "p\ta\t-\twhy\n", "not ok 1 - a\n", "", "ok 1 - a\n", "STALE known.tsv:1: p: crun passes it"},
		{"sbxrun passes it", "p\ta\t-\twhy\n", "ok 1 - a\n", "", "not ok 1 - a\n", "STALE known.tsv:1: p: sbxrun does not fail it"},
		{"what passes by chance", "p\ta\tchance\twhy\n", "ok 1 - a\n", "", "not ok 1 - a\n", ""},
		{"what fails by chance", "p\ta\tchance\twhy\n", "not ok 1 - a\n", "", "ok 1 - a\n", ""},
		{"a refusal in these words", "p\tnot supported\trefused\twhy\n", "not ok 1 - a\n", "x: not supported\n", "ok 1 - a\n", ""},
		{"a refusal in others", "p\tnot supported\trefused\twhy\n", "not ok 1 - a\n", "no such file\n", "ok 1 - a\n", "STALE known.tsv:1: p: sbxrun does not refuse"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "known.tsv")
			if err := os.WriteFile(file, []byte(tc.list), 0o644); err != nil {
				t.Fatal(err)
			}
			known, err := readKnown(file)
			if err != nil {
				t.Fatal(err)
			}
			us, ours := said("sbxrun", pureView, tc.ours, 0)
			ours.Stderr = tc.stderr
			them, theirs := said("crun", pureView, tc.peer, 0)
			_, other := said("runc", pureView, "", 1)
			results := table{"p": {us: ours, them: theirs, {name: "runc", view: pureView}: other}}
			got := strings.Join(known.check(results, []string{"p"}), "\n")
			if owed := judge(results, []string{"p"}, known); known.chances("p", "a") && len(owed) > 0 {
				t.Errorf("owed by chance: %v", owed)
			}
			if (tc.want == "") != (got == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
