package manager

import (
	"sync"

	"github.com/weftmesh/weft/pkg/mesh/records"
)

// deleted is the last event of a record that is about to be purged. A purge is no message, so views
// learn of a deletion by it; whoever reads a record with this event takes it as not there.
const deleted = "deleted"

// table holds the present records of one entity of one tenant. Of those that live it knows how many there are, and
// finds them without a look at those that ended, which are kept for days.
type table[T any] struct {
	mu    sync.RWMutex
	m     map[records.Key]records.Record[T]
	lives func(T) bool // nil: nothing of this entity ends
	alive map[records.Key]struct{}
	count map[string]int // of alive, by workspace
}

func newTable[T any]() *table[T] { return newLivingTable[T](nil) }

func newLivingTable[T any](lives func(T) bool) *table[T] {
	return &table[T]{m: map[records.Key]records.Record[T]{}, lives: lives, alive: map[records.Key]struct{}{}, count: map[string]int{}}
}

// put notes a record as the log has it; one that was deleted is dropped. An older state than the present one changes nothing.
func (t *table[T]) put(r records.Record[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Event == deleted {
		t.drop(r.Key)
		return
	}
	if t.m[r.Key].Sequence > r.Sequence {
		return
	}
	t.m[r.Key] = r
	t.note(r.Key, t.lives != nil && t.lives(r.Value))
}

func (t *table[T]) forget(k records.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(k)
}

// drop is forget with the lock held.
func (t *table[T]) drop(k records.Key) {
	delete(t.m, k)
	t.note(k, false)
}

// note keeps count of those that live. The lock is held.
func (t *table[T]) note(k records.Key, lives bool) {
	_, did := t.alive[k]
	switch {
	case lives && !did:
		t.alive[k] = struct{}{}
		t.count[k.Workspace]++
	case !lives && did:
		delete(t.alive, k)
		if t.count[k.Workspace]--; t.count[k.Workspace] == 0 {
			delete(t.count, k.Workspace)
		}
	}
}

// living is how many records live, of all workspaces and of one.
func (t *table[T]) living(workspace string) (all, there int) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.alive), t.count[workspace]
}

// inLife gives the records that live, of all workspaces.
func (t *table[T]) inLife() []records.Record[T] {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]records.Record[T], 0, len(t.alive))
	for k := range t.alive {
		out = append(out, t.m[k])
	}
	return out
}

func (t *table[T]) get(k records.Key) (records.Record[T], bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	r, ok := t.m[k]
	return r, ok
}

// in gives all records of a workspace, or of all with "*".
func (t *table[T]) in(workspace string) []records.Record[T] {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var out []records.Record[T]
	for k, r := range t.m {
		if workspace == "*" || k.Workspace == workspace {
			out = append(out, r)
		}
	}
	return out
}
