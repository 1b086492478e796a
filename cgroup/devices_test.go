// This file owns the tests of the device rules: the compiled program against
// the rules read one by one, and real files.

package cgroup

import (
	bin "encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// request is what the kernel asks the program.
type request struct {
	kind, access int32
	major, minor uint32
}

// judge is the meaning of rules, bit by bit.
func judge(rules []deviceRule, q request) bool {
	for bit := int32(1); bit <= 4; bit <<= 1 {
		if q.access&bit == 0 {
			continue
		}
		allowed := false
		for _, r := range rules {
			if (r.kind == 0 || r.kind == q.kind) && (r.major < 0 || r.major == int64(q.major)) &&
				(r.minor < 0 || r.minor == int64(q.minor)) && r.access&bit != 0 {
				allowed = r.allow
			}
		}
		if !allowed {
			return false
		}
	}
	return true
}

// execute runs a program of the few instructions that deviceProgram uses.
func execute(insts asm.Instructions, q request) (uint64, error) {
	var memory [12]byte
	bin.LittleEndian.PutUint32(memory[0:], uint32(q.access)<<16|uint32(q.kind))
	bin.LittleEndian.PutUint32(memory[4:], q.major)
	bin.LittleEndian.PutUint32(memory[8:], q.minor)
	labels := map[string]int{}
	for i, in := range insts {
		if s := in.Symbol(); s != "" {
			labels[s] = i
		}
	}
	var reg [11]uint64
	for pc := 0; pc < len(insts); pc++ {
		in := insts[pc]
		operand := uint64(in.Constant)
		if in.OpCode.Source() == asm.RegSource {
			operand = reg[in.Src]
		}
		jump := false
		switch op := in.OpCode; {
		case op.Class() == asm.LdXClass && op.Size() == asm.Word:
			reg[in.Dst] = uint64(bin.LittleEndian.Uint32(memory[in.Offset:]))
		case op.IsDWordLoad():
			reg[in.Dst] = uint64(in.Constant)
		case op.Class() == asm.ALU64Class && op.ALUOp() == asm.Mov:
			reg[in.Dst] = operand
		case op.Class() == asm.ALU64Class && op.ALUOp() == asm.And:
			reg[in.Dst] &= operand
		case op.Class() == asm.ALU64Class && op.ALUOp() == asm.RSh:
			reg[in.Dst] >>= operand
		case op.JumpOp() == asm.Exit:
			return reg[asm.R0], nil
		case op.Class() == asm.JumpClass && op.JumpOp() == asm.JEq:
			jump = reg[in.Dst] == operand
		case op.Class() == asm.JumpClass && op.JumpOp() == asm.JNE:
			jump = reg[in.Dst] != operand
		default:
			return 0, fmt.Errorf("instruction %d: %v is not known", pc, in)
		}
		if jump {
			to, ok := labels[in.Reference()]
			if !ok || to <= pc {
				return 0, fmt.Errorf("instruction %d: jump to %q, at %d", pc, in.Reference(), to)
			}
			pc = to - 1
		}
	}
	return 0, errors.New("the program runs off its end")
}

// decodeRules makes rules of bytes, five for each, from few numbers so that they meet.
func decodeRules(data []byte) (rules []specs.LinuxDeviceCgroup) {
	numbers := []int64{-1, 0, 1, 3, 1<<31 + 1, 1<<32 - 1}
	for ; len(data) >= 5 && len(rules) < 24; data = data[5:] {
		major, minor := numbers[int(data[1])%len(numbers)], numbers[int(data[2])%len(numbers)]
		r := specs.LinuxDeviceCgroup{Allow: data[3]&1 != 0, Type: []string{"a", "b", "c", ""}[data[0]%4], Major: &major, Minor: &minor}
		for i, letter := range "rwm" {
			if data[4]>>i&1 != 0 {
				r.Access += string(letter)
			}
		}
		rules = append(rules, r)
	}
	return rules
}

func FuzzTheDeviceProgramSaysWhatTheRulesSay(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 7, 2, 2, 3, 1, 1})                // deny all, allow c 1:3 r
	f.Add([]byte{0, 0, 0, 1, 7, 2, 2, 3, 0, 2})                // allow all, deny c 1:3 w
	f.Add([]byte{2, 2, 3, 1, 1, 2, 2, 3, 1, 2})                // r and w by two rules
	f.Add([]byte{1, 4, 5, 1, 3, 1, 5, 4, 1, 7})                // numbers with the upper bit
	f.Add([]byte{3, 0, 0, 1, 7, 3, 0, 0, 0, 0, 2, 2, 0, 1, 4}) // a denial without a list
	f.Fuzz(func(t *testing.T, data []byte) {
		rules, err := deviceRules(decodeRules(data))
		if err != nil {
			t.Fatal(err)
		}
		insts := deviceProgram(rules)
		for _, kind := range []int32{unix.BPF_DEVCG_DEV_BLOCK, unix.BPF_DEVCG_DEV_CHAR} {
			for _, major := range []uint32{0, 1, 2, 5, 136, 1<<31 + 1, 1<<32 - 1} {
				for _, minor := range []uint32{0, 1, 2, 3, 1<<31 + 1, 1<<32 - 1} {
					for access := range int32(8) {
						q := request{kind, access, major, minor}
						got, err := execute(insts, q)
						if err != nil {
							t.Fatalf("%v\n%v", err, insts)
						}
						if want := judge(rules, q); (got == 1) != want {
							t.Fatalf("%+v: program %d, rules %v\n%+v", q, got, want, rules)
						}
					}
				}
			}
		}
	})
}

