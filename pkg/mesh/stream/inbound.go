package stream

import (
	"fmt"
	"time"
)

// inbound is the receiving direction of a channel: contiguous bytes that were not read yet, at most
// one window of them.
type inbound struct {
	chunks   [][]byte
	received int64
	consumed int64
	told     int64  // received, as the other side knows
	granted  int64  // limit, as the other side knows
	end      string // how it ends, once that is known
	endAt    int64  // where, if end is set
	toldEnd  bool
	discard  bool // nobody reads: take and forget
	asked    retry
}

// retry holds back a repetition about the same offset.
type retry struct {
	at   int64
	when time.Time
}

// due reports whether something may be asked, or done, about offset at now, and notes that it was.
func (r *retry) due(at int64, now time.Time, pause time.Duration) bool {
	if r.at == at && !r.when.IsZero() && now.Sub(r.when) < pause {
		return false
	}
	r.at, r.when = at, now
	return true
}

// smallFrame is the size under which frames are copied together: a queue of one-byte slices would cost
// many times what it holds.
const (
	smallFrame = 8 << 10
	chunkSize  = 16 << 10
)

// verdict on a data frame.
type verdict int

const (
	taken verdict = iota
	repeated
	missing // there is a gap before it
)

// limit is how far the other side may send.
func (in *inbound) limit() int64 { return in.consumed + Window }

// take adds the bytes at offset that are new. An error says that the other side breaks the rules.
func (in *inbound) take(offset int64, data []byte) (verdict, error) {
	stop := offset + int64(len(data))
	if stop < offset || stop > in.granted {
		return 0, fmt.Errorf("bytes up to offset %d where %d is the limit", stop, in.granted)
	}
	if in.end != "" && stop > in.endAt {
		return 0, fmt.Errorf("bytes up to offset %d after the end at %d", stop, in.endAt)
	}
	switch {
	case offset > in.received:
		return missing, nil
	case stop <= in.received:
		return repeated, nil
	}
	data = data[in.received-offset:]
	in.received = stop
	if in.discard {
		in.consumed = stop
		return taken, nil
	}
	in.push(data)
	return taken, nil
}

func (in *inbound) push(data []byte) {
	if len(data) >= smallFrame {
		in.chunks = append(in.chunks, data)
		return
	}
	if n := len(in.chunks); n > 0 && cap(in.chunks[n-1])-len(in.chunks[n-1]) >= len(data) {
		in.chunks[n-1] = append(in.chunks[n-1], data...)
		return
	}
	if len(in.chunks) == 0 { // kept as it is: most messages are read one by one
		in.chunks = append(in.chunks, data[:len(data):len(data)])
		return
	}
	in.chunks = append(in.chunks, append(make([]byte, 0, chunkSize), data...))
}

// ends notes that the other side ends after offset at.
func (in *inbound) ends(end string, at int64) error {
	if in.end != "" {
		if at != in.endAt {
			return fmt.Errorf("an end at %d after one at %d", at, in.endAt)
		}
		return nil
	}
	if at < in.received {
		return fmt.Errorf("an end at %d when %d bytes were received", at, in.received)
	}
	in.end, in.endAt = end, at
	return nil
}

// atEnd reports whether everything up to the end was received.
func (in *inbound) atEnd() bool { return in.end != "" && in.received == in.endAt }

// read moves bytes to p.
func (in *inbound) read(p []byte) int {
	n := 0
	for n < len(p) && len(in.chunks) > 0 {
		k := copy(p[n:], in.chunks[0])
		n += k
		if k == len(in.chunks[0]) {
			in.chunks[0] = nil
			in.chunks = in.chunks[1:]
		} else {
			in.chunks[0] = in.chunks[0][k:]
		}
	}
	if len(in.chunks) == 0 {
		in.chunks = nil
	}
	in.consumed += int64(n)
	return n
}

// drain forgets what was not read, and all that follows.
func (in *inbound) drain() {
	in.discard, in.chunks, in.consumed = true, nil, in.received
}

// creditDue reports whether enough was read to tell the other side before its credit runs out.
func (in *inbound) creditDue() bool { return in.limit()-in.granted >= Window/4 }

// ackDue reports whether the other side does not know all that was received.
func (in *inbound) ackDue() bool {
	return in.received > in.told || (in.atEnd() && !in.toldEnd)
}
