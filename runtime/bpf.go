// This file owns the BPF instructions of a seccomp filter, and how an argument of 64
// bits is tested with instructions of 32.

package runtime

import (
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

// tests gives the code of each operator. Both architectures here store the lower
// half of an argument first.
var tests = map[specs.LinuxSeccompOperator]func(a specs.LinuxSeccompArg) []piece{
	specs.OpEqualTo:  func(a specs.LinuxSeccompArg) []piece { return equal(a, ^uint64(0), a.Value, holds, fails) },
	specs.OpNotEqual: func(a specs.LinuxSeccompArg) []piece { return equal(a, ^uint64(0), a.Value, fails, holds) },
	specs.OpMaskedEqual: func(a specs.LinuxSeccompArg) []piece {
		return equal(a, a.Value, a.ValueTwo, holds, fails)
	},
	specs.OpGreaterThan:  func(a specs.LinuxSeccompArg) []piece { return greater(a, unix.BPF_JGT, holds, fails) },
	specs.OpGreaterEqual: func(a specs.LinuxSeccompArg) []piece { return greater(a, unix.BPF_JGE, holds, fails) },
	specs.OpLessThan:     func(a specs.LinuxSeccompArg) []piece { return greater(a, unix.BPF_JGE, fails, holds) },
	specs.OpLessEqual:    func(a specs.LinuxSeccompArg) []piece { return greater(a, unix.BPF_JGT, fails, holds) },
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

// equal compares the argument under a mask.
func equal(a specs.LinuxSeccompArg, mask, value uint64, same, differs int) []piece {
	return []piece{
		high(a), and(uint32(mask >> 32)), when(unix.BPF_JEQ, uint32(value>>32), step, differs),
		low(a), and(uint32(mask)), when(unix.BPF_JEQ, uint32(value), same, differs),
	}
}

// greater compares by the upper half first; the lower decides when they are equal.
func greater(a specs.LinuxSeccompArg, op uint16, yes, no int) []piece {
	return []piece{
		high(a), when(unix.BPF_JGT, uint32(a.Value>>32), yes, step), when(unix.BPF_JEQ, uint32(a.Value>>32), step, no),
		low(a), when(op, uint32(a.Value), yes, no),
	}
}

// code gives the rule's instructions: its answer when every test holds, and past
// the end when one fails. A rule has at most 6 tests of at most 6 instructions.
func (r rule) code() []unix.SockFilter {
	var pieces []piece
	var ends []int // of the test that each piece belongs to
	for _, a := range r.args {
		t := tests[a.Op](a)
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
