package secrets

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
)

var (
	failAfterRecord = failpoint.Register("secrets.issue.after-record")
	failAfterToken  = failpoint.Register("secrets.issue.after-token")
	failAfterActive = failpoint.Register("secrets.issue.after-active")
)

// Issue gives a node the credentials of a sandbox, sealed to the key that the manager knows as the node's.
// Which they are comes from the manager, too; each needs a grant to the agent. Asked again by the node that
// holds the attempt, it revokes what it gave before and issues anew: tokens are never kept, so the first
// reply can't be repeated. See the package's doc for what a crash leaves.
func (s *Service) Issue(ctx context.Context, by mesh.Caller, req wire.IssueRequest) (wire.IssueReply, error) {
	ref := wire.LeaseRef(req)
	key, err := checkRef(ref)
	if err != nil {
		return wire.IssueReply{}, err
	}
	entry := wire.Audit{Action: wire.AuditIssue, Tenant: req.Tenant, Workspace: req.Workspace, Principal: by.Principal,
		Node: by.Principal, Task: req.Task, Attempt: req.Attempt, Sandbox: req.Sandbox}
	held, err := s.held(ctx, by.Principal, ref)
	if err != nil {
		s.audit(ctx, entry, err)
		return wire.IssueReply{}, err
	}
	if len(held.Secrets) == 0 {
		return s.sealTo(held.NodeKey, wire.Issued{}, time.Time{}, 0)
	}
	entry.Agent, entry.Secrets = held.Principal, namesOf(held.Secrets)
	rep, err := s.issue(ctx, key, ref, held)
	s.audit(ctx, entry, err)
	return rep, err
}

// issue is Issue after all checks of the caller.
func (s *Service) issue(ctx context.Context, key records.Key, ref wire.LeaseRef, held workspace.AttemptReply) (wire.IssueReply, error) {
	want, err := s.wanted(ctx, key, held)
	if err != nil {
		return wire.IssueReply{}, err
	}
	rec, err := s.begin(ctx, key, wire.Lease{
		Sandbox: ref.Sandbox, Task: ref.Task, Attempt: held.Attempt, Agent: held.Principal, Node: held.Node,
		Secrets: namesOf(held.Secrets), TTLMS: want.ttl.Milliseconds(), State: wire.LeaseIssuing, IssuedAt: s.now(),
	})
	if err != nil {
		return wire.IssueReply{}, err
	}
	failpoint.Hit(failAfterRecord)
	// Once more, now that the record is there: a grant that was taken back before this was missed by the
	// first look or is missed by this one; one taken back after it finds the record.
	if err := s.stillGranted(ctx, key, held); err != nil {
		reason := wire.ReasonAbandoned
		if fault.Is(err, fault.Denied) {
			reason = wire.ReasonGrantRevoked
		}
		s.abandon(ctx, rec, reason)
		return wire.IssueReply{}, err
	}
	token, rec, err := s.activate(ctx, rec, want)
	if err != nil {
		return wire.IssueReply{}, err
	}
	failpoint.Hit(failAfterActive)
	issued, err := s.collect(ctx, key, token, policyOf(rec.Key, rec.Value.Generation), want)
	if err == nil {
		err = s.unchanged(ctx, rec)
	}
	if err != nil {
		s.abandon(ctx, rec, wire.ReasonAbandoned)
		return wire.IssueReply{}, err
	}
	return s.sealTo(held.NodeKey, issued, token.ExpiresAt, len(rec.Value.Secrets))
}

// begin writes the record of an issue, or takes over the one of an earlier issue to the same attempt.
func (s *Service) begin(ctx context.Context, key records.Key, l wire.Lease) (records.Record[wire.Lease], error) {
	l.Generation = 1
	l.ExpiresAt = l.IssuedAt.Add(time.Duration(l.TTLMS) * time.Millisecond)
	rec, err := s.cfg.Leases.Create(ctx, key, "issuing", l)
	if !fault.Is(err, fault.Conflict) {
		return rec, err
	}
	old, err := s.cfg.Leases.Get(ctx, key)
	if err != nil {
		return rec, err
	}
	v := old.Value
	switch {
	case v.Node != l.Node || v.Task != l.Task || v.Attempt != l.Attempt:
		return rec, fault.New(fault.Conflict, "sandbox %s has a lease of another attempt; a sandbox serves only one", l.Sandbox)
	case v.State == wire.LeaseRevoked && v.Reason != wire.ReasonAbandoned && v.Reason != wire.ReasonExpired:
		return rec, fault.New(fault.Conflict, "the lease of sandbox %s was revoked (%s) and is not given again", l.Sandbox, v.Reason)
	}
	if err := s.cfg.Vault.Revoke(ctx, v.Accessor, policyOf(key, v.Generation)); err != nil {
		return rec, err
	}
	l.Generation = v.Generation + 1
	return s.cfg.Leases.Write(ctx, key, old.Sequence, "issuing", l)
}

