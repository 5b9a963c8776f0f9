package stream

import (
	"time"

	"github.com/nats-io/nats.go"

	"github.com/weftmesh/weft/pkg/fault"
)

// run does what is due by time, until the stream is over. up signals that the connection was
// re-established.
func (s *Session) run(up <-chan nats.Status) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-s.done:
			return
		case <-s.kick:
		case <-timer.C:
		case _, ok := <-up:
			if !ok {
				up = nil
			} else {
				s.reconnected()
			}
		}
		s.mu.Lock()
		now := time.Now()
		s.wakeAt = s.tick(now)
		timer.Reset(s.wakeAt.Sub(now))
		s.mu.Unlock()
	}
}

// wake makes run look again at the given time, if it would sleep longer. The lock must be held.
func (s *Session) wake(at time.Time) {
	if !s.wakeAt.IsZero() && !at.Before(s.wakeAt) {
		return
	}
	s.wakeAt = at
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

func (s *Session) ackLater(now time.Time) {
	if s.ackAt.IsZero() {
		s.ackAt = now.Add(s.timing.Delay)
		s.wake(s.ackAt)
	}
}

// armProbe sets the time of the next question, if none is set.
func (s *Session) armProbe(now time.Time) {
	if s.probeGap == 0 {
		s.probeGap = s.timing.Probe
		s.probeAt = now.Add(s.probeGap)
		s.wake(s.probeAt)
	}
}

// tick does what is due and gives the time of the next look.
func (s *Session) tick(now time.Time) time.Time {
	if s.over {
		return now
	}
	t := s.timing
	if now.Sub(s.heard) >= t.Idle {
		s.failLocked(fault.New(fault.Unavailable, "nothing was heard from the other side for %s; open the stream again", t.Idle))
		return now
	}
	if s.client && !s.goneAt.IsZero() && now.Sub(s.goneAt) >= t.Gone {
		s.end(fault.New(fault.Unavailable, "the stream's other side is gone; open it again"))
		return now
	}
	next := s.heard.Add(t.Idle)
	for _, at := range []time.Time{s.tickOpened(now), s.tickAck(now), s.tickProbe(now), s.tickSilence(now), s.tickKeepalive(now)} {
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}

// tickOpened tells a client that its stream is open when the handler has not yet said anything.
func (s *Session) tickOpened(now time.Time) time.Time {
	if s.openBy.IsZero() || now.Before(s.openBy) {
		return s.openBy
	}
	if s.greeting {
		s.greet()
		return time.Time{}
	}
	s.publish(message(frameOpened, opened{Subject: s.subject, Window: Window}), false)
	return time.Time{}
}

func (s *Session) tickAck(now time.Time) time.Time {
	if s.ackAt.IsZero() || now.Before(s.ackAt) {
		return s.ackAt
	}
	s.ackAt = time.Time{}
	var cs []*Channel
	for _, c := range s.channels {
		if c.in.ackDue() || c.in.creditDue() {
			cs = append(cs, c)
		}
	}
	if len(cs) > 0 {
		s.sendStatus(false, cs...)
	}
	return s.ackAt
}

// tickProbe asks whoever owes an acknowledgement or credit, with a growing pause.
func (s *Session) tickProbe(now time.Time) time.Time {
	if s.probeGap == 0 {
		for _, c := range s.channels {
			if c.out.waiting() {
				s.armProbe(now)
				return s.probeAt
			}
		}
		return time.Time{}
	}
	if now.Before(s.probeAt) {
		return s.probeAt
	}
	waiting := false
	for _, c := range s.channels {
		waiting = waiting || c.out.waiting()
	}
	if !waiting {
		s.probeGap = 0
		return time.Time{}
	}
	s.sendStatus(true)
	s.probeGap = min(2*s.probeGap, max(maxProbe, s.timing.Probe))
	s.probeAt = now.Add(s.probeGap)
	return s.probeAt
}

// tickSilence makes a client ask again when it hears nothing, or when nobody seems to listen.
func (s *Session) tickSilence(now time.Time) time.Time {
	if !s.client {
		return time.Time{}
	}
	pause := s.timing.Silence
	since := s.heard
	if !s.goneAt.IsZero() {
		pause, since = s.timing.Gone/10, s.goneAt
	}
	if s.asked.After(since) {
		since = s.asked
	}
	if at := since.Add(pause); now.Before(at) {
		return at
	}
	s.resume(now)
	return now.Add(pause)
}

func (s *Session) tickKeepalive(now time.Time) time.Time {
	if at := s.spoke.Add(s.timing.Keepalive); now.Before(at) {
		return at
	}
	s.sendStatus(false)
	return now.Add(s.timing.Keepalive)
}
