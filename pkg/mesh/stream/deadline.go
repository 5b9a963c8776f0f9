package stream

import (
	"os"
	"time"
)

// deadline is when a channel's readers or writers give up. The session's lock guards it.
type deadline struct {
	at    time.Time
	timer *time.Timer
}

// set sets it; the zero time is none. Those who wait are woken to look.
func (d *deadline) set(c *Channel, t time.Time) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.at = t
	if !t.IsZero() {
		d.timer = time.AfterFunc(time.Until(t), func() {
			c.s.mu.Lock()
			defer c.s.mu.Unlock()
			c.cond.Broadcast()
		})
	}
	c.cond.Broadcast()
}

// err is os.ErrDeadlineExceeded when it is over.
func (d *deadline) err() error {
	if !d.at.IsZero() && !time.Now().Before(d.at) {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// SetReadDeadline makes reads that would wait beyond t fail with os.ErrDeadlineExceeded; the zero time is none.
func (c *Channel) SetReadDeadline(t time.Time) { c.readBy.set(c, t) }

// SetWriteDeadline is the same for writes.
func (c *Channel) SetWriteDeadline(t time.Time) { c.writeBy.set(c, t) }
