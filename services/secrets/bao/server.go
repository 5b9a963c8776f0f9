package bao

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/weftmesh/weft/pkg/app/lockfile"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// Config says which binary runs on which directory.
type Config struct {
	Bin          string        // of bao or vault, see toolchain.Find("bao")
	Dir          string        // made with mode 0700 if absent; its path plus "/bao.sock" at most 107 bytes
	StartTimeout time.Duration // until it answers; 30 s if 0
	Logger       *slog.Logger
}

// Server is a managed server process. It is safe for use by several goroutines.
type Server struct {
	cfg     Config
	log     *slog.Logger
	control *os.File // weftd.lock
	api     *api.Client

	mu    sync.Mutex // start, unseal and bootstrap, one at a time
	proc  *process
	kind  string     // of binary; asked once, it takes as long as a start
	token sync.Mutex // Login
}

// checkEvery is how often Run looks whether the server is sealed and its audit log is full.
const checkEvery = 2 * time.Second

// Open finds the running server of dir or starts one, initialises it if it is new, and unseals it. A
// second daemon on the same directory is a conflict. Run must follow; Close or Stop ends.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	if cfg.StartTimeout == 0 {
		cfg.StartTimeout = 30 * time.Second
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{cfg: cfg, log: cfg.Logger}
	if err := s.prepare(); err != nil {
		return nil, err
	}
	if err := s.ensure(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// prepare makes the directory and takes the lock of its manager.
func (s *Server) prepare() error {
	dir, err := filepath.Abs(s.cfg.Dir)
	if err != nil {
		return err
	}
	s.cfg.Dir = dir
	if n := len(s.path(socketFile)); n > 107 {
		return fault.New(fault.Invalid, "the path of OpenBao's socket %s has %d bytes, but a unix socket takes 107; use a shorter data directory", s.path(socketFile), n)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the directory of OpenBao %s can't be made", dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return fault.Wrap(err, fault.Unavailable, "the directory of OpenBao %s can't be protected", dir)
	}
	var holder string
	s.control, holder, err = lockfile.Take(s.path("weftd.lock"))
	if errors.Is(err, lockfile.ErrHeld) {
		return fault.New(fault.Conflict, "another weftd (pid %s) manages OpenBao in %s; stop it first, or use another data directory", holder, dir)
	}
	if err != nil {
		return err
	}
	s.api, err = vault.Dial(s.Address(), "")
	return err
}

func (s *Server) path(file string) string { return filepath.Join(s.cfg.Dir, file) }

// Address is where the server listens, as VAULT_ADDR has it.
func (s *Server) Address() string { return "unix://" + s.path(socketFile) }

// Pid is the process that runs now, 0 if none.
func (s *Server) Pid() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return 0
	}
	return s.proc.pid
}

// ensure brings the server to where it takes requests, from wherever it is.
func (s *Server) ensure(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	if s.proc != nil && s.proc.ended() {
		s.proc.release()
		s.proc = nil
	}
	if s.proc == nil {
		p, err := s.findOrStart(ctx)
		if err != nil {
			return err
		}
		s.proc = p
	}
	err := s.unlock(ctx)
	if !errors.Is(err, errHalfInit) {
		return err
	}
	s.log.Warn("OpenBao's first start was cut off before its key was written; beginning anew", "dir", s.cfg.Dir)
	if err := s.proc.end(ctx, 5*time.Second); err != nil {
		return err
	}
	s.proc.release()
	s.proc = nil
	p, err := s.findOrStart(ctx)
	if err != nil {
		return err
	}
	s.proc = p
	return s.unlock(ctx)
}

// findOrStart gives the running server of this directory, or a new one.
func (s *Server) findOrStart(ctx context.Context) (*process, error) {
	alive, err := lock(s.path(aliveFile))
	if errors.Is(err, errLocked) {
		p, err := s.find(ctx)
		if err != nil {
			return nil, err
		}
		s.log.Info("found OpenBao running", "pid", p.pid)
		return p, s.answers(ctx, p)
	}
	if err != nil {
		return nil, err
	}
	p, err := s.start(ctx, alive)
	// The child has the lock now; if there is no child, this frees it.
	_ = alive.Close()
	if err != nil {
		return nil, err
	}
	s.log.Info("started OpenBao", "pid", p.pid, "dir", s.cfg.Dir)
	if err := s.answers(ctx, p); err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

// answers waits until the server takes requests, or has ended.
func (s *Server) answers(ctx context.Context, p *process) error {
	for {
		_, err := s.api.Sys().SealStatusWithContext(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.dead:
			return fault.Wrap(errors.New(s.lastWords()), fault.Unavailable, "OpenBao ended at its start; see %s", s.path(logFile))
		case <-ctx.Done():
			return fault.Wrap(err, fault.Unavailable, "OpenBao does not answer at %s; see %s", s.path(socketFile), s.path(logFile))
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// as is the connection to the server with a token.
func (s *Server) as(token string) *api.Client { return vault.As(s.api, value.Of(token)) }

// Run keeps the server alive and unsealed until ctx ends. It leaves it running.
func (s *Server) Run(ctx context.Context) error {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	backoff := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.ended():
			s.log.Warn("OpenBao has ended; starting it again", "after", backoff)
		case <-tick.C:
			s.rotateAudit()
			if s.sealed(ctx) {
				s.log.Warn("OpenBao is sealed; unsealing it")
				break
			}
			backoff = 0
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(backoff):
		}
		if err := s.ensure(ctx); err != nil && ctx.Err() == nil {
			s.log.Error("OpenBao is not available", "err", err)
		}
		backoff = min(max(2*backoff, 100*time.Millisecond), 5*time.Second)
	}
}

// ended is closed when the present process has ended, or there is none.
func (s *Server) ended() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return s.proc.dead
}

func (s *Server) sealed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, checkEvery)
	defer cancel()
	st, err := s.api.Sys().SealStatusWithContext(ctx)
	return err == nil && st.Sealed
}

// Ready tells whether the server takes requests.
func (s *Server) Ready(ctx context.Context) error {
	h, err := s.api.Sys().HealthWithContext(ctx)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "OpenBao does not answer; it is started again by itself")
	}
	if h.Sealed || h.Standby {
		return fault.New(fault.Unavailable, "OpenBao is starting; try again")
	}
	return nil
}

// Close stops managing and leaves the server running for the next daemon.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		s.proc.release()
		s.proc = nil
	}
	if s.control != nil {
		vault.Hang(s.api)
		_ = s.control.Close()
		s.control = nil
	}
}

// Stop ends the server: SIGTERM, and SIGKILL if it takes longer than 10 s or ctx. Then it closes.
func (s *Server) Stop(ctx context.Context) error {
	defer s.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	err := s.proc.end(ctx, 10*time.Second)
	if err == nil {
		_ = os.Remove(s.path(processFile))
	}
	return err
}

// StopIn ends the server of a directory that no daemon manages. That none runs is no error.
func StopIn(ctx context.Context, dir string) error {
	s := &Server{cfg: Config{Dir: dir}, log: slog.New(slog.DiscardHandler)}
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err := s.prepare(); err != nil {
		return err
	}
	alive, err := lock(s.path(aliveFile))
	if err == nil {
		_ = alive.Close()
		s.Close()
		return nil
	}
	if !errors.Is(err, errLocked) {
		s.Close()
		return err
	}
	if s.proc, err = s.find(ctx); err != nil {
		s.Close()
		return err
	}
	return s.Stop(ctx)
}
