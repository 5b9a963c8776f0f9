package manager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

const wait = 10 * time.Second

// bed is a mesh with a manager, the tenant acme, its workspace demo, and the agent "worker".
type bed struct {
	t    testing.TB
	m    *meshtest.Mesh
	s    *manager.Service
	op   *mesh.Conn
	user *mesh.Conn
	dir  string
	stop func()
}

func quick(c *manager.Config) {
	c.ClaimLease, c.ClaimGrace, c.NodeTimeout = 400*time.Millisecond, 100*time.Millisecond, 2*time.Second
	c.ReconcileEvery, c.QueueCheck = 50*time.Millisecond, 300*time.Millisecond
	c.Purgers = []manager.Purger{}
}

func newBed(t testing.TB, tweak ...func(*manager.Config)) *bed {
	b := &bed{t: t, m: meshtest.Start(t, "acme", "umbrella"), dir: t.TempDir()}
	b.op, b.user = b.m.Service(schemas.Operator), b.m.User("acme", "ann")
	b.s, b.stop = b.run("m1", tweak...)
	b.tenant("acme", workspace.Quota{})
	b.define(b.user, "acme", "demo")
	return b
}

// run starts a replica; it is stopped with the test at the latest.
func (b *bed) run(instance string, tweak ...func(*manager.Config)) (*manager.Service, func()) {
	cfg := manager.Config{Conn: b.m.Service(schemas.WorkspaceManager), KeyFile: filepath.Join(b.dir, "key"), Instance: instance}
	quick(&cfg)
	for _, f := range tweak {
		f(&cfg)
	}
	s, err := manager.New(cfg)
	require.NoError(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			require.NoError(b.t, err)
		case <-time.After(wait):
			b.t.Error("the manager does not stop")
		}
	})
	b.t.Cleanup(stop)
	b.ready()
	return s, stop
}

// ready waits until a replica answers.
func (b *bed) ready() {
	require.Eventually(b.t, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_, err := ask[workspace.Page[workspace.Tenant]](ctx, b.op, "", "", workspace.OpTenantList, workspace.List{})
		return err == nil
	}, wait, 10*time.Millisecond)
}

func (b *bed) tenant(name string, q workspace.Quota) {
	tn := b.m.Tenants[name]
	_, err := ask[workspace.Tenant](b.ctx(), b.op, "", "", workspace.OpTenantPut,
		workspace.TenantPut{Tenant: workspace.Tenant{Name: name, Quota: q}, Account: tn.Account, AgentSeed: tn.AgentSeed})
	require.NoError(b.t, err)
}

func (b *bed) define(c *mesh.Conn, tenant, ws string) {
	must[workspace.Workspace](b, c, tenant, "-", workspace.OpWorkspacePut, workspace.Put[workspace.Workspace]{Value: workspace.Workspace{Name: ws}})
	must[workspace.Template](b, c, tenant, ws, workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: workspace.Template{Name: "base", Image: "base:1"}})
	b.agent(c, tenant, ws, "worker", nil)
}

func (b *bed) agent(c *mesh.Conn, tenant, ws, name string, tweak func(*workspace.Agent)) {
	a := workspace.Agent{Name: name, Template: "base", Entrypoint: []string{"run", name}}
	if tweak != nil {
		tweak(&a)
	}
	must[workspace.Agent](b, c, tenant, ws, workspace.OpAgentPut, workspace.Put[workspace.Agent]{Value: a})
}

func (b *bed) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	b.t.Cleanup(cancel)
	return ctx
}

// ask is a request of whoever c is: the operator and nodes on the int plane, else on the req plane.
func ask[Rep any](ctx context.Context, c *mesh.Conn, tenant, ws, op string, req any) (Rep, error) {
	var rep Rep
	subject, err := schemas.Int(c.Name(), schemas.WorkspaceManager, op)
	if tenant != "" {
		subject, err = schemas.Req(tenant, ws, c.Name(), schemas.WorkspaceManager, op)
	}
	if err != nil {
		return rep, err
	}
	return mesh.Request[Rep](ctx, c, subject, req)
}

func must[Rep any](b *bed, c *mesh.Conn, tenant, ws, op string, req any) Rep {
	b.t.Helper()
	rep, err := ask[Rep](b.ctx(), c, tenant, ws, op, req)
	require.NoError(b.t, err, op)
	return rep
}

func refused[Rep any](b *bed, code fault.Code, c *mesh.Conn, tenant, ws, op string, req any) error {
	b.t.Helper()
	_, err := ask[Rep](b.ctx(), c, tenant, ws, op, req)
	require.True(b.t, fault.Is(err, code), "%s: want %s, got %v", op, code, err)
	return err
}

