package manager

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
	"github.com/weftmesh/weft/services/workspace-manager/internal/submission"
)

// submission takes one message of the task plane: it writes the task's record and only then lets it be
// acknowledged. Delivered twice, the second finds the record and changes nothing. What can't be decoded
// goes to the dead letters; what can't run is recorded as rejected.
func (v *view) submission(ctx context.Context, d mesh.Delivery) error {
	from, err := schemas.ParseSubject(d.Subject)
	if err != nil || from.Plane != schemas.PlaneTask || from.Tenant != v.tenant {
		return mesh.Dead(fault.New(fault.Invalid, "not a subject for submissions: %s", d.Subject))
	}
	sub, problem := submission.Decode(d.Data)
	if errors.Is(problem, submission.ErrUndecodable) {
		return mesh.Dead(fault.Wrap(problem, fault.Invalid, "the submission can't be read: %v", problem))
	}
	if problem == nil && len(d.Data) > schemas.MaxSubmission {
		problem = fmt.Errorf("the submission is %d bytes long, more than %d; put larger input into a file of the workspace", len(d.Data), schemas.MaxSubmission)
	}
	key := d.Header.Get(schemas.HeaderID)
	if key == "" {
		key = submission.SequenceKey(d.Sequence)
	} else if err := submission.CheckKey(key); err != nil {
		key, problem = submission.SequenceKey(d.Sequence), err
	}
	t := workspace.Task{Tenant: v.tenant, Workspace: from.Workspace, Key: key, Principal: from.Principal,
		Submission: sub, CreatedAt: d.Time.UTC(), Traceparent: mesh.Traceparent(ctx)}
	if problem != nil {
		reject(&t, fault.New(fault.Invalid, "%v", problem))
	} else if err := v.accept(ctx, &t); err != nil {
		return err
	}
	existing, err := v.createTask(ctx, &t)
	if err != nil {
		return err
	}
	if existing != nil && existing.Principal != t.Principal {
		// Somebody else's key: this is no repeat, and must not vanish as one.
		t.Key = submission.SequenceKey(d.Sequence)
		reject(&t, fault.New(fault.Conflict, "ce-id %q was used by another principal of the workspace; choose another", key))
		if _, err := v.createTask(ctx, &t); err != nil {
			return err
		}
	}
	failpoint.Hit(fpBeforeAck)
	return nil
}

// createTask writes the first state of a task under the id that its key gives. If the id is taken it
// changes nothing and gives what is there.
func (v *view) createTask(ctx context.Context, t *workspace.Task) (existing *workspace.Task, err error) {
	t.ID = schemas.TaskID(t.Tenant, t.Workspace, t.Key)
	event := lifecycle.Submitted
	if t.State == workspace.Rejected {
		event = lifecycle.Rejected
	}
	k := records.Key{Tenant: t.Tenant, Workspace: t.Workspace, ID: t.ID}
	r, err := v.s.stores.tasks.Create(ctx, k, event, *t)
	if fault.Is(err, fault.Conflict) {
		r, err = v.s.stores.tasks.Get(ctx, k)
		return &r.Value, err
	}
	if err != nil {
		return nil, err
	}
	failpoint.Hit(fpAfterRecord)
	v.task(r)
	return nil, nil
}

// accept fills in what a task runs with, or makes it rejected with the reason. It returns an error only
// where it can't tell now; the submission is then delivered again.
func (v *view) accept(ctx context.Context, t *workspace.Task) error {
	err := v.resolve(ctx, t)
	switch code := fault.CodeOf(err); code {
	case "":
		t.State = workspace.Pending
		return nil
	case fault.Unavailable, fault.Deadline, fault.Internal:
		return err
	}
	reject(t, err)
	return nil
}

func reject(t *workspace.Task, err error) {
	code, text := fault.Public(err)
	t.State, t.Fault, t.Run = workspace.Rejected, &workspace.Fault{Code: string(code), Message: text}, nil
	at := t.CreatedAt
	t.FinishedAt = &at
}

func (v *view) resolve(ctx context.Context, t *workspace.Task) error {
	sub := &t.Submission
	if err := submission.Check(sub); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	if t.Workspace == schemas.NoWorkspace {
		return fault.New(fault.Invalid, "a task needs a workspace; submit to one")
	}
	ws, err := v.activeWorkspace(ctx, t.Workspace)
	if err != nil {
		return err
	}
	if err := v.checkDepth(t); err != nil {
		return err
	}
	agent, tpl, err := v.definitions(ctx, t)
	if err != nil {
		return err
	}
	if t.Trigger == "" && t.RetryOf == "" && submission.Override(sub) && sub.Agent != t.Principal && v.isAgent(t.Workspace, t.Principal) {
		return fault.New(fault.Denied, "agent %s may not change the command or environment of agent %s; give it input instead", t.Principal, sub.Agent)
	}
	if err := invalid(submission.CheckLevel(sub.Level, agent, tpl)); err != nil {
		return err
	}
	if err := v.checkPending(t, ws); err != nil {
		return err
	}
	t.Run = submission.Resolve(sub, t.Principal, agent, tpl)
	if err := v.admit(t.Run); err != nil {
		return err
	}
	t.MaxAttempts = sub.MaxAttempts
	if agent != nil {
		t.AgentVersion = agent.Version
		t.BackoffMS = agent.BackoffMS
		if t.MaxAttempts == 0 {
			t.MaxAttempts = agent.MaxAttempts
		}
	}
	return nil
}

