package manager_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

func putPool(p workspace.Pool) workspace.Put[workspace.Pool] {
	return workspace.Put[workspace.Pool]{Value: p}
}

func (b *bed) pool(ws string, p workspace.Pool) workspace.Pool {
	b.t.Helper()
	return must[workspace.Pool](b, b.user, "acme", ws, workspace.OpPoolPut, putPool(p))
}

func (b *bed) sharedTemplate(name, image string) {
	b.t.Helper()
	must[workspace.Template](b, b.op, "", "", workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: workspace.Template{Name: name, Image: image}})
}

// wanted is what a node that is not in the bed otherwise is told to keep, as "tenant/workspace/name".
func (b *bed) wanted(c *mesh.Conn, states ...workspace.PoolState) map[string]workspace.WantedPool {
	b.t.Helper()
	rep := must[workspace.HeartbeatReply](b, c, "", "", workspace.OpHeartbeat,
		workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40, Pools: states})
	out := map[string]workspace.WantedPool{}
	for _, p := range rep.Pools {
		out[p.Tenant+"/"+p.Workspace+"/"+p.Name] = p
	}
	return out
}

// keeps waits until what a node is to keep is as it should be: the manager's view is a moment behind the log.
func (b *bed) keeps(c *mesh.Conn, what string, is func(map[string]workspace.WantedPool) bool) {
	b.t.Helper()
	var last map[string]workspace.WantedPool
	require.Eventually(b.t, func() bool { last = b.wanted(c); return is(last) }, 30*time.Second, 20*time.Millisecond, "%s: %v", what, &last)
}

func with(names ...string) func(map[string]workspace.WantedPool) bool {
	return func(m map[string]workspace.WantedPool) bool {
		for _, n := range names {
			if _, ok := m[n]; !ok {
				return false
			}
		}
		return len(m) == len(names)
	}
}

// poolIs waits until a pool's status is as it should be, and gives it.
func (b *bed) poolIs(c *mesh.Conn, tenant, ws, name string, is func(workspace.PoolStatus) bool) workspace.PoolStatus {
	b.t.Helper()
	var st workspace.PoolStatus
	require.Eventually(b.t, func() bool {
		var err error
		st, err = ask[workspace.PoolStatus](b.ctx(), c, tenant, ws, workspace.OpPoolGet, workspace.Name{Name: name})
		return err == nil && is(st)
	}, 30*time.Second, 20*time.Millisecond, "pool %s: %+v", name, &st)
	return st
}

// poolsAre waits until a list has just these pools.
func (b *bed) poolsAre(c *mesh.Conn, tenant, ws string, names ...string) {
	b.t.Helper()
	var got []string
	require.Eventually(b.t, func() bool {
		p, err := ask[workspace.Page[workspace.PoolStatus]](b.ctx(), c, tenant, ws, workspace.OpPoolList, workspace.List{})
		got = sorted(poolNames(p.Items))
		return err == nil && slices.Equal(names, got)
	}, 30*time.Second, 20*time.Millisecond, "%v", &got)
}

func poolNames(ps []workspace.PoolStatus) (out []string) {
	for _, p := range ps {
		out = append(out, p.Tenant+"/"+p.Workspace+"/"+p.Name)
	}
	return out
}

