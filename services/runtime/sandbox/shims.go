package sandbox

import (
	"context"
	"sync"

	"github.com/weftmesh/weft/schemas"
)

// shims decides which sandboxes share a shim: those of one tenant that live at the same time.
//
// A shim ends with its last container, and a container that is just being made in it fails then. So a
// sandbox that would leave only unfinished ones behind waits for one of them, and nobody joins a
// group any more once its last member has begun to leave: the next one opens a new group.
type shims struct {
	mu   sync.Mutex
	open map[string]*shimGroup // by tenant
}

type shimGroup struct {
	name    string
	members map[string]bool // by sandbox: whether its container was made
	changed chan struct{}   // closed at the next change
}

func (g *shimGroup) change() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// join gives the group for a sandbox of tenant.
func (s *shims) join(tenant, sandbox string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.open[tenant]
	if g == nil {
		g = &shimGroup{name: tenant + "-" + schemas.NewID(), members: map[string]bool{}, changed: make(chan struct{})}
		s.open[tenant] = g
	}
	g.members[sandbox] = false
	return g.name
}

// made says that a sandbox's container is there.
func (s *shims) made(tenant, sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g := s.open[tenant]; g != nil {
		if _, ok := g.members[sandbox]; ok {
			g.members[sandbox] = true
			g.change()
		}
	}
}

// leave says that a sandbox is about to be deleted, and returns when it may be. One that never joined,
// or has left, may at once.
func (s *shims) leave(ctx context.Context, tenant, sandbox string) {
	for {
		wait := s.tryLeave(tenant, sandbox)
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
func (s *shims) tryLeave(tenant, sandbox string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.open[tenant]
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
		delete(s.open, tenant)
	}
	g.change()
	return nil
}
