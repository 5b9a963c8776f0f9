package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

func faultOf(code string) error { return fault.FromWire(code, "x") }

// fakeMesh answers the contract's operations on a real NATS server: definitions, secrets, memory and
// files in maps, tasks and sandboxes as commands on this machine.
type fakeMesh struct {
	m       *meshtest.Mesh
	t       testing.TB
	manager *mesh.Conn
	node    *mesh.Conn
	tasks   *records.Store[workspace.Task]

	mu        sync.Mutex
	defs      map[string]any // "kind/workspace/name"
	outputs   map[string]*outputLog
	cancels   map[string]context.CancelFunc
	sandboxes map[string]workspace.Sandbox
	served    map[string]*mesh.Served
	files     map[string]tree // by workspace
	snaps     []snap
	secrets   map[string]secrets.Secret
	grants    map[string]secrets.Grant
	items     []memory.Item
	tenants   map[string]workspace.Tenant
	dead      []workspace.DeadLetter
	drained   bool
}

func startFake(t *testing.T) *fakeMesh {
	m := meshtest.Start(t, "acme")
	f := &fakeMesh{m: m, t: t, manager: m.Service(schemas.WorkspaceManager), node: m.Node("node-1"),
		defs: map[string]any{}, outputs: map[string]*outputLog{}, cancels: map[string]context.CancelFunc{},
		sandboxes: map[string]workspace.Sandbox{}, served: map[string]*mesh.Served{}, files: map[string]tree{},
		secrets: map[string]secrets.Secret{}, grants: map[string]secrets.Grant{}, tenants: map[string]workspace.Tenant{"acme": {Name: "acme", State: "active"}},
		dead: []workspace.DeadLetter{{Sequence: 7, Subject: "weft.v1.task.acme.demo.bob.submit", Stream: "TASKS-acme", Reason: "malformed JSON at byte 1", Body: []byte("{")}},
	}
	f.tasks = records.New[workspace.Task](f.manager, "task", 1)
	f.define("template", schemas.NoWorkspace, "base", workspace.Template{Name: "base", Version: 1, Image: "base.tar", Level: "standard"})
	f.serve(f.manager, schemas.WorkspaceManager, f.managerOps(), f.operatorOps())
	f.serve(m.Service(schemas.Filesystem), schemas.Filesystem, f.filesystemOps, nil)
	f.serve(m.Service(schemas.Secrets), schemas.Secrets, f.secretsOps, nil)
	f.serve(m.Service(schemas.Memory), schemas.Memory, f.memoryOps, nil)
	f.consumeTasks()
	return f
}

func (f *fakeMesh) serve(c *mesh.Conn, service string, req any, internal []mesh.Endpoint) {
	var eps []mesh.Endpoint
	switch r := req.(type) {
	case []mesh.Endpoint:
		eps = r
	case func(*mesh.Conn) []mesh.Endpoint:
		eps = r(c)
	}
	s, err := c.ServeReq(service, eps...)
	require.NoError(f.t, err)
	f.t.Cleanup(s.Stop)
	if internal != nil {
		s, err := c.ServeInt(service, internal...)
		require.NoError(f.t, err)
		f.t.Cleanup(s.Stop)
	}
}

// op is an operation without its context.
func op[Req, Rep any](name string, fn func(by mesh.Caller, r Req) (Rep, error)) mesh.Endpoint {
	return mesh.Op(name, 10*time.Second, func(_ context.Context, by mesh.Caller, r Req) (Rep, error) { return fn(by, r) })
}

func page[T any](vs []T) workspace.Page[T] {
	if vs == nil {
		vs = []T{}
	}
	return workspace.Page[T]{Items: vs}
}

func (f *fakeMesh) define(kind, ws, name string, v any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.defs[kind+"/"+ws+"/"+name] = v
}

func (f *fakeMesh) addWorkspace(name string) {
	f.define("workspace", schemas.NoWorkspace, name, workspace.Workspace{Name: name, State: "active"})
}

func lookup[T any](f *fakeMesh, kind, ws, name string) (T, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range []string{ws, schemas.NoWorkspace} {
		if v, ok := f.defs[kind+"/"+w+"/"+name].(T); ok {
			return v, nil
		}
	}
	var none T
	return none, fault.New(fault.NotFound, "no %s %q in workspace %s", kind, name, ws)
}

