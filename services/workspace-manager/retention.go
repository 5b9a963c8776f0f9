package manager

import (
	"context"
	"errors"
	"time"

	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas/workspace"
)

// retentionBatch bounds how much one pass purges, so that nothing else waits for it.
const retentionBatch = 10_000

// retention purges what has ended longer than Retention ago, for as long as this replica leads.
func (s *Service) retention(ctx context.Context) error {
	t := time.NewTicker(s.cfg.RetentionEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		for _, v := range s.tenants.views() {
			if err := v.expire(ctx, s.cfg.Now().Add(-s.cfg.Retention)); err != nil && ctx.Err() == nil {
				s.log.Warn("old records not purged; the next pass does it", "tenant", v.tenant, "err", err)
			}
		}
	}
}

// expire purges tasks, sandboxes and gathers of a tenant that ended before t. Each purge is announced
// to the other replicas' views by a last event.
func (v *view) expire(ctx context.Context, t time.Time) error {
	var errs []error
	for _, k := range v.tasks.ended("*", t, retentionBatch) {
		if err := remove(ctx, v.s, v.s.stores.tasks, k); err != nil {
			errs = append(errs, notGone(err))
		}
		v.forgetTask(k)
	}
	for _, r := range v.sandboxes.in("*") {
		if r.Value.StoppedAt != nil && r.Value.StoppedAt.Before(t) {
			errs = append(errs, v.forgetClaim(ctx, r), expireRecord(ctx, v.s, v.s.stores.sandboxes, v.sandboxes, r.Key))
		}
	}
	for _, r := range v.gathers.in("*") {
		if r.Value.At.Before(t) {
			errs = append(errs, expireRecord[workspace.Gather](ctx, v.s, v.s.stores.gathers, v.gathers, r.Key))
		}
	}
	return errors.Join(errs...)
}

func expireRecord[T any](ctx context.Context, s *Service, st *records.Store[T], tb *table[T], k records.Key) error {
	err := notGone(remove(ctx, s, st, k))
	if err == nil {
		tb.forget(k)
	}
	return err
}
