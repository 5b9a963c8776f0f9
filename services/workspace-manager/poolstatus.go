package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/submission"
)

// Bounds of what a node may say of its pools. What is over them is dropped and the heartbeat counts all the same:
// a node that says too much is no lost node.
const (
	maxPoolStates  = 4096
	maxPoolCount   = 1_000_000
	maxFaultLength = 300
)

// poolMaxAge is how old an unused member may grow where the pool says nothing.
const poolMaxAge = time.Hour

// wanted are the pools that a node is to keep: those of every active tenant and workspace whose template is there and
// allowed.
// A node that takes nothing new keeps nothing ready, and one without a pool's level leaves it to those that have it.
// What doesn't fit into one message is left out.
func (s *Service) wanted(hb workspace.Heartbeat) []workspace.WantedPool {
	if hb.Draining || s.nodes.drained(hb.Node) {
		return nil
	}
	sys := s.viewByName(workspace.SystemTenant)
	var out []workspace.WantedPool
	for _, v := range s.tenants.views() {
		for _, r := range v.pools.in("*") {
			t := v.keeps(sys, r, hb.Node)
			if t == nil {
				continue
			}
			if w := wantedPool(r, t); v.admit(&w.Run) == nil && s.nodes.mayRun(hb.Node, w.Run.Level) == nil {
				out = append(out, w)
			}
		}
	}
	slices.SortFunc(out, func(a, b workspace.WantedPool) int { return compareRefs(a.PoolRef, b.PoolRef) })
	size := 0
	for i := range out {
		b, err := json.Marshal(out[i])
		if size += len(b); err != nil || size > maxPageBytes {
			s.log.Warn("more pools than fit into an answer; the rest is kept by no node", "node", hb.Node, "pools", len(out), "kept", i)
			return out[:i]
		}
	}
	return out
}

// compareRefs puts the shared pools first, so that they are the last to be left out, then the tenants' by name.
func compareRefs(a, b workspace.PoolRef) int {
	if x, y := a.Tenant == workspace.SystemTenant, b.Tenant == workspace.SystemTenant; x != y {
		if x {
			return -1
		}
		return 1
	}
	return cmp.Or(strings.Compare(a.Tenant, b.Tenant), strings.Compare(a.Workspace, b.Workspace), strings.Compare(a.Name, b.Name))
}

// keeps gives the template for which node is to keep a pool, nil if it is not to: the tenant or workspace is being
// deleted, the workspace or the template's image is on another node, or the template is gone.
func (v *view) keeps(sys *view, r records.Record[workspace.Pool], node string) *workspace.Template {
	if tn, ok := v.tenants.get(tenantRecord(v.tenant)); ok && tn.Value.State == workspace.Deleting {
		return nil
	}
	t, pin := v.knownTemplate(sys, r.Workspace, r.ID), ""
	if r.Workspace != schemas.NoWorkspace {
		ws, ok := v.workspaces.get(workspaceKey(v.tenant, r.Workspace))
		if pin = ws.Value.Labels[workspace.LabelNode]; !ok || ws.Value.State != workspace.Active {
			return nil
		}
	}
	if t == nil || checkSnapshot(t.Image, v.tenant) != nil {
		return nil
	}
	if pin = pinOf(t.Image, pin); pin != "" && pin != node {
		return nil
	}
	return t
}

// knownTemplate is the view's answer to what template asks the log: heartbeats are too many for that.
func (v *view) knownTemplate(sys *view, ws, name string) *workspace.Template {
	if r, ok := v.templates.get(records.Key{Tenant: v.tenant, Workspace: ws, ID: name}); ok {
		return &r.Value
	}
	if r, ok := v.templates.get(records.Key{Tenant: v.tenant, Workspace: schemas.NoWorkspace, ID: name}); ok {
		return &r.Value
	}
	if sys == nil {
		return nil
	}
	if r, ok := sys.templates.get(records.Key{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace, ID: name}); ok {
		return &r.Value
	}
	return nil
}

// wantedPool resolves a pool against its template. Nobody's identity, environment or secrets are in it: members are
// made before it is known whose they will be.
func wantedPool(r records.Record[workspace.Pool], t *workspace.Template) workspace.WantedPool {
	p := r.Value
	run := *submission.Resolve(&workspace.Submission{}, "", nil, t)
	run.Env, run.TimeoutMS = nil, 0
	if p.Level != "" {
		run.Level = p.Level
	}
	if run.Level != workspace.LevelCustom {
		run.Custom = nil
	}
	def(&p.MaxAgeMS, poolMaxAge.Milliseconds())
	return workspace.WantedPool{PoolRef: refOf(r), Run: run, Min: p.Min, Max: p.Max, MaxAgeMS: p.MaxAgeMS}
}

