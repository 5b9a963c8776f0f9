package weftinit

import (
	"encoding/binary"
	"io"
	"net"
	"time"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// reader is one stream on which a process's output is followed. Its process's mutex guards it.
type reader struct {
	next   wire.Offsets // what is sent next
	acked  wire.Offsets // what the reader needs no more
	closed bool
}

// follow sends output from the offsets at on, and at last the exit, while the other side
// acknowledges. It returns when the stream is over. lost tells a connection that broke from a reader that left.
func (p *process) follow(stream net.Conn, frames *wire.Reader, at wire.Offsets, lost func() bool) {
	r := &reader{next: at, acked: at}
	p.join(r)
	readerDone := make(chan struct{})
	go func() {
		defer close(readerDone)
		p.readAcks(r, frames)
	}()
	err := p.send(r, stream)
	_ = stream.Close()
	<-readerDone
	p.leave(r, err != nil || lost())
}

func (p *process) join(r *reader) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readers[r] = struct{}{}
	p.stopLingering()
	p.changed.Broadcast()
}

// leave takes the reader away. After a broken connection the process is held back for a while, so
// that the reader can come back and miss nothing.
func (p *process) leave(r *reader, lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.readers, r)
	if lost && p.spec.Output == wire.OutputAttached && len(p.readers) == 0 && p.exit == nil {
		p.lingers = &r.acked
		p.linger = time.AfterFunc(readerGrace, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.stopLingering()
			p.changed.Broadcast()
		})
	}
	p.changed.Broadcast()
}

func (p *process) stopLingering() {
	if p.linger != nil {
		p.linger.Stop()
	}
	p.linger, p.lingers = nil, nil
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
		forward(&r.acked)
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
