// This file owns the BPF instructions of a seccomp filter, and how an argument of 64
// bits is tested with instructions of 32.

package runtime

import (
	"math"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data.
const (
	offsetNr   = 0
	offsetArch = 4
	offsetArgs = 16
)

func load(offset uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
}

func ret(value uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: value}
}

func always(n int) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JA, K: uint32(n)}
}

func jump(op uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | op | unix.BPF_K, Jt: yes, Jf: no, K: k}
}

// Places that a test of an argument goes to: the next instruction, the next test,
// the next rule.
const (
	step = iota
	holds
	fails
)

// piece is an instruction of a test whose jumps are not placed yet.
type piece struct {
	insn    unix.SockFilter
	yes, no int
}

// knownOperator says whether test has code for an operator.
func knownOperator(op specs.LinuxSeccompOperator) bool {
	return test(specs.LinuxSeccompArg{Op: op, Value: math.MaxUint64}, false) != nil
}

// test gives the code of a condition. The machines here store the lower half of an
// argument first. Where an ABI is narrow the upper halves of the argument and of the
// value do not count, so that a value of -1 is one of 32 bits, as in libseccomp.
func test(a specs.LinuxSeccompArg, narrow bool) []piece {
	wide := ^uint64(0)
	if narrow {
		wide = math.MaxUint32
	}
	switch a.Op {
	case specs.OpEqualTo:
		return equal(a, wide, a.Value, holds, fails)
	case specs.OpNotEqual:
		return equal(a, wide, a.Value, fails, holds)
	case specs.OpMaskedEqual:
		return equal(a, wide&a.Value, a.ValueTwo, holds, fails)
	case specs.OpGreaterThan:
		return greater(a, unix.BPF_JGT, narrow, holds, fails)
	case specs.OpGreaterEqual:
		return greater(a, unix.BPF_JGE, narrow, holds, fails)
	case specs.OpLessThan:
		return greater(a, unix.BPF_JGE, narrow, fails, holds)
	case specs.OpLessEqual:
		return greater(a, unix.BPF_JGT, narrow, fails, holds)
	}
	return nil
}

func low(a specs.LinuxSeccompArg) piece {
	return piece{load(offsetArgs + 8*uint32(a.Index)), step, step}
}
func high(a specs.LinuxSeccompArg) piece {
	return piece{load(offsetArgs + 8*uint32(a.Index) + 4), step, step}
}

func and(mask uint32) piece {
	return piece{unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: mask}, step, step}
}

func when(op uint16, k uint32, yes, no int) piece { return piece{jump(op, k, 0, 0), yes, no} }

// equal compares the argument under a mask. A half that the mask leaves out is not
// looked at, and the value's bits outside the mask do not count.
func equal(a specs.LinuxSeccompArg, mask, value uint64, same, differs int) (pieces []piece) {
	value &= mask
	if up := uint32(mask >> 32); up != 0 {
		pieces = append(pieces, high(a), and(up), when(unix.BPF_JEQ, uint32(value>>32), step, differs))
	}
	if down := uint32(mask); down != 0 {
		pieces = append(pieces, low(a), and(down), when(unix.BPF_JEQ, uint32(value), same, differs))
	}
	if len(pieces) > 0 {
		pieces[len(pieces)-1].yes = same
	}
	return pieces
}

// greater compares by the upper half first; the lower decides when they are equal.
func greater(a specs.LinuxSeccompArg, op uint16, narrow bool, yes, no int) (pieces []piece) {
	if !narrow {
		up := uint32(a.Value >> 32)
		pieces = append(pieces, high(a), when(unix.BPF_JGT, up, yes, step), when(unix.BPF_JEQ, up, step, no))
	}
	return append(pieces, low(a), when(op, uint32(a.Value), yes, no))
}

// code gives the rule's instructions: its answer when every test holds, and past
// the end when one fails. A rule has at most 6 tests of at most 6 instructions.
func (r rule) code(narrow bool) []unix.SockFilter {
	var pieces []piece
	var ends []int // of the test that each piece belongs to
	for _, a := range r.args {
		t := test(a, narrow)
		for range t {
			ends = append(ends, len(pieces)+len(t))
		}
		pieces = append(pieces, t...)
	}
	code := make([]unix.SockFilter, 0, len(pieces)+1)
	for i, p := range pieces {
		target := func(to int) uint8 {
			switch to {
			case holds:
				return uint8(ends[i] - i - 1)
			case fails:
				return uint8(len(pieces) + 1 - i - 1)
			}
			return 0
		}
		if p.insn.Code&0x07 == unix.BPF_JMP {
			p.insn.Jt, p.insn.Jf = target(p.yes), target(p.no)
		}
		code = append(code, p.insn)
	}
	return append(code, ret(r.answer))
}
