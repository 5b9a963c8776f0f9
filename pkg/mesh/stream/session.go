package stream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
)

// Timing of a stream. The zero value of each field takes its default.
type Timing struct {
	Keepalive time.Duration // something is sent at least so often; 5 s, well under the idle threshold of exports
	Silence   time.Duration // after so long without a word a client asks again; 12 s
	Idle      time.Duration // after so long without a word the stream is over; 60 s
	Probe     time.Duration // who waits for an acknowledgement asks after so long, then half as often; 1 s
	Delay     time.Duration // an acknowledgement is held back at most so long; 50 ms
	Gone      time.Duration // after so long with nobody listening a client gives up; 5 s
}

func (t Timing) withDefaults() Timing {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&t.Keepalive, 5*time.Second)
	def(&t.Silence, 12*time.Second)
	def(&t.Idle, time.Minute)
	def(&t.Probe, time.Second)
	def(&t.Delay, 50*time.Millisecond)
	def(&t.Gone, 5*time.Second)
	return t
}

// maxProbe bounds the growing pause between questions.
const maxProbe = 8 * time.Second

// link sends frames to the other side. With answer, a client's frame carries a reply subject.
type link interface {
	send(m *nats.Msg, answer bool) error
}

// Session is one stream, on either side. All methods are safe for concurrent use.
type Session struct {
	ID     string
	client bool
	timing Timing
	link   link

	mu       sync.Mutex
	channels map[string]*Channel
	err      error // why it is over before it was complete; nil while it lives
	over     bool
	finished bool          // the result was sent, or has been received
	left     bool          // the other side broke it off
	result   result        // what was received, once finished
	lines    *lineReader   // of the control channel
	done     chan struct{} // closed when over
	stopped  chan struct{} // closed when run has returned
	kick     chan struct{} // wakes run for an earlier timer
	wakeAt   time.Time     // when run wakes by itself

	heard    time.Time // the last frame from the other side
	spoke    time.Time // the last frame to it
	asked    time.Time // the last question for silence
	ackAt    time.Time // when held-back acknowledgements go out
	probeAt  time.Time
	probeGap time.Duration
	goneAt   time.Time     // since when nobody listens, else zero
	opened   chan struct{} // closed by the first frame from the server
	openBy   time.Time     // of a server: when the client is told that it is open, if it has heard nothing by then
	subject  string        // of a server that has to tell that
	greeting bool          // messages wait for company until openBy
}

func newSession(id string, client bool, l link, t Timing) *Session {
	now := time.Now()
	return &Session{
		ID: id, client: client, timing: t.withDefaults(), link: l, channels: map[string]*Channel{},
		done: make(chan struct{}), stopped: make(chan struct{}), kick: make(chan struct{}, 1), opened: make(chan struct{}),
		heard: now, spoke: now,
	}
}

// Done is closed when the stream is over: complete, or broken.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the stream broke; nil while it lives and when it is complete.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Left reports whether the other side broke the stream off: it said so, and is not merely away.
func (s *Session) Left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// end is the one way in which a stream ends. A nil err means complete. The lock must be held.
func (s *Session) end(err error) {
	if s.over {
		return
	}
	s.over, s.err = true, err
	for _, c := range s.channels {
		c.cond.Broadcast()
	}
	close(s.done)
}

// fail breaks the stream and tells the other side.
func (s *Session) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failLocked(err)
}

func (s *Session) failLocked(err error) {
	if s.over {
		return
	}
	_ = s.link.send(resetMessage(err), false) // the other side finds out by silence otherwise
	s.end(err)
}

// receive handles one message from the other side.
func (s *Session) receive(m *nats.Msg) {
	f, err := decode(m.Header, m.Data)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	if err == nil {
		err = s.apply(f, time.Now())
	}
	if err != nil {
		s.failLocked(fault.Wrap(err, fault.Invalid, "the other side breaks the stream protocol"))
	}
}

func (s *Session) apply(f frame, now time.Time) error {
	s.heard, s.goneAt = now, time.Time{}
	if s.client {
		select {
		case <-s.opened:
		default:
			close(s.opened)
		}
	}
	switch f.kind {
	case frameData:
		return s.applyData(f, now)
	case frameStatus:
		return s.applyStatus(f.status, now)
	case frameReset:
		s.left = !s.over
		s.end(fault.FromWire(f.reset.Code, f.reset.Message))
	case frameOpened: // its content has been used where the stream is opened
	default:
		return fmt.Errorf("a frame of kind %q in an open stream", f.kind)
	}
	return nil
}

func (s *Session) applyData(f frame, now time.Time) error {
	c, err := s.channel(f.channel)
	if err != nil {
		return err
	}
	v, err := c.in.take(f.offset, f.body)
	if err == nil && f.end != "" {
		err = c.in.ends(f.end, f.offset+int64(len(f.body)))
	}
	if err != nil {
		return fmt.Errorf("channel %s: %w", c.name, err)
	}
	switch v {
	case missing:
		s.askAgain(c, now)
	case repeated:
		c.in.told = min(c.in.told, c.in.received-1) // it did not hear of the acknowledgement
		s.ackLater(now)
	case taken:
		if err := c.arrived(now); err != nil {
			return err
		}
		s.ackLater(now)
	}
	s.checkComplete()
	return nil
}

