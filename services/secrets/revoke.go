package secrets

import (
	"context"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
)

var failBeforeRecord = failpoint.Register("secrets.revoke.before-record")

// Revoke ends the lease of a sandbox for the node that has it, or for the workspace-manager or the operator.
// That there is none, or no more, is no error: the reply says how many secrets it took back.
func (s *Service) Revoke(ctx context.Context, by mesh.Caller, req wire.RevokeRequest) (wire.RevokeReply, error) {
	key, err := checkRef(req.LeaseRef)
	if err != nil {
		return wire.RevokeReply{}, err
	}
	if len(req.Reason) > 200 {
		return wire.RevokeReply{}, fault.New(fault.Invalid, "reason has %d bytes; at most 200", len(req.Reason))
	}
	node := by.Principal
	if trusted(by) {
		node = "" // may end any
	}
	n, err := s.end(ctx, key, req.Reason, node)
	return wire.RevokeReply{Leases: n}, err
}

// trusted reports whether a caller on the int plane is no node.
func trusted(by mesh.Caller) bool {
	return by.Principal == schemas.WorkspaceManager || by.Principal == schemas.Operator
}

// endTries bounds how often end starts over when the lease changes at the same time.
const endTries = 16

// end revokes the lease behind key: the power, the token, then the record. node, if not empty, must be
// the lease's. It gives how many secrets were taken back, 0 if there was nothing to end.
func (s *Service) end(ctx context.Context, key records.Key, reason, node string) (int, error) {
	for range endTries {
		rec, err := s.cfg.Leases.Get(ctx, key)
		if fault.Is(err, fault.NotFound) {
			return 0, nil
		}
		if err != nil {
			return 0, err
		}
		l := rec.Value
		if node != "" && l.Node != node {
			return 0, fault.New(fault.Denied, "sandbox %s is not on node %s", key.ID, node)
		}
		if l.State == wire.LeaseRevoked {
			return 0, nil
		}
		if err := s.cfg.Vault.Revoke(ctx, l.Accessor, policyOf(key, l.Generation)); err != nil {
			return 0, err
		}
		failpoint.Hit(failBeforeRecord)
		at := s.now()
		l.State, l.Reason, l.RevokedAt = wire.LeaseRevoked, reason, &at
		_, err = s.cfg.Leases.Write(ctx, key, rec.Sequence, "revoked", l)
		if fault.Is(err, fault.Conflict) {
			continue // an issue has just recorded its token, or a renewal its expiry
		}
		s.audit(ctx, wire.Audit{Action: wire.AuditRevoke, Tenant: key.Tenant, Workspace: key.Workspace, Agent: l.Agent, Node: l.Node,
			Task: l.Task, Attempt: l.Attempt, Sandbox: l.Sandbox, Secrets: l.Secrets, Reason: reason}, err)
		return len(l.Secrets), err
	}
	return 0, fault.New(fault.Conflict, "the lease of sandbox %s changes too fast; try again", key.ID)
}
