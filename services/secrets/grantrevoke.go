package secrets

import (
	"context"
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// GrantRevoke takes a grant back and ends every lease that used it. Dying after the grant is gone and
// before all leases are leaves those to the reconciler, which ends leases without a grant.
func (s *Service) GrantRevoke(ctx context.Context, by mesh.Caller, req workspace.ID) (wire.RevokeReply, error) {
	if err := workspaceOf(by); err != nil {
		return wire.RevokeReply{}, err
	}
	if err := schemas.CheckID("id", req.ID); err != nil {
		return wire.RevokeReply{}, fault.New(fault.Invalid, "%s", err)
	}
	g, err := s.cfg.Grants.Get(ctx, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: req.ID})
	if fault.Is(err, fault.NotFound) {
		return wire.RevokeReply{}, fault.Wrap(err, fault.NotFound, "no grant %s in this workspace; `weft secret grants` lists them", req.ID)
	}
	if err != nil {
		return wire.RevokeReply{}, err
	}
	n, err := s.revokeGrant(ctx, by, g)
	return wire.RevokeReply{Leases: n}, err
}

func (s *Service) revokeGrant(ctx context.Context, by mesh.Caller, g records.Record[wire.Grant]) (int, error) {
	err := s.cfg.Grants.Delete(ctx, g.Key)
	n := 0
	if err == nil {
		n, err = s.revokeUsers(ctx, g.Tenant, g.Workspace, g.Value.Secret, g.Value.Agent)
	}
	s.audit(ctx, wire.Audit{Action: wire.AuditGrantRevoke, Tenant: g.Tenant, Workspace: g.Workspace, Principal: by.Principal, Agent: g.Value.Agent, Secrets: []string{g.Value.Secret}}, err)
	return n, err
}

// revokeUsers ends the leases of an agent that hold a secret, also those that are just being issued.
func (s *Service) revokeUsers(ctx context.Context, tenant, ws, secret, agent string) (int, error) {
	leases, err := s.cfg.Leases.List(ctx, tenant, ws)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, l := range leases {
		if l.Value.State == wire.LeaseRevoked || l.Value.Agent != agent || !slices.Contains(l.Value.Secrets, secret) {
			continue
		}
		k, err := s.end(ctx, l.Key, wire.ReasonGrantRevoked, "")
		if err != nil {
			return n, err
		}
		n += k
	}
	return n, nil
}
