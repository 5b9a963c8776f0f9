package supervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/hashicorp/yamux"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

const (
	handshakeTimeout = 5 * time.Second
	requestTimeout   = 10 * time.Second
	maxUnproved      = 8   // connections that are in their handshake at once; more wait in the backlog
	maxForwarded     = 512 // connections out of one sandbox at once
)

// accept proves and serves connections until the listener is closed.
func (s *Sandbox) accept() {
	unproved := make(chan struct{}, maxUnproved)
	for {
		select {
		case unproved <- struct{}{}:
		case <-s.ctx.Done():
			return
		}
		c, err := s.listener.Accept()
		if err != nil {
			if s.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return
			}
			s.opt.Logger.Error("accept from a sandbox", "sandbox", s.id, "error", err)
			<-unproved
			select {
			case <-time.After(100 * time.Millisecond): // out of descriptors, most likely
			case <-s.ctx.Done():
			}
			continue
		}
		s.wg.Go(func() {
			session, err := s.prove(c)
			<-unproved
			if err != nil {
				_ = c.Close()
				if s.ctx.Err() == nil {
					s.opt.Logger.Warn("connection on a sandbox's socket refused", "sandbox", s.id, "error", err)
				}
				return
			}
			s.serve(session)
		})
	}
}

// prove lets nobody in but process 1 of this sandbox: by its host uid, and by the key.
func (s *Sandbox) prove(c net.Conn) (*yamux.Session, error) {
	stop := context.AfterFunc(s.ctx, func() { _ = c.Close() })
	defer stop()
	uid, err := peerUID(c)
	if err != nil {
		return nil, err
	}
	if uid != s.owner.UID {
		return nil, fmt.Errorf("the peer is uid %d, not process 1's %d", uid, s.owner.UID)
	}
	if err := wire.HandshakeNode(c, s.id, s.key, handshakeTimeout); err != nil {
		return nil, err
	}
	if err := s.dir.dropInitKey(); err != nil {
		return nil, fmt.Errorf("unlink the sandbox's copy of its key: %w", err)
	}
	return wire.Mux(c, false, logWriter{s.opt.Logger, s.id})
}

func peerUID(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, errors.New("not a unix socket")
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if cerr != nil {
		return 0, cerr
	}
	return cred.Uid, nil
}

// serve makes the session the current one and takes its forwards until it ends. A newer session
// takes the place of an older one: weft-init has only one, so the older is dead.
func (s *Sandbox) serve(session *yamux.Session) {
	ctx, cancel := context.WithCancel(s.ctx)
	stop := context.AfterFunc(ctx, func() { _ = session.Close() })
	if old := s.replace(session); old != nil {
		_ = old.Close()
	}
	s.opt.Logger.Debug("weft-init connected", "sandbox", s.id)
	forwards := make(chan struct{}, maxForwarded)
	for {
		stream, err := session.AcceptStream()
		if err != nil {
			break
		}
		select {
		case forwards <- struct{}{}:
		default:
			_ = stream.Close()
			continue
		}
		s.wg.Go(func() {
			defer func() { <-forwards }()
			s.serveForward(ctx, stream)
		})
	}
	s.drop(session)
	cancel()
	stop()
	_ = session.Close()
}

// serveForward hands one connection out of the sandbox to the handler.
func (s *Sandbox) serveForward(ctx context.Context, stream *yamux.Stream) {
	defer stream.Close()
	var req wire.Request
	_ = stream.SetReadDeadline(time.Now().Add(requestTimeout))
	f, err := wire.NewReader(stream).Message()
	if err != nil || f.Type != wire.TypeRequest || f.Decode(&req) != nil || req.Op != wire.OpForward {
		return
	}
	_ = stream.SetReadDeadline(time.Time{})
	s.mu.Lock()
	h := s.forward
	s.mu.Unlock()
	if h == nil {
		e := wire.ErrorOf(fault.New(fault.Unavailable, "nobody serves %s yet", req.Name))
		_ = wire.WriteMessage(stream, wire.TypeError, e)
		return
	}
	h(ctx, req.Name, wire.NewConn(stream))
}

// logWriter passes on what yamux says, which is about violations of its protocol only.
type logWriter struct {
	log     *slog.Logger
	sandbox string
}

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Debug("channel of a sandbox", "sandbox", w.sandbox, "message", string(bytes.TrimSpace(b)))
	return len(b), nil
}