// checkDepth takes the larger of what the sender says and of where it stands itself.
func (v *view) checkDepth(t *workspace.Task) error {
	if t.Trigger == "" { // a trigger has counted already
		t.Depth = max(t.Depth, t.Submission.Depth, v.tasks.depth(t.Workspace, t.Principal, t.Submission.Parent))
	}
	if t.Depth > schemas.MaxDepth {
		return fault.New(fault.Exhausted, "this is the %dth trigger in a row, more than %d: do the triggers start one another?", t.Depth, schemas.MaxDepth)
	}
	return nil
}

// activeWorkspace asks the log, so that a workspace made a moment ago is found.
func (v *view) activeWorkspace(ctx context.Context, name string) (*workspace.Workspace, error) {
	if tn, ok := v.tenants.get(records.Key{Tenant: v.tenant, Workspace: schemas.NoWorkspace, ID: v.tenant}); ok && tn.Value.State == workspace.Deleting {
		return nil, fault.New(fault.Conflict, "tenant %q is being deleted", v.tenant)
	}
	r, err := get(ctx, v.s.stores.workspaces, workspaceKey(v.tenant, name))
	if err != nil {
		if fault.Is(err, fault.NotFound) {
			return nil, fault.Wrap(err, fault.NotFound, "no workspace %q; `weft workspace create %s` makes it", name, name)
		}
		return nil, err
	}
	if r.Value.State == workspace.Deleting {
		return nil, fault.New(fault.Conflict, "workspace %q is being deleted", name)
	}
	return &r.Value, nil
}

// definitions finds the agent, nil where the submission names a template, and the template.
func (v *view) definitions(ctx context.Context, t *workspace.Task) (*workspace.Agent, *workspace.Template, error) {
	name := t.Submission.Template
	var agent *workspace.Agent
	if t.Submission.Agent != "" {
		r, err := get(ctx, v.s.stores.agents, records.Key{Tenant: v.tenant, Workspace: t.Workspace, ID: t.Submission.Agent})
		if err != nil {
			return nil, nil, err
		}
		agent, name = &r.Value, r.Value.Template
	}
	tpl, err := v.template(ctx, t.Workspace, name)
	return agent, tpl, err
}

// template looks in the workspace, then among the tenant's, then among those that the operator gives to all.
func (v *view) template(ctx context.Context, ws, name string) (*workspace.Template, error) {
	places := []records.Key{
		{Tenant: v.tenant, Workspace: ws, ID: name},
		{Tenant: v.tenant, Workspace: schemas.NoWorkspace, ID: name},
		{Tenant: workspace.SystemTenant, Workspace: schemas.NoWorkspace, ID: name},
	}
	found, errs := make([]records.Record[workspace.Template], len(places)), make([]error, len(places))
	var all sync.WaitGroup // asked at the same time: most are at the last place
	for i, k := range places {
		all.Go(func() { found[i], errs[i] = get(ctx, v.s.stores.templates, k) })
	}
	all.Wait()
	for i, err := range errs {
		if err == nil {
			return &found[i].Value, nil
		}
		if !fault.Is(err, fault.NotFound) {
			return nil, err
		}
	}
	return nil, fault.New(fault.NotFound, "no template %q; `weft template list` shows those that there are", name)
}

func (v *view) isAgent(ws, principal string) bool {
	_, ok := v.agents.get(records.Key{Tenant: v.tenant, Workspace: ws, ID: principal})
	return ok || v.tasks.runs(ws, principal)
}

// checkPending bounds what waits. Beyond it a task is recorded as rejected: it was accepted, so it must
// not vanish; the stream's own limit refuses a flood before that.
func (v *view) checkPending(t *workspace.Task, ws *workspace.Workspace) error {
	tenant, here := v.s.turns.Pending(v.tenant, t.Workspace)
	if limit := v.quota().MaxPending; tenant >= limit {
		return fault.New(fault.Exhausted, "tenant %s has %d tasks waiting, its quota; wait for some to start", v.tenant, limit)
	}
	if limit := ws.Quota.MaxPending; limit > 0 && here >= limit {
		return fault.New(fault.Exhausted, "workspace %s has %d tasks waiting, its quota; wait for some to start", t.Workspace, limit)
	}
	return nil
}

// quota is the tenant's, with the defaults where it says nothing.
func (v *view) quota() workspace.Quota {
	q := v.s.cfg.Quota
	if r, ok := v.tenants.get(records.Key{Tenant: v.tenant, Workspace: schemas.NoWorkspace, ID: v.tenant}); ok {
		own := r.Value.Quota
		def(&own.MaxPending, q.MaxPending)
		def(&own.Sandboxes, q.Sandboxes)
		def(&own.MaxRunning, q.MaxRunning)
		def(&own.DiskBytes, q.DiskBytes)
		def(&own.PoolMembers, q.PoolMembers)
		return own
	}
	return q
}

// get reads a record from the log's leader; one that is deleted is not there.
func get[T any](ctx context.Context, st *records.Store[T], k records.Key) (records.Record[T], error) {
	r, err := st.Get(ctx, k)
	if err == nil && r.Event == deleted {
		return records.Record[T]{}, fault.New(fault.NotFound, "no %s %q in workspace %q", st.Entity(), k.ID, k.Workspace)
	}
	return r, err
}
