package secrets

import (
	"context"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/secrets"
)

// maxRenewals is how many leases one request may carry; a node with more asks twice.
const maxRenewals = 1000

// renewing is how many of a request's leases are worked on at once.
const renewing = 8

// recordAfter is how many TTLs the expiry in a record may lag behind: a record for each renewal would
// fill the log with news that nobody reads. LeaseList and the reconciler ask Vault.
const recordAfter = 10

// Renew gives each lease another TTL, if the attempt is still the node's. Each has its own answer, in order:
//   - conflict: the attempt is no longer the node's, and the lease has been revoked; end the sandbox
//   - denied: the lease was revoked for another reason; the sandbox goes on without it
//   - not_found: there is none, or it has expired; Issue gives a new one
//   - anything else may be tried again until it expires
func (s *Service) Renew(ctx context.Context, by mesh.Caller, req wire.RenewRequest) (wire.RenewReply, error) {
	if len(req.Leases) > maxRenewals {
		return wire.RenewReply{}, fault.New(fault.Invalid, "%d leases in one request; at most %d", len(req.Leases), maxRenewals)
	}
	out := make([]wire.RenewResult, len(req.Leases))
	slots := make(chan struct{}, renewing)
	var wg sync.WaitGroup
	for i, ref := range req.Leases {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			until, err := s.renew(ctx, by.Principal, ref)
			if err != nil {
				code, message := fault.Public(err)
				out[i] = wire.RenewResult{Code: string(code), Message: message}
				if code == fault.Internal {
					s.log.Error("a lease was not renewed", "sandbox", ref.Sandbox, "err", err)
				}
				s.audit(ctx, wire.Audit{Action: wire.AuditRenew, Tenant: ref.Tenant, Workspace: ref.Workspace, Principal: by.Principal,
					Node: by.Principal, Task: ref.Task, Attempt: ref.Attempt, Sandbox: ref.Sandbox}, err)
				return
			}
			out[i] = wire.RenewResult{ExpiresAt: until}
		})
	}
	wg.Wait()
	return wire.RenewReply{Results: out}, nil
}

func (s *Service) renew(ctx context.Context, node string, ref wire.LeaseRef) (time.Time, error) {
	key, err := checkRef(ref)
	if err != nil {
		return time.Time{}, err
	}
	rec, err := s.cfg.Leases.Get(ctx, key)
	switch {
	case fault.Is(err, fault.NotFound):
		return time.Time{}, fault.Wrap(err, fault.NotFound, "sandbox %s has no lease", ref.Sandbox)
	case err != nil:
		return time.Time{}, err
	case rec.Value.Node != node || rec.Value.Task != ref.Task:
		return time.Time{}, errNotHeld(node, ref)
	case rec.Value.State == wire.LeaseRevoked && rec.Value.Reason == wire.ReasonExpired:
		return time.Time{}, errExpired(ref.Sandbox)
	case rec.Value.State == wire.LeaseRevoked && rec.Value.Reason == wire.ReasonNotHeld:
		return time.Time{}, errNotHeld(node, ref)
	case rec.Value.State == wire.LeaseRevoked:
		return time.Time{}, fault.New(fault.Denied, "the lease of sandbox %s was revoked (%s)", ref.Sandbox, rec.Value.Reason)
	case rec.Value.State != wire.LeaseActive:
		return time.Time{}, fault.New(fault.Unavailable, "the lease of sandbox %s is being issued; try again", ref.Sandbox)
	}
	if _, err := s.held(ctx, node, ref); err != nil {
		if fault.Is(err, fault.Conflict) {
			if _, rerr := s.end(ctx, key, wire.ReasonNotHeld, ""); rerr != nil {
				s.log.Warn("a lease that is no longer held was left to expire", "sandbox", ref.Sandbox, "err", rerr)
			}
		}
		return time.Time{}, err
	}
	ttl := time.Duration(rec.Value.TTLMS) * time.Millisecond
	until, err := s.cfg.Vault.Renew(ctx, rec.Value.Accessor, ttl)
	if fault.Is(err, fault.NotFound) {
		if _, rerr := s.end(ctx, key, wire.ReasonExpired, ""); rerr != nil {
			s.log.Warn("an expired lease was not recorded as such", "sandbox", ref.Sandbox, "err", rerr)
		}
		return time.Time{}, errExpired(ref.Sandbox)
	}
	if err != nil {
		return time.Time{}, err
	}
	if until.Sub(rec.Value.ExpiresAt) >= recordAfter*ttl {
		l := rec.Value
		l.ExpiresAt = until
		// Losing against another change is no harm: that one is newer.
		if _, err := s.cfg.Leases.Write(ctx, key, rec.Sequence, "renewed", l); err != nil && !fault.Is(err, fault.Conflict) {
			s.log.Warn("a renewal was not recorded", "sandbox", ref.Sandbox, "err", err)
		}
	}
	return until, nil
}

func errExpired(sandbox string) error {
	return fault.New(fault.NotFound, "the lease of sandbox %s has expired; issue it anew", sandbox)
}