func TestPools(t *testing.T) {
	b := newBed(t)
	refuse := func(code fault.Code, ws string, p workspace.Pool, says string) {
		t.Helper()
		require.ErrorContains(t, refused[workspace.Pool](b, code, b.user, "acme", ws, workspace.OpPoolPut, putPool(p)), says)
	}
	refuse(fault.NotFound, "demo", workspace.Pool{Name: "nothing", Max: 1}, `no template "nothing"`)
	refuse(fault.NotFound, "-", workspace.Pool{Name: "base", Max: 1}, `no template "base"`) // it is the workspace's own
	refuse(fault.Invalid, "demo", workspace.Pool{Name: "base", Level: "paranoid", Max: 1}, "standard, high, custom")
	refuse(fault.Invalid, "demo", workspace.Pool{Name: "base", Level: "custom", Max: 1}, "not of level custom")
	refuse(fault.Invalid, "demo", workspace.Pool{Name: "base"}, `"max" must be 1 to 1000`)
	refuse(fault.Invalid, "demo", workspace.Pool{Name: "base", Max: 1001}, `"max" must be 1 to 1000`)
	refuse(fault.Invalid, "demo", workspace.Pool{Name: "base", Min: 3, Max: 2}, `"min" must be 0 to "max"`)
	refuse(fault.Invalid, "demo", workspace.Pool{Name: "base", Min: -1, Max: 2}, `"min" must be 0 to "max"`)
	refuse(fault.Invalid, "demo", workspace.Pool{Name: "base", Max: 1, MaxAgeMS: -1}, "max_age_ms")
	refuse(fault.Invalid, "demo", workspace.Pool{Name: "Base", Max: 1}, "DNS label")

	p := b.pool("demo", workspace.Pool{Name: "base", Min: 1, Max: 2, Alias: "fast"})
	require.Equal(t, 1, p.Version)
	require.Equal(t, p, b.pool("demo", workspace.Pool{Name: "base", Min: 1, Max: 2}), "the same again is no new version, and the alias stays")
	p = b.pool("demo", workspace.Pool{Name: "base", Min: 1, Max: 10})
	require.Equal(t, []any{2, "fast"}, []any{p.Version, p.Alias})
	refuse(fault.Conflict, "demo", workspace.Pool{Name: "base", Max: 2, Alias: "slow"}, `has the pool "fast" already`)
	refused[workspace.Pool](b, fault.Conflict, b.user, "acme", "demo", workspace.OpPoolPut, workspace.Put[workspace.Pool]{Value: workspace.Pool{Name: "base", Max: 3}, Version: 1})

	b.sharedTemplate("python", "python:1")
	refuse(fault.Conflict, "demo", workspace.Pool{Name: "python", Max: 2, Alias: "fast"}, `a pool "fast" already`)
	refuse(fault.Exhausted, "demo", workspace.Pool{Name: "python", Max: 7}, "17 members on each node, its quota is 16")
	b.pool("-", workspace.Pool{Name: "python", Max: 6})
	refuse(fault.Exhausted, "demo", workspace.Pool{Name: "base", Max: 11}, "its quota is 16")
	b.tenant("acme", workspace.Quota{PoolMembers: 20})
	b.pool("demo", workspace.Pool{Name: "base", Max: 11})

	got := b.poolIs(b.user, "acme", "demo", "base", func(p workspace.PoolStatus) bool { return p.Pool.Max == 11 })
	require.Equal(t, []any{"fast", false}, []any{got.Pool.Alias, got.Shared})
	require.Nil(t, got.Fault)
	must[workspace.Empty](b, b.user, "acme", "demo", workspace.OpPoolDelete, workspace.Name{Name: "base"})
	refused[workspace.Empty](b, fault.NotFound, b.user, "acme", "demo", workspace.OpPoolDelete, workspace.Name{Name: "base"})
	require.Eventually(t, func() bool {
		_, err := ask[workspace.PoolStatus](b.ctx(), b.user, "acme", "demo", workspace.OpPoolGet, workspace.Name{Name: "base"})
		return fault.Is(err, fault.NotFound)
	}, 30*time.Second, 20*time.Millisecond)
	require.Equal(t, 1, b.pool("demo", workspace.Pool{Name: "base", Max: 1}).Version)
	refused[workspace.Pool](b, fault.Denied, b.m.Node("n9"), "", "", workspace.OpPoolPut, putPool(workspace.Pool{Name: "python", Max: 1}))
}

