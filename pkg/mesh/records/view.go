package records

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

// View keeps the present state of every record of an entity of one tenant in memory, following the
// log. It is a moment behind the leader: what must be exact reads with Get or writes with a sequence.
type View[T any] struct {
	store  *Store[T]
	tenant string
	change func(Record[T])

	mu   sync.RWMutex
	byID map[Key]Record[T]
	seq  uint64
}

// NewView makes the view of a tenant. change, if not nil, is called for every change in the order of the
// log, from one goroutine: first for the last state of each record, then live.
func (s *Store[T]) NewView(tenant string, change func(Record[T])) *View[T] {
	return &View[T]{store: s, tenant: tenant, change: change, byID: map[Key]Record[T]{}}
}

// Run follows the log until ctx ends. ready is closed when the view holds all that was there at the start.
func (v *View[T]) Run(ctx context.Context, ready chan<- struct{}) error {
	subject, err := v.store.filter(v.tenant, "*")
	if err != nil {
		return err
	}
	cons, err := v.store.c.JetStream().OrderedConsumer(ctx, Stream(v.tenant), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subject}, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
	})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the log of tenant %q can't be followed now", v.tenant)
	}
	var pending uint64
	if info := cons.CachedInfo(); info != nil {
		pending = info.NumPending
	}
	tell := sync.OnceFunc(func() { close(ready) })
	if pending == 0 {
		tell()
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	defer it.Stop()
	for {
		m, err := it.Next()
		if errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return ctx.Err()
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			continue // the ordered consumer makes itself anew
		}
		v.apply(m)
		if md, err := m.Metadata(); err == nil && md.NumPending == 0 {
			tell()
		}
	}
}

func (v *View[T]) apply(m jetstream.Msg) {
	msg, err := fromJetStream(m)
	if err != nil {
		return
	}
	r, err := decode[T](v.store.entity, v.store.schema, msg)
	if err != nil {
		if !errors.Is(err, errForeign) {
			v.store.c.Logger().Error("unreadable record", "subject", msg.subject, "err", err)
		}
		return
	}
	v.mu.Lock()
	if old, ok := v.byID[r.Key]; ok && old.Sequence >= r.Sequence {
		v.mu.Unlock()
		return
	}
	v.byID[r.Key], v.seq = r, max(v.seq, r.Sequence)
	v.mu.Unlock()
	if v.change != nil {
		v.change(r)
	}
}

// Get gives a record as the view has it.
func (v *View[T]) Get(k Key) (Record[T], bool) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	r, ok := v.byID[k]
	return r, ok
}

// All gives every record of a workspace, or of all with "*", in no order.
func (v *View[T]) All(workspace string) []Record[T] {
	v.mu.RLock()
	defer v.mu.RUnlock()
	out := make([]Record[T], 0, len(v.byID))
	for k, r := range v.byID {
		if workspace == "*" || k.Workspace == workspace {
			out = append(out, r)
		}
	}
	return out
}

// Forget drops a record that was purged: a purge is no message, so the one who purged says it.
func (v *View[T]) Forget(k Key) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byID, k)
}

// WaitFor waits until the view has seen sequence seq of the log, so that a writer reads its own write.
func (v *View[T]) WaitFor(ctx context.Context, k Key, seq uint64) error {
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	for {
		if r, ok := v.Get(k); ok && r.Sequence >= seq {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// Entity is the name of the entity, as in subjects.
func (s *Store[T]) Entity() string { return s.entity }

// Filter is the subject of all records of the entity of a tenant, for a durable consumer.
func (s *Store[T]) Filter(tenant string) string {
	return schemas.Prefix + "evt." + tenant + ".*." + s.entity + ".*"
}
