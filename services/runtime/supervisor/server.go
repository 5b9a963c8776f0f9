package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// ForwardHandler serves one connection that a process in the sandbox opened to the forward called
// name. It runs in a goroutine of its own and closes conn. ctx is done when the channel breaks, or
// the sandbox or the server is closed; conn fails then, and the handler has to return, since Close
// waits for it. conn has CloseWrite.
type ForwardHandler func(ctx context.Context, name string, conn net.Conn)

// Options of a Server. The zero value serves.
type Options struct {
	Logger *slog.Logger  // nil: slog.Default()
	NewID  func() string // names processes whose spec has no ID; nil: schemas.NewID
}

// Server accepts the weft-inits of the sandboxes that were added to it.
type Server struct {
	dir string
	opt Options

	mu        sync.Mutex
	sandboxes map[string]*Sandbox
	closed    bool
}

// NewServer opens dir (made with mode 0711 if missing; it may lie deep, its length does not matter).
// Only one Server may use a directory at a time; the caller's lock on its data directory sees to it.
func NewServer(dir string, opts Options) (*Server, error) {
	if opts.Logger == nil {
		opts.Logger = slog.Default()
	}
	if opts.NewID == nil {
		opts.NewID = schemas.NewID
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, fmt.Errorf("directory of the sandboxes' sockets: %w", err)
	}
	return &Server{dir: dir, opt: opts, sandboxes: map[string]*Sandbox{}}, nil
}

// Owner is the host's user and group that process 1 runs as: the first ids of the sandbox's range.
type Owner struct{ UID, GID uint32 }

// Add makes or, after a restart, takes up again the sandbox called id (20 characters of base32hex),
// and listens for it. Adding one that is there already gives the same Sandbox.
func (s *Server) Add(id string, owner Owner) (*Sandbox, error) {
	if err := schemas.CheckID("sandbox", id); err != nil {
		return nil, fault.New(fault.Invalid, "%s", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fault.New(fault.Unavailable, "the node is stopping")
	}
	if b, ok := s.sandboxes[id]; ok {
		return b, nil
	}
	d := sandboxDir(filepath.Join(s.dir, id))
	key, err := d.prepare(owner)
	if err != nil {
		return nil, fmt.Errorf("directory of sandbox %s: %w", id, err)
	}
	l, err := d.listen(owner)
	if err != nil {
		return nil, fmt.Errorf("socket of sandbox %s: %w", id, err)
	}
	b := newSandbox(id, owner, key, d, s.opt, l)
	s.sandboxes[id] = b
	return b, nil
}

// Sandbox gives one that was added.
func (s *Server) Sandbox(id string) (*Sandbox, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.sandboxes[id]
	return b, ok
}

// Known lists the ids of all sandboxes whose directories exist, added or left by an earlier process.
func (s *Server) Known() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, fmt.Errorf("directory of the sandboxes' sockets: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && schemas.CheckID("sandbox", e.Name()) == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// Remove closes the sandbox's channel and deletes its directory and key. The container is expected
// to be gone, or to go. Removing what is not there is not an error.
func (s *Server) Remove(id string) error {
	if err := schemas.CheckID("sandbox", id); err != nil {
		return fault.New(fault.Invalid, "%s", err)
	}
	s.mu.Lock()
	b := s.sandboxes[id]
	delete(s.sandboxes, id)
	s.mu.Unlock()
	if b != nil {
		b.close()
	}
	if err := os.RemoveAll(filepath.Join(s.dir, id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("directory of sandbox %s: %w", id, err)
	}
	return nil
}

// Close ends all channels and waits for what it started. Directories and keys stay, sandboxes go on.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	all := make([]*Sandbox, 0, len(s.sandboxes))
	for _, b := range s.sandboxes {
		all = append(all, b)
	}
	clear(s.sandboxes)
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, b := range all {
		wg.Go(b.close)
	}
	wg.Wait()
	return nil
}
