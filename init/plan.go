// Package sbxinit is what happens between clone and execve: the init process of
// a container. It receives a finished Plan, performs the steps from top to
// bottom and executes the program. The package clause differs from the folder
// name because Go reserves the identifier init.
//
// This file owns the Plan and its wire format.
package sbxinit

import (
	"encoding/binary"
	"errors"
)

// Step is one thing that init does, with plain strings and numbers as arguments.
// What they mean is written beside each operation in steps.go.
type Step struct {
	Op   Op
	Strs []string
	Nums []uint64
}

// Plan is the ordered list of steps of one init.
type Plan []Step

// Add appends a step.
func (p *Plan) Add(op Op, nums []uint64, strs ...string) {
	*p = append(*p, Step{Op: op, Strs: strs, Nums: nums})
}

// maxPlan bounds a plan: arguments and environment may take 6 MiB in Linux.
const maxPlan = 16 << 20

var errPlan = errors.New("malformed plan")

// Encode gives the wire form: a 4-byte length, then each step as its operation,
// the count and values of its numbers, and the count and bytes of its strings.
func (p Plan) Encode() []byte {
	b := make([]byte, 4, 4096)
	for _, s := range p {
		b = append(b, byte(s.Op))
		b = binary.AppendUvarint(b, uint64(len(s.Nums)))
		for _, n := range s.Nums {
			b = binary.AppendUvarint(b, n)
		}
		b = binary.AppendUvarint(b, uint64(len(s.Strs)))
		for _, v := range s.Strs {
			b = binary.AppendUvarint(b, uint64(len(v)))
			b = append(b, v...)
		}
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

// decode reads what Encode wrote, without the leading length.
func decode(b []byte) (Plan, error) {
	var p Plan
	for len(b) > 0 {
		s := Step{Op: Op(b[0])}
		b = b[1:]
		if int(s.Op) >= len(table) || table[s.Op].run == nil {
			return nil, errPlan
		}
		n, rest, ok := count(b)
		if !ok {
			return nil, errPlan
		}
		b = rest
		s.Nums = make([]uint64, n)
		for i := range s.Nums {
			v, w := binary.Uvarint(b)
			if w <= 0 {
				return nil, errPlan
			}
			s.Nums[i], b = v, b[w:]
		}
		if n, b, ok = count(b); !ok {
			return nil, errPlan
		}
		s.Strs = make([]string, n)
		for i := range s.Strs {
			l, rest, ok := count(b)
			if !ok {
				return nil, errPlan
			}
			s.Strs[i], b = string(rest[:l]), rest[l:]
		}
		if len(s.Nums) < table[s.Op].nums || len(s.Strs) < table[s.Op].strs {
			return nil, errPlan
		}
		p = append(p, s)
	}
	return p, nil
}

// count reads a length that cannot exceed what is left.
func count(b []byte) (int, []byte, bool) {
	v, w := binary.Uvarint(b)
	if w <= 0 || v > uint64(len(b)-w) {
		return 0, nil, false
	}
	return int(v), b[w:], true
}
