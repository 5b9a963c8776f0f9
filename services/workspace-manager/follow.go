package manager

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
)

// followUp does what must follow a change of a task. It is delivered at least once, in no strict order,
// and everything it does can be done again: the queue's message id, the triggers' task keys and the
// cursors see to that.
func (v *view) followUp(ctx context.Context, d mesh.Delivery) error {
	r, ok, err := v.s.stores.tasks.Decode(d)
	if err != nil {
		return err
	}
	if !ok {
		return nil // not a record of ours; nothing follows from it
	}
	switch r.Event {
	case lifecycle.Queued:
		if err := v.queue(ctx, r); err != nil {
			return err
		}
	case lifecycle.Cancelling:
		v.s.stopOnNode(ctx, &r.Value)
	case lifecycle.Complete:
		if err := v.advanceCursor(ctx, &r.Value); err != nil {
			return err
		}
	}
	return v.eventTriggers(ctx, r)
}

// queue publishes a queued attempt, unless it is known to be past that.
func (v *view) queue(ctx context.Context, r records.Record[workspace.Task]) error {
	if now, ok := v.tasks.get(r.Key); ok && now.Sequence > r.Sequence {
		return nil
	}
	return v.s.enqueue(ctx, r.Key, &r.Value, "")
}

// stopOnNode asks the node to end an attempt now. It is a short cut: the next renewal tells the node the same.
func (s *Service) stopOnNode(ctx context.Context, t *workspace.Task) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := s.calls.KillSandbox(ctx, t.Attempt.Node, runtime.SandboxKill{ID: t.Attempt.Sandbox, Reason: lifecycle.ReasonCancelled})
	if err != nil {
		s.log.Info("the node learns of the cancellation at its next renewal", "task", t.ID, "node", t.Attempt.Node, "err", err)
	}
}