// definitionOps are put, get, list and delete of one kind.
func definitionOps[T any](f *fakeMesh, kind string, meta func(*T) (name *string, version *int)) []mesh.Endpoint {
	return []mesh.Endpoint{
		op(kind+"-put", func(by mesh.Caller, r workspace.Put[T]) (T, error) {
			name, version := meta(&r.Value)
			if err := schemas.CheckName(kind, *name); err != nil {
				return r.Value, fault.New(fault.Invalid, "%v", err)
			}
			if before, err := lookup[T](f, kind, by.Workspace, *name); err == nil {
				_, v := meta(&before)
				*version = *v
				if a, b := fmt.Sprint(before), fmt.Sprint(r.Value); a != b {
					*version++
				}
			} else {
				*version = 1
			}
			f.define(kind, by.Workspace, *name, r.Value)
			return r.Value, nil
		}),
		op(kind+"-get", func(by mesh.Caller, r workspace.Name) (T, error) { return lookup[T](f, kind, by.Workspace, r.Name) }),
		op(kind+"-list", func(by mesh.Caller, _ workspace.List) (workspace.Page[T], error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var keys []string
			for k := range f.defs {
				if strings.HasPrefix(k, kind+"/"+by.Workspace+"/") {
					keys = append(keys, k)
				}
			}
			slices.Sort(keys)
			var out []T
			for _, k := range keys {
				out = append(out, f.defs[k].(T))
			}
			return page(out), nil
		}),
		op(kind+"-delete", func(by mesh.Caller, r workspace.Name) (workspace.Empty, error) {
			if _, err := lookup[T](f, kind, by.Workspace, r.Name); err != nil {
				return workspace.Empty{}, err
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.defs, kind+"/"+by.Workspace+"/"+r.Name)
			return workspace.Empty{}, nil
		}),
	}
}

func (f *fakeMesh) managerOps() []mesh.Endpoint {
	one := new(int)
	eps := slices.Concat(
		definitionOps(f, "workspace", func(w *workspace.Workspace) (*string, *int) { w.State = "active"; return &w.Name, one }),
		definitionOps(f, "agent", func(a *workspace.Agent) (*string, *int) { return &a.Name, &a.Version }),
		definitionOps(f, "template", func(t *workspace.Template) (*string, *int) { return &t.Name, &t.Version }),
		definitionOps(f, "trigger", func(t *workspace.Trigger) (*string, *int) { return &t.Name, &t.Version }),
		f.taskOps(), f.sandboxOps(), f.poolOps(nil),
	)
	return append(eps, op(workspace.OpNodeList, func(mesh.Caller, workspace.List) (workspace.Page[workspace.NodeRecord], error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		n := workspace.NodeRecord{Heartbeat: workspace.Heartbeat{Node: "node-1", Slots: 8, Used: 1, Version: "devel"}, State: "ready", SeenAt: time.Now()}
		if f.drained {
			n.State, n.Reason = "draining", "drained"
		}
		return page([]workspace.NodeRecord{n}), nil
	}))
}

func (f *fakeMesh) operatorOps() []mesh.Endpoint {
	dlq := func(name string) mesh.Endpoint {
		return op(name, func(_ mesh.Caller, r workspace.DLQRef) (workspace.DLQDone, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			n := len(f.dead)
			f.dead = slices.DeleteFunc(f.dead, func(d workspace.DeadLetter) bool { return slices.Contains(r.Sequences, d.Sequence) })
			return workspace.DLQDone{Done: n - len(f.dead)}, nil
		})
	}
	shared := definitionOps(f, "template", func(t *workspace.Template) (*string, *int) { return &t.Name, &t.Version })
	return append(append(shared, f.poolOps(&mesh.Caller{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace})...), dlq(workspace.OpDLQRedrive), dlq(workspace.OpDLQDrop),
		op(workspace.OpDLQList, func(mesh.Caller, workspace.DLQList) (workspace.Page[workspace.DeadLetter], error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return page(slices.Clone(f.dead)), nil
		}),
		op(workspace.OpNodeList, func(mesh.Caller, workspace.List) (workspace.Page[workspace.NodeRecord], error) {
			n := workspace.NodeRecord{Heartbeat: workspace.Heartbeat{Node: "node-1"}, State: "ready", SeenAt: time.Now()}
			n.Cleaned = &workspace.Cleaned{At: time.Now(), Items: []workspace.CleanedItem{{Kind: "mount", ID: "left-over"}}}
			return page([]workspace.NodeRecord{n}), nil
		}),
		op(workspace.OpNodeDrain, func(_ mesh.Caller, r workspace.NodeDrain) (workspace.NodeRecord, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.drained = !r.Undo
			state := map[bool]string{true: "draining", false: "ready"}[f.drained]
			return workspace.NodeRecord{Heartbeat: workspace.Heartbeat{Node: r.Name}, State: state}, nil
		}),
		op(workspace.OpTenantPut, func(_ mesh.Caller, r workspace.TenantPut) (workspace.Tenant, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			r.Tenant.State = "active"
			if t, ok := f.tenants[r.Tenant.Name]; ok && r.Tenant.Policy == nil {
				r.Tenant.Policy = t.Policy
			}
			f.tenants[r.Tenant.Name] = r.Tenant
			return r.Tenant, nil
		}),
		op(workspace.OpTenantList, func(mesh.Caller, workspace.List) (workspace.Page[workspace.Tenant], error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var out []workspace.Tenant
			for _, t := range f.tenants {
				out = append(out, t)
			}
			slices.SortFunc(out, func(a, b workspace.Tenant) int { return strings.Compare(a.Name, b.Name) })
			return page(out), nil
		}),
		op(workspace.OpTenantDelete, func(_ mesh.Caller, r workspace.Name) (workspace.Tenant, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			t, ok := f.tenants[r.Name]
			if !ok {
				return t, fault.New(fault.NotFound, "no tenant %q", r.Name)
			}
			delete(f.tenants, r.Name)
			t.State = "deleting"
			return t, nil
		}),
	)
}

