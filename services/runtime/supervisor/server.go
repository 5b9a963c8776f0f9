package supervisor

import (
	"context"
	"log/slog"
	"net"
)

// ForwardHandler serves one connection that a process in the sandbox opened to the forward called
// name. It runs in a goroutine of its own, closes conn, and returns when ctx is done: when the
// sandbox or the server is closed. conn has CloseWrite.
type ForwardHandler func(ctx context.Context, name string, conn net.Conn)

// Options of a Server. The zero value serves.
type Options struct {
	Logger *slog.Logger  // nil: slog.Default()
	NewID  func() string // names processes whose spec has no ID; nil: schemas.NewID
}

// Server accepts the weft-inits of the sandboxes that were added to it.
type Server struct{}

// NewServer opens dir (made with mode 0711 if missing; it may lie deep, its length does not matter).
// Only one Server may use a directory at a time; the caller's lock on its data directory sees to it.
func NewServer(dir string, opts Options) (*Server, error)

// Owner is the host's user and group that process 1 runs as: the first ids of the sandbox's range.
type Owner struct{ UID, GID uint32 }

// Add makes or, after a restart, takes up again the sandbox called id (20 characters of base32hex),
// and listens for it. Adding one that is there already gives the same Sandbox.
func (s *Server) Add(id string, owner Owner) (*Sandbox, error)

// Sandbox gives one that was added.
func (s *Server) Sandbox(id string) (*Sandbox, bool)

// Known lists the ids of all sandboxes whose directories exist, added or left by an earlier process.
func (s *Server) Known() ([]string, error)

// Remove closes the sandbox's channel and deletes its directory and key. The container is expected
// to be gone, or to go. Removing what is not there is not an error.
func (s *Server) Remove(id string) error

// Close ends all channels and waits for what it started. Directories and keys stay, sandboxes go on.
func (s *Server) Close() error
