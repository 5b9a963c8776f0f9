package manager

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Attempt says who holds a task, or an interactive sandbox, as the log's leader has it. The other
// services fence by it: a merge or a lease is only for the attempt that is current and runs.
func (s *Service) Attempt(ctx context.Context, by mesh.Caller, req workspace.AttemptRequest) (workspace.AttemptReply, error) {
	var rep workspace.AttemptReply
	switch by.Principal {
	case schemas.Filesystem, schemas.Secrets, schemas.Memory, schemas.Gateway, schemas.Operator:
	default:
		return rep, fault.New(fault.Denied, "only services may ask this, not %s", by.Principal)
	}
	if err := checkItem(workspace.QueueItem{Tenant: req.Tenant, Workspace: req.Workspace, Task: req.Task, Attempt: 1}); err != nil {
		return rep, err
	}
	k := records.Key{Tenant: req.Tenant, Workspace: req.Workspace, ID: req.Task}
	r, err := get(ctx, s.stores.tasks, k)
	if fault.Is(err, fault.NotFound) {
		return s.sandboxAttempt(ctx, k, err)
	}
	if err != nil {
		return rep, err
	}
	a := r.Value.Attempt
	rep = workspace.AttemptReply{State: r.Value.State, Attempt: a.Number, Node: a.Node, Sandbox: a.Sandbox, NodeKey: a.NodeKey}
	if run := r.Value.Run; run != nil {
		rep.Principal, rep.Secrets = run.Principal, run.Secrets
	}
	return rep, nil
}

func (s *Service) sandboxAttempt(ctx context.Context, k records.Key, notFound error) (workspace.AttemptReply, error) {
	r, err := get(ctx, s.stores.sandboxes, k)
	if fault.Is(err, fault.NotFound) {
		return workspace.AttemptReply{}, notFound
	}
	b := &r.Value
	rep := workspace.AttemptReply{State: workspace.Running, Attempt: b.Generation, Node: b.Node, Sandbox: b.ID,
		NodeKey: b.NodeKey, Principal: b.Run.Principal, Secrets: b.Run.Secrets}
	if b.State == workspace.SandboxStopped {
		rep.State = workspace.Complete
	}
	return rep, err
}