// TestPoolQuotaUnderARace: of many puts at once on one replica those win that fit.
func TestPoolQuotaUnderARace(t *testing.T) {
	b := newBed(t)
	const puts = 12
	for i := range puts {
		b.sharedTemplate(fmt.Sprint("t", i), "x")
	}
	var wg sync.WaitGroup
	errs := make([]error, puts)
	for i := range puts {
		wg.Go(func() {
			_, errs[i] = ask[workspace.Pool](b.ctx(), b.user, "acme", "demo", workspace.OpPoolPut, putPool(workspace.Pool{Name: fmt.Sprint("t", i), Max: 4}))
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			require.True(t, fault.Is(err, fault.Exhausted), "%v", err)
		}
	}
	require.Equal(t, 4, won)
}

// TestPoolsThatANodeIsToKeep: what the answer to a heartbeat has, and when it has it no more.
func TestPoolsThatANodeIsToKeep(t *testing.T) {
	p := &purger{up: true}
	b := newBed(t, func(c *manager.Config) { c.Purgers, c.NodeTimeout = []manager.Purger{p}, 10*time.Minute })
	n := b.m.Node("n1")
	require.Empty(t, b.wanted(n))
	must[workspace.Template](b, b.user, "acme", "demo", workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: workspace.Template{
		Name: "base", Image: "base:2", Level: "high", Env: map[string]string{"TOKEN": "x"}, Resources: workspace.Resources{MemoryBytes: 64 << 20}}})
	b.pool("demo", workspace.Pool{Name: "base", Min: 1, Max: 2})
	b.keeps(n, "the new template", func(m map[string]workspace.WantedPool) bool { return m["acme/demo/base"].Run.Image == "base:2" })
	w := b.wanted(n)["acme/demo/base"]
	require.Equal(t, []any{1, 2, int64(3600_000), "base:2", "high", int64(64 << 20), int64(1000)}, []any{w.Min, w.Max, w.MaxAgeMS, w.Run.Image, w.Run.Level, w.Run.Resources.MemoryBytes, w.Run.Resources.CPUMillis})
	require.Equal(t, []any{"", 0, 0, 0}, []any{w.Run.Principal, len(w.Run.Env), len(w.Run.Secrets), len(w.Run.Argv)}, "nobody's")

	b.pool("demo", workspace.Pool{Name: "base", Level: "standard", Max: 2, MaxAgeMS: 5000})
	b.keeps(n, "the pool's own level and age", func(m map[string]workspace.WantedPool) bool {
		return m["acme/demo/base"].Run.Level == "standard" && m["acme/demo/base"].MaxAgeMS == 5000
	})

	// The operator's, shared; two workspaces, one of them pinned to another node.
	b.sharedTemplate("python", "python:1")
	must[workspace.Pool](b, b.op, "", "", workspace.OpPoolPut, putPool(workspace.Pool{Name: "python", Max: 500}))
	b.define(b.user, "acme", "pinned")
	must[workspace.Workspace](b, b.user, "acme", "-", workspace.OpWorkspacePut, workspace.Put[workspace.Workspace]{Value: workspace.Workspace{Name: "pinned", Labels: map[string]string{workspace.LabelNode: "n2"}}})
	b.pool("pinned", workspace.Pool{Name: "base", Max: 1})
	b.keeps(n, "all but the pinned one", with("acme/demo/base", "system/-/python"))
	b.keeps(b.m.Node("n2"), "and the pinned one", with("acme/demo/base", "acme/pinned/base", "system/-/python"))

	// An image that is on one node only, as a snapshot's, is wanted there only.
	must[workspace.Template](b, b.user, "acme", "demo", workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: workspace.Template{
		Name: "snap", Image: workspace.SnapshotPrefix + "acme/n2/" + schemas.NewID()}})
	b.pool("demo", workspace.Pool{Name: "snap", Max: 1})
	b.keeps(b.m.Node("n2"), "the snapshot", with("acme/demo/base", "acme/pinned/base", "system/-/python", "acme/demo/snap"))
	b.keeps(n, "no snapshot", with("acme/demo/base", "system/-/python"))
	must[workspace.Empty](b, b.user, "acme", "demo", workspace.OpPoolDelete, workspace.Name{Name: "snap"})

	// A policy that is narrowed afterwards.
	b.pool("demo", workspace.Pool{Name: "base", Level: "high", Max: 2})
	tenant := func(p *workspace.Policy) {
		tn := b.m.Tenants["acme"]
		must[workspace.Tenant](b, b.op, "", "", workspace.OpTenantPut, workspace.TenantPut{Tenant: workspace.Tenant{Name: "acme", Policy: p}, Account: tn.Account, AgentSeed: tn.AgentSeed})
	}
	tenant(&workspace.Policy{Levels: []string{"standard"}})
	b.keeps(n, "what is allowed", with("system/-/python"))
	denied := b.poolIs(b.user, "acme", "demo", "base", func(p workspace.PoolStatus) bool { return p.Fault != nil })
	require.Equal(t, "denied", denied.Fault.Code)
	tenant(&workspace.Policy{Levels: []string{"standard", "high"}})
	b.keeps(n, "both again", with("acme/demo/base", "system/-/python"))

	// A level that a node lacks is for those that have it.
	b.pool("demo", workspace.Pool{Name: "base", Level: "high", Max: 2})
	must[workspace.HeartbeatReply](b, n, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40, Levels: []string{"high", "standard"}})
	rep := must[workspace.HeartbeatReply](b, b.m.Node("n3"), "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40, Levels: []string{"standard"}})
	require.NotContains(t, fmt.Sprint(rep.Pools), "{acme demo base}")
	require.Contains(t, fmt.Sprint(rep.Pools), "{system - python}")

	// A node that takes nothing new keeps nothing.
	must[workspace.NodeRecord](b, b.op, "", "", workspace.OpNodeDrain, workspace.NodeDrain{Name: "n1"})
	b.keeps(n, "nothing", with())
	must[workspace.NodeRecord](b, b.op, "", "", workspace.OpNodeDrain, workspace.NodeDrain{Name: "n1", Undo: true})
	b.keeps(n, "both again", with("acme/demo/base", "system/-/python"))

	// The template goes: the pool is quiet, and says so. It comes again: so does the pool.
	must[workspace.Empty](b, b.user, "acme", "demo", workspace.OpTemplateDelete, workspace.Name{Name: "base"})
	b.keeps(n, "no pool without a template", with("system/-/python"))
	st := b.poolIs(b.user, "acme", "demo", "base", func(p workspace.PoolStatus) bool { return p.Fault != nil })
	require.Equal(t, "template base is gone; make it again, or delete the pool", st.Fault.Message)
	b.sharedTemplate("base", "shared:1")
	b.keeps(n, "the shared template", func(m map[string]workspace.WantedPool) bool { return m["acme/demo/base"].Run.Image == "shared:1" })

	// A workspace that is deleted takes its pools with it.
	p.set(false)
	must[workspace.Workspace](b, b.user, "acme", "demo", workspace.OpWorkspaceDelete, workspace.Name{Name: "demo"})
	b.keeps(n, "nothing of what is being deleted", with("system/-/python"))
	p.set(true)
	b.gone("acme", "demo")
	b.empty("acme", "demo")
	b.define(b.user, "acme", "demo")
	b.poolsAre(b.user, "acme", "demo", "system/-/python")
	require.NotContains(t, b.wanted(n), "acme/demo/base")

	// A tenant, too.
	other := b.m.User("umbrella", "una")
	b.tenant("umbrella", workspace.Quota{})
	b.define(other, "umbrella", "hive")
	must[workspace.Pool](b, other, "umbrella", "hive", workspace.OpPoolPut, putPool(workspace.Pool{Name: "base", Max: 1}))
	b.keeps(n, "the other tenant's", with("system/-/python", "umbrella/hive/base"))
	must[workspace.Empty](b, b.op, "", "", workspace.OpTenantDelete, workspace.Name{Name: "umbrella"})
	b.keeps(n, "no longer", with("system/-/python"))
}

