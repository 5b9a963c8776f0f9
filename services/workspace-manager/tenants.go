package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Durable consumers of a tenant's streams. They belong to the service; every replica pulls from them.
const (
	consumerSubmit  = "manager"
	consumerFollow  = "manager-follow"
	consumerTrigger = "manager-triggers"
)

// tenantSet follows which tenants there are (the bucket of their keys says it) and runs a view and the
// consumers of each.
type tenantSet struct {
	s     *Service
	mu    sync.Mutex
	runs  map[string]*tenantRun
	known chan struct{} // closed when all that were there at the start are known
	once  sync.Once
}

// tenantRun is one tenant being followed.
type tenantRun struct {
	view   *view
	cancel context.CancelFunc
	done   chan struct{}
	ready  chan struct{} // closed when its view is whole
}

func newTenantSet(s *Service) *tenantSet {
	return &tenantSet{s: s, runs: map[string]*tenantRun{}, known: make(chan struct{})}
}

// follow watches the tenants until ctx ends.
func (ts *tenantSet) follow(ctx context.Context) error {
	defer ts.stopAll()
	kv, err := ts.s.js.KeyValue(ctx, provision.KeysBucket)
	if err != nil {
		return err
	}
	w, err := kv.WatchAll(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = w.Stop() }()
	ts.start(ctx, workspace.SystemTenant)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-w.Updates():
			switch {
			case !ok:
				return errors.New("watch of tenants ended")
			case e == nil:
				ts.once.Do(func() { close(ts.known) })
			case e.Operation() != jetstream.KeyValuePut:
				ts.s.signers.forget(e.Key())
				ts.stop(e.Key())
				ts.s.turns.RemoveTenant(e.Key())
			default:
				if err := ts.s.signers.learn(e.Key(), e.Value()); err != nil {
					ts.s.log.Error("the key of a tenant can't be used; its sandboxes get no identity", "tenant", e.Key(), "err", err)
				}
				ts.start(ctx, e.Key())
			}
		}
	}
}

// ready waits until every tenant that was there at the start is in memory.
func (ts *tenantSet) ready(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ts.known:
	}
	for _, r := range ts.all() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.ready:
		case <-r.done:
		}
	}
	return nil
}

func (ts *tenantSet) all() []*tenantRun {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	out := make([]*tenantRun, 0, len(ts.runs))
	for _, r := range ts.runs {
		out = append(out, r)
	}
	return out
}

// views gives the views that are whole, the system tenant's among them.
func (ts *tenantSet) views() []*view {
	var out []*view
	for _, r := range ts.all() {
		select {
		case <-r.ready:
			out = append(out, r.view)
		default:
		}
	}
	return out
}

// view gives a tenant's view once it is whole; nil if there is no such tenant.
func (ts *tenantSet) view(ctx context.Context, tenant string) *view {
	ts.mu.Lock()
	r := ts.runs[tenant]
	ts.mu.Unlock()
	if r == nil {
		return nil
	}
	select {
	case <-r.ready:
		return r.view
	case <-r.done:
	case <-ctx.Done():
	}
	return nil
}

func (ts *tenantSet) start(ctx context.Context, tenant string) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.runs[tenant] != nil {
		return
	}
	run, cancel := context.WithCancel(ctx)
	r := &tenantRun{view: newView(ts.s, tenant), cancel: cancel, done: make(chan struct{}), ready: make(chan struct{})}
	ts.runs[tenant] = r
	go func() {
		defer close(r.done)
		r.run(run, ts.s)
	}()
}

func (ts *tenantSet) stop(tenant string) {
	ts.mu.Lock()
	r := ts.runs[tenant]
	delete(ts.runs, tenant)
	ts.mu.Unlock()
	if r != nil {
		r.cancel()
		<-r.done
	}
}

func (ts *tenantSet) stopAll() {
	ts.mu.Lock()
	var names []string
	for n := range ts.runs {
		names = append(names, n)
	}
	ts.mu.Unlock()
	for _, n := range names {
		ts.stop(n)
	}
}

// run follows one tenant: first its view, and when that is whole the consumers.
func (r *tenantRun) run(ctx context.Context, s *Service) {
	var wg sync.WaitGroup
	defer wg.Wait()
	whole := sync.OnceFunc(func() { close(r.ready) })
	loop := func(name string, f func(context.Context) error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s.again(ctx, name+" of "+r.view.tenant, f)
		}()
	}
	loop("view", func(ctx context.Context) error { return r.view.run(ctx, whole) })
	select {
	case <-ctx.Done():
		return
	case <-r.ready:
	}
	if r.view.tenant == workspace.SystemTenant {
		return
	}
	s.wakeAdmission()
	signal(s.purge)
	loop("submissions", func(ctx context.Context) error {
		return s.consume(ctx, "TASKS-"+r.view.tenant, consumerSubmit, "", jetstream.DeliverAllPolicy, r.view.submission)
	})
	loop("follow-up", func(ctx context.Context) error {
		return s.consume(ctx, "LOG-"+r.view.tenant, consumerFollow, s.stores.tasks.Filter(r.view.tenant), jetstream.DeliverAllPolicy, r.view.followUp)
	})
	loop("triggers", func(ctx context.Context) error {
		return s.consume(ctx, "MSG-"+r.view.tenant, consumerTrigger, "", jetstream.DeliverAllPolicy, r.view.message)
	})
}

// Timing of the durable consumers. A handling ends well before its message would be delivered again;
// AckWait is also how long a message waits that a killed replica had taken, so it is short for submissions.
const (
	handleTimeout = 6 * time.Second
	ackWait       = 8 * time.Second
	submitTimeout = 3 * time.Second
	submitAckWait = 4 * time.Second
	// followTries is how often, over some 20 minutes, a follow-up or a message's triggers are tried before they
	// go to the dead letters, from where they can be redriven. A submission is tried for ever.
	followTries = 50
)

func (s *Service) consume(ctx context.Context, stream, name, filter string, from jetstream.DeliverPolicy, handle func(context.Context, mesh.Delivery) error) error {
	again, timeout, tries := ackWait, handleTimeout, uint64(followTries)
	if name == consumerSubmit {
		again, timeout, tries = submitAckWait, submitTimeout, 0
	}
	cctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	cons, err := s.js.CreateOrUpdateConsumer(cctx, stream, jetstream.ConsumerConfig{
		Durable: name, FilterSubject: filter, DeliverPolicy: from, AckPolicy: jetstream.AckExplicitPolicy,
		AckWait: again, MaxAckPending: 4 * s.cfg.Concurrency, MaxDeliver: -1,
	})
	cancel()
	if err != nil {
		return err
	}
	return s.conn.Consume(ctx, cons, mesh.ConsumeOptions{Service: "workspace-manager", Name: name,
		Concurrency: s.cfg.Concurrency, Timeout: timeout, MaxDeliver: tries}, handle)
}

// names gives the tenants that are followed, without the system's.
func (ts *tenantSet) names() []string {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	var out []string
	for n := range ts.runs {
		if n != workspace.SystemTenant {
			out = append(out, n)
		}
	}
	return out
}

// await waits until a tenant that was just made is followed.
func (ts *tenantSet) await(ctx context.Context, tenant string) *view {
	for {
		ts.mu.Lock()
		r := ts.runs[tenant]
		ts.mu.Unlock()
		if r != nil {
			return ts.view(ctx, tenant)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(5 * time.Millisecond):
		}
	}
}
