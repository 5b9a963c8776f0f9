package secrets

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Delete removes a secret with all its versions, its grants, and the leases that used it. Grants go first:
// a secret of the same name that comes later must not be granted by what was meant for this one. Dying in
// between leaves the secret, and repeating finishes.
func (s *Service) Delete(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Empty, error) {
	secret, err := secretOf(by, req.Name)
	if err != nil {
		return workspace.Empty{}, err
	}
	if _, err := s.cfg.Vault.Describe(ctx, secret); err != nil {
		return workspace.Empty{}, noSecret(err, req.Name)
	}
	err = s.deleteGrantsOf(ctx, by, req.Name)
	if err == nil {
		err = s.cfg.Vault.Remove(ctx, secret)
	}
	if fault.Is(err, fault.NotFound) {
		err = nil // another one was quicker
	}
	s.audit(ctx, wire.Audit{Action: wire.AuditDelete, Tenant: by.Tenant, Workspace: by.Workspace, Principal: by.Principal, Secrets: []string{req.Name}}, err)
	return workspace.Empty{}, err
}

func (s *Service) deleteGrantsOf(ctx context.Context, by mesh.Caller, secret string) error {
	grants, err := s.cfg.Grants.List(ctx, by.Tenant, by.Workspace)
	if err != nil {
		return err
	}
	for _, g := range grants {
		if g.Value.Secret != secret {
			continue
		}
		if _, err := s.revokeGrant(ctx, by, g); err != nil {
			return err
		}
	}
	return nil
}

// noSecret turns Vault's not_found into a sentence that says what to do.
func noSecret(err error, name string) error {
	if fault.Is(err, fault.NotFound) {
		return fault.Wrap(err, fault.NotFound, "no secret %q in this workspace; store one with `weft secret put %s`", name, name)
	}
	return err
}