func (f *fakeMesh) secretsOps(*mesh.Conn) []mesh.Endpoint {
	return []mesh.Endpoint{
		op(secrets.OpPut, func(by mesh.Caller, r secrets.PutRequest) (secrets.Secret, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			k := by.Workspace + "/" + r.Name
			s := secrets.Secret{Name: r.Name, Kind: r.Kind, Version: f.secrets[k].Version + 1, UpdatedAt: time.Now()}
			f.secrets[k] = s
			return s, nil
		}),
		op(secrets.OpList, func(by mesh.Caller, _ workspace.List) (workspace.Page[secrets.Secret], error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var out []secrets.Secret
			for k, s := range f.secrets {
				if strings.HasPrefix(k, by.Workspace+"/") {
					out = append(out, s)
				}
			}
			return page(out), nil
		}),
		op(secrets.OpDelete, func(by mesh.Caller, r workspace.Name) (workspace.Empty, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.secrets, by.Workspace+"/"+r.Name)
			return workspace.Empty{}, nil
		}),
		op(secrets.OpGrant, func(by mesh.Caller, r secrets.GrantRequest) (secrets.Grant, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if _, ok := f.secrets[by.Workspace+"/"+r.Secret]; !ok {
				return secrets.Grant{}, fault.New(fault.NotFound, "no secret %q; put it first", r.Secret)
			}
			g := secrets.Grant{ID: schemas.DerivedID(r.Secret, r.Agent), Secret: r.Secret, Agent: r.Agent, As: r.As, TTLMS: 60000, GrantedBy: by.Principal, CreatedAt: time.Now()}
			f.grants[by.Workspace+"/"+g.ID] = g
			return g, nil
		}),
		op(secrets.OpGrantList, func(by mesh.Caller, _ workspace.List) (workspace.Page[secrets.Grant], error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var out []secrets.Grant
			for k, g := range f.grants {
				if strings.HasPrefix(k, by.Workspace+"/") {
					out = append(out, g)
				}
			}
			return page(out), nil
		}),
		op(secrets.OpGrantRevoke, func(by mesh.Caller, r workspace.ID) (secrets.RevokeReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			delete(f.grants, by.Workspace+"/"+r.ID)
			return secrets.RevokeReply{Leases: 1}, nil
		}),
		op(secrets.OpLeaseList, func(mesh.Caller, workspace.List) (workspace.Page[secrets.Lease], error) {
			return page([]secrets.Lease{{Sandbox: "0123456789abcdefghij", Agent: "reviewer", Secrets: []string{"token"}, State: "revoked", Reason: "sandbox ended"}}), nil
		}),
		op(secrets.OpVerify, func(_ mesh.Caller, r secrets.VerifyRequest) (secrets.VerifyReply, error) {
			return secrets.VerifyReply{Valid: r.Signature == "vault:v1:"+strings.TrimSpace(string(r.Data))}, nil
		}),
	}
}

