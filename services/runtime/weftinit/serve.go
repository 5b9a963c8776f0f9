package weftinit

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	handshakeTimeout = 5 * time.Second
	requestTimeout   = 10 * time.Second // for a stream's first message to be complete
	firstRedial      = time.Millisecond
	lastRedial       = 250 * time.Millisecond
)

// sessions holds the connection of the moment.
type sessions struct {
	mu      sync.Mutex
	current *yamux.Session
	changed chan struct{} // closed and replaced when current changes
}

func (c *sessions) set(s *yamux.Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.current = s
	close(c.changed)
	c.changed = make(chan struct{})
}

// get waits for a connection until the timeout.
func (c *sessions) get(timeout time.Duration) (*yamux.Session, error) {
	t := time.NewTimer(timeout)
	defer t.Stop()
	for {
		c.mu.Lock()
		s, changed := c.current, c.changed
		c.mu.Unlock()
		if s != nil && !s.IsClosed() {
			return s, nil
		}
		select {
		case <-changed:
		case <-t.C:
			return nil, errors.New("the node is not connected")
		}
	}
}

// serve dials the node for ever and answers it, until ctx is done.
func (s *supervisor) serve(ctx context.Context, socket, sandbox string, key wire.Key) {
	wait := firstRedial
	for ctx.Err() == nil {
		session, err := dialNode(ctx, socket, sandbox, key)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			wait = min(2*wait, lastRedial)
			continue
		}
		wait = firstRedial
		stop := context.AfterFunc(ctx, func() { _ = session.Close() })
		s.sessions.set(session)
		for {
			stream, err := session.AcceptStream()
			if err != nil {
				break
			}
			go s.handle(session, stream)
		}
		stop()
		_ = session.Close()
	}
}

func dialNode(ctx context.Context, socket, sandbox string, key wire.Key) (*yamux.Session, error) {
	d := net.Dialer{Timeout: handshakeTimeout}
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := wire.HandshakeInit(c, sandbox, key, handshakeTimeout); err != nil {
		_ = c.Close()
		return nil, err
	}
	session, err := wire.Mux(c, true, io.Discard)
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return session, nil
}

// handle answers one stream.
func (s *supervisor) handle(session *yamux.Session, stream *yamux.Stream) {
	defer stream.Close()
	frames := wire.NewReader(stream)
	var req wire.Request
	_ = stream.SetReadDeadline(time.Now().Add(requestTimeout))
	f, err := frames.Message()
	if err != nil || f.Type != wire.TypeRequest || f.Decode(&req) != nil {
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	c := call{s: s, session: session, stream: stream, frames: frames, req: &req}
	if err := c.safely(); err != nil {
		_ = wire.WriteMessage(stream, wire.TypeError, wire.ErrorOf(err))
	}
}
