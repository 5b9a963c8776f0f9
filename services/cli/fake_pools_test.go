package cli_test

import (
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// poolOps are the operations on pools of the caller's workspace, or of as where it is not nil. A pool is full at
// the second look.
func (f *fakeMesh) poolOps(as *mesh.Caller) []mesh.Endpoint {
	who := func(by mesh.Caller) mesh.Caller {
		if as != nil {
			return *as
		}
		return by
	}
	key := func(by mesh.Caller, name string) string { return "pool/" + by.Tenant + "/" + by.Workspace + "/" + name }
	looks := map[string]int{}
	status := func(k string) workspace.PoolStatus {
		p := f.defs[k].(workspace.Pool)
		at := strings.Split(k, "/")
		ref := workspace.PoolRef{Tenant: at[1], Workspace: at[2], Name: at[3]}
		st := workspace.PoolStatus{PoolRef: ref, Pool: p, Shared: at[1] == workspace.SystemTenant}
		oldest := time.Now().Add(-90 * time.Second)
		n := workspace.PoolState{PoolRef: ref, Node: "node-1", Making: p.Min, Target: p.Min, Claims: 7, Misses: 1, Oldest: &oldest}
		if looks[k]++; looks[k] > 1 {
			n.Ready, n.Making = p.Min, 0
		} else {
			n.Fault = &workspace.Fault{Code: "unavailable", Message: "the image is being unpacked"}
		}
		st.Nodes = []workspace.PoolState{n}
		return st
	}
	seen := func(by mesh.Caller) (out []string) {
		by = who(by)
		for k := range f.defs {
			for _, at := range []string{by.Tenant + "/" + by.Workspace, by.Tenant + "/" + schemas.NoWorkspace, workspace.SystemTenant + "/" + schemas.NoWorkspace} {
				if strings.HasPrefix(k, "pool/"+at+"/") && !slices.Contains(out, k) {
					out = append(out, k)
				}
			}
		}
		slices.Sort(out)
		return out
	}
	return []mesh.Endpoint{
		op(workspace.OpPoolPut, func(by mesh.Caller, r workspace.Put[workspace.Pool]) (workspace.Pool, error) {
			by = who(by)
			if _, err := lookup[workspace.Template](f, "template", by.Workspace, r.Value.Name); err != nil {
				return r.Value, err
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			k := key(by, r.Value.Name)
			before, _ := f.defs[k].(workspace.Pool)
			r.Value.Version, r.Value.CreatedAt = before.Version, before.CreatedAt
			if r.Value.Alias == "" {
				r.Value.Alias = before.Alias
			}
			if r.Value != before {
				r.Value.Version++
				delete(looks, k)
			}
			f.defs[k] = r.Value
			return r.Value, nil
		}),
		op(workspace.OpPoolGet, func(by mesh.Caller, r workspace.Name) (workspace.PoolStatus, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, k := range seen(by) {
				if strings.HasSuffix(k, "/"+r.Name) {
					return status(k), nil
				}
			}
			return workspace.PoolStatus{}, fault.New(fault.NotFound, "template %q has no pool", r.Name)
		}),
		op(workspace.OpPoolList, func(by mesh.Caller, _ workspace.List) (workspace.Page[workspace.PoolStatus], error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var out []workspace.PoolStatus
			for _, k := range seen(by) {
				out = append(out, status(k))
			}
			return page(out), nil
		}),
		op(workspace.OpPoolDelete, func(by mesh.Caller, r workspace.Name) (workspace.Empty, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			k := key(who(by), r.Name)
			if f.defs[k] == nil {
				return workspace.Empty{}, fault.New(fault.NotFound, "no pool %q", r.Name)
			}
			delete(f.defs, k)
			return workspace.Empty{}, nil
		}),
	}
}

// claimed finds the sandbox that lives under a claim's name.
func (f *fakeMesh) claimed(by mesh.Caller, name string) (workspace.Sandbox, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sandboxes {
		if name != "" && s.Claim == name && s.Workspace == by.Workspace && s.State == workspace.SandboxRunning {
			return s, true
		}
	}
	return workspace.Sandbox{}, false
}