func TestDeviceRulesMeanWhatTheSpecificationSays(t *testing.T) {
	one, eleven := int64(1), int64(11)
	kmsg := func(allow bool, access string) specs.LinuxDeviceCgroup {
		return specs.LinuxDeviceCgroup{Allow: allow, Type: "c", Major: &one, Minor: &eleven, Access: access}
	}
	all := func(allow bool) specs.LinuxDeviceCgroup {
		return specs.LinuxDeviceCgroup{Allow: allow, Access: "rwm"}
	}
	for _, c := range []struct {
		name    string
		rules   []specs.LinuxDeviceCgroup
		allowed string // of r, w and b for both at once
	}{
		{"no rule allows it", []specs.LinuxDeviceCgroup{all(false)}, ""},
		{"reading alone", []specs.LinuxDeviceCgroup{all(false), kmsg(true, "r")}, "r"},
		{"writing alone", []specs.LinuxDeviceCgroup{all(false), kmsg(true, "w")}, "w"},
		{"each by a rule of its own", []specs.LinuxDeviceCgroup{kmsg(true, "r"), kmsg(true, "w")}, "rwb"},
		{"all but writing", []specs.LinuxDeviceCgroup{all(true), kmsg(false, "w")}, "r"},
		{"the last rule wins", []specs.LinuxDeviceCgroup{kmsg(true, "rw"), all(false)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rules, err := deviceRules(c.rules)
			if err != nil {
				t.Fatal(err)
			}
			for ask, access := range map[string]int32{"r": 2, "w": 4, "b": 6} {
				got, err := execute(deviceProgram(rules), request{unix.BPF_DEVCG_DEV_CHAR, access, 1, 11})
				if want := strings.Contains(c.allowed, ask); err != nil || (got == 1) != want {
					t.Errorf("%s: %d, %v, want %v", ask, got, err, want)
				}
			}
			if got, err := execute(deviceProgram(rules), request{unix.BPF_DEVCG_DEV_CHAR, 0, 1, 11}); got != 1 || err != nil {
				t.Errorf("whether it exists: %d, %v", got, err)
			}
		})
	}
	low := int64(-2)
	for _, bad := range []specs.LinuxDeviceCgroup{{Type: "p"}, {Major: &low}} {
		if _, err := deviceRules([]specs.LinuxDeviceCgroup{bad}); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

func TestDeviceRulesHoldForRealFilesAndAreReplaced(t *testing.T) {
	needRoot(t)
	if !pureV2(t) {
		t.Skip("about the program of cgroup v2, this host has the devices controller of v1")
	}
	one, eleven := int64(1), int64(11)
	res := &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Access: "rwm"}, {Allow: true, Type: "c", Major: &one, Minor: &eleven, Access: "r"}}}
	g, err := Create("", name(), res)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(g.Kill(), g.Delete()); err != nil {
			t.Error(err)
		}
	})
	kmsg := filepath.Join(t.TempDir(), "kmsg")
	if err := unix.Mknod(kmsg, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 11))); err != nil {
		t.Fatal(err)
	}
	check := func(mode, want string) {
		t.Helper()
		p := run(t, g, "device", kmsg, mode)
		p.goOn()
		if got := p.line(); !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s, want %s", mode, got, want)
		}
	}
	const no = "operation not permitted"
	check("r", "<nil>")
	check("w", no)
	check("rw", no)
	check("exists", "<nil>")
	for range 3 {
		if err := g.Update(&specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: true, Type: "c", Major: &one, Minor: &eleven, Access: "w"}}}); err != nil {
			t.Fatal(err)
		}
	}
	check("w", "<nil>")
	check("r", no)
	progs, err := attachedDevices(g.FD())
	if err != nil || len(progs) != 1 {
		t.Errorf("%d programs are in force, %v", len(progs), err)
	}
	for _, p := range progs {
		p.Close()
	}
}

// openDevice opens a device and says what came of it.
func openDevice(args []string) {
	step("ready")
	mode := "r"
	if len(args) > 1 {
		mode = args[1]
	}
	if mode == "exists" {
		fmt.Println(unix.Access(args[0], unix.F_OK))
		return
	}
	_, err := os.OpenFile(args[0], map[string]int{"r": os.O_RDONLY, "w": os.O_WRONLY, "rw": os.O_RDWR}[mode], 0)
	fmt.Println(err)
}
