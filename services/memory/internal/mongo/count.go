package mongo

import (
	"context"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Counting the items of a large workspace takes the server tens of milliseconds, and there is no counter that
// every server would keep exactly. So a count is kept for a while, with what this process adds, and made
// anew sooner near the limit. Writers at the same time can pass the limit by a few.
const (
	countAge   = 10 * time.Second
	countsKept = 10_000 // workspaces
)

type count struct {
	n  int
	at time.Time
}

// count gives how many items a workspace has, about, unless it is near limit.
func (s *Store) count(ctx context.Context, sc store.Scope, limit int) (int, error) {
	s.mu.Lock()
	c, known := s.counts[sc]
	s.mu.Unlock()
	if known && time.Since(c.at) < countAge && c.n < limit-limit/10-1 {
		return c.n, nil
	}
	n, err := s.items.CountDocuments(ctx, bson.D{{Key: "tenant", Value: sc.Tenant}, {Key: "workspace", Value: sc.Workspace}})
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.counts) >= countsKept {
		clear(s.counts)
	}
	s.counts[sc] = count{n: int(n), at: time.Now()}
	return int(n), nil
}

// counted corrects the count by what this process did.
func (s *Store) counted(sc store.Scope, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, known := s.counts[sc]; known {
		c.n += by
		s.counts[sc] = c
	}
}

// recount forgets all counts.
func (s *Store) recount() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.counts)
}
