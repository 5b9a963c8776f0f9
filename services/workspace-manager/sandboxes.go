package manager

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/definition"
	"github.com/weftmesh/weft/services/workspace-manager/internal/submission"
)

// Lifetimes of interactive sandboxes.
const (
	defaultTTL  = time.Hour
	defaultIdle = 15 * time.Minute
	// startTimeout is how long a sandbox may be creating before it counts as failed.
	startTimeout = 2 * time.Minute
	// startGrace is how long it takes at most until a node that was asked for a sandbox says so in its heartbeats.
	startGrace = 10 * time.Second
	// resumeAfter is how long a claim that is repeated waits for the one who began before it goes on in its place.
	resumeAfter = 2 * time.Second
)

// SandboxCreate makes an interactive sandbox: the record first, then the node is asked. A manager that
// dies in between leaves a record in "creating". Who asks again under the same claim goes on with it; where nobody does, the
// reconciler ends it with what the node may have made.
func (s *Service) SandboxCreate(ctx context.Context, by mesh.Caller, req workspace.SandboxCreate) (workspace.Sandbox, error) {
	var none workspace.Sandbox
	if err := inWorkspace(by, "a sandbox"); err != nil {
		return none, err
	}
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return none, err
	}
	ws, err := v.activeWorkspace(ctx, by.Workspace)
	if err != nil {
		return none, err
	}
	run, tpl, err := v.sandboxRun(ctx, by, req)
	if err != nil {
		return none, err
	}
	unlock, err := s.naming.lock(ctx, by, req.Claim)
	if err != nil {
		return none, err
	}
	defer unlock()
	there, held, err := v.claimed(ctx, by, req.Claim, tpl)
	if err != nil || there != nil {
		unlock()
		return v.awaitSandbox(ctx, there, err)
	}
	if err := v.checkSandboxes(ws, 1); err != nil {
		return none, err
	}
	if err := s.nodes.offered(run.Level); err != nil {
		return none, err
	}
	node := s.nodes.emptiest(pinOf(run.Image, ws.Labels[workspace.LabelNode]), run.Level, poolsFor(by.Tenant, by.Workspace, tpl)...)
	if node == "" {
		return none, fault.New(fault.Exhausted, "no node has room for a sandbox now; try again, or see `weft node list`")
	}
	b := workspace.Sandbox{ID: schemas.NewID(), Tenant: by.Tenant, Workspace: by.Workspace, Principal: run.Principal, Template: tpl, Claim: req.Claim,
		Generation: 1, Node: node, NodeKey: s.nodes.key(node), Run: *run, State: workspace.SandboxCreating, CreatedAt: s.cfg.Now().UTC()}
	expires := expiry(&b)
	b.ExpiresAt = &expires
	k := records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: b.ID}
	s.making.Store(k, b)
	defer s.making.Delete(k)
	r, err := s.stores.sandboxes.Create(ctx, k, b.State, b)
	if err != nil {
		return none, err
	}
	s.nodes.hold(r)
	v.sandbox(r)
	if won, err := s.takeClaim(ctx, r, held); !won {
		if err != nil {
			return none, err
		}
		unlock()
		return s.SandboxCreate(ctx, by, req) // another replica was quicker; its sandbox is found
	}
	unlock()
	if err := s.calls.CreateSandbox(ctx, node, runtime.SandboxCreate{Sandbox: b}); err != nil {
		s.stopped(context.WithoutCancel(ctx), k, workspace.Exit{Code: -1, Reason: "start-failed"}, publicFault(err))
		return none, err
	}
	r, err = s.started(ctx, r)
	if err == nil {
		v.sandbox(r)
	}
	return r.Value, err
}

func (v *view) sandboxRun(ctx context.Context, by mesh.Caller, req workspace.SandboxCreate) (*workspace.RunSpec, string, error) {
	if (req.Agent == "") == (req.Template == "") {
		return nil, "", fault.New(fault.Invalid, `name either a "template" or an "agent"`)
	}
	for _, err := range []error{submission.CheckEnv(req.Env), definition.Resources(req.Resources), definition.Files(req.Files)} {
		if err != nil {
			return nil, "", invalid(err)
		}
	}
	if err := checkLife(req); err != nil {
		return nil, "", err
	}
	t := workspace.Task{Workspace: by.Workspace, Submission: workspace.Submission{Agent: req.Agent, Template: req.Template, Env: req.Env, Level: req.Level}}
	agent, tpl, err := v.definitions(ctx, &t)
	if err != nil {
		return nil, "", err
	}
	if err := invalid(submission.CheckLevel(req.Level, agent, tpl)); err != nil {
		return nil, "", err
	}
	run := submission.Resolve(&t.Submission, by.Principal, agent, tpl)
	if err := v.admit(run); err != nil {
		return nil, "", err
	}
	run.Argv, run.TimeoutMS = nil, 0
	run.Resources = submission.Resources(req.Resources, run.Resources)
	if req.Files != "" {
		run.Files = req.Files
	}
	setLife(run, req)
	return run, tpl.Name, nil
}

