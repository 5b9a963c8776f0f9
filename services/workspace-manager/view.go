package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/turns"
)

// stores write and read the log.
type stores struct {
	tenants    *records.Store[workspace.Tenant]
	workspaces *records.Store[workspace.Workspace]
	templates  *records.Store[workspace.Template]
	agents     *records.Store[workspace.Agent]
	triggers   *records.Store[workspace.Trigger]
	tasks      *records.Store[workspace.Task]
	gathers    *records.Store[workspace.Gather]
	sandboxes  *records.Store[workspace.Sandbox]
	nodes      *records.Store[workspace.NodeRecord]
	pools      *records.Store[workspace.Pool]
	claims     *records.Store[workspace.HeldClaim]
}

func newStores(c *mesh.Conn) stores {
	return stores{
		tenants:    records.New[workspace.Tenant](c, workspace.EntityTenant, 1),
		workspaces: records.New[workspace.Workspace](c, workspace.EntityWorkspace, 1),
		templates:  records.New[workspace.Template](c, workspace.EntityTemplate, 1),
		agents:     records.New[workspace.Agent](c, workspace.EntityAgent, 1),
		triggers:   records.New[workspace.Trigger](c, workspace.EntityTrigger, 1),
		tasks:      records.New[workspace.Task](c, workspace.EntityTask, 1),
		gathers:    records.New[workspace.Gather](c, workspace.EntityGather, 1),
		sandboxes:  records.New[workspace.Sandbox](c, workspace.EntitySandbox, 1),
		nodes:      records.New[workspace.NodeRecord](c, workspace.EntityNode, 1),
		pools:      records.New[workspace.Pool](c, workspace.EntityPool, 1),
		claims:     records.New[workspace.HeldClaim](c, workspace.EntityClaim, 1),
	}
}

// view is a tenant's records in memory, a moment behind the log. What must be exact asks the log.
type view struct {
	s      *Service
	tenant string

	tenants    *table[workspace.Tenant]
	workspaces *table[workspace.Workspace]
	templates  *table[workspace.Template]
	agents     *table[workspace.Agent]
	triggers   *table[workspace.Trigger]
	sandboxes  *table[workspace.Sandbox]
	nodes      *table[workspace.NodeRecord]
	gathers    *table[workspace.Gather]
	pools      *table[workspace.Pool]
	tasks      *taskList
	taskMu     sync.Mutex

	mu      sync.Mutex
	applied uint64
	changed chan struct{} // closed at the next change
}

func newView(s *Service, tenant string) *view {
	return &view{s: s, tenant: tenant,
		tenants: newTable[workspace.Tenant](), workspaces: newTable[workspace.Workspace](), templates: newTable[workspace.Template](),
		agents: newTable[workspace.Agent](), triggers: newTable[workspace.Trigger](), sandboxes: newLivingTable(func(b workspace.Sandbox) bool { return b.State != workspace.SandboxStopped }),
		nodes: newTable[workspace.NodeRecord](), gathers: newTable[workspace.Gather](), pools: newTable[workspace.Pool](), tasks: newTaskList(),
		changed: make(chan struct{})}
}

// run follows the log until ctx ends. ready is called once, when all that was there at the start is in.
func (v *view) run(ctx context.Context, ready func()) error {
	st := v.s.stores
	cons, err := v.s.js.OrderedConsumer(ctx, records.Stream(v.tenant), jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		FilterSubjects: []string{st.tenants.Filter(v.tenant), st.workspaces.Filter(v.tenant), st.templates.Filter(v.tenant),
			st.agents.Filter(v.tenant), st.triggers.Filter(v.tenant), st.sandboxes.Filter(v.tenant), st.nodes.Filter(v.tenant),
			st.gathers.Filter(v.tenant), st.pools.Filter(v.tenant), st.tasks.Filter(v.tenant)},
	})
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the log of tenant %q can't be followed now", v.tenant)
	}
	once := sync.OnceFunc(ready)
	if info := cons.CachedInfo(); info != nil && info.NumPending == 0 {
		once()
	}
	it, err := cons.Messages(jetstream.PullMaxMessages(2000))
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, it.Stop)
	defer stop()
	defer it.Stop()
	for {
		m, err := it.Next()
		if ctx.Err() != nil || errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return ctx.Err()
		}
		if err != nil {
			continue // the ordered consumer makes itself anew
		}
		md, err := m.Metadata()
		if err != nil {
			continue
		}
		v.apply(mesh.Delivery{Subject: m.Subject(), Header: m.Headers(), Data: m.Data(), Sequence: md.Sequence.Stream, Time: md.Timestamp, Stream: md.Stream})
		if md.NumPending == 0 {
			once()
		}
	}
}