// TestPoolStates: what nodes say of pools comes to those whose pools they are, and to nobody else.
func TestPoolStates(t *testing.T) {
	b := newBed(t, func(c *manager.Config) { c.NodeTimeout = 10 * time.Minute })
	other := b.m.User("umbrella", "una")
	b.tenant("umbrella", workspace.Quota{})
	b.define(other, "umbrella", "hive")
	b.sharedTemplate("base", "shared")
	b.sharedTemplate("python", "shared")
	for _, name := range []string{"base", "python"} {
		must[workspace.Pool](b, b.op, "", "", workspace.OpPoolPut, putPool(workspace.Pool{Name: name, Max: 4}))
	}
	b.pool("demo", workspace.Pool{Name: "base", Max: 2})
	b.pool("-", workspace.Pool{Name: "python", Max: 2})
	must[workspace.Pool](b, other, "umbrella", "hive", workspace.OpPoolPut, putPool(workspace.Pool{Name: "base", Max: 2}))

	ref := func(tenant, ws, name string) workspace.PoolRef {
		return workspace.PoolRef{Tenant: tenant, Workspace: ws, Name: name}
	}
	old, future := time.Now().Add(-time.Minute).UTC().Truncate(time.Second), time.Now().Add(time.Hour)
	b.wanted(b.m.Node("n1"),
		workspace.PoolState{PoolRef: ref("acme", "demo", "base"), Node: "n2", Ready: 2, Making: 1, Target: 3, Claims: 9, Misses: 4, Oldest: &old},
		workspace.PoolState{PoolRef: ref("acme", "demo", "base"), Ready: 99},
		workspace.PoolState{PoolRef: ref("umbrella", "hive", "base"), Ready: 1, Oldest: &future, Fault: &workspace.Fault{Code: "odd", Message: "bad\x1b[31m" + strings.Repeat("ü", 500)}},
		workspace.PoolState{PoolRef: ref("system", "-", "python"), Ready: 5, Making: -7},
		workspace.PoolState{PoolRef: ref("no such/../thing", "-", "x"), Ready: 5})
	b.wanted(b.m.Node("n2"), workspace.PoolState{PoolRef: ref("acme", "demo", "base"), Ready: 1})

	// The shared pool of base is not for who has a base of its own.
	b.poolsAre(b.user, "acme", "demo", "acme/demo/base", "acme/-/python", "system/-/python")
	st := b.poolIs(b.user, "acme", "demo", "base", func(p workspace.PoolStatus) bool { return len(p.Nodes) == 2 })
	require.Equal(t, []workspace.PoolState{
		{PoolRef: ref("acme", "demo", "base"), Node: "n1", Ready: 2, Making: 1, Target: 3, Claims: 9, Misses: 4, Oldest: &old},
		{PoolRef: ref("acme", "demo", "base"), Node: "n2", Ready: 1}}, st.Nodes, "in its own name, and once")
	b.poolsAre(other, "umbrella", "hive", "system/-/python", "umbrella/hive/base")
	hive := b.poolIs(other, "umbrella", "hive", "base", func(p workspace.PoolStatus) bool { return len(p.Nodes) == 1 }).Nodes[0]
	require.Nil(t, hive.Oldest, "not in the future")
	require.Equal(t, "internal", hive.Fault.Code)
	require.NotContains(t, hive.Fault.Message, "\x1b")
	require.LessOrEqual(t, len(hive.Fault.Message), 300)
	python := b.poolIs(other, "umbrella", "hive", "python", func(p workspace.PoolStatus) bool { return len(p.Nodes) == 1 })
	require.True(t, python.Shared)
	require.Equal(t, []int{5, 0}, []int{python.Nodes[0].Ready, python.Nodes[0].Making})
	refused[workspace.Page[workspace.PoolStatus]](b, fault.Denied, other, "acme", "demo", workspace.OpPoolList, workspace.List{})
	b.poolsAre(b.op, "", "", "system/-/base", "system/-/python")
	for _, c := range []struct {
		c          *mesh.Conn
		tenant, ws string
	}{{b.user, "acme", "demo"}, {b.op, "", ""}} {
		for _, r := range must[workspace.Page[workspace.NodeRecord]](b, c.c, c.tenant, c.ws, workspace.OpNodeList, workspace.List{}).Items {
			require.Empty(t, r.Pools, "the list of nodes has nobody's pools")
		}
	}
	logs, err := b.m.Service(accounts.RoleAdmin).JetStream().Stream(b.ctx(), "LOG-system")
	require.NoError(t, err)
	rec, err := logs.GetLastMsgForSubject(b.ctx(), schemas.Prefix+"evt.system.-.node.n1")
	require.NoError(t, err)
	require.Contains(t, string(rec.Data), `"n1"`)
	require.NotContains(t, string(rec.Data), "umbrella", "nor has the node's record")

	// Far too many: bounded, and the node lives on.
	many := make([]workspace.PoolState, 6000)
	for i := range many {
		many[i] = workspace.PoolState{PoolRef: ref("acme", "demo", fmt.Sprint("p", i)), Ready: 1}
	}
	b.wanted(b.m.Node("n1"), append(many, workspace.PoolState{PoolRef: ref("acme", "demo", "base"), Ready: 7})...)
	// What came after the bound counts for nothing.
	b.poolIs(b.user, "acme", "demo", "base", func(p workspace.PoolStatus) bool { return len(p.Nodes) == 1 && p.Nodes[0].Node == "n2" })
}

