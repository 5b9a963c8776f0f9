package manager

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
	"github.com/weftmesh/weft/services/workspace-manager/internal/submission"
)

// TaskGet reads a task as the log has it.
func (s *Service) TaskGet(ctx context.Context, by mesh.Caller, req workspace.ID) (workspace.Task, error) {
	k, err := taskKey(by, req.ID)
	if err != nil {
		return workspace.Task{}, err
	}
	r, err := get(ctx, s.stores.tasks, k)
	return r.Value, err
}

// TaskList gives tasks of the workspace, newest first. It picks them from memory, a moment behind the
// log, and reads those of the page as they are.
func (s *Service) TaskList(ctx context.Context, by mesh.Caller, req workspace.TaskList) (workspace.Page[workspace.Task], error) {
	page := workspace.Page[workspace.Task]{Items: []workspace.Task{}}
	n, err := limit(req.Limit)
	if err != nil {
		return page, err
	}
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return page, err
	}
	var picked []summary
	more := false
	v.tasks.page(by.Workspace, req.Cursor, func(t summary) bool {
		if req.Since != nil && t.Created.Before(*req.Since) {
			return false // it only gets older
		}
		if !matches(t, req) {
			return true
		}
		if len(picked) == n {
			more = true
			return false
		}
		picked = append(picked, t)
		return true
	})
	tasks, err := s.readTasks(ctx, picked)
	if err != nil {
		return page, err
	}
	size, last := 0, -1
	for i, t := range tasks {
		if t == nil {
			last = i
			continue
		}
		b, err := json.Marshal(t)
		if err != nil {
			return page, err
		}
		if size += len(b); size > maxPageBytes && len(page.Items) > 0 {
			more = true
			break
		}
		page.Items = append(page.Items, *t)
		last = i
	}
	if more && last >= 0 {
		page.Cursor = writeCursor(picked[last].Created, picked[last].ID)
	}
	return page, nil
}

func matches(t summary, req workspace.TaskList) bool {
	if (req.Agent != "" && t.Agent != req.Agent) || (req.Group != "" && t.Group != req.Group) ||
		(len(req.States) > 0 && !slices.Contains(req.States, t.State)) {
		return false
	}
	for k, want := range req.Labels {
		if t.Labels[k] != want {
			return false
		}
	}
	return true
}

// readTasks reads records side by side; nil where one was removed in the meantime.
func (s *Service) readTasks(ctx context.Context, picked []summary) ([]*workspace.Task, error) {
	out, errs := make([]*workspace.Task, len(picked)), make([]error, len(picked))
	slots := make(chan struct{}, 16)
	var wg sync.WaitGroup
	for i, p := range picked {
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-slots; wg.Done() }()
			r, err := get(ctx, s.stores.tasks, p.Key)
			if err == nil {
				out[i] = &r.Value
			} else if !fault.Is(err, fault.NotFound) {
				errs[i] = err
			}
		}()
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TaskCancel ends a task that waits at once, and has one that runs ended by its node. It may be asked
// again; a task that ended otherwise is a conflict.
func (s *Service) TaskCancel(ctx context.Context, by mesh.Caller, req workspace.ID) (workspace.Task, error) {
	k, err := taskKey(by, req.ID)
	if err != nil {
		return workspace.Task{}, err
	}
	r, err := s.cancel(ctx, k, by.Principal)
	return r.Value, err
}

func (s *Service) cancel(ctx context.Context, k records.Key, by string) (records.Record[workspace.Task], error) {
	now := s.cfg.Now().UTC()
	r, err := s.stores.tasks.Update(ctx, k, func(t *workspace.Task) (string, error) { return lifecycle.Cancel(t, by, now) })
	if err != nil {
		return r, err
	}
	if v := s.tenants.view(ctx, k.Tenant); v != nil {
		v.task(r)
	}
	return r, nil
}

// TaskRetry submits an ended task anew: the same submission, resolved against the definitions as they
// are now. Asked again for the same task it gives the same new one, until that has ended too.
func (s *Service) TaskRetry(ctx context.Context, by mesh.Caller, req workspace.ID) (workspace.Task, error) {
	var none workspace.Task
	k, err := taskKey(by, req.ID)
	if err != nil {
		return none, err
	}
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return none, err
	}
	old, err := get(ctx, s.stores.tasks, k)
	if err != nil {
		return none, err
	}
	if !old.Value.State.Final() {
		return none, fault.New(fault.Conflict, "task %s is %s; only an ended one can be tried again", req.ID, old.Value.State)
	}
	t := workspace.Task{Tenant: k.Tenant, Workspace: k.Workspace, Key: submission.RetryKey(k.ID), Principal: by.Principal, RetryOf: k.ID,
		Submission: old.Value.Submission, Depth: old.Value.Depth, CreatedAt: s.cfg.Now().UTC(), Traceparent: mesh.Traceparent(ctx)}
	if err := v.resolve(ctx, &t); err != nil {
		return none, err // told at once, so no record of it is needed
	}
	t.State = workspace.Pending
	existing, err := v.createTask(ctx, &t)
	switch {
	case err != nil:
		return none, err
	case existing == nil:
		return t, nil
	case existing.State.Final():
		return none, fault.New(fault.Conflict, "task %s was tried again as %s, which has ended: %s; retry that one", k.ID, existing.ID, existing.State)
	}
	return *existing, nil
}

// TaskHistory gives every state of a task, oldest first.
func (s *Service) TaskHistory(ctx context.Context, by mesh.Caller, req workspace.ID) (workspace.Page[workspace.Change[workspace.Task]], error) {
	page := workspace.Page[workspace.Change[workspace.Task]]{}
	k, err := taskKey(by, req.ID)
	if err != nil {
		return page, err
	}
	rs, err := s.stores.tasks.History(ctx, k)
	if err != nil {
		return page, err
	}
	size := 0
	for i, r := range rs {
		c := workspace.Change[workspace.Task]{Event: r.Event, Entity: workspace.EntityTask, Workspace: r.Workspace, ID: r.ID,
			Sequence: r.Sequence, Time: r.Time, EventID: r.EventID, Value: r.Value}
		if i > 0 {
			c.Value.Submission.Input = nil // it never changes; the first state has it
		}
		b, err := json.Marshal(c)
		if err != nil {
			return page, err
		}
		if size += len(b); size > maxPageBytes && i > 0 {
			break
		}
		page.Items = append(page.Items, c)
	}
	return page, nil
}

func taskKey(by mesh.Caller, id string) (records.Key, error) {
	if err := schemas.CheckID("task", id); err != nil {
		return records.Key{}, fault.New(fault.Invalid, "%v", err)
	}
	if by.Workspace == schemas.NoWorkspace {
		return records.Key{}, fault.New(fault.Invalid, "name the workspace of the task")
	}
	return records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: id}, nil
}

// viewOf is the view of the caller's tenant.
func (s *Service) viewOf(ctx context.Context, by mesh.Caller) (*view, error) {
	if v := s.tenants.view(ctx, by.Tenant); v != nil {
		return v, nil
	}
	return nil, fault.New(fault.Unavailable, "tenant %q is not known here yet; try again", by.Tenant)
}
