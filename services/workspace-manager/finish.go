package manager

import (
	"context"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
)

// Finish ends an attempt as the node that holds it reports. The same report again is the same answer;
// one of an attempt that is no longer that node's is a conflict, and the node throws it away.
func (s *Service) Finish(ctx context.Context, by mesh.Caller, req workspace.Finish) (workspace.Empty, error) {
	var none workspace.Empty
	if err := checkNode(by); err != nil {
		return none, err
	}
	if err := checkItem(req.QueueItem); err != nil {
		return none, err
	}
	if f := req.Fault; f != nil && !schemas.Code(f.Code).Valid() {
		return none, fault.New(fault.Invalid, "fault code %q is none of the closed set", f.Code)
	}
	k := itemKey(req.QueueItem)
	now := s.cfg.Now().UTC()
	// Milestones that were reported and not yet written go with this change.
	commandAt, outputAt := s.waiting.take(attemptKey{k, req.Attempt}, by.Principal)
	if req.CommandAt == nil {
		req.CommandAt = commandAt
	}
	if req.FirstOutputAt == nil {
		req.FirstOutputAt = outputAt
	}
	r, err := s.stores.tasks.Update(ctx, k, func(t *workspace.Task) (string, error) {
		return lifecycle.Finish(t, lifecycle.Holder{Attempt: req.Attempt, Node: by.Principal}, req, now)
	})
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			err = fault.Wrap(err, fault.Conflict, "task %s is no longer there", req.Task)
		}
		return none, err
	}
	if r.Value.State == workspace.Pending {
		failpoint.Hit(fpAfterRetryRecord)
	}
	failpoint.Hit(fpAfterFinishRecord)
	if v := s.tenants.view(ctx, req.Tenant); v != nil {
		v.task(r)
	}
	return none, nil
}
