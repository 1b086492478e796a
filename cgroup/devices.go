// This file owns the device rules: what every container may use whatever its
// rules say, what a rule means, and the BPF program that says so on cgroup v2.

package cgroup

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// defaultDevices are those that every OCI container has, whatever its rules:
// null, zero, full, random, urandom, tty, ptmx and the pty slaves, and mknod of
// all. https://github.com/opencontainers/runtime-spec/blob/main/config-linux.md#default-devices
func defaultDevices() (rules []specs.LinuxDeviceCgroup) {
	allow := func(kind string, major, minor int64, access string) {
		rules = append(rules, specs.LinuxDeviceCgroup{Allow: true, Type: kind, Major: &major, Minor: &minor, Access: access})
	}
	allow("c", -1, -1, "m")
	allow("b", -1, -1, "m")
	for _, d := range [][2]int64{{1, 3}, {1, 5}, {1, 7}, {1, 8}, {1, 9}, {5, 0}, {5, 2}, {136, -1}} {
		allow("c", d[0], d[1], "rwm")
	}
	return rules
}

// deviceRule is one rule as the kernel's words have it. Each kind of access is
// decided apart, by the last rule that names it for the device; what no rule
// names is denied, and a request is let through when all it asks for is.
type deviceRule struct {
	allow        bool
	kind         int32 // BPF_DEVCG_DEV_*, 0 for both
	major, minor int64 // -1 for all
	access       int32 // of BPF_DEVCG_ACC_*
}

// deviceRules translates rules, the default devices last, as runc has them.
func deviceRules(in []specs.LinuxDeviceCgroup) ([]deviceRule, error) {
	var rules []deviceRule
	for _, d := range append(slices.Clone(in), defaultDevices()...) {
		r := deviceRule{allow: d.Allow}
		switch d.Type {
		case "a", "":
			if d.Access == "" && !d.Allow {
				d.Access = "rwm" // to deny everything needs no list
			}
		case "c", "u":
			r.kind = unix.BPF_DEVCG_DEV_CHAR
		case "b":
			r.kind = unix.BPF_DEVCG_DEV_BLOCK
		default:
			return nil, unsupported("devices", fmt.Sprintf("type %q is not one of a, b, c and u", d.Type))
		}
		var err error
		if r.major, err = ruleNumber(d.Major); err == nil {
			r.minor, err = ruleNumber(d.Minor)
		}
		if err != nil {
			return nil, err
		}
		for letter, bit := range map[string]int32{"m": unix.BPF_DEVCG_ACC_MKNOD, "r": unix.BPF_DEVCG_ACC_READ, "w": unix.BPF_DEVCG_ACC_WRITE} {
			if strings.Contains(d.Access, letter) {
				r.access |= bit
			}
		}
		if r.access != 0 {
			rules = append(rules, r)
		}
	}
	return rules, nil
}

func ruleNumber(n *int64) (int64, error) {
	switch {
	case n == nil || *n == -1:
		return -1, nil
	case *n < 0 || *n > math.MaxUint32:
		return 0, unsupported("devices", fmt.Sprintf("%d is no device number", *n))
	}
	return *n, nil
}

// The registers of the program. The kernel passes struct bpf_cgroup_dev_ctx:
// access in the upper and type in the lower half of a word, major, minor.
const (
	regKind, regWanted, regMajor, regMinor = asm.R2, asm.R3, asm.R4, asm.R5
	regTry                                 = asm.R6
)

// deviceProgram compiles rules. It goes from the last rule to the first and keeps
// which access is still undecided: an allowing rule takes its part out, a denying
// one that meets any of it ends in a refusal. A request for no access (does the
// file exist?) finds nothing to refuse.
func deviceProgram(rules []deviceRule) asm.Instructions {
	insts := asm.Instructions{
		asm.LoadMem(regKind, asm.R1, 0, asm.Word),
		asm.Mov.Reg(regWanted, regKind),
		asm.And.Imm(regKind, 0xffff),
		asm.RSh.Imm(regWanted, 16),
		asm.LoadMem(regMajor, asm.R1, 4, asm.Word),
		asm.LoadMem(regMinor, asm.R1, 8, asm.Word),
		asm.JEq.Imm(regWanted, 0, "allow"),
	}
	label := "" // of the instruction that comes next
	emit := func(more ...asm.Instruction) {
		if label != "" && len(more) > 0 {
			more[0] = more[0].WithSymbol(label)
			label = ""
		}
		insts = append(insts, more...)
	}
	for i, r := range slices.Backward(rules) {
		next := "deny" // nobody has allowed the rest
		if i > 0 {
			next = fmt.Sprintf("before%d", i)
		}
		if r.kind != 0 {
			emit(asm.JNE.Imm(regKind, r.kind, next))
		}
		if r.major >= 0 { // through a register: an immediate would be sign-extended
			emit(asm.LoadImm(regTry, r.major, asm.DWord), asm.JNE.Reg(regMajor, regTry, next))
		}
		if r.minor >= 0 {
			emit(asm.LoadImm(regTry, r.minor, asm.DWord), asm.JNE.Reg(regMinor, regTry, next))
		}
		if r.allow {
			emit(asm.And.Imm(regWanted, ^r.access), asm.JEq.Imm(regWanted, 0, "allow"))
		} else {
			emit(asm.Mov.Reg(regTry, regWanted), asm.And.Imm(regTry, r.access), asm.JNE.Imm(regTry, 0, "deny"))
		}
		label = next
	}
	return append(insts, asm.Mov.Imm(asm.R0, 0).WithSymbol("deny"), asm.Return(),
		asm.Mov.Imm(asm.R0, 1).WithSymbol("allow"), asm.Return())
}
