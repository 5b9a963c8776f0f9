package manager

import (
	"context"
	"sync"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
)

// claimLocks let one request of a replica at a time decide about a name, so that those that wait take no quota. Each
// name has a lock of its own: who decides slowly, because its tenant's log is slow, holds up nobody else.
// They are no safeguard: that is the compare-and-set.
type claimLocks struct {
	mu   sync.Mutex
	held map[string]*claimLock
}

type claimLock struct {
	turn chan struct{} // has one place
	want int           // who holds it, and who waits
}

// lock gives what unlocks; calling that again does nothing. An empty name locks nothing. Error: deadline, if ctx ends first.
func (l *claimLocks) lock(ctx context.Context, by mesh.Caller, name string) (unlock func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	key := by.Tenant + "." + by.Workspace + "." + name
	l.mu.Lock()
	if l.held == nil {
		l.held = map[string]*claimLock{}
	}
	c := l.held[key]
	if c == nil {
		c = &claimLock{turn: make(chan struct{}, 1)}
		l.held[key] = c
	}
	c.want++
	l.mu.Unlock()
	select {
	case c.turn <- struct{}{}:
		return sync.OnceFunc(func() {
			<-c.turn
			l.leave(key, c)
		}), nil
	case <-ctx.Done():
		l.leave(key, c)
		return nil, fault.Wrap(ctx.Err(), fault.Deadline, "another request decides about claim %q; ask again", name)
	}
}

func (l *claimLocks) leave(key string, c *claimLock) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.want--; c.want == 0 {
		delete(l.held, key)
	}
}
