package secrets

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// LeaseList gives what sandboxes of the workspace were given, newest first. For an active lease Vault is
// asked until when it lives; one that Vault no longer has is shown as revoked, expired.
func (s *Service) LeaseList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[wire.Lease], error) {
	if err := workspaceOf(by); err != nil {
		return workspace.Page[wire.Lease]{}, err
	}
	rs, err := s.cfg.Leases.List(ctx, by.Tenant, by.Workspace)
	if err != nil {
		return workspace.Page[wire.Lease]{}, err
	}
	var leases []wire.Lease
	for _, r := range rs {
		leases = append(leases, r.Value)
	}
	// Descending by time, as a string that ascends.
	key := func(l wire.Lease) string {
		return fmt.Sprintf("%020d %s", math.MaxInt64-l.IssuedAt.UnixNano(), l.Sandbox)
	}
	slices.SortFunc(leases, func(a, b wire.Lease) int { return strings.Compare(key(a), key(b)) })
	page, err := pageOf(req, leases, key)
	if err != nil {
		return page, err
	}
	return page, s.refresh(ctx, page.Items)
}

// refresh puts Vault's word in the place of the record's.
func (s *Service) refresh(ctx context.Context, leases []wire.Lease) error {
	slots := make(chan struct{}, renewing)
	errs := make([]error, len(leases))
	var wg sync.WaitGroup
	for i := range leases {
		l := &leases[i]
		if l.State != wire.LeaseActive {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			h, err := s.cfg.Vault.Lookup(ctx, l.Accessor)
			switch {
			case fault.Is(err, fault.NotFound):
				l.State, l.Reason = wire.LeaseRevoked, wire.ReasonExpired
			case err != nil:
				errs[i] = err
			default:
				l.ExpiresAt = h.ExpiresAt
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
