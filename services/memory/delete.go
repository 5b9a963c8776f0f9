package memory

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
)

// DeleteWorkspace removes everything of a workspace. It is for services, and may be repeated. Errors: invalid.
func (s *Service) DeleteWorkspace(ctx context.Context, _ mesh.Caller, req memory.DeleteWorkspaceRequest) (memory.DeleteReply, error) {
	sc, err := checkScope(req.Tenant, req.Workspace)
	if err != nil {
		return memory.DeleteReply{}, err
	}
	return memory.DeleteReply{}, s.failure(s.store.DeleteWorkspace(ctx, sc), "")
}

// DeleteTenant removes everything of a tenant. It is for services, and may be repeated. Errors: invalid.
func (s *Service) DeleteTenant(ctx context.Context, _ mesh.Caller, req memory.DeleteTenantRequest) (memory.DeleteReply, error) {
	if err := schemas.CheckName("tenant", req.Tenant); err != nil {
		return memory.DeleteReply{}, fault.New(fault.Invalid, "%v", err)
	}
	return memory.DeleteReply{}, s.failure(s.store.DeleteTenant(ctx, req.Tenant), "")
}
