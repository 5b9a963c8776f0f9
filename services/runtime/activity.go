package runtime

import (
	"net"
	"sync/atomic"
	"time"
)

// activity is when a sandbox was last used. What counts as use:
//
//   - an operation on the sandbox, when it begins, for as long as it goes on, and when it ends;
//   - a terminal, an attached or a forwarded stream, which may stay open for days: only bytes that move on it;
//   - what the sandbox itself sends to the mesh or Vault and gets from there, without the pings that keep a connection open.
//
// A process that only runs is no use, however busy it is: what nobody waits for and what speaks to nobody can be stopped.
type activity struct {
	last atomic.Int64 // Unix time in nanoseconds
	open atomic.Int64 // operations under way
}

// touch notes use of the sandbox now. It costs a look at the clock.
func (a *activity) touch() { a.last.Store(time.Now().UnixNano()) }

// use notes an operation as use until the returned function is called.
func (a *activity) use() (end func()) {
	a.open.Add(1)
	a.touch()
	return func() {
		a.touch()
		a.open.Add(-1)
	}
}

// moment notes use at its begin and at its end only.
func (a *activity) moment() (end func()) {
	a.touch()
	return a.touch
}

// since is when the sandbox was last used: now, while an operation goes on.
func (a *activity) since(now time.Time) time.Time {
	if a.open.Load() > 0 {
		return now
	}
	return time.Unix(0, a.last.Load())
}

// conn counts what moves on a connection as use.
func (a *activity) conn(c net.Conn) net.Conn { return &usedConn{c, a} }

type usedConn struct {
	net.Conn
	use *activity
}

// Read counts.
func (c *usedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.use.touch()
	}
	return n, err
}

// Write counts.
func (c *usedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if n > 0 {
		c.use.touch()
	}
	return n, err
}

// verbs counts the lines of a NATS connection that carry something as use.
func (a *activity) verbs(verb func(line []byte) ([]byte, int, error)) func(line []byte) ([]byte, int, error) {
	return func(line []byte) ([]byte, int, error) {
		switch first(line) {
		case "PUB", "HPUB", "SUB", "UNSUB", "MSG", "HMSG":
			a.touch()
		}
		return verb(line)
	}
}
