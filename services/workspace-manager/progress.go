package manager

import (
	"context"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
)

// progressEvery is how long a milestone waits for the record's next change before it is written alone.
const progressEvery = time.Second

// Progress notes a milestone of an attempt. It is written with the next change of the record or within
// a second; a manager that is killed before loses it, and finish brings it again.
func (s *Service) Progress(_ context.Context, by mesh.Caller, req workspace.Progress) (workspace.Empty, error) {
	var none workspace.Empty
	if err := checkNode(by); err != nil {
		return none, err
	}
	if err := checkItem(req.QueueItem); err != nil {
		return none, err
	}
	k := attemptKey{itemKey(req.QueueItem), req.Attempt}
	if !s.waiting.add(k, by.Principal, req) {
		return none, fault.New(fault.Exhausted, "too many milestones wait to be written; finish brings them too")
	}
	return none, nil
}

// milestones of one attempt as its node told them.
type milestones struct {
	node              string
	command, firstOut *time.Time
}

// progressBuffer holds milestones until they are written.
type progressBuffer struct {
	mu   sync.Mutex
	m    map[attemptKey]*milestones
	some chan struct{}
}

// maxMilestones bounds the buffer against a node that makes up attempts.
const maxMilestones = 100_000

func newProgressBuffer() *progressBuffer {
	return &progressBuffer{m: map[attemptKey]*milestones{}, some: make(chan struct{}, 1)}
}

func (b *progressBuffer) add(k attemptKey, node string, p workspace.Progress) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.m[k]
	if m == nil || m.node != node {
		if len(b.m) >= maxMilestones {
			return false
		}
		m = &milestones{node: node}
		b.m[k] = m
	}
	if p.CommandAt != nil {
		m.command = p.CommandAt
	}
	if p.FirstOutputAt != nil {
		m.firstOut = p.FirstOutputAt
	}
	signal(b.some)
	return true
}

// take gives what waits for an attempt of node, and forgets it.
func (b *progressBuffer) take(k attemptKey, node string) (command, firstOut *time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.m[k]
	if m == nil || m.node != node {
		return nil, nil
	}
	delete(b.m, k)
	return m.command, m.firstOut
}

func (b *progressBuffer) all() map[attemptKey]*milestones {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.m
	b.m = map[attemptKey]*milestones{}
	return out
}

// flushProgress writes what waited for a second.
func (s *Service) flushProgress(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.waiting.some:
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(progressEvery):
		}
		for k, m := range s.waiting.all() {
			s.writeProgress(ctx, k, m)
		}
	}
}

func (s *Service) writeProgress(ctx context.Context, k attemptKey, m *milestones) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := s.stores.tasks.Update(ctx, k.Key, func(t *workspace.Task) (string, error) {
		return lifecycle.Progress(t, lifecycle.Holder{Attempt: k.Attempt, Node: m.node}, m.command, m.firstOut)
	})
	if err != nil {
		s.log.Debug("milestones dropped", "task", k.ID, "attempt", k.Attempt, "err", err)
		return
	}
	if v := s.tenants.view(ctx, k.Tenant); v != nil {
		v.task(r)
	}
}
