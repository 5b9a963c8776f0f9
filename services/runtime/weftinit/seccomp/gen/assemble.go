package main

import (
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// instruction of classic BPF. Jumps are relative and only go forward.
type instruction struct {
	code   uint16
	jt, jf uint8
	k      uint32
	note   string
	// A condition's instruction goes to the next alternative if it fails; see alternative.
	failTrue, failFalse bool
}

// The opcodes that are used: A is the accumulator, K the constant.
const (
	opLoad   = 0x20 // A = 32 bits of seccomp_data at K
	opAnd    = 0x54 // A &= K
	opJump   = 0x05 // skip K
	opJumpEq = 0x15 // A == K
	opJumpGE = 0x35 // A >= K
	opReturn = 0x06 // K
)

// Results, and the layout of seccomp_data.
const (
	retAllow = 0x7fff0000
	retKill  = 0x80000000 // the process

	offsetNumber = 0
	offsetArch   = 4
	offsetArgs   = 16

	x32Bit = 0x40000000
)

func retErrno(e unix.Errno) uint32 { return 0x00050000 | uint32(e) }

// compile makes the program: the architecture, x32, then a binary search for the number. Every part
// is a block: it ends in returns only, so blocks can be put behind each other anywhere.
func (p *policy) compile() []instruction {
	prog := []instruction{
		{code: opLoad, k: offsetArch},
		{code: opJumpEq, jt: 1, k: p.arch.audit, note: p.arch.goarch},
		{code: opReturn, k: retKill, note: "another architecture"},
		{code: opLoad, k: offsetNumber},
	}
	if p.arch.x32 {
		prog = append(prog,
			instruction{code: opJumpGE, jf: 1, k: x32Bit},
			instruction{code: opReturn, k: retErrno(unix.ENOSYS), note: "x32"})
	}
	return append(prog, search(p.intervals())...)
}

// search is a block that finds A's interval.
func search(l []interval) []instruction {
	if len(l) == 1 {
		return l[0].act.block(l[0].note)
	}
	m := len(l) / 2
	below, above := search(l[:m]), search(l[m:])
	k := l[m].first
	var out []instruction
	if len(below) <= 255 {
		out = []instruction{{code: opJumpGE, jt: uint8(len(below)), k: k}}
	} else { // farther than a condition can jump
		out = []instruction{{code: opJumpGE, jf: 1, k: k}, {code: opJump, k: uint32(len(below))}}
	}
	return append(append(out, below...), above...)
}

// block does the action.
func (a action) block(note string) []instruction {
	var out []instruction
	for _, args := range a.allow {
		out = append(out, alternative(args)...)
	}
	out = append(out, instruction{code: opReturn, k: a.result})
	what := "errno"
	if a.result == retAllow {
		what = "allow"
	} else {
		what = unix.ErrnoName(unix.Errno(a.result & 0xffff))
	}
	if len(a.allow) > 0 {
		what += " unless allowed by its arguments"
	}
	out[0].note = fmt.Sprintf("%s: %s", note, what)
	return out
}

// alternative allows if all conditions hold, and else goes on behind itself.
func alternative(args []specs.LinuxSeccompArg) []instruction {
	var out []instruction
	for _, a := range args {
		out = append(out, condition(a)...)
	}
	out = append(out, instruction{code: opReturn, k: retAllow})
	for i := range out {
		end := uint8(len(out) - i - 1)
		if out[i].failTrue {
			out[i].jt = end
		}
		if out[i].failFalse {
			out[i].jf = end
		}
	}
	return out
}

// condition compares one argument, all 64 bits of it: whatever bits the kernel itself ignores, a
// call that sets them is none that somebody needs.
func condition(a specs.LinuxSeccompArg) []instruction {
	low := offsetArgs + 8*uint32(a.Index) // both architectures are little-endian
	high := low + 4
	lo, hi := uint32(a.Value), uint32(a.Value>>32)
	switch a.Op {
	case specs.OpEqualTo:
		return []instruction{
			{code: opLoad, k: high}, {code: opJumpEq, k: hi, failFalse: true},
			{code: opLoad, k: low}, {code: opJumpEq, k: lo, failFalse: true},
		}
	case specs.OpMaskedEqual: // argument & Value == ValueTwo
		return []instruction{
			{code: opLoad, k: high}, {code: opAnd, k: hi}, {code: opJumpEq, k: uint32(a.ValueTwo >> 32), failFalse: true},
			{code: opLoad, k: low}, {code: opAnd, k: lo}, {code: opJumpEq, k: uint32(a.ValueTwo), failFalse: true},
		}
	case specs.OpNotEqual: // of the 32 bits that the kernel looks at: the arguments compared so are ints
		return []instruction{{code: opLoad, k: low}, {code: opJumpEq, k: lo, failTrue: true}}
	case specs.OpLessThan:
		if hi == 0 {
			return []instruction{
				{code: opLoad, k: high}, {code: opJumpEq, k: 0, failFalse: true},
				{code: opLoad, k: low}, {code: opJumpGE, k: lo, failTrue: true},
			}
		}
	}
	panic(fmt.Sprintf("condition %+v is not known: teach it to the assembler", a))
}
