package sandbox

import (
	"context"
	"sync"

	"github.com/weftmesh/weft/services/runtime/internal/containerd"
)

// shims decides which sandboxes share a shim: those of one tenant and one lane that live at the same time.
//
// A shim ends with its last container, and a container that is just being made in it fails then. So a
// sandbox that would leave only unfinished ones behind waits for one of them, and nobody joins a
// group any more once its last member has begun to leave: the next one opens a new group.
type shims struct {
	mu   sync.Mutex
	open map[string]*shimGroup // by tenant and lane: the shim field of a sandbox
}

type shimGroup struct {
	shim    *containerd.Shim
	members map[string]bool // by sandbox: whether its container was made
	changed chan struct{}   // closed at the next change
}

func (g *shimGroup) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// join gives the shim for a sandbox of a lane, and says whether the sandbox is the first in it. take gets one where there is none.
func (s *shims) join(lane, sandbox string, take func() *containerd.Shim) (shim *containerd.Shim, first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.open[lane]
	if g == nil {
		g = &shimGroup{shim: take(), members: map[string]bool{}, changed: make(chan struct{})}
		s.open[lane] = g
	}
	first = len(g.members) == 0
	g.members[sandbox] = false
	return g.shim, first
}

// made says that a sandbox's container is there.
func (s *shims) made(lane, sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.open[lane]; g != nil {
		if _, ok := g.members[sandbox]; ok {
			g.members[sandbox] = true
			g.change()
		}
	}
}

// leave says that a sandbox is about to be deleted, and returns when it may be. One that never joined,
// or has left, may at once.
func (s *shims) leave(ctx context.Context, lane, sandbox string) {
	for {
		wait := s.tryLeave(lane, sandbox)
		if wait == nil {
			return
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return
		}
	}
}

// tryLeave takes the sandbox out of its group, or gives what it has to wait for.
func (s *shims) tryLeave(lane, sandbox string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.open[lane]
	if g == nil {
		return nil
	}
	made, joined := g.members[sandbox]
	if !joined {
		return nil
	}
	others, ready := len(g.members)-1, false
	for m, done := range g.members {
		ready = ready || m != sandbox && done
	}
	if made && others > 0 && !ready {
		return g.changed
	}
	delete(g.members, sandbox)
	if len(g.members) == 0 {
		delete(s.open, lane)
	}
	g.change()
	return nil
}