// checkSandboxes bounds interactive sandboxes per workspace and per tenant: so many more must fit.
func (v *view) checkSandboxes(ws *workspace.Workspace, more int) error {
	inTenant, here := v.sandboxes.living(ws.Name)
	if limit := v.quota().Sandboxes; inTenant+more > limit {
		return fault.New(fault.Exhausted, "tenant %s has %d sandboxes, its quota; end one", v.tenant, limit)
	}
	if limit := ws.Quota.Sandboxes; limit > 0 && here+more > limit {
		return fault.New(fault.Exhausted, "workspace %s has %d sandboxes, its quota; end one", ws.Name, limit)
	}
	return nil
}

// SandboxGet reads an interactive sandbox's record.
func (s *Service) SandboxGet(ctx context.Context, by mesh.Caller, req workspace.ID) (workspace.Sandbox, error) {
	k, err := sandboxKey(by, req.ID)
	if err != nil {
		return workspace.Sandbox{}, err
	}
	r, err := get(ctx, s.stores.sandboxes, k)
	return r.Value, err
}

// SandboxList lists the workspace's interactive sandboxes, those that ended among them.
func (s *Service) SandboxList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.Sandbox], error) {
	return listOf(ctx, s, by, req, func(v *view) *table[workspace.Sandbox] { return v.sandboxes }, func(b workspace.Sandbox) string { return b.ID })
}

// SandboxKill ends an interactive sandbox. One that has ended stays as it is.
func (s *Service) SandboxKill(ctx context.Context, by mesh.Caller, req workspace.ID) (workspace.Sandbox, error) {
	k, err := sandboxKey(by, req.ID)
	if err != nil {
		return workspace.Sandbox{}, err
	}
	r, err := get(ctx, s.stores.sandboxes, k)
	if err != nil || r.Value.State == workspace.SandboxStopped {
		return r.Value, err
	}
	if err := s.killSandbox(ctx, r, workspace.ReasonKilled, by.Principal); err != nil {
		return r.Value, err
	}
	r, err = s.stopped(ctx, k, workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: workspace.ReasonKilled, By: by.Principal}, nil)
	return r.Value, err
}

// killSandbox has the node end it. A node that is lost needs no telling: it ends what it can't renew.
func (s *Service) killSandbox(ctx context.Context, r records.Record[workspace.Sandbox], reason, by string) error {
	err := s.calls.KillSandbox(ctx, r.Value.Node, runtime.SandboxKill{ID: r.ID, Reason: reason, By: by})
	if err != nil && s.nodes.lost(r.Value.Node) {
		return nil
	}
	return err
}

// SandboxEnded takes a node's report of how an interactive sandbox ended. The first report counts.
func (s *Service) SandboxEnded(ctx context.Context, by mesh.Caller, req runtime.SandboxEnded) (workspace.Empty, error) {
	var none workspace.Empty
	if err := checkNode(by); err != nil {
		return none, err
	}
	if err := checkItem(workspace.QueueItem{Tenant: req.Tenant, Workspace: req.Workspace, Task: req.ID, Attempt: 1}); err != nil {
		return none, err
	}
	k := records.Key{Tenant: req.Tenant, Workspace: req.Workspace, ID: req.ID}
	r, err := get(ctx, s.stores.sandboxes, k)
	if err != nil {
		return none, err
	}
	if r.Value.Node != by.Principal {
		return none, fault.New(fault.Conflict, "sandbox %s is not on node %s", req.ID, by.Principal)
	}
	_, err = s.stopped(ctx, k, req.Exit, req.Fault, bounded(req.LastOutput)...)
	return none, err
}

// stopped writes the end of a sandbox, once, with what it said last.
func (s *Service) stopped(ctx context.Context, k records.Key, exit workspace.Exit, f *workspace.Fault, said ...workspace.LastOutput) (records.Record[workspace.Sandbox], error) {
	r, err := s.stores.sandboxes.Update(ctx, k, func(b *workspace.Sandbox) (string, error) {
		if b.State == workspace.SandboxStopped {
			return "", nil
		}
		now := s.cfg.Now().UTC()
		b.State, b.Exit, b.Fault, b.StoppedAt, b.LastOutput = workspace.SandboxStopped, &exit, f, &now, said
		b.Warning, b.PausedAt = nil, nil
		return b.State, nil
	})
	if err == nil {
		s.nodes.hold(r)
		if v := s.viewByName(k.Tenant); v != nil {
			v.sandbox(r)
		}
	} else {
		s.log.Warn("end of a sandbox not written; the reconciler does it", "sandbox", k.ID, "err", err)
	}
	return r, err
}

func sandboxKey(by mesh.Caller, id string) (records.Key, error) {
	if err := invalid(schemas.CheckID("sandbox", id)); err != nil {
		return records.Key{}, err
	}
	return records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: id}, inWorkspace(by, "a sandbox")
}
