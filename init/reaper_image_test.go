// This file owns the tests of the committed images: that they are what their sources
// say, that they ask for no more than they need, and that the foreign one works too.

package sbxinit_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	sbxinit "github.com/sbxrun/sbxrun/init"
)

var architectures = map[string]struct {
	machine elf.Machine
	tools   string
}{
	"amd64": {elf.EM_X86_64, "x86_64-linux-gnu-"},
	"arm64": {elf.EM_AARCH64, "aarch64-linux-gnu-"},
}

func committed(t *testing.T, arch string) []byte {
	t.Helper()
	b, err := os.ReadFile("reaper_" + arch + ".bin")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestReaperIsTheImageOfThisArchitecture(t *testing.T) {
	if _, ok := architectures[runtime.GOARCH]; !ok {
		if sbxinit.Reaper() != nil {
			t.Error("an image for an architecture without a source")
		}
		return
	}
	if !bytes.Equal(sbxinit.Reaper(), committed(t, runtime.GOARCH)) {
		t.Error("Reaper gives another image")
	}
}

func TestImagesComeFromTheirSources(t *testing.T) {
	for arch, a := range architectures {
		t.Run(arch, func(t *testing.T) {
			for _, tool := range []string{"as", "objdump", "objcopy"} {
				if _, err := exec.LookPath(a.tools + tool); err != nil {
					t.Skip(err, "(Debian packages: see hack/reaper/build)")
				}
			}
			dir := t.TempDir()
			if out, err := exec.Command("../hack/reaper/build", dir, arch).CombinedOutput(); err != nil {
				t.Fatalf("hack/reaper/build: %v: %s", err, out)
			}
			again, err := os.ReadFile(filepath.Join(dir, "reaper_"+arch+".bin"))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, committed(t, arch)) {
				t.Error("the committed image differs: run hack/reaper/build")
			}
		})
	}
}

func TestImagesAreSmallAndHaveNoWritableSegment(t *testing.T) {
	for arch, a := range architectures {
		t.Run(arch, func(t *testing.T) {
			image := committed(t, arch)
			t.Log(len(image), "bytes")
			if len(image) > 1024 {
				t.Errorf("%d bytes", len(image))
			}
			f, err := elf.NewFile(bytes.NewReader(image))
			if err != nil {
				t.Fatal(err)
			}
			if f.Type != elf.ET_EXEC || f.Machine != a.machine || len(f.Sections) != 0 {
				t.Errorf("%v for %v with %d sections", f.Type, f.Machine, len(f.Sections))
			}
			got := map[elf.ProgType]elf.ProgFlag{}
			for _, p := range f.Progs {
				got[p.Type] = p.Flags
			}
			if len(f.Progs) != 2 || got[elf.PT_LOAD] != elf.PF_R|elf.PF_X || got[elf.PT_GNU_STACK] != elf.PF_R|elf.PF_W {
				t.Errorf("segments %v", got)
			}
			if load := f.Progs[0]; load.Filesz != uint64(len(image)) || load.Memsz != load.Filesz {
				t.Errorf("%d bytes loaded to %d of memory, want %d", load.Filesz, load.Memsz, len(image))
			}
		})
	}
}

// The user emulation of qemu makes a fork of vfork, so that it cannot show a failing
// execve, and older ones refuse PR_SET_CHILD_SUBREAPER, for which the test puts
// another prctl. Everything else is the real image.
func TestForeignImageWorksUnderEmulation(t *testing.T) {
	qemu, err := exec.LookPath("qemu-aarch64-static")
	if err != nil || runtime.GOARCH == "arm64" {
		t.Skip("needs qemu-aarch64-static (Debian package qemu-user-static), and another architecture than arm64")
	}
	// The instruction mov x0, #36 (subreaper) for mov x0, #n.
	with := func(n uint32) []byte {
		mov := func(n uint32) []byte { return binary.LittleEndian.AppendUint32(nil, 0xd2800000|n<<5) }
		image := committed(t, "arm64")
		if bytes.Count(image, mov(unix.PR_SET_CHILD_SUBREAPER)) != 1 {
			t.Fatal("the image asks for PR_SET_CHILD_SUBREAPER not exactly once")
		}
		return bytes.Replace(image, mov(unix.PR_SET_CHILD_SUBREAPER), mov(n), 1)
	}
	emulated := func(t *testing.T, image []byte, script string) *child {
		path := filepath.Join(t.TempDir(), "reaper")
		if err := os.WriteFile(path, image, 0o755); err != nil {
			t.Fatal(err)
		}
		s := setup{via: []string{qemu, "qemu", "-0", "/bin/sh", path}}
		return start(t, s, "sh", "-c", script)
	}
	for script, status := range map[string]syscall.WaitStatus{
		"exit 42":                        42 << 8,
		"kill -TERM $$":                  syscall.WaitStatus(unix.SIGTERM),
		"ulimit -c 0; kill -ABRT $$":     syscall.WaitStatus(unix.SIGABRT),
		"(: &); (: &); sleep 0.2":        0,
		"kill -TERM $PPID; exit 5":       5 << 8,
		"exit $(ls /proc/self/fd|wc -l)": 4 << 8,
	} {
		t.Run(script, func(t *testing.T) {
			c := emulated(t, with(unix.PR_SET_DUMPABLE), script)
			c.expect(t, sbxinit.FrameStarted)
			if x := c.expect(t, sbxinit.FrameExited); syscall.WaitStatus(x.value) != status {
				t.Errorf("status %#x, want %#x", x.value, status)
			}
			c.channel.Close()
			c.ended(t, 0)
		})
	}
	t.Run("a prctl that fails", func(t *testing.T) {
		c := emulated(t, with(0), "exit 0")
		if f := c.expect(t, sbxinit.FrameStartFailed); syscall.Errno(f.value) != unix.EINVAL {
			t.Errorf("errno %v, want EINVAL", syscall.Errno(f.value))
		}
		c.ended(t, 127)
	})
}
