package secrets

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// errNotHeld is what a node gets that asks for what is another's.
func errNotHeld(node string, ref wire.LeaseRef) error {
	if ref.Task == "" {
		return fault.New(fault.Conflict, "node %s does not hold sandbox %s; end it", node, ref.Sandbox)
	}
	return fault.New(fault.Conflict, "node %s does not hold attempt %d of task %s in sandbox %s; end it", node, ref.Attempt, ref.Task, ref.Sandbox)
}

// checkRef refuses a reference with a part of the wrong form, and gives the key of its lease.
func checkRef(ref wire.LeaseRef) (records.Key, error) {
	k := records.Key{Tenant: ref.Tenant, Workspace: ref.Workspace, ID: ref.Sandbox}
	for _, err := range []error{schemas.CheckName("tenant", ref.Tenant), schemas.CheckName("workspace", ref.Workspace), schemas.CheckID("sandbox", ref.Sandbox)} {
		if err != nil {
			return k, fault.New(fault.Invalid, "%s", err)
		}
	}
	if ref.Task != "" {
		if err := schemas.CheckID("task", ref.Task); err != nil {
			return k, fault.New(fault.Invalid, "%s", err)
		}
	}
	return k, nil
}

// held asks the workspace-manager and gives its answer if node holds what ref names now. An interactive
// sandbox has no task; the manager knows it by its own id.
func (s *Service) held(ctx context.Context, node string, ref wire.LeaseRef) (workspace.AttemptReply, error) {
	ask := workspace.AttemptRequest{Tenant: ref.Tenant, Workspace: ref.Workspace, Task: ref.Task}
	if ask.Task == "" {
		ask.Task = ref.Sandbox
	}
	a, err := s.cfg.Attempts.Attempt(ctx, ask)
	switch {
	case fault.Is(err, fault.NotFound):
		return a, errNotHeld(node, ref)
	case err != nil:
		return a, err
	case a.State != workspace.Running, a.Node == "", a.Node != node, a.Sandbox != ref.Sandbox, ref.Task != "" && a.Attempt != ref.Attempt:
		return a, errNotHeld(node, ref)
	}
	return a, nil
}
