package manager

import (
	"sync"

	"github.com/weftmesh/weft/pkg/mesh/records"
)

// deleted is the last event of a record that is about to be purged. A purge is no message, so views
// learn of a deletion by it; whoever reads a record with this event takes it as not there.
const deleted = "deleted"

// table holds the present records of one entity of one tenant.
type table[T any] struct {
	mu sync.RWMutex
	m  map[records.Key]records.Record[T]
}

func newTable[T any]() *table[T] { return &table[T]{m: map[records.Key]records.Record[T]{}} }

// put notes a record as the log has it; one that was deleted is dropped.
func (t *table[T]) put(r records.Record[T]) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.Event == deleted {
		delete(t.m, r.Key)
		return
	}
	t.m[r.Key] = r
}

func (t *table[T]) forget(k records.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.m, k)
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
