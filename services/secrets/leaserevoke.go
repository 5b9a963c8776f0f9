package secrets

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// LeaseRevoke ends the lease of a sandbox for an operator of the workspace. The sandbox runs on without
// it, and does not get another. Revoking twice is no error.
func (s *Service) LeaseRevoke(ctx context.Context, by mesh.Caller, req workspace.ID) (wire.RevokeReply, error) {
	if err := workspaceOf(by); err != nil {
		return wire.RevokeReply{}, err
	}
	if err := schemas.CheckID("id", req.ID); err != nil {
		return wire.RevokeReply{}, fault.New(fault.Invalid, "%s", err)
	}
	n, err := s.end(ctx, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: req.ID}, wire.ReasonOperator+" "+by.Principal, "")
	return wire.RevokeReply{Leases: n}, err
}
