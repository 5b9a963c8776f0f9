package manager

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/schemas"
)

// leaseEvery is how often the leader renews; the bucket forgets a lease after provision.LeaseTTL.
const leaseEvery = provision.LeaseTTL / 4

// leader holds the lease behind which admission, reconciliation, retention and deletion are done. It is
// an economy, not a guard: two that both believe to lead do no harm.
type leader struct {
	s     *Service
	leads atomic.Bool
}

// run tries for the lease, and works while it is held.
func (l *leader) run(ctx context.Context) error {
	kv, err := l.s.js.KeyValue(ctx, provision.LeasesBucket)
	if err != nil {
		return err
	}
	if err := l.s.tenants.ready(ctx); err != nil {
		return err
	}
	for {
		rev, ok, err := l.acquire(ctx, kv)
		if err != nil {
			return err
		}
		if ok {
			err = l.work(ctx, kv, rev)
			if ctx.Err() != nil || err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(leaseEvery / 2):
		}
	}
}

// acquire takes the lease if it is free, or if it is that of this instance's earlier life.
func (l *leader) acquire(ctx context.Context, kv jetstream.KeyValue) (rev uint64, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, leaseEvery)
	defer cancel()
	rev, err = kv.Create(ctx, schemas.WorkspaceManager, []byte(l.s.cfg.Instance))
	if err == nil {
		return rev, true, nil
	}
	if !errors.Is(err, jetstream.ErrKeyExists) {
		return 0, false, err
	}
	e, err := kv.Get(ctx, schemas.WorkspaceManager)
	if err != nil || string(e.Value()) != l.s.cfg.Instance {
		return 0, false, nil
	}
	rev, err = kv.Update(ctx, schemas.WorkspaceManager, []byte(l.s.cfg.Instance), e.Revision())
	return rev, err == nil, nil
}

// work does the leader's work until the lease is lost or ctx ends; then it gives the lease away.
func (l *leader) work(ctx context.Context, kv jetstream.KeyValue, rev uint64) error {
	run, cancel := context.WithCancel(ctx)
	l.leads.Store(true)
	l.s.log.Info("leading", "instance", l.s.cfg.Instance)
	var wg sync.WaitGroup
	for name, f := range map[string]func(context.Context) error{
		"admission": l.s.admission, "reconciler": l.s.reconciler, "retention": l.s.retention, "deletion": l.s.deletion,
	} {
		wg.Add(1)
		go func() {
			defer wg.Done()
			l.s.again(run, name, f)
		}()
	}
	rev, err := l.keep(run, kv, rev)
	cancel()
	wg.Wait()
	l.leads.Store(false)
	if err == nil && ctx.Err() != nil {
		gctx, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		_ = kv.Delete(gctx, schemas.WorkspaceManager, jetstream.LastRevision(rev))
	}
	return err
}

// keep renews until ctx ends (nil) or the lease is somebody else's or can't be renewed in time.
func (l *leader) keep(ctx context.Context, kv jetstream.KeyValue, rev uint64) (uint64, error) {
	t := time.NewTicker(leaseEvery)
	defer t.Stop()
	held := time.Now()
	for {
		select {
		case <-ctx.Done():
			return rev, nil
		case <-t.C:
		}
		rctx, cancel := context.WithTimeout(ctx, leaseEvery)
		start := time.Now()
		n, err := kv.Update(rctx, schemas.WorkspaceManager, []byte(l.s.cfg.Instance), rev)
		cancel()
		var api *jetstream.APIError
		switch {
		case err == nil:
			rev, held = n, start
		case ctx.Err() != nil:
			return rev, nil
		case errors.As(err, &api), errors.Is(err, jetstream.ErrKeyExists):
			return rev, errors.New("the lease is somebody else's now")
		case time.Since(held) > provision.LeaseTTL-leaseEvery:
			return rev, errors.New("the lease can't be renewed")
		}
	}
}
