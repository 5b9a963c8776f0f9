package stream

import "fmt"

// outbound is the sending direction of a channel. It keeps every byte until it is acknowledged.
//
//	acked ≤ next ≤ written, next ≤ limit, written - acked ≤ Window
type outbound struct {
	buf     ring
	acked   int64 // the other side has everything before it
	next    int64 // to be sent next
	written int64
	peak    int64  // the highest offset ever sent
	limit   int64  // the other side takes bytes before it
	end     string // set: nothing follows written
	ended   bool   // the other side knows of the end
	told    bool   // the end was sent after the last byte
	redone  retry
}

// room is how many bytes can be written without waiting.
func (o *outbound) room() int { return int(Window - (o.written - o.acked)) }

// write takes as much of p as there is room for.
func (o *outbound) write(p []byte) int {
	n := min(len(p), o.room())
	o.buf.append(p[:n])
	o.written += int64(n)
	return n
}

// take gives the next bytes that may be sent, at most one frame, and counts them as sent.
func (o *outbound) take() (offset int64, data []byte) {
	n := min(o.written, o.limit) - o.next
	if n <= 0 {
		return o.next, nil
	}
	offset = o.next
	data = o.buf.slice(int(o.next-o.acked), int(min(n, MaxFrame)))
	o.next += int64(len(data))
	o.peak = max(o.peak, o.next)
	return offset, data
}

// endDue reports whether the end has to be told: every byte has been sent, and nobody was told yet.
func (o *outbound) endDue() bool { return o.end != "" && !o.told && o.next == o.written }

// endNow gives the end, if the bytes just taken were the last before it: then it is told with them.
func (o *outbound) endNow() string {
	if !o.endDue() {
		return ""
	}
	o.told = true
	return o.end
}

// waiting reports whether something is owed by the other side: an acknowledgement, or credit.
func (o *outbound) waiting() bool {
	return o.acked < o.written || (o.end != "" && !o.ended)
}

// settled reports whether the other side has everything, and the end.
func (o *outbound) settled() bool { return o.end != "" && o.ended && o.acked == o.written }

// ack applies what the other side says it has received. It reports whether anything moved.
func (o *outbound) ack(p progress) (moved bool, err error) {
	if p.Received > o.peak {
		return false, fmt.Errorf("%d bytes acknowledged of %d sent", p.Received, o.peak)
	}
	if p.Received > o.acked {
		o.buf.drop(int(p.Received - o.acked))
		o.acked = p.Received
		o.next = max(o.next, o.acked)
		moved = true
	}
	// A larger credit than a window would be of no use: no more is kept.
	if limit := min(p.Limit, p.Received+Window); limit > o.limit {
		o.limit, moved = limit, true
	}
	if p.Ended && !o.ended && o.end != "" && o.acked == o.written {
		o.ended, moved = true, true
	}
	return moved, nil
}

// rewind goes back to the last acknowledged byte, because something after it was lost.
func (o *outbound) rewind() {
	o.next = o.acked
	if o.end != "" && !o.ended {
		o.told = false
	}
}

// ring is a byte queue that grows up to one window.
type ring struct {
	b           []byte
	start, size int
}

// append adds p; the caller keeps size within Window.
func (r *ring) append(p []byte) {
	if r.size+len(p) > len(r.b) {
		r.grow(r.size + len(p))
	}
	at := (r.start + r.size) % max(len(r.b), 1)
	n := copy(r.b[at:], p)
	copy(r.b, p[n:])
	r.size += len(p)
}

func (r *ring) grow(need int) {
	n := max(len(r.b), 256)
	for n < need {
		n *= 2
	}
	b := make([]byte, n)
	k := copy(b, r.b[r.start:min(r.start+r.size, len(r.b))])
	copy(b[k:], r.b[:r.size-k])
	r.b, r.start = b, 0
}

// slice gives up to n bytes from offset off; fewer where the queue wraps around.
func (r *ring) slice(off, n int) []byte {
	at := (r.start + off) % len(r.b)
	return r.b[at:min(at+n, len(r.b))]
}

// drop forgets the first n bytes, and the memory when nothing is left of a large queue.
func (r *ring) drop(n int) {
	r.size -= n
	r.start = (r.start + n) % len(r.b)
	if r.size == 0 {
		r.start = 0
	}
}