func refOf(r records.Record[workspace.Pool]) workspace.PoolRef {
	return workspace.PoolRef{Tenant: r.Tenant, Workspace: r.Workspace, Name: r.ID}
}

// poolsFor are the pools that may have a member for a sandbox of a template.
func poolsFor(tenant, ws, template string) []workspace.PoolRef {
	return []workspace.PoolRef{{Tenant: tenant, Workspace: ws, Name: template}, {Tenant: tenant, Workspace: schemas.NoWorkspace, Name: template},
		{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace, Name: template}}
}

// poolsSeenBy gives the pools that a caller may see, the shared ones first, the workspace's own last.
func (s *Service) poolsSeenBy(ctx context.Context, by mesh.Caller) ([]workspace.PoolStatus, error) {
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return nil, err
	}
	sys, states := s.tenants.view(ctx, workspace.SystemTenant), s.nodes.pools()
	var out []workspace.PoolStatus
	if sys != nil && sys != v {
		for _, r := range sys.pools.in(schemas.NoWorkspace) {
			// One whose template the caller has of its own serves others.
			if own := v.knownTemplate(nil, by.Workspace, r.ID); own == nil {
				out = append(out, sys.poolStatus(sys, r, states))
			}
		}
	}
	for _, ws := range slices.Compact([]string{schemas.NoWorkspace, by.Workspace}) {
		for _, r := range v.pools.in(ws) {
			out = append(out, v.poolStatus(sys, r, states))
		}
	}
	return out, nil
}

func (v *view) poolStatus(sys *view, r records.Record[workspace.Pool], states map[workspace.PoolRef][]workspace.PoolState) workspace.PoolStatus {
	st := workspace.PoolStatus{PoolRef: refOf(r), Pool: r.Value, Shared: v.tenant == workspace.SystemTenant, Nodes: states[refOf(r)]}
	t := v.knownTemplate(sys, r.Workspace, r.ID)
	if t == nil {
		st.Fault = &workspace.Fault{Code: string(schemas.NotFound), Message: "template " + r.ID + " is gone; make it again, or delete the pool"}
		return st
	}
	w := wantedPool(r, t)
	if err := v.admit(&w.Run); err != nil { // the tenant's policy was narrowed since, or the template changed its level
		st.Fault = publicFault(err)
	}
	return st
}

// poolStates takes what a node says of its pools: only well-formed names, counts within reason, each pool once, and
// nothing in another node's name.
func poolStates(node string, in []workspace.PoolState, now time.Time) []workspace.PoolState {
	var out []workspace.PoolState
	seen := map[workspace.PoolRef]bool{}
	for _, p := range in[:min(len(in), maxPoolStates)] {
		if seen[p.PoolRef] || schemas.CheckName("tenant", p.Tenant) != nil || schemas.CheckWorkspace(p.Workspace) != nil || schemas.CheckName("pool", p.Name) != nil {
			continue
		}
		seen[p.PoolRef] = true
		p.Node = node
		for _, n := range []*int{&p.Ready, &p.Making, &p.Target} {
			*n = min(max(*n, 0), maxPoolCount)
		}
		if p.Oldest != nil && p.Oldest.After(now.Add(time.Minute)) {
			p.Oldest = nil
		}
		if p.Fault != nil {
			p.Fault = &workspace.Fault{Code: p.Fault.Code, Message: plain(p.Fault.Message, maxFaultLength)}
			if !schemas.Code(p.Fault.Code).Valid() {
				p.Fault.Code = string(schemas.Internal)
			}
		}
		out = append(out, p)
	}
	return out
}

// plain is a sentence of at most n bytes without control characters.
func plain(s string, n int) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(s[:min(len(s), n)], ""))
}

// pools gives what each node that is heard of says of its pools.
func (ns *nodeSet) pools() map[workspace.PoolRef][]workspace.PoolState {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	out := map[workspace.PoolRef][]workspace.PoolState{}
	for _, name := range slices.Sorted(maps.Keys(ns.m)) {
		n := ns.m[name]
		if n.heard.IsZero() || ns.s.cfg.Now().Sub(n.heard) > ns.s.cfg.NodeTimeout {
			continue
		}
		for _, p := range n.beat.Pools {
			out[p.PoolRef] = append(out[p.PoolRef], p)
		}
	}
	return out
}

// member is the state of the first of the pools that has a member ready here; nil if none has.
func (n *node) member(pools []workspace.PoolRef) *workspace.PoolState {
	for i := range n.beat.Pools {
		if p := &n.beat.Pools[i]; p.Ready > 0 && slices.Contains(pools, p.PoolRef) {
			return p
		}
	}
	return nil
}

// drained reports whether the operator has a node take nothing new.
func (ns *nodeSet) drained(name string) bool {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.of(name).rec.Drained
}
