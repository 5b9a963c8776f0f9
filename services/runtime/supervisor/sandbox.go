package supervisor

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/yamux"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Sandbox is the channel to one weft-init. It outlives connections.
type Sandbox struct {
	id    string
	owner Owner
	key   wire.Key
	dir   sandboxDir
	opt   Options

	listener net.Listener
	ctx      context.Context // of the goroutines below: done when the sandbox is closed
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu      sync.Mutex
	session *yamux.Session
	changed chan struct{} // closed and replaced when session changes
	forward ForwardHandler
}

func newSandbox(id string, owner Owner, key wire.Key, dir sandboxDir, opt Options, l net.Listener) *Sandbox {
	s := &Sandbox{id: id, owner: owner, key: key, dir: dir, opt: opt, listener: l, changed: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s
}

// ID of the sandbox.
func (s *Sandbox) ID() string { return s.id }

// WaitConnected returns when weft-init is connected, or ctx is done, or the sandbox is removed.
func (s *Sandbox) WaitConnected(ctx context.Context) error {
	_, err := s.connected(ctx)
	return err
}

// Connected reports whether it is connected now.
func (s *Sandbox) Connected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.session != nil && !s.session.IsClosed()
}

// SetForwardHandler says who serves forwarded connections. Until it is set they are refused.
func (s *Sandbox) SetForwardHandler(h ForwardHandler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forward = h
}

// connected waits for a session.
func (s *Sandbox) connected(ctx context.Context) (*yamux.Session, error) {
	for {
		s.mu.Lock()
		session, changed := s.session, s.changed
		s.mu.Unlock()
		if session != nil {
			if !session.IsClosed() {
				return session, nil
			}
			s.drop(session) // sooner than its own goroutine gets to it
			continue
		}
		select {
		case <-changed:
		case <-s.ctx.Done():
			return nil, fault.New(fault.Unavailable, "sandbox %s is closed", s.id)
		case <-ctx.Done():
			return nil, fault.Wrap(ctx.Err(), fault.CodeOf(ctx.Err()), "sandbox %s did not answer in time", s.id)
		}
	}
}

// replace makes session the current one and gives the one before.
func (s *Sandbox) replace(session *yamux.Session) *yamux.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.session
	s.set(session)
	return old
}

// drop takes a session away that ended, if it still is the current one.
func (s *Sandbox) drop(session *yamux.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session == session {
		s.set(nil)
	}
}

// set wakes all who wait for a session. The mutex is held.
func (s *Sandbox) set(session *yamux.Session) {
	s.session = session
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Sandbox) close() {
	s.cancel()
	_ = s.listener.Close()
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	if session != nil {
		_ = session.Close()
	}
	s.wg.Wait()
}

// List gives all processes that run, and those that ended and were not forgotten, in the order of
// their starts. Ended ones are kept until Forget; beyond 256 of them those go whose output nobody
// follows or has yet to acknowledge.
func (s *Sandbox) List(ctx context.Context) ([]ProcessInfo, error) {
	r, err := s.ask(ctx, wire.Request{Op: wire.OpList})
	return r.Processes, err
}

// KillAll ends every process of the sandbox but weft-init: SIGTERM, and after grace SIGKILL (at once
// if grace is 0). It returns when none is left.
func (s *Sandbox) KillAll(ctx context.Context, grace time.Duration) error {
	_, err := s.ask(ctx, wire.Request{Op: wire.OpKillAll, Grace: grace})
	return err
}

// Usage measures the sandbox from inside.
func (s *Sandbox) Usage(ctx context.Context) (Usage, error) {
	r, err := s.ask(ctx, wire.Request{Op: wire.OpUsage})
	if err != nil || r.Usage == nil {
		return Usage{}, err
	}
	return *r.Usage, nil
}

// Dial connects to an address inside the sandbox: network is "tcp" or "unix". The connection has
// CloseWrite. It ends with the channel: connections do not survive a reconnect.
func (s *Sandbox) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	return s.dial(ctx, wire.Request{Op: wire.OpDial, Network: network, Addr: addr})
}

// DialAs is Dial of a unix socket with somebody's permissions instead of its owner's.
func (s *Sandbox) DialAs(ctx context.Context, as Identity, path string) (net.Conn, error) {
	return s.dial(ctx, wire.Request{Op: wire.OpDial, Network: "unix", Addr: path, As: &as})
}

func (s *Sandbox) dial(ctx context.Context, req wire.Request) (net.Conn, error) {
	st, _, err := s.open(ctx, req)
	if err != nil {
		return nil, err
	}
	return wire.NewConn(st.Stream), nil
}

// Disconnect breaks the connection of the moment; weft-init dials anew. Tests use it, and an operator
// who suspects a connection to be stuck.
func (s *Sandbox) Disconnect() {
	s.mu.Lock()
	session := s.session
	s.mu.Unlock()
	if session != nil {
		_ = session.Close()
	}
}
