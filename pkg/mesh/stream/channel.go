package stream

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
)

// Channel is one named two-way stream of bytes within a session. A reader that is slow holds up the
// writer of this channel on the other side, after one window, and no other channel.
type Channel struct {
	s      *Session
	name   string
	cond   sync.Cond // with the session's lock: something changed for readers or writers
	in     inbound
	out    outbound
	header nats.Header

	readBy, writeBy deadline
}

// Channel gives the channel called name: a DNS label of at most 32 bytes. Both sides name it alike.
func (s *Session) Channel(name string) *Channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.channel(name)
	if err != nil { // a defect of the program, not of the wire
		panic("stream: " + err.Error())
	}
	return c
}

func (s *Session) channel(name string) (*Channel, error) {
	if c, ok := s.channels[name]; ok {
		return c, nil
	}
	if err := checkChannel(name); err != nil {
		return nil, err
	}
	if len(s.channels) >= MaxChannels {
		return nil, fault.New(fault.Exhausted, "a stream has at most %d channels", MaxChannels)
	}
	c := &Channel{s: s, name: name, header: dataHeader(name)}
	c.cond.L = &s.mu
	c.in.granted, c.out.limit = Window, Window
	switch { // after the result there is nothing more to say
	case s.finished && s.client:
		c.in.end = endEOF
	case s.finished:
		c.in.discard = true
		c.out.end, c.out.told, c.out.ended = endEOF, true, true
	}
	s.channels[name] = c
	return c, nil
}

// progress notes what the other side is told by it.
func (c *Channel) progress(again bool) progress {
	in, out := &c.in, &c.out
	in.told, in.granted, in.toldEnd = in.received, max(in.granted, in.limit()), in.atEnd()
	p := progress{Sent: out.next, Received: in.received, Limit: in.granted, Ended: in.atEnd(), Again: again}
	if out.end != "" && out.next == out.written {
		p.End, out.told = out.end, true
	}
	return p
}

// arrived wakes readers, and takes the result as soon as all of it is here.
func (c *Channel) arrived(now time.Time) error {
	c.cond.Broadcast()
	if c.s.client && c.name == channelResult && c.in.atEnd() && !c.s.finished {
		return c.s.takeResult(c, now)
	}
	return nil
}

// Read gives what has arrived, waiting for at least one byte. io.EOF means that the other side ended
// this channel as it should; if it failed, the error is its fault.
func (c *Channel) Read(p []byte) (int, error) { return c.read(context.Background(), p) }

func (c *Channel) read(ctx context.Context, p []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if len(p) == 0 {
		return 0, nil
	}
	for {
		if n := c.in.read(p); n > 0 {
			if c.in.creditDue() && !c.s.over {
				c.s.sendStatus(false, c)
			}
			return n, nil
		}
		if done, err := c.readEnd(); done {
			return 0, err
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if err := c.readBy.err(); err != nil {
			return 0, err
		}
		c.cond.Wait()
	}
}

// readEnd reports whether nothing more will come, and how that is to be told.
func (c *Channel) readEnd() (bool, error) {
	switch {
	case c.in.discard:
		return true, io.ErrClosedPipe
	case c.in.atEnd() && c.in.end == endEOF:
		return true, io.EOF
	case c.in.atEnd() && c.s.finished: // it ended because the handler failed, and the reason is here
		return true, c.s.resultFault()
	case c.s.over && c.s.err != nil:
		return true, c.s.err
	case c.s.over:
		return true, io.EOF
	}
	return false, nil
}

// Write waits while a window of bytes is on its way. io.ErrClosedPipe means that this side ended the
// channel, or that the stream is complete.
func (c *Channel) Write(p []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	n := 0
	for {
		switch {
		case c.s.err != nil:
			return n, c.s.err
		case c.out.end != "" || c.s.over || c.s.client && c.s.finished:
			return n, io.ErrClosedPipe
		}
		if k := c.out.write(p[n:]); k > 0 {
			n += k
			c.s.pump(c)
		}
		if n == len(p) {
			return n, nil
		}
		if err := c.writeBy.err(); err != nil {
			return n, err
		}
		c.cond.Wait()
	}
}

// CloseWrite ends this side's direction: the other side reads io.EOF after the last byte.
func (c *Channel) CloseWrite() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.closeWrite(c, endEOF)
	return nil
}

func (s *Session) closeWrite(c *Channel, end string) {
	if c.out.end == "" {
		c.out.end = end
		s.pump(c)
		c.cond.Broadcast()
	}
}

// CloseRead forgets what has not been read. What still comes is taken and dropped, so that the other
// side's writers never wait for this one.
func (c *Channel) CloseRead() error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.in.drain()
	if !c.s.over && c.in.creditDue() {
		c.s.sendStatus(false, c)
	}
	c.cond.Broadcast()
	return nil
}

// Close ends both directions.
func (c *Channel) Close() error {
	_ = c.CloseWrite()
	return c.CloseRead()
}

// Flush waits until the other side has received everything written so far, or ctx ends.
func (c *Channel) Flush(ctx context.Context) error {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	defer c.wakeWith(ctx)()
	for target := c.out.written; c.out.acked < target; c.cond.Wait() {
		if c.s.over {
			return c.s.err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// WaitReceived waits until the other side has received more than the first n bytes of this channel, and says how
// many. Whoever can't send a byte again may let go of these.
func (c *Channel) WaitReceived(ctx context.Context, n int64) (int64, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	defer c.wakeWith(ctx)()
	for ; c.out.acked <= n; c.cond.Wait() {
		if c.s.over {
			return c.out.acked, io.ErrClosedPipe
		}
		if err := ctx.Err(); err != nil {
			return c.out.acked, err
		}
	}
	return c.out.acked, nil
}

// wakeWith wakes those who wait on c when ctx ends.
func (c *Channel) wakeWith(ctx context.Context) (release func() bool) {
	return context.AfterFunc(ctx, func() {
		c.s.mu.Lock()
		defer c.s.mu.Unlock()
		c.cond.Broadcast()
	})
}
