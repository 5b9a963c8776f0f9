package secrets

import (
	"context"
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
)

// GrantID is the identifier of the grant of a secret to an agent: there is one of each.
func GrantID(tenant, workspace, secret, agent string) string {
	return schemas.DerivedID("grant", tenant, workspace, secret, agent)
}

// Grant lets an agent have a secret in the ways named. Granting again replaces the ways and the TTL; a
// way that is no longer among them ends the leases that were given under the grant before.
func (s *Service) Grant(ctx context.Context, by mesh.Caller, req wire.GrantRequest) (wire.Grant, error) {
	var none wire.Grant
	secret, err := secretOf(by, req.Secret)
	if err != nil {
		return none, err
	}
	if err := schemas.CheckName("agent", req.Agent); err != nil {
		return none, fault.New(fault.Invalid, "%s", err)
	}
	ways, err := checkWays(req.As)
	if err != nil {
		return none, err
	}
	if req.TTLMS != 0 && (req.TTLMS < wire.MinTTLMS || req.TTLMS > wire.MaxTTLMS) {
		return none, fault.New(fault.Invalid, "ttl_ms %d must be %d to %d; a lease is renewed while its sandbox lives", req.TTLMS, wire.MinTTLMS, wire.MaxTTLMS)
	}
	info, err := s.cfg.Vault.Describe(ctx, secret)
	if err != nil {
		return none, noSecret(err, req.Secret)
	}
	if info.Kind == wire.KindTransit && !slices.Equal(ways, []string{wire.AsVault}) {
		return none, fault.New(fault.Invalid, "secret %q is a transit key, which never leaves Vault; grant it with --as %s only", req.Secret, wire.AsVault)
	}
	g := wire.Grant{
		ID: GrantID(by.Tenant, by.Workspace, req.Secret, req.Agent), Secret: req.Secret, Agent: req.Agent,
		As: ways, TTLMS: req.TTLMS, GrantedBy: by.Principal, CreatedAt: s.now(),
	}
	narrowed := false
	r, err := s.cfg.Grants.Put(ctx, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: g.ID}, func(v *wire.Grant, exists bool) (string, error) {
		narrowed = exists && slices.ContainsFunc(v.As, func(a string) bool { return !slices.Contains(ways, a) })
		switch {
		case !exists:
			*v = g
			return "granted", nil
		case slices.Equal(v.As, g.As) && v.TTLMS == g.TTLMS:
			return "", nil
		}
		*v = g
		return "changed", nil
	})
	if err == nil && narrowed {
		_, err = s.revokeUsers(ctx, by.Tenant, by.Workspace, req.Secret, req.Agent)
	}
	s.audit(ctx, wire.Audit{Action: wire.AuditGrant, Tenant: by.Tenant, Workspace: by.Workspace, Principal: by.Principal, Agent: req.Agent, Secrets: []string{req.Secret}}, err)
	return r.Value, err
}
