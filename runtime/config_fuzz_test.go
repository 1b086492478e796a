package runtime

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/sbxrun/sbxrun/spec"
)

// seedConfigs are a config of each level, and one as engines write it.
func seedConfigs(f *testing.F) (texts [][]byte) {
	for l := spec.L0; l <= spec.L5; l++ {
		sp, err := spec.Compile(spec.Preset(l), spec.Host{UID: 0, RunID: 1 << 31, Arch: "amd64"}, spec.Process{Args: []string{"/bin/true"}, Cwd: "/"})
		if err != nil {
			f.Fatal(err)
		}
		text, err := json.Marshal(sp)
		if err != nil {
			f.Fatal(err)
		}
		texts = append(texts, text)
	}
	const plain = `{"ociVersion":"1.0.2","process":{"cwd":"/","args":["sh"],"env":["PATH=/bin"],"rlimits":[{"type":"RLIMIT_NOFILE","hard":9,"soft":9}],` +
		`"capabilities":{"bounding":["CAP_KILL"]},"scheduler":{"policy":"SCHED_BATCH"},"ioPriority":{"class":"IOPRIO_CLASS_BE","priority":4}},` +
		`"root":{"path":"rootfs","readonly":true},"hostname":"x","mounts":[{"destination":"/proc","type":"proc"},{"destination":"/d","type":"bind","source":"d","options":["rbind","ro","rro","mode=1"]}],` +
		`"hooks":{"poststop":[{"path":"/x","timeout":1}]},"linux":{"namespaces":[{"type":"mount"},{"type":"user"},{"type":"pid","path":"/proc/1/ns/pid"}],` +
		`"uidMappings":[{"containerID":0,"hostID":1,"size":1}],"gidMappings":[{"containerID":0,"hostID":1,"size":1}],"sysctl":{"net.x":"1"},` +
		`"devices":[{"path":"/dev/x","type":"c","major":1,"minor":3}],"maskedPaths":["/proc/kcore"],"seccomp":{"defaultAction":"SCMP_ACT_ALLOW"}}}`
	return append(texts, []byte(plain))
}

// FuzzConfig takes any bytes as config.json, up to the plan. What is refused is told in
// one line; what is not has a program at its end.
func FuzzConfig(f *testing.F) {
	for _, text := range seedConfigs(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		sp, err := decodeSpec(data)
		if err == nil {
			b := &blueprint{spec: sp, waits: true}
			if err = b.draw("/bundle"); err == nil {
				if len(b.plan) == 0 || len(b.plan.Encode()) < 5 {
					t.Fatalf("an empty plan for %s", data)
				}
				_ = checkRlimits(sp.Process)
				_, _ = spec.Digest(sp)
			}
		}
		if err != nil && strings.TrimSpace(err.Error()) == "" {
			t.Fatal("an error without words")
		}
	})
}

// FuzzProcess takes any bytes as the file of exec's --process.
func FuzzProcess(f *testing.F) {
	f.Add([]byte(`{"cwd":"/","args":["sh"],"terminal":true,"consoleSize":{"height":1,"width":1},"user":{"uid":1,"additionalGids":[1]}}`))
	f.Add([]byte(`{"args":["x"],"rlimits":[{"type":"RLIMIT_AS"}],"capabilities":{"ambient":["CAP_KILL"]},"execCPUAffinity":{"final":"0-3"}}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := ParseProcess(data)
		if err != nil {
			return
		}
		c := &Container{record: record{Config: &specs.Spec{Root: &specs.Root{Path: "/"}, Linux: &specs.Linux{}}}}
		b, err := c.execPlan(ExecOptions{Process: p})
		if err == nil && len(b.plan.Encode()) < 5 {
			t.Fatalf("an empty plan for %s", data)
		}
		for _, s := range append(append([]string{p.Cwd}, p.Args...), p.Env...) {
			if err == nil && strings.ContainsRune(s, 0) {
				t.Fatalf("a NUL got through in %q", s)
			}
		}
	})
}

// FuzzAnnotations changes one annotation of a compiled config: it is read as a policy
// that compiles, or refused.
func FuzzAnnotations(f *testing.F) {
	texts := seedConfigs(f)
	var full specs.Spec
	if err := json.Unmarshal(texts[5], &full); err != nil {
		f.Fatal(err)
	}
	for k, v := range full.Annotations {
		f.Add(k, v)
	}
	f.Add("org.example", "x")
	f.Fuzz(func(t *testing.T, key, value string) {
		var sp specs.Spec
		if err := json.Unmarshal(texts[5], &sp); err != nil {
			t.Fatal(err)
		}
		sp.Annotations[key] = value
		p, err := spec.FromSpec(&sp)
		if err == nil {
			err = p.Validate()
			if err != nil {
				t.Fatalf("%q=%q is read as a policy that is none: %v", key, value, err)
			}
		}
	})
}

func TestAProcessFileIsBounded(t *testing.T) {
	if _, err := ReadProcess("/dev/zero"); err == nil {
		t.Error("an endless file is read")
	}
	name := t.TempDir() + "/p"
	if err := os.WriteFile(name, []byte(strings.Repeat(" ", maxConfig+1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadProcess(name); err == nil || !strings.Contains(err.Error(), "larger") {
		t.Errorf("a large file: %v", err)
	}
}