// submit publishes a submission and gives the task's id.
func (b *bed) submit(c *mesh.Conn, tenant, ws, key string, sub any) string {
	b.t.Helper()
	body, err := json.Marshal(sub)
	require.NoError(b.t, err)
	return b.submitRaw(c, tenant, ws, key, body)
}

func (b *bed) submitRaw(c *mesh.Conn, tenant, ws, key string, body []byte) string {
	b.t.Helper()
	subject, err := schemas.Submit(tenant, ws, c.Name())
	require.NoError(b.t, err)
	m := &nats.Msg{Subject: subject, Data: body, Header: nats.Header{}}
	if key != "" {
		m.Header.Set(schemas.HeaderID, key)
	}
	ack, err := c.PublishMsg(b.ctx(), m)
	require.NoError(b.t, err)
	if key == "" {
		key = fmt.Sprintf("seq-%d", ack.Sequence)
	}
	return schemas.TaskID(tenant, ws, key)
}

func (b *bed) task(id string) workspace.Task {
	b.t.Helper()
	return must[workspace.Task](b, b.user, "acme", "demo", workspace.OpTaskGet, workspace.ID{ID: id})
}

// until waits for a task to be in one of the states.
func (b *bed) until(id string, states ...workspace.State) workspace.Task {
	b.t.Helper()
	var t workspace.Task
	var err error
	ok := func() bool {
		t, err = ask[workspace.Task](b.ctx(), b.user, "acme", "demo", workspace.OpTaskGet, workspace.ID{ID: id})
		for _, s := range states {
			if err == nil && t.State == s {
				return true
			}
		}
		return false
	}
	require.Eventually(b.t, ok, wait, 5*time.Millisecond, "task %s is not %v", id, states)
	return t
}

// history gives a task's events.
func (b *bed) history(id string) (out []string) {
	for _, c := range must[workspace.Page[workspace.Change[workspace.Task]]](b, b.user, "acme", "demo", workspace.OpTaskHistory, workspace.ID{ID: id}).Items {
		out = append(out, c.Event)
	}
	return out
}

// testNode is a node without sandboxes: it claims what it has room for, "runs" it by a function, renews, finishes.
type testNode struct {
	b       *bed
	c       *mesh.Conn
	hb      workspace.Heartbeat
	work    func(ctx context.Context, r workspace.ClaimReply) workspace.Finish
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	held    map[string]workspace.QueueItem // by sandbox
	stops   map[string]context.CancelFunc
	claimed int
	// deaf stops renewals and heartbeats, as a frozen node does.
	deaf bool
}

func exit0(context.Context, workspace.ClaimReply) workspace.Finish {
	return workspace.Finish{Outcome: workspace.Outcome{Exit: &workspace.Exit{Reason: "exited"}}}
}

func exit1(context.Context, workspace.ClaimReply) workspace.Finish {
	return workspace.Finish{Outcome: workspace.Outcome{Exit: &workspace.Exit{Code: 1, Reason: "exited"}}}
}

// untilStopped runs until it is told to stop.
func untilStopped(ctx context.Context, _ workspace.ClaimReply) workspace.Finish {
	<-ctx.Done()
	return workspace.Finish{Outcome: workspace.Outcome{Exit: &workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: "cancelled"}}}
}

func (b *bed) node(name string, slots int, work func(context.Context, workspace.ClaimReply) workspace.Finish) *testNode {
	n := b.startNode(name, slots, work)
	n.beat()
	return n
}

func (b *bed) startNode(name string, slots int, work func(context.Context, workspace.ClaimReply) workspace.Finish) *testNode {
	n := &testNode{b: b, c: b.m.Node(name), work: work, held: map[string]workspace.QueueItem{}, stops: map[string]context.CancelFunc{},
		hb: workspace.Heartbeat{Incarnation: "i1", NodeKey: "XNODE", Slots: slots, DiskFree: 1 << 40, Version: "test"}}
	ctx, cancel := context.WithCancel(context.Background())
	n.cancel = cancel
	n.loop(func() { n.pull(ctx) })
	n.loop(func() {
		t := time.NewTicker(100 * time.Millisecond)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				if n.isDeaf() {
					continue
				}
				_ = n.beatOnce()
				n.renew()
			}
		}
	})
	b.t.Cleanup(n.stop)
	return n
}

func (n *testNode) loop(f func()) {
	n.wg.Add(1)
	go func() { defer n.wg.Done(); f() }()
}

func (n *testNode) stop() {
	n.cancel()
	n.wg.Wait()
}

