// Package health answers for the process over HTTP: /healthz (it lives), /readyz (every part is ready) and
// /metrics (Prometheus).
package health

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/weftmesh/weft/pkg/fault"
)

// Check says why a part is not ready, or nil.
type Check func(ctx context.Context) error

// Server collects checks and serves them.
type Server struct {
	mu     sync.Mutex
	checks map[string]Check
	reg    prometheus.Gatherer
	ln     net.Listener
	http   *http.Server
}

// New listens on addr (host:port; port 0 picks one) without serving yet.
func New(addr string, reg prometheus.Gatherer) (*Server, error) {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the health server can't listen on %s; choose another address with -http", addr)
	}
	return &Server{checks: map[string]Check{}, reg: reg, ln: ln}, nil
}

// Addr is where it listens.
func (s *Server) Addr() string { return s.ln.Addr().String() }

// Add registers a part's check.
func (s *Server) Add(name string, c Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks[name] = c
}

// Run serves until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.reg, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelWarn)}))
	s.http = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 30 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = s.http.Close() })
	defer stop()
	if err := s.http.Serve(s.ln); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return ctx.Err()
}

// Ready runs every check, at most two seconds each, and gives the sentences of those that fail.
func (s *Server) Ready(ctx context.Context) map[string]string {
	s.mu.Lock()
	checks := make(map[string]Check, len(s.checks))
	for k, v := range s.checks {
		checks[k] = v
	}
	s.mu.Unlock()
	bad := map[string]string{}
	for name, c := range checks {
		cctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		if err := c(cctx); err != nil {
			_, bad[name] = fault.Public(err)
		}
		cancel()
	}
	return bad
}

func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	bad := s.Ready(r.Context())
	w.Header().Set("Content-Type", "application/json")
	if len(bad) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"ready": len(bad) == 0, "failing": bad})
}
