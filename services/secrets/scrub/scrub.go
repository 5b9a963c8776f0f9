// Package scrub takes secret values out of output before it is stored or sent on.
//
// It finds exact values, also where they are cut by the borders of chunks or overlap each other, and
// puts *** in their place: no byte of a found value remains. It is a best effort against accidents, and no
// boundary: a program that wants to print a secret encodes it. Values shorter than 4 bytes are left
// alone, they would match everywhere; so are values beyond the memory bound, see Set.Left. A value that
// ends in newlines is also found without them, and one with inner newlines also as a terminal prints them.
//
// Offsets of output that passed through here are those of the scrubbed stream: *** has 3 bytes whatever
// was there, so they say nothing about the length of a value.
package scrub

import (
	"bytes"
	"slices"
	"strings"
)

const (
	minLen     = 4       // bytes of the shortest value that is looked for
	maxEntries = 4 << 20 // of the transition table, 4 bytes each
	mask       = "***"
)

// Set is a compiled set of values. It is immutable and may be shared by many streams.
type Set struct {
	class   [256]uint16 // of a byte; 0 is every byte that is in no value
	classes int
	next    []uint32 // state*classes + class → state*classes
	depth   []int32  // by state: bytes of the longest prefix of a value that ends here
	match   []int32  // by state: bytes of the longest value that ends here, 0 if none
	window  int      // bytes of the shortest value
	shift   []uint8  // by the last two bytes of a window: how far it may move on
	left    int
}

// Compile makes a set of values. Empty, short and repeated ones are dropped.
func Compile(values []string) *Set {
	s := &Set{}
	words, left := s.choose(variants(values))
	s.left = left
	if len(words) > 0 {
		s.build(words)
		s.skips(words)
	}
	return s
}

// Left is how many forms of values are not looked for because the set would take too much memory: all together
// may have some 60,000 bytes of text, less if they use many different bytes.
func (s *Set) Left() int { return s.left }

// Empty reports whether there is nothing to look for.
func (s *Set) Empty() bool { return len(s.next) == 0 }

