package weftinit

import (
	"math"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	ringFirst = 64 << 10 // a ring's size at first; it doubles when it is full
)

// budget bounds what all rings together grow to, so that output can't use up the sandbox's memory.
// Below ringFirst each ring gets its memory in any case; pages that are not written cost nothing.
type budget struct {
	limit atomic.Int64
	used  atomic.Int64
}

func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.limit.Load() {
		b.used.Add(-n)
		return false
	}
	return true
}

// ring keeps the last bytes of one output, addressed by their offset from the beginning. It lies
// outside the Go heap: its size must not make the collector work. Its process's mutex guards it.
type ring struct {
	budget *budget
	limit  int // bytes it may grow to
	buf    []byte
	oldest uint64 // offset of the first byte kept
	end    uint64 // offset after the last
	seen   uint64 // offset up to which a reader had it
	lost   uint64 // bytes dropped that no reader had
}

func newRing(b *budget, limit int) *ring { return &ring{budget: b, limit: limit} }

// nothingHeld lets a write overwrite whatever it has to.
const nothingHeld = math.MaxUint64

// write takes as much of p as fits when nothing from offset hold on may be dropped, growing if it
// can, and says how much that was. With history it grows rather than drop what it need not hold.
func (r *ring) write(p []byte, hold uint64, history bool) int {
	wanted := hold
	if history {
		wanted = r.oldest
	}
	for r.room(wanted) < len(p) && r.grow() {
	}
	n := min(len(p), r.room(hold))
	total := n
	if skip := n - len(r.buf); skip > 0 { // of what can't be kept only the size matters
		p, n = p[skip:], n-skip
		r.end += uint64(skip)
	}
	for i := 0; i < n; {
		at := int(r.end % uint64(len(r.buf)))
		c := copy(r.buf[at:], p[i:n])
		i += c
		r.end += uint64(c)
	}
	if kept := uint64(len(r.buf)); r.end-r.oldest > kept {
		oldest := r.end - kept
		r.lost += oldest - min(max(r.oldest, r.seen), oldest)
		r.oldest = oldest
	}
	return total
}

// room is how much can be written when all from hold on is to be kept.
func (r *ring) room(hold uint64) int {
	if hold == nothingHeld {
		return math.MaxInt
	}
	return len(r.buf) - int(r.end-min(max(hold, r.oldest), r.end))
}

// grow doubles the ring, if its limit and the budget allow.
func (r *ring) grow() bool {
	size := min(max(2*len(r.buf), min(ringFirst, r.limit)), r.limit)
	if size <= len(r.buf) {
		return false
	}
	more := int64(size - len(r.buf))
	if len(r.buf) > 0 && !r.budget.take(more) {
		return false
	}
	buf, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		if len(r.buf) > 0 {
			r.budget.used.Add(-more)
		}
		return false
	}
	if len(r.buf) == 0 {
		r.budget.used.Add(more)
	}
	old := *r
	r.buf = buf
	for off := old.oldest; off < old.end; {
		at := int(off % uint64(size))
		off += uint64(old.read(off, buf[at:min(size, at+int(old.end-off))]))
	}
	old.unmap()
	return true
}

// read copies what is kept from offset off on; off must not be before oldest.
func (r *ring) read(off uint64, p []byte) int {
	n := 0
	for n < len(p) && off < r.end {
		at := int(off % uint64(len(r.buf)))
		c := copy(p[n:min(len(p), n+int(r.end-off))], r.buf[at:])
		n += c
		off += uint64(c)
	}
	return n
}

func (r *ring) unmap() {
	if len(r.buf) > 0 {
		_ = unix.Munmap(r.buf)
		r.buf = nil
	}
}

// free gives the memory back. What was kept is gone.
func (r *ring) free() {
	r.budget.used.Add(-int64(len(r.buf)))
	r.unmap()
	r.oldest = r.end
}