func (n *testNode) isDeaf() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.deaf
}

func (n *testNode) setDeaf(d bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.deaf = d
}

func (n *testNode) set(f func(*workspace.Heartbeat)) {
	n.mu.Lock()
	f(&n.hb)
	n.mu.Unlock()
	n.beat()
}

func (n *testNode) beatOnce() error {
	n.mu.Lock()
	hb := n.hb
	hb.Used = len(n.held)
	n.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := ask[workspace.Empty](ctx, n.c, "", "", workspace.OpHeartbeat, hb)
	return err
}

func (n *testNode) beat() {
	n.b.t.Helper()
	require.Eventually(n.b.t, func() bool { return n.beatOnce() == nil }, wait, 20*time.Millisecond)
}

func (n *testNode) renew() {
	n.mu.Lock()
	var req workspace.Renew
	var boxes []string
	for box, it := range n.held {
		req.Claims = append(req.Claims, workspace.Held{QueueItem: it})
		boxes = append(boxes, box)
	}
	n.mu.Unlock()
	if len(boxes) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	rep, err := ask[workspace.Renewed](ctx, n.c, "", "", workspace.OpRenew, req)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for i, v := range rep.Claims {
		if f := n.stops[boxes[i]]; f != nil && v.Verdict != workspace.VerdictKeep {
			f()
		}
	}
}

func (n *testNode) pull(ctx context.Context) {
	for ctx.Err() == nil {
		cons, err := n.c.JetStream().Consumer(ctx, "QUEUE", "default")
		if err != nil {
			continue
		}
		// One puller a slot: a message is asked for only when there is room for it.
		var wg sync.WaitGroup
		for range n.hb.Slots {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for ctx.Err() == nil {
					if m, err := cons.Next(jetstream.FetchContext(ctx)); err == nil {
						n.handle(ctx, m)
					}
				}
			}()
		}
		wg.Wait()
	}
}

func (n *testNode) handle(run context.Context, m jetstream.Msg) {
	var it workspace.QueueItem
	if json.Unmarshal(m.Data(), &it) != nil {
		return
	}
	kp, _ := nkeys.CreateUser()
	key, _ := kp.PublicKey()
	box := schemas.NewID()
	// A reply that is lost is asked for again, as a node does.
	var rep workspace.ClaimReply
	var err error
	for run.Err() == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		rep, err = ask[workspace.ClaimReply](ctx, n.c, "", "", workspace.OpClaim, workspace.Claim{QueueItem: it, Sandbox: box, UserKey: key, NodeKey: "XNODE"})
		cancel()
		if err == nil || fault.Is(err, fault.Conflict) || fault.Is(err, fault.Invalid) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	_ = m.Ack()
	if err != nil {
		return
	}
	ctx, stop := context.WithCancel(run)
	n.mu.Lock()
	n.held[box], n.stops[box] = it, stop
	n.claimed++
	n.mu.Unlock()
	fin := n.work(ctx, rep)
	fin.QueueItem = it
	for range 100 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_, err = ask[workspace.Empty](ctx, n.c, "", "", workspace.OpFinish, fin)
		cancel()
		if err == nil || fault.Is(err, fault.Conflict) || run.Err() != nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	n.mu.Lock()
	delete(n.held, box)
	delete(n.stops, box)
	n.mu.Unlock()
}

// serveKills answers sandbox-kill as a node does: what it names is stopped.
func (n *testNode) serveKills() {
	s, err := n.c.ServeNode(n.c.Name(), mesh.Op(runtime.OpSandboxKill, time.Second, func(_ context.Context, _ mesh.Caller, req runtime.SandboxKill) (workspace.Empty, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		if f := n.stops[req.ID]; f != nil {
			f()
		}
		return workspace.Empty{}, nil
	}))
	require.NoError(n.b.t, err)
	n.b.t.Cleanup(s.Stop)
}

func natsHandler(f func(subject, kind string)) nats.MsgHandler {
	return func(m *nats.Msg) { f(m.Subject, m.Header.Get(schemas.HeaderType)) }
}

func userKey(t testing.TB) string {
	kp, err := nkeys.CreateUser()
	require.NoError(t, err)
	k, err := kp.PublicKey()
	require.NoError(t, err)
	return k
}

func subjectsOf(filter string) jetstream.StreamInfoOpt { return jetstream.WithSubjectFilter(filter) }

// never checks for d that cond does not hold. Other than require.Never it leaves no check under way.
func (b *bed) never(d time.Duration, cond func() bool) {
	b.t.Helper()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-t.C {
		require.False(b.t, cond(), "what should never hold holds")
	}
}