func sorted(s []string) []string {
	slices.SortFunc(s, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, "-", "~"), strings.ReplaceAll(b, "-", "~"))
	})
	return s
}

// creates answers sandbox-create for a node and counts.
func creates(b *bed, c *mesh.Conn, name string, f func(context.Context, workspace.Sandbox) error) {
	s, err := c.ServeNode(name, mesh.Op(runtime.OpSandboxCreate, 30*time.Second, func(ctx context.Context, _ mesh.Caller, req runtime.SandboxCreate) (workspace.Empty, error) {
		return workspace.Empty{}, f(ctx, req.Sandbox)
	}), mesh.Op(runtime.OpSandboxKill, time.Second, func(context.Context, mesh.Caller, runtime.SandboxKill) (workspace.Empty, error) {
		return workspace.Empty{}, nil
	}))
	require.NoError(b.t, err)
	b.t.Cleanup(s.Stop)
}

// TestPlacementPrefersAReadyMember: a sandbox goes where one waits for it, if there is room.
func TestPlacementPrefersAReadyMember(t *testing.T) {
	b := newBed(t, func(c *manager.Config) { c.NodeTimeout, c.ClaimLease = 10*time.Minute, 10*time.Minute })
	b.pool("demo", workspace.Pool{Name: "base", Max: 1})
	for _, name := range []string{"n1", "n2"} {
		c := b.m.Node(name)
		creates(b, c, name, func(context.Context, workspace.Sandbox) error { return nil })
		hb := workspace.Heartbeat{Slots: 9, DiskFree: 1 << 40}
		if name == "n2" {
			hb.Slots = 1
			hb.Pools = []workspace.PoolState{{PoolRef: workspace.PoolRef{Tenant: "acme", Workspace: "demo", Name: "base"}, Ready: 1}}
		}
		must[workspace.HeartbeatReply](b, c, "", "", workspace.OpHeartbeat, hb)
	}
	var nodes []string
	for range 2 {
		nodes = append(nodes, must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base"}).Node)
	}
	require.Equal(t, []string{"n2", "n1"}, nodes)
}

// TestClaimOfASandbox: who asks under the same name gets the same sandbox while it lives, on every replica and in
// whatever order they come.
func TestClaimOfASandbox(t *testing.T) {
	slow := func(c *manager.Config) {
		c.NodeTimeout, c.ClaimLease, c.Retention, c.RetentionEvery = 10*time.Minute, 10*time.Minute, time.Nanosecond, 20*time.Millisecond
	}
	b := newBed(t, slow)
	b.run("m2", slow)
	b.tenant("acme", workspace.Quota{Sandboxes: 4})
	c := b.m.Node("n1")
	var mu sync.Mutex
	made := map[string]int{}
	fail := false
	creates(b, c, "n1", func(_ context.Context, s workspace.Sandbox) error {
		mu.Lock()
		defer mu.Unlock()
		made[s.Claim]++
		if fail {
			return fault.New(fault.Unavailable, "no image")
		}
		return nil
	})
	must[workspace.HeartbeatReply](b, c, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 90, DiskFree: 1 << 40})
	require.Eventually(t, func() bool { // both replicas have heard of the node
		for range 6 {
			p, err := ask[workspace.Page[workspace.NodeRecord]](b.ctx(), b.user, "acme", "demo", workspace.OpNodeList, workspace.List{})
			if err != nil || len(p.Items) != 1 || p.Items[0].State != workspace.NodeReady {
				return false
			}
		}
		return true
	}, 30*time.Second, 20*time.Millisecond)
	claim := func(name string) (workspace.Sandbox, error) {
		return ask[workspace.Sandbox](b.ctx(), b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base", Claim: name})
	}
	race := func(name string) string {
		t.Helper()
		const many = 24
		got, errs := make([]workspace.Sandbox, many), make([]error, many)
		var wg sync.WaitGroup
		for i := range many {
			wg.Go(func() {
				for { // over the quota for a moment is what another replica's loser may cause
					if got[i], errs[i] = claim(name); !fault.Is(errs[i], fault.Exhausted) {
						return
					}
				}
			})
		}
		wg.Wait()
		for i := range many {
			require.NoError(t, errs[i])
			require.Equal(t, got[0].ID, got[i].ID)
			require.Equal(t, []string{workspace.SandboxRunning, name}, []string{got[i].State, got[i].Claim})
		}
		return got[0].ID
	}
	first := race("session")
	require.NotEqual(t, first, race("other"))
	mu.Lock()
	require.Equal(t, map[string]int{"session": 1, "other": 1}, made, "each was made once")
	mu.Unlock()
	require.Eventually(t, func() bool { // losers' records leave nothing
		return len(must[workspace.Page[workspace.Sandbox]](b, b.user, "acme", "demo", workspace.OpSandboxList, workspace.List{}).Items) == 2
	}, 30*time.Second, 20*time.Millisecond)

	must[workspace.Template](b, b.user, "acme", "demo", workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: workspace.Template{Name: "tool", Image: "x"}})
	refused[workspace.Sandbox](b, fault.Conflict, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "tool", Claim: "session"})
	refused[workspace.Sandbox](b, fault.Invalid, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base", Claim: "No Name"})

	// Ended and, after a while, forgotten: the name is free, and its record goes, too.
	must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxKill, workspace.ID{ID: first})
	second := race("session")
	require.NotEqual(t, first, second)
	must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxKill, workspace.ID{ID: second})
	js := b.m.Service(accounts.RoleAdmin).JetStream()
	require.Eventually(t, func() bool {
		st, err := js.Stream(b.ctx(), "LOG-acme")
		require.NoError(t, err)
		info, err := st.Info(b.ctx(), subjectsOf(schemas.Prefix+"evt.acme.demo.claim.session"))
		return err == nil && len(info.State.Subjects) == 0
	}, 30*time.Second, 20*time.Millisecond)

	// A sandbox that can't be made gives its name free.
	mu.Lock()
	fail = true
	mu.Unlock()
	_, err := claim("session")
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	mu.Lock()
	fail = false
	mu.Unlock()
	_, err = claim("session")
	require.NoError(t, err)
}