// activate makes the token and records its accessor. The token may do nothing yet.
func (s *Service) activate(ctx context.Context, rec records.Record[wire.Lease], want wanted) (vault.Token, records.Record[wire.Lease], error) {
	token, err := s.cfg.Vault.Create(ctx, vault.TokenSpec{
		Policy: policyOf(rec.Key, rec.Value.Generation), TTL: want.ttl, Meta: metaOf(rec),
	})
	if err != nil {
		s.abandon(ctx, rec, wire.ReasonAbandoned)
		return token, rec, err
	}
	failpoint.Hit(failAfterToken)
	l := rec.Value
	l.State, l.Accessor, l.ExpiresAt = wire.LeaseActive, token.Accessor, token.ExpiresAt
	next, err := s.cfg.Leases.Write(ctx, rec.Key, rec.Sequence, "issued", l)
	if err != nil {
		s.discard(ctx, token.Accessor, "")
		return token, rec, fault.Wrap(err, fault.CodeOf(err), "the lease of sandbox %s was revoked or issued again at the same time", rec.ID)
	}
	return token, next, nil
}

// unchanged makes sure that the lease was not revoked or issued again while its values were read.
func (s *Service) unchanged(ctx context.Context, rec records.Record[wire.Lease]) error {
	now, err := s.cfg.Leases.Get(ctx, rec.Key)
	if err != nil {
		return err
	}
	if now.Sequence != rec.Sequence {
		return fault.New(fault.Conflict, "the lease of sandbox %s was revoked or issued again at the same time", rec.ID)
	}
	return nil
}

// abandon takes back an issue that failed half way: its power, its token, its record if that is still
// this issue's. What can't be done now is left to the TTL and the reconciler.
func (s *Service) abandon(ctx context.Context, rec records.Record[wire.Lease], reason string) {
	if !s.discard(ctx, rec.Value.Accessor, policyOf(rec.Key, rec.Value.Generation)) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	l := rec.Value
	at := s.now()
	l.State, l.Reason, l.RevokedAt = wire.LeaseRevoked, reason, &at
	if _, err := s.cfg.Leases.Write(ctx, rec.Key, rec.Sequence, "revoked", l); err != nil && !fault.Is(err, fault.Conflict) {
		s.log.Warn("a failed issue was not recorded as ended", "sandbox", rec.ID, "err", err)
	}
}

// cleanTimeout bounds what is done after a failure, whose caller may have gone.
const cleanTimeout = 5 * time.Second

// discard ends a token and its policy in Vault, and reports whether it could.
func (s *Service) discard(ctx context.Context, accessor, policy string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanTimeout)
	defer cancel()
	if err := s.cfg.Vault.Revoke(ctx, accessor, policy); err != nil {
		s.log.Warn("a token was left to expire", "policy", policy, "err", err)
		return false
	}
	return true
}

// policyOf is the name of the policy of one issue. Its parts are labels and ids, which have no dot, so it
// is unique and can be read back.
func policyOf(k records.Key, generation int) string {
	return fmt.Sprintf("%s%s.%s.%s.%d", vault.LeasePrefix, k.Tenant, k.Workspace, k.ID, generation)
}

// metaOf is how the reconciler finds the record of a token, and a person the sandbox in Vault's audit log.
func metaOf(rec records.Record[wire.Lease]) map[string]string {
	return map[string]string{
		"weft_tenant": rec.Tenant, "weft_workspace": rec.Workspace, "weft_sandbox": rec.ID,
		"weft_agent": rec.Value.Agent, "weft_node": rec.Value.Node, "weft_generation": fmt.Sprint(rec.Value.Generation),
	}
}

// namesOf lists the secrets of uses, sorted, each once.
func namesOf(uses []workspace.SecretUse) []string {
	var out []string
	for _, u := range uses {
		out = append(out, u.Name)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