func (s *Session) applyStatus(st status, now time.Time) error {
	moved := false
	for name, p := range st.Channels {
		c, err := s.channel(name)
		if err != nil {
			return err
		}
		m, err := s.applyProgress(c, p, now)
		if err != nil {
			return fmt.Errorf("channel %s: %w", name, err)
		}
		moved = moved || m
	}
	if moved {
		s.probeGap = 0
	}
	s.checkComplete()
	if st.Ask && !s.over {
		s.sendStatus(false)
	}
	return nil
}

func (s *Session) applyProgress(c *Channel, p progress, now time.Time) (moved bool, err error) {
	if moved, err = c.out.ack(p); err != nil {
		return false, err
	}
	// Whoever asks over and over gets at most a window every half pause, not one for each question.
	if p.Again && c.out.redone.due(p.Received, now, s.timing.Probe/8) {
		c.out.rewind()
	}
	if p.End != "" {
		if err := c.in.ends(p.End, p.Sent); err != nil {
			return false, err
		}
	}
	switch {
	case p.Sent > c.in.received:
		s.askAgain(c, now)
	case p.End != "":
		s.ackLater(now)
	}
	if err := c.arrived(now); err != nil {
		return false, err
	}
	if moved || p.Again {
		s.pump(c)
		c.cond.Broadcast()
	}
	return moved, nil
}

// pump sends what may be sent of a channel.
func (s *Session) pump(c *Channel) {
	if s.over {
		return
	}
	if s.greeting {
		if c.name == channelControl && c.out.end == "" {
			return
		}
		s.greet()
	}
	for {
		offset, data := c.out.take()
		if data == nil {
			break
		}
		setOffset(c.header, offset)
		setEnd(c.header, c.out.endNow())
		if !s.publish(&nats.Msg{Header: c.header, Data: data}, false) {
			return
		}
	}
	if c.out.endDue() {
		c.out.told = true
		s.sendStatus(false, c)
	}
	if c.out.waiting() {
		s.armProbe(time.Now())
	}
}

// greet sends the message that has waited.
func (s *Session) greet() {
	s.greeting = false
	s.pump(s.channels[channelControl])
}

// publish sends one frame. What could not be sent counts as lost: it is asked for again.
func (s *Session) publish(m *nats.Msg, answer bool) bool {
	s.spoke, s.openBy = time.Now(), time.Time{}
	err := s.link.send(m, answer)
	if err == nil {
		return true
	}
	if errors.Is(err, nats.ErrConnectionClosed) {
		s.end(fault.Wrap(err, fault.Unavailable, "the connection to the mesh was closed"))
	}
	return false
}

// sendStatus tells where cs are, or all channels if none is named. With ask it wants to be answered.
func (s *Session) sendStatus(ask bool, cs ...*Channel) {
	st := status{Channels: make(map[string]progress, len(cs)), Ask: ask}
	if len(cs) == 0 {
		for name, c := range s.channels {
			st.Channels[name] = c.progress(false)
		}
		s.ackAt = time.Time{}
	}
	for _, c := range cs {
		st.Channels[c.name] = c.progress(false)
	}
	s.publish(message(frameStatus, st), ask)
}

// askAgain asks for c's bytes from the first one missing, unless that was done just now.
func (s *Session) askAgain(c *Channel, now time.Time) {
	if c.in.asked.due(c.in.received, now, s.timing.Probe/4) {
		s.publish(message(frameStatus, status{Channels: map[string]progress{c.name: c.progress(true)}}), false)
	}
}

// resume makes a client known again after a disconnect or a silence: a new reply subject, where it is
// in each channel, and that the rest be sent again. A server says where it is and asks likewise.
func (s *Session) resume(now time.Time) {
	st := status{Channels: map[string]progress{}, Ask: true}
	for name, c := range s.channels {
		st.Channels[name] = c.progress(true)
		c.out.rewind()
	}
	s.asked = now
	s.publish(message(frameStatus, st), true)
	for _, c := range s.channels {
		s.pump(c)
	}
}

// reconnected is called when the connection is up again.
func (s *Session) reconnected() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.resume(time.Now())
	}
}

// nobody notes that no server listens to this stream at the moment. The lock must be held.
func (s *Session) nobody() {
	if s.goneAt.IsZero() {
		s.goneAt = time.Now()
	}
	s.wake(time.Now())
}

// checkComplete ends the stream when nothing remains to be done. A client is complete when it has the
// result and the end of every channel that the server has; a server when the client has all that.
func (s *Session) checkComplete() {
	if s.over || !s.finished {
		return
	}
	for _, c := range s.channels {
		if s.client && !c.in.atEnd() || !s.client && !c.out.settled() {
			return
		}
	}
	if s.client {
		s.sendStatus(false)
	}
	s.end(nil)
}

// Close ends the stream and waits until nothing of it runs any more. If it is not complete the other
// side is told that this one left.
func (s *Session) Close() error {
	s.mu.Lock()
	if !s.over {
		_ = s.link.send(resetMessage(errLeft), false)
		s.end(errClosed)
	}
	s.mu.Unlock()
	<-s.stopped
	return nil
}

var (
	errLeft   = fault.New(fault.Unavailable, "the other side closed the stream")
	errClosed = fault.Wrap(net.ErrClosed, fault.Unavailable, "the stream was closed")
)

// stopWith breaks the stream when ctx ends. The function that it returns gives that up.
func (s *Session) stopWith(ctx context.Context) (release func() bool) {
	return context.AfterFunc(ctx, func() {
		err := fault.Wrap(context.Cause(ctx), fault.Unavailable, "the caller gave the stream up")
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			err = fault.Wrap(ctx.Err(), fault.Deadline, "the stream took longer than the caller allowed")
		}
		s.fail(err)
	})
}
