// Package bus runs the embedded nats-server in operator mode with the mesh's accounts.
package bus

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
)

// Config says where the server listens and keeps its state.
type Config struct {
	Dir    string // state: accounts' JWTs and JetStream's store
	Listen string // host:port; port 0 picks a free one; empty listens on no port at all
	// NoSync leaves flushing to the operating system. Only for tests that measure nothing of durability.
	NoSync bool
	Logger *slog.Logger
}

// Server is a running embedded nats-server.
type Server struct {
	keys *accounts.Keyring
	cfg  Config
	disk *disk

	mu sync.Mutex
	s  *server.Server
}

// Start runs the server until Stop. Every acknowledged JetStream write is fsynced, unless its stream
// asks for asynchronous persistence.
func Start(ctx context.Context, keys *accounts.Keyring, cfg Config) (*Server, error) {
	b := &Server{keys: keys, cfg: cfg, disk: newDisk(cfg.Dir)}
	s, err := b.start(ctx)
	if err != nil {
		return nil, err
	}
	b.s = s
	if a, ok := s.Addr().(*net.TCPAddr); ok {
		b.cfg.Listen = a.String() // where clients will look for it
	}
	b.disk.wg.Go(b.watchDisk)
	return b, nil
}

// start runs a server on what the directory has.
func (b *Server) start(ctx context.Context) (*server.Server, error) {
	keys, cfg := b.keys, b.cfg
	op, err := keys.Operator()
	if err != nil {
		return nil, err
	}
	jwts := filepath.Join(cfg.Dir, "accounts")
	if err := os.MkdirAll(jwts, 0o700); err != nil {
		return nil, err
	}
	res, err := server.NewDirAccResolver(jwts, 0, 2*time.Minute, server.HardDelete)
	if err != nil {
		return nil, err
	}
	all, err := keys.AccountJWTs()
	if err != nil {
		return nil, err
	}
	for acc, tok := range all {
		if err := res.Store(acc, tok); err != nil {
			return nil, err
		}
	}
	o := &server.Options{
		ServerName: "weft", NoSigs: true, NoSystemAccount: false,
		TrustedOperators: []*jwt.OperatorClaims{op}, AccountResolver: res, SystemAccount: keys.SystemAccount(),
		JetStream: true, StoreDir: cfg.Dir, SyncAlways: !cfg.NoSync,
		JetStreamMaxMemory: 256 << 20, JetStreamMaxStore: 1 << 50, // streams carry their own limits
		MaxPayload: 8 << 20, MaxPending: 64 << 20,
		WriteDeadline: 10 * time.Second,
	}
	if err := listen(o, cfg.Listen); err != nil {
		return nil, err
	}
	s, err := server.NewServer(o)
	if err != nil {
		return nil, fmt.Errorf("nats-server: %w", err)
	}
	s.SetLoggerV2(&logger{log: cfg.Logger, failed: b.disk.failed}, false, false, false)
	go s.Start()
	if !s.ReadyForConnections(readyIn(ctx)) {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fault.New(fault.Unavailable, "the embedded nats-server did not come up on %s; is the port taken?", cfg.Listen)
	}
	if !s.JetStreamEnabled() {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, fault.New(fault.Unavailable, "JetStream did not start; see the log above (is another weftd using %s?)", cfg.Dir)
	}
	return s, nil
}

func listen(o *server.Options, addr string) error {
	if addr == "" {
		o.DontListen = true
		return nil
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fault.Wrap(err, fault.Invalid, "listen address %q must be host:port", addr)
	}
	o.Host = host
	if o.Port, err = strconv.Atoi(port); err != nil {
		return fault.Wrap(err, fault.Invalid, "listen address %q has no port number", addr)
	}
	if o.Port == 0 {
		o.Port = server.RANDOM_PORT
		return nil
	}
	// The server itself would only log that it can't listen, and never be ready.
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "%s can't be listened on; is another NATS server there? Choose another address with -listen", addr)
	}
	return l.Close()
}

func readyIn(ctx context.Context) time.Duration {
	d := 30 * time.Second // a large store takes its time to recover
	if t, ok := ctx.Deadline(); ok {
		d = min(d, time.Until(t))
	}
	return d
}

// URL is where clients connect; empty if the server listens on no port.
func (b *Server) URL() string {
	s := b.NATS()
	if s.Addr() == nil {
		return ""
	}
	return s.ClientURL()
}

// InProcessConn gives a connection that passes no socket.
func (b *Server) InProcessConn() (net.Conn, error) { return b.NATS().InProcessConn() }

// Stop ends the server and waits until its store is closed.
func (b *Server) Stop() {
	b.disk.close()
	s := b.NATS()
	s.Shutdown()
	s.WaitForShutdown()
}

// NATS gives the server itself, for tests that look behind the scenes.
func (b *Server) NATS() *server.Server {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.s
}

// logger brings the server's lines into ours. Notices are debug: they are many, and about clients.
type logger struct {
	log    *slog.Logger
	failed func(line string) // is told of every error
}

func (l *logger) out(level slog.Level, format string, v ...any) {
	line := strings.TrimSpace(fmt.Sprintf(format, v...))
	if level == slog.LevelError {
		l.failed(line)
	}
	if l.log != nil {
		l.log.Log(context.Background(), level, line, "part", "nats-server")
	}
}
func (l *logger) Noticef(f string, v ...any) { l.out(slog.LevelDebug, f, v...) }
func (l *logger) Warnf(f string, v ...any)   { l.out(slog.LevelWarn, f, v...) }
func (l *logger) Fatalf(f string, v ...any)  { l.out(slog.LevelError, f, v...) }
func (l *logger) Errorf(f string, v ...any)  { l.out(slog.LevelError, f, v...) }
func (l *logger) Debugf(f string, v ...any)  { l.out(slog.LevelDebug, f, v...) }
func (l *logger) Tracef(f string, v ...any)  { l.out(slog.LevelDebug, f, v...) }
