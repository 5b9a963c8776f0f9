package sandbox

import (
	"sync"

	"github.com/weftmesh/weft/schemas"
)

// shims decides which sandboxes share a shim: those of one tenant that live at the same time. A shim
// ends when its last container is deleted, and a container that joins it just then fails; so nobody
// joins a group any more once its last member has begun to leave: the next one opens a new group.
type shims struct {
	mu   sync.Mutex
	open map[string]*shimGroup // by tenant
}

type shimGroup struct {
	name    string
	members map[string]bool // by sandbox
}

// join gives the group for a sandbox of tenant.
func (s *shims) join(tenant, sandbox string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.open[tenant]
	if g == nil {
		g = &shimGroup{name: tenant + "-" + schemas.NewID(), members: map[string]bool{}}
		s.open[tenant] = g
	}
	g.members[sandbox] = true
	return g.name
}

// leave says that a sandbox is about to be deleted. One that never joined, or has left, changes nothing.
func (s *shims) leave(tenant, sandbox string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.open[tenant]
	if g == nil || !g.members[sandbox] {
		return
	}
	delete(g.members, sandbox)
	if len(g.members) == 0 {
		delete(s.open, tenant)
	}
}
