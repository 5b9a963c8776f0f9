package secrets

import (
	"context"
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets/internal/name"
)

// DeleteWorkspace removes all grants, leases and secrets of a workspace; without a workspace those of the
// whole tenant. Only the workspace-manager and the operator may ask. Grants go first, so that nothing new
// is issued; repeating finishes what a crash left.
func (s *Service) DeleteWorkspace(ctx context.Context, by mesh.Caller, req wire.DeleteWorkspace) (workspace.Empty, error) {
	if !trusted(by) {
		return workspace.Empty{}, fault.New(fault.Denied, "only the workspace-manager and the operator delete workspaces, not %s", by.Principal)
	}
	if err := schemas.CheckName("tenant", req.Tenant); err != nil {
		return workspace.Empty{}, fault.New(fault.Invalid, "%s", err)
	}
	which := req.Workspace
	if which == "" || which == schemas.NoWorkspace {
		which = "*"
	} else if err := schemas.CheckName("workspace", which); err != nil {
		return workspace.Empty{}, fault.New(fault.Invalid, "%s", err)
	}
	if err := s.deleteRecords(ctx, req.Tenant, which); err != nil {
		return workspace.Empty{}, err
	}
	spaces := []string{which}
	if which == "*" {
		var err error
		if spaces, err = s.cfg.Vault.Workspaces(ctx, req.Tenant); err != nil {
			return workspace.Empty{}, err
		}
	}
	for _, ws := range spaces {
		if err := s.deleteSecrets(ctx, by, req.Tenant, ws); err != nil {
			return workspace.Empty{}, err
		}
	}
	return workspace.Empty{}, nil
}

func (s *Service) deleteRecords(ctx context.Context, tenant, ws string) error {
	grants, err := s.cfg.Grants.List(ctx, tenant, ws)
	if err != nil {
		return err
	}
	for _, g := range grants {
		if err := s.cfg.Grants.Delete(ctx, g.Key); err != nil {
			return err
		}
	}
	leases, err := s.cfg.Leases.List(ctx, tenant, ws)
	if err != nil {
		return err
	}
	for _, l := range leases {
		if _, err := s.end(ctx, l.Key, wire.ReasonDeleted, ""); err != nil {
			return err
		}
		if err := s.cfg.Leases.Delete(ctx, l.Key); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) deleteSecrets(ctx context.Context, by mesh.Caller, tenant, ws string) error {
	names, err := s.cfg.Vault.List(ctx, tenant, ws)
	if err != nil || len(names) == 0 {
		return err
	}
	for _, n := range names {
		if err := s.cfg.Vault.Remove(ctx, name.Secret{Tenant: tenant, Workspace: ws, Name: n}); err != nil && !fault.Is(err, fault.NotFound) {
			return err
		}
	}
	slices.Sort(names)
	s.audit(ctx, wire.Audit{Action: wire.AuditDelete, Tenant: tenant, Workspace: ws, Principal: by.Principal, Secrets: names}, nil)
	return nil
}
