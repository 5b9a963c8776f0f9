package secrets

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
)

// Reconcile compares Vault with the records and the records with who holds the attempts, and ends what
// has no reason to be: leases of attempts that are over or another's, leases without their grants, issues that
// died half way, tokens and policies without a record. It also removes old records of revoked leases. It
// takes nothing from events, only from levels, so nothing is missed by having been away; and all it does is
// idempotent, so several may run. What fails is tried again the next time.
func (s *Service) Reconcile(ctx context.Context) error {
	s.reconcile.Lock()
	defer s.reconcile.Unlock()
	// Vault first: whatever of ours is in there now has a record that was written before.
	accessors, err := s.cfg.Vault.Accessors(ctx)
	if err != nil {
		return err
	}
	policies, err := s.cfg.Vault.Policies(ctx)
	if err != nil {
		return err
	}
	tenants, err := s.cfg.Vault.Tenants(ctx)
	if err != nil {
		return err
	}
	var errs []error
	known := map[string]bool{} // accessors and policies of active leases
	for _, tenant := range tenants {
		errs = append(errs, s.reconcileTenant(ctx, tenant, known))
	}
	for _, p := range policies {
		if !known[p] {
			errs = append(errs, s.reconcilePolicy(ctx, p))
		}
	}
	errs = append(errs, s.reconcileTokens(ctx, accessors, known))
	return errors.Join(errs...)
}