// apply takes one message of the log.
func (v *view) apply(d mesh.Delivery) {
	s, err := schemas.ParseSubject(d.Subject)
	if err != nil {
		return
	}
	st := v.s.stores
	switch s.Entity {
	case workspace.EntityTask:
		note(v, st.tasks, d, v.task)
	case workspace.EntityTenant:
		note(v, st.tenants, d, func(r records.Record[workspace.Tenant]) { v.tenants.put(r); v.s.quotaOf(r.Value) })
	case workspace.EntityWorkspace:
		note(v, st.workspaces, d, func(r records.Record[workspace.Workspace]) {
			v.workspaces.put(r)
			if r.Event == deleted {
				v.dropWorkspace(r.ID)
			}
			v.s.turns.SetWorkspace(r.Tenant, r.ID, r.Value.Quota.MaxRunning)
		})
	case workspace.EntityAgent:
		note(v, st.agents, d, func(r records.Record[workspace.Agent]) {
			v.agents.put(r)
			v.s.turns.SetAgent(r.Tenant, r.Workspace, r.ID, r.Value.MaxRunning)
		})
	case workspace.EntityTemplate:
		note(v, st.templates, d, v.templates.put)
	case workspace.EntityTrigger:
		note(v, st.triggers, d, v.triggers.put)
	case workspace.EntityPool:
		note(v, st.pools, d, v.pools.put)
	case workspace.EntityGather:
		note(v, st.gathers, d, v.gathers.put)
	case workspace.EntitySandbox:
		note(v, st.sandboxes, d, func(r records.Record[workspace.Sandbox]) { v.sandboxes.put(withoutOutput(r)); v.s.nodes.hold(r) })
	case workspace.EntityNode:
		note(v, st.nodes, d, func(r records.Record[workspace.NodeRecord]) { v.nodes.put(r); v.s.nodes.record(r) })
	}
	v.mu.Lock()
	v.applied = d.Sequence
	close(v.changed)
	v.changed = make(chan struct{})
	v.mu.Unlock()
}

func note[T any](v *view, st *records.Store[T], d mesh.Delivery, use func(records.Record[T])) {
	r, ok, err := st.Decode(d)
	if err != nil {
		v.s.log.Error("unreadable record", "subject", d.Subject, "sequence", d.Sequence, "err", err)
	}
	if ok {
		use(r)
	}
}

// task notes a task's state and tells admission. The log's follower calls it, and whoever wrote a state,
// so that nobody waits for the log to come round.
func (v *view) task(r records.Record[workspace.Task]) {
	if r.Event == deleted {
		v.forgetTask(r.Key)
		return
	}
	// The list refuses what is older than it has; both must see the states in one order.
	v.taskMu.Lock()
	fresh := v.tasks.put(summarize(r, v.s.cfg.Now()))
	if fresh {
		v.s.turns.Put(v.item(r.Key, &r.Value))
	}
	v.taskMu.Unlock()
	if fresh {
		v.s.wakeAdmission()
	}
}

func (v *view) item(k records.Key, t *workspace.Task) turns.Item {
	it := turns.Item{Key: turns.Key(k), Agent: t.Submission.Agent,
		Priority: t.Submission.Priority, Since: t.CreatedAt, State: t.State, Node: t.Attempt.Node}
	if t.NotBefore != nil {
		it.NotBefore = *t.NotBefore
	}
	if ws, ok := v.workspaces.get(workspaceKey(k.Tenant, k.Workspace)); ok {
		it.Pin = ws.Value.Labels[workspace.LabelNode]
	}
	if t.Run != nil {
		it.Pin = pinOf(t.Run.Image, it.Pin)
	}
	return it
}

// workspaceKey is where a workspace's own record lies: among the tenant's, so that it outlives what is in it.
func workspaceKey(tenant, ws string) records.Key {
	return records.Key{Tenant: tenant, Workspace: schemas.NoWorkspace, ID: ws}
}

func (v *view) forgetTask(k records.Key) {
	v.tasks.forget(k)
	v.s.turns.Remove(turns.Key(k))
}

// wait blocks until the view has seen sequence seq, so that who wrote it reads its own write. It waits a
// second at most: a view that hangs delays nobody for longer.
func (v *view) wait(ctx context.Context, seq uint64) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for {
		v.mu.Lock()
		applied, changed := v.applied, v.changed
		v.mu.Unlock()
		if applied >= seq {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// sandbox notes a state of a sandbox that was just written, so that who wrote it need not wait for the log to come round. One
// that the view has seen already changes nothing: the sandbox may have been deleted since.
func (v *view) sandbox(r records.Record[workspace.Sandbox]) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.applied < r.Sequence {
		v.sandboxes.put(withoutOutput(r))
	}
}

// next gives a channel that is closed at the view's next change.
func (v *view) next() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}
