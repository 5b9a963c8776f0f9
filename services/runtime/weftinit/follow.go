package weftinit

import (
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// reader is one who follows a process's output. Its process's mutex guards it.
type reader struct {
	name   string       // with one it is known again after its connection broke
	next   wire.Offsets // what is sent next
	acked  wire.Offsets // what the reader needs no more
	moved  time.Time    // when it last acknowledged something new
	passed bool         // it takes nothing: the process is not held back for it
	closed bool
	taken  bool        // another of the same name has come in its place
	away   *time.Timer // its connection broke; until then it is waited for
}

// close ends what is sent to it, and the wait for it.
func (r *reader) close() {
	r.closed = true
	if r.away != nil {
		r.away.Stop()
	}
}

// follow sends a reader, who has joined, output and at last the exit, while the other side
// acknowledges. It returns when the stream is over. lost tells a connection that broke from a reader that left.
func (p *process) follow(stream net.Conn, frames *wire.Reader, r *reader, lost func() bool) {
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		p.readAcks(r, frames)
	}()
	err := p.send(r, stream)
	if err == nil && p.wasTaken(r) {
		_ = wire.WriteMessage(stream, wire.TypeError, wire.ErrorOf(errTaken))
	}
	_ = stream.Close()
	<-readerDone
	p.leave(r, err != nil || lost())
}

var errTaken = fault.New(fault.Conflict, "the same reader has attached again, and goes on there")

// join adds a reader from the offsets at on. It takes the place of the one of the same name; without a name, of all
// such who are away.
func (p *process) join(name string, at wire.Offsets) (*reader, error) {
	r := &reader{name: name, next: at, acked: at, moved: time.Now()}
	p.mu.Lock()
	defer p.mu.Unlock()
	for o := range p.readers {
		if o.name == r.name && (r.name != "" || o.away != nil) {
			o.taken = true
			o.close()
			delete(p.readers, o)
		}
	}
	if len(p.readers) >= maxReaders {
		return nil, fault.New(fault.Exhausted, "process %s has %d readers; detach some", p.spec.ID, maxReaders)
	}
	p.readers[r] = struct{}{}
	p.changed.Broadcast()
	return r, nil
}

func (p *process) wasTaken(r *reader) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return r.taken
}

// leave takes the reader away. After a broken connection the process is held back for a while, so
// that the reader can come back and miss nothing.
func (p *process) leave(r *reader, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, there := p.readers[r]; !there {
		return
	}
	p.changed.Broadcast()
	if !lost || p.spec.Output != wire.OutputAttached || p.exit != nil {
		delete(p.readers, r)
		return
	}
	grace := readerGrace
	if r.name != "" {
		grace = namedGrace
	}
	r.away = time.AfterFunc(grace, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.readers, r)
		p.changed.Broadcast()
	})
}

// passStalled lets go of the readers that have taken nothing for a while, if there is one whom they keep
// from going on: they will find a gap. The process has waited since then. The mutex is held.
func (p *process) passStalled(stream wire.Stream, since time.Time) {
	end, waits := p.rings[stream-1].end, false
	for r := range p.readers {
		waits = waits || r.away == nil && of(r.acked, stream) >= end
	}
	if !waits || time.Since(since) < stallGrace {
		return
	}
	for r := range p.readers {
		if r.away == nil && of(r.acked, stream) < end && time.Since(r.moved) >= stallGrace {
			r.passed = true
			p.changed.Broadcast()
		}
	}
}

// of is the offset of one stream.
func of(o wire.Offsets, s wire.Stream) uint64 {
	if s == wire.Stdout {
		return o.Stdout
	}
	return o.Stderr
}

// readAcks takes what the follower says until its direction ends.
func (p *process) readAcks(r *reader, frames *wire.Reader) {
	forget := false
	for {
		f, err := frames.Next()
		if err != nil {
			break
		}
		if f.Type == wire.TypeForget {
			forget = true
			continue
		}
		if f.Type != wire.TypeAck || len(f.Body) != 2*wire.OffsetSize {
			break
		}
		p.ack(r, wire.Offsets{
			Stdout: binary.BigEndian.Uint64(f.Body),
			Stderr: binary.BigEndian.Uint64(f.Body[wire.OffsetSize:]),
		})
	}
	p.mu.Lock()
	r.closed = true
	p.changed.Broadcast()
	p.mu.Unlock()
	if forget {
		_ = p.init.forget(p.spec.ID)
	}
}

// ack moves the reader's, and the process's, acknowledged offsets forward; never past what there is.
func (p *process) ack(r *reader, at wire.Offsets) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at.Stdout, at.Stderr = min(at.Stdout, p.rings[0].end), min(at.Stderr, p.rings[1].end)
	forward := func(o *wire.Offsets) {
		o.Stdout, o.Stderr = max(o.Stdout, at.Stdout), max(o.Stderr, at.Stderr)
	}
	forward(&p.acked)
	if r != nil {
		before := r.acked
		if forward(&r.acked); r.acked != before {
			r.moved, r.passed = time.Now(), false
		}
	}
	p.changed.Broadcast()
}

// send writes frames until the exit was sent or the stream is closed.
func (p *process) send(r *reader, stream io.Writer) error {
	last := wire.Stderr
	for {
		frame, exit := p.nextFrame(r, &last)
		switch {
		case frame != nil:
			_, err := stream.Write((*frame)[:frameLen(*frame)])
			chunks.Put(frame)
			if err != nil {
				return err
			}
		case exit != nil:
			return wire.WriteMessage(stream, wire.TypeExit, exit)
		default:
			return nil
		}
	}
}

func frameLen(b []byte) int {
	return wire.HeaderSize + int(binary.BigEndian.Uint32(b)&0xffffff)
}

// nextFrame waits for output and frames it, taking turns between the two streams; or gives the exit
// when all was sent; or neither when the reader is closed.
func (p *process) nextFrame(r *reader, last *wire.Stream) (*[]byte, *wire.Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if r.closed {
			return nil, nil
		}
		other := wire.Stdout + wire.Stderr - *last
		for _, s := range [2]wire.Stream{other, *last} {
			if b := p.frame(r, s); b != nil {
				*last = s
				return b, nil
			}
		}
		if p.exit != nil {
			return nil, p.exit
		}
		p.changed.Wait()
	}
}

// frame makes one frame of what the reader has not had of one stream. A reader that fell behind
// goes on at the oldest byte that is kept; the offset in the frame tells it.
func (p *process) frame(r *reader, s wire.Stream) *[]byte {
	next, typ := &r.next.Stdout, wire.TypeStdout
	if s == wire.Stderr {
		next, typ = &r.next.Stderr, wire.TypeStderr
	}
	g := p.rings[s-1]
	if *next >= g.end {
		return nil
	}
	*next = max(*next, g.oldest)
	const head = wire.HeaderSize + wire.OffsetSize
	b := chunks.Get().(*[]byte)
	n := g.read(*next, (*b)[head:])
	wire.PutHeader(*b, typ, wire.OffsetSize+n)
	binary.BigEndian.PutUint64((*b)[wire.HeaderSize:], *next)
	*next += uint64(n)
	g.seen = max(g.seen, *next)
	return b
}