func (f *fakeMesh) memoryOps(*mesh.Conn) []mesh.Endpoint {
	find := func(by mesh.Caller, key, id string) int {
		return slices.IndexFunc(f.items, func(i memory.Item) bool {
			return i.Workspace == by.Workspace && (id != "" && i.ID == id || key != "" && i.Key == key && i.ValidTo == nil)
		})
	}
	of := func(by mesh.Caller, pick func(memory.Item) bool) []memory.Item {
		out := []memory.Item{}
		for _, i := range slices.Backward(f.items) {
			if i.Workspace == by.Workspace && pick(i) {
				out = append(out, i)
			}
		}
		return out
	}
	add := func(by mesh.Caller, i memory.Item) memory.Item {
		i.ID, i.Workspace, i.CreatedAt, i.ValidFrom = schemas.NewID(), by.Workspace, time.Now().UTC(), time.Now().UTC()
		i.Source.Principal = by.Principal
		if i.Kind == "" {
			i.Kind = memory.Semantic
		}
		f.items = append(f.items, i)
		return i
	}
	return []mesh.Endpoint{
		op(memory.OpAdd, func(by mesh.Caller, r memory.AddRequest) (memory.AddReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.Key != "" && find(by, r.Key, "") >= 0 {
				return memory.AddReply{}, fault.New(fault.Conflict, "there is a fact %q; supersede it", r.Key)
			}
			return memory.AddReply{Item: add(by, memory.Item{Kind: r.Kind, Key: r.Key, Text: r.Text, Tags: r.Tags, Data: r.Data, Version: 1})}, nil
		}),
		op(memory.OpSupersede, func(by mesh.Caller, r memory.SupersedeRequest) (memory.SupersedeReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			at := find(by, r.Key, r.ID)
			if at < 0 {
				return memory.SupersedeReply{}, fault.New(fault.NotFound, "no fact %q", r.Key)
			}
			old := f.items[at]
			now := time.Now().UTC()
			f.items[at].ValidTo = &now
			return memory.SupersedeReply{Item: add(by, memory.Item{Kind: old.Kind, Key: old.Key, Text: r.Text, Data: r.Data, Version: old.Version + 1, Supersedes: old.ID}), Superseded: old.ID}, nil
		}),
		op(memory.OpGet, func(by mesh.Caller, r memory.GetRequest) (memory.GetReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			at := find(by, r.Key, r.ID)
			if at < 0 {
				return memory.GetReply{}, fault.New(fault.NotFound, "no item %s%s", r.ID, r.Key)
			}
			return memory.GetReply{Item: f.items[at]}, nil
		}),
		op(memory.OpSearch, func(by mesh.Caller, r memory.SearchRequest) (memory.SearchReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			var out []memory.Hit
			for _, i := range of(by, func(i memory.Item) bool { return strings.Contains(i.Text, r.Query) }) {
				out = append(out, memory.Hit{Item: i, Score: 1, Snippet: i.Text})
			}
			return memory.SearchReply{Hits: out}, nil
		}),
		op(memory.OpList, func(by mesh.Caller, r memory.ListRequest) (memory.ListReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return memory.ListReply{Items: of(by, func(i memory.Item) bool { return r.AllVersions || i.ValidTo == nil })}, nil
		}),
		op(memory.OpHistory, func(by mesh.Caller, r memory.HistoryRequest) (memory.HistoryReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			return memory.HistoryReply{Items: of(by, func(i memory.Item) bool { return i.Key == r.Key })}, nil
		}),
		op(memory.OpForget, func(by mesh.Caller, r memory.ForgetRequest) (memory.ForgetReply, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.ID == "" && !r.All && r.Filter.KeyPrefix == "" {
				return memory.ForgetReply{}, fault.New(fault.Invalid, "an empty filter would forget everything; say all")
			}
			n := len(f.items)
			f.items = slices.DeleteFunc(f.items, func(i memory.Item) bool {
				return i.Workspace == by.Workspace && (i.ID == r.ID || r.All || r.Filter != nil && r.Filter.KeyPrefix != "" && strings.HasPrefix(i.Key, r.Filter.KeyPrefix))
			})
			return memory.ForgetReply{Count: n - len(f.items)}, nil
		}),
	}
}

// fakeDaemon stands in for weftd where only its start and stop matter.
func fakeDaemon() {
	if slices.Contains(os.Args, "-broken") {
		fmt.Fprintln(os.Stderr, "weftd: another weftd (pid 1) runs bus on here")
		os.Exit(1)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	b, _ := json.Marshal(map[string]any{"pid": os.Getpid(), "url": os.Getenv("URL"), "tenant": "acme"})
	fmt.Println("starting")
	fmt.Printf("weftd is ready: %s\n", b)
	<-ctx.Done()
	fmt.Fprintln(os.Stderr, "weftd: stopped")
}