func variants(values []string) []string {
	var out []string
	for _, v := range values {
		trimmed := strings.TrimRight(v, "\r\n")
		if len(trimmed) < minLen {
			continue
		}
		out = append(out, trimmed)
		if strings.Contains(trimmed, "\n") {
			out = append(out, strings.ReplaceAll(strings.ReplaceAll(trimmed, "\r\n", "\n"), "\n", "\r\n"))
		}
	}
	// Shortest first: where memory does not do for all, more values are found.
	slices.SortFunc(out, func(a, b string) int {
		if d := len(a) - len(b); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	return slices.Compact(out)
}

// choose assigns byte classes and takes words until the table would be too large.
func (s *Set) choose(words []string) (taken []string, left int) {
	states := 1
	s.classes = 1
	for i, w := range words {
		added := 0
		seen := [256]bool{}
		for j := range len(w) {
			if s.class[w[j]] == 0 && !seen[w[j]] {
				seen[w[j]] = true
				added++
			}
		}
		if (states+len(w))*(s.classes+added) > maxEntries {
			return taken, len(words) - i
		}
		states += len(w)
		for j := range len(w) {
			if s.class[w[j]] == 0 {
				s.class[w[j]] = uint16(s.classes)
				s.classes++
			}
		}
		taken = append(taken, w)
	}
	return taken, 0
}

// build makes the automaton of Aho and Corasick with all transitions filled in.
func (s *Set) build(words []string) {
	k := s.classes
	none := ^uint32(0)
	row := make([]uint32, k)
	for i := range row {
		row[i] = none
	}
	add := func(depth int32) uint32 {
		s.next = append(s.next, row...)
		s.depth = append(s.depth, depth)
		s.match = append(s.match, 0)
		return uint32((len(s.depth) - 1) * k)
	}
	add(0)
	for _, w := range words {
		at := uint32(0)
		for i := range len(w) {
			to := &s.next[at+uint32(s.class[w[i]])]
			if *to == none {
				n := add(int32(i + 1))
				s.next[at+uint32(s.class[w[i]])] = n
				at = n
				continue
			}
			at = *to
		}
		s.match[at/uint32(k)] = int32(len(w))
	}
	// Breadth first, so that the state to fall back to is complete before it is needed.
	fail := make([]uint32, len(s.depth))
	var queue []uint32
	for c := range k {
		if to := s.next[c]; to != none {
			queue = append(queue, to)
		} else {
			s.next[c] = 0
		}
	}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		back := fail[at/uint32(k)]
		if s.match[at/uint32(k)] == 0 {
			s.match[at/uint32(k)] = s.match[back/uint32(k)]
		}
		for c := range uint32(k) {
			if to := s.next[at+c]; to != none {
				fail[to/uint32(k)] = s.next[back+c]
				queue = append(queue, to)
			} else {
				s.next[at+c] = s.next[back+c]
			}
		}
	}
}

// skips makes the table by which text that holds no value is jumped over, after Wu and Manber: the
// last two bytes of a window say how far ahead at the earliest a value can begin.
func (s *Set) skips(words []string) {
	s.window = min(len(words[0]), 255) // the shortest is first
	s.shift = bytes.Repeat([]byte{uint8(s.window - 1)}, 1<<16)
	for _, w := range words {
		for j := 1; j < s.window; j++ {
			pair := int(w[j-1]) | int(w[j])<<8
			s.shift[pair] = min(s.shift[pair], uint8(s.window-1-j))
		}
	}
}

// span is a stretch of the stream that must not be shown, from and to in bytes of the input.
type span struct{ from, to int64 }

// Stream scrubs one stream. It is not safe for concurrent use.
type Stream struct {
	set     *Set
	state   uint32
	pos     int64  // bytes taken in
	out     int64  // bytes given out or masked
	held    []byte // the input from out to pos
	masked  int64  // where the last mask that was given out ends
	pending []span // found, but a longer value that began earlier may still be found; in order, apart
}

// Stream begins a stream.
func (s *Set) Stream() *Stream { return &Stream{set: s} }

// Held is how many bytes are kept back because a value may have begun in them. More input, or Flush,
// gives them out.
func (st *Stream) Held() int { return len(st.held) }

// Append adds to dst what of the stream so far and src can be shown, and returns it. src is not kept.
func (st *Stream) Append(dst, src []byte) []byte {
	if st.set.Empty() {
		return append(dst, src...)
	}
	set, k := st.set, uint32(st.set.classes)
	base := st.pos
	state := st.state
	for i := 0; i < len(src); {
		if state == 0 {
			if i = set.skip(src, i); i == len(src) {
				break
			}
		}
		state = set.next[state+uint32(set.class[src[i]])]
		i++
		if n := set.match[state/k]; n > 0 {
			st.found(span{base + int64(i) - int64(n), base + int64(i)})
		}
		if len(st.pending) > 0 {
			dst = st.settle(dst, src, base, base+int64(i)-int64(set.depth[state/k]))
		}
	}
	st.state, st.pos = state, base+int64(len(src))
	dst = st.give(dst, src, base, st.pos-int64(set.depth[state/k]))
	st.keep(src, base)
	return dst
}

// skip gives the first position from i on at which a value may begin, or at which the text is too near
// to its end to tell.
func (s *Set) skip(src []byte, i int) int {
	last := len(src) - s.window
	for i <= last {
		d := s.shift[int(src[i+s.window-2])|int(src[i+s.window-1])<<8]
		if d == 0 {
			return i
		}
		i += int(d)
	}
	return min(i, len(src))
}

// found adds a value to what waits to be masked.
func (st *Stream) found(v span) {
	for n := len(st.pending); n > 0 && st.pending[n-1].to > v.from; n = len(st.pending) {
		v.from = min(v.from, st.pending[n-1].from)
		st.pending = st.pending[:n-1]
	}
	st.pending = append(st.pending, v)
}

// settle masks what nothing can change any more: no value that is still being read begins before safe.
func (st *Stream) settle(dst, src []byte, base, safe int64) []byte {
	for len(st.pending) > 0 && st.pending[0].from <= safe {
		v := st.pending[0]
		st.pending = st.pending[1:]
		dst = st.give(dst, src, base, v.from)
		if v.from >= st.masked { // else it overlaps the one before, whose mask stands for both
			dst = append(dst, mask...)
		}
		st.out, st.masked = v.to, v.to
	}
	if len(st.pending) == 0 {
		st.pending = nil
	}
	return dst
}

// give shows the input up to to.
func (st *Stream) give(dst, src []byte, base, to int64) []byte {
	if to <= st.out {
		return dst
	}
	if st.out < base {
		old := min(to, base)
		first := base - int64(len(st.held)) // of held
		dst = append(dst, st.held[st.out-first:old-first]...)
		st.out = old
	}
	if to > st.out {
		dst = append(dst, src[st.out-base:to-base]...)
		st.out = to
	}
	return dst
}

// keep holds the input that was not given out, at most as long as the longest value.
func (st *Stream) keep(src []byte, base int64) {
	if st.out >= base {
		st.held = append(st.held[:0], src[st.out-base:]...)
		return
	}
	first := base - int64(len(st.held))
	st.held = append(st.held[:copy(st.held, st.held[st.out-first:])], src...)
}

// Flush adds to dst what was held back and begins anew: at the end of the stream, or when it has paused
// and someone waits for the last bytes. A value of which only a part had come is then not found.
func (st *Stream) Flush(dst []byte) []byte {
	dst = st.settle(dst, nil, st.pos, st.pos)
	dst = st.give(dst, nil, st.pos, st.pos)
	st.held, st.state = st.held[:0], 0
	return dst
}

// Bytes scrubs a whole text.
func (s *Set) Bytes(b []byte) []byte {
	st := s.Stream()
	return st.Flush(st.Append(make([]byte, 0, len(b)), b))
}