func (s *Service) reconcileTenant(ctx context.Context, tenant string, known map[string]bool) error {
	// Grants before leases: a lease that is in the list and whose grant is not was issued under a grant
	// that was taken back, or under one that came after this list; the lease is looked at again for that.
	grants, err := s.cfg.Grants.List(ctx, tenant, "*")
	if err != nil {
		return err
	}
	granted := map[string]bool{}
	for _, g := range grants {
		granted[g.ID] = true
	}
	leases, err := s.cfg.Leases.List(ctx, tenant, "*")
	if err != nil {
		return err
	}
	var errs []error
	for _, l := range leases {
		if l.Value.State == wire.LeaseActive {
			known[l.Value.Accessor], known[policyOf(l.Key, l.Value.Generation)] = true, true
		}
		if err := s.reconcileLease(ctx, l, granted); err != nil {
			errs = append(errs, err)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(errs...)
}

func (s *Service) reconcileLease(ctx context.Context, l records.Record[wire.Lease], granted map[string]bool) error {
	v := l.Value
	end := func(reason string) error {
		_, err := s.end(ctx, l.Key, reason, "")
		return err
	}
	switch v.State {
	case wire.LeaseRevoked:
		if v.RevokedAt != nil && s.now().Sub(*v.RevokedAt) > s.cfg.Retention {
			return s.cfg.Leases.Delete(ctx, l.Key)
		}
		return nil
	case wire.LeaseIssuing:
		if s.now().Sub(v.IssuedAt) > abandonedAfter {
			return end(wire.ReasonAbandoned)
		}
		return nil
	}
	_, err := s.held(ctx, v.Node, wire.LeaseRef{Tenant: l.Tenant, Workspace: l.Workspace, Task: v.Task, Attempt: v.Attempt, Sandbox: v.Sandbox})
	if fault.Is(err, fault.Conflict) {
		return end(wire.ReasonNotHeld)
	}
	for _, secret := range v.Secrets {
		id := GrantID(l.Tenant, l.Workspace, secret, v.Agent)
		if granted[id] {
			continue
		}
		if _, gerr := s.cfg.Grants.Get(ctx, records.Key{Tenant: l.Tenant, Workspace: l.Workspace, ID: id}); fault.Is(gerr, fault.NotFound) {
			return end(wire.ReasonGrantRevoked)
		} else if gerr != nil {
			return gerr
		}
	}
	if err != nil {
		return err // the manager could not be asked; without renewal the lease ends by itself
	}
	if s.now().Before(v.ExpiresAt) {
		return nil
	}
	if _, err := s.cfg.Vault.Lookup(ctx, v.Accessor); fault.Is(err, fault.NotFound) {
		return end(wire.ReasonExpired)
	} else if err != nil {
		return err
	}
	return nil
}

// reconcilePolicy removes a policy whose issue is not the active one of its lease. Policies are written after
// the record is active, so one in Vault whose record is not was left behind.
func (s *Service) reconcilePolicy(ctx context.Context, policy string) error {
	parts := strings.Split(strings.TrimPrefix(policy, vault.LeasePrefix), ".")
	if len(parts) == 4 {
		key := records.Key{Tenant: parts[0], Workspace: parts[1], ID: parts[2]}
		generation, err := strconv.Atoi(parts[3])
		rec, gerr := s.cfg.Leases.Get(ctx, key)
		switch {
		case err != nil || fault.Is(gerr, fault.Invalid): // not written by us
		case gerr == nil && rec.Value.State == wire.LeaseActive && rec.Value.Generation == generation:
			return nil
		case gerr != nil && !fault.Is(gerr, fault.NotFound):
			return gerr
		}
	}
	s.log.Info("removing a policy without a lease", "policy", policy)
	return s.cfg.Vault.Revoke(ctx, "", policy)
}

// reconcileTokens revokes tokens of our role that no record knows. The tokens of others are remembered for
// as long as Vault lists them, so that they are looked at once.
func (s *Service) reconcileTokens(ctx context.Context, accessors []string, known map[string]bool) error {
	foreign := map[string]bool{}
	var errs []error
	for _, a := range accessors {
		if known[a] {
			continue
		}
		if s.foreign[a] {
			foreign[a] = true
			continue
		}
		h, err := s.cfg.Vault.Lookup(ctx, a)
		switch {
		case fault.Is(err, fault.NotFound):
			foreign[a] = true // is ending, or leads nowhere until Vault tidies up
		case err != nil:
			errs = append(errs, err)
		case !h.Ours:
			foreign[a] = true
		default:
			errs = append(errs, s.reconcileToken(ctx, a, h))
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	s.foreign = foreign
	return errors.Join(errs...)
}

func (s *Service) reconcileToken(ctx context.Context, accessor string, h vault.Holder) error {
	key := records.Key{Tenant: h.Meta["weft_tenant"], Workspace: h.Meta["weft_workspace"], ID: h.Meta["weft_sandbox"]}
	rec, err := s.cfg.Leases.Get(ctx, key)
	if err != nil && !fault.Is(err, fault.NotFound) && !fault.Is(err, fault.Invalid) {
		return err
	}
	if err == nil {
		same := strconv.Itoa(rec.Value.Generation) == h.Meta["weft_generation"]
		switch rec.Value.State {
		case wire.LeaseActive:
			if rec.Value.Accessor == accessor {
				return nil
			}
		case wire.LeaseIssuing:
			// Its issue may be about to record it; if that died, the record is ended first.
			if same && s.now().Sub(rec.Value.IssuedAt) <= abandonedAfter {
				return nil
			}
		}
	}
	s.log.Info("revoking a token without a lease", "tenant", key.Tenant, "sandbox", key.ID)
	err = s.cfg.Vault.Revoke(ctx, accessor, "")
	s.audit(ctx, wire.Audit{Action: wire.AuditRevoke, Tenant: key.Tenant, Workspace: key.Workspace, Sandbox: key.ID,
		Agent: h.Meta["weft_agent"], Node: h.Meta["weft_node"], Reason: wire.ReasonAbandoned}, err)
	return err
}

// reconcileTimeout bounds one reconciliation.
const reconcileTimeout = 5 * time.Minute

// Run keeps the service's own token alive and reconciles, at once and then every ReconcileEvery, until ctx
// ends. It waits for a Vault that is not there yet.
func (s *Service) Run(ctx context.Context) error {
	alive := make(chan struct{})
	go func() { defer close(alive); s.cfg.Vault.KeepAlive(ctx) }()
	defer func() { <-alive }()
	ready := false
	for wait := time.Duration(0); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		if !ready {
			if err := s.cfg.Vault.Ensure(ctx); err != nil {
				s.log.Warn("Vault is not ready", "err", err)
				wait = min(max(2*wait, 100*time.Millisecond), 10*time.Second)
				continue
			}
			ready = true
		}
		wait = s.cfg.ReconcileEvery
		rctx, cancel := context.WithTimeout(ctx, reconcileTimeout)
		if err := s.Reconcile(rctx); err != nil && ctx.Err() == nil {
			s.log.Warn("reconciliation is incomplete", "err", err)
			wait = min(wait, 5*time.Second)
		}
		cancel()
	}
}
