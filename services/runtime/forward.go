package runtime

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// gate is where the connections that leave a sandbox arrive: at the mesh, with the sandbox's own login,
// and at Vault, with the sandbox's own token.
type gate struct {
	s      *Service
	h      *hold
	logins chan struct{} // one for each connection to the mesh

	mu    sync.Mutex
	vault *door // nil where nothing is behind it
}

// openGate serves what leaves box. session is nil where no credential was issued.
func (s *Service) openGate(box *sandbox.Sandbox, h *hold, session *VaultSession) (*gate, error) {
	g := &gate{s: s, h: h, logins: make(chan struct{}, maxLogins)}
	if session != nil {
		if err := g.admit(*session); err != nil {
			return nil, err
		}
	}
	box.Supervisor().SetForwardHandler(g.serve)
	return g, nil
}

// admit lets the sandbox reach Vault with the token of session, in place of one that it had before:
// connections with that one end.
func (g *gate) admit(session VaultSession) error {
	var d *door
	if g.s.cfg.Vault != nil && session.Issued.VaultToken != "" {
		handler, err := g.s.cfg.Vault(session)
		if err != nil {
			return err
		}
		d = openDoor(handler)
	}
	g.mu.Lock()
	old := g.vault
	g.vault = d
	g.mu.Unlock()
	if old != nil {
		old.close()
	}
	return nil
}

func (g *gate) toVault() *door {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.vault
}

// close ends what the gate serves. Connections end with the sandbox.
func (g *gate) close() {
	if g == nil {
		return
	}
	if d := g.toVault(); d != nil {
		d.close()
	}
}

// serve takes one connection that was opened inside. It returns when the connection is over.
func (g *gate) serve(ctx context.Context, name string, conn net.Conn) {
	defer conn.Close()
	switch {
	case name == "nats":
		select {
		case g.logins <- struct{}{}:
			defer func() { <-g.logins }()
		default:
			g.s.log.Warn("a sandbox has too many connections to the mesh", "sandbox", g.h.sandbox)
			return
		}
		g.toMesh(ctx, conn)
	case name == "vault":
		if d := g.toVault(); d != nil {
			d.pass(ctx, g.h.active.conn(conn))
		}
	}
}

func (g *gate) toMesh(ctx context.Context, conn net.Conn) {
	if g.s.cfg.DialMesh == nil {
		return
	}
	dial, cancel := context.WithTimeout(ctx, loginTimeout)
	server, err := g.s.cfg.DialMesh(dial)
	cancel()
	if err != nil {
		g.s.log.Warn("the mesh can't be reached for a sandbox", "sandbox", g.h.sandbox, "error", err)
		return
	}
	if err := proxyLogin(ctx, conn, server, g.h.login, g.h.active); errors.Is(err, errProtocol) {
		g.s.log.Warn("a sandbox's connection to the mesh was ended", "sandbox", g.h.sandbox, "error", err)
	}
}

// door is an HTTP server to which connections are passed by hand.
type door struct {
	server *http.Server
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once
	served sync.WaitGroup
}

// Limits of HTTP inside a sandbox, where the client is not trusted.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 60 * time.Second
	maxHeader     = 16 << 10
)

func openDoor(h http.Handler) *door {
	d := &door{conns: make(chan net.Conn), done: make(chan struct{})}
	d.server = &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute,
		IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
	d.server.DisableGeneralOptionsHandler = true                                // the library answers nothing on the handler's behalf,
	d.server.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug) // nor writes what payload makes it say
	d.served.Go(func() { _ = d.server.Serve(d) })
	return d
}

// pass gives a connection to the server and waits until it is over.
func (d *door) pass(ctx context.Context, conn net.Conn) {
	over := make(chan struct{})
	var once sync.Once
	select {
	case d.conns <- &passed{conn, func() { once.Do(func() { close(over) }) }}:
	case <-d.done:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-over:
	case <-ctx.Done():
		_ = conn.Close() // the server's reads and writes fail, and it closes too
		<-over
	}
}

// passed tells when the server has closed it.
type passed struct {
	net.Conn
	over func()
}

// Close closes the connection, once or more often.
func (p *passed) Close() error {
	defer p.over()
	return p.Conn.Close()
}

// Accept, Close and Addr make a door what an HTTP server listens at.
func (d *door) Accept() (net.Conn, error) {
	select {
	case c := <-d.conns:
		return c, nil
	case <-d.done:
		return nil, net.ErrClosed
	}
}

func (d *door) Close() error {
	d.once.Do(func() { close(d.done) })
	return nil
}

func (d *door) Addr() net.Addr { return &net.UnixAddr{Name: "sandbox", Net: "unix"} }

func (d *door) close() {
	_ = d.server.Close()
	_ = d.Close()
	d.served.Wait()
}
