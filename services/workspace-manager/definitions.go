package manager

import (
	"context"
	"encoding/json"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/definition"
)

// define writes a new version of a definition, unless it is what is there already. want, if not 0, must
// be the present version. meta gives where a definition keeps its version and when it was made.
func define[T any](ctx context.Context, s *Service, st *records.Store[T], k records.Key, value T, want int, meta func(*T) (version *int, made *time.Time)) (records.Record[T], error) {
	if r, err := st.Get(ctx, k); err == nil && r.Event == deleted {
		// Its deletion was cut short before the purge.
		if err := st.Delete(ctx, k); err != nil {
			return r, err
		}
	}
	r, err := st.Put(ctx, k, func(v *T, exists bool) (string, error) {
		next := value
		version, made := meta(&next)
		have, since := meta(v)
		if want != 0 && *have != want {
			return "", fault.New(fault.Conflict, "%s %q is at version %d, not %d; read it again", st.Entity(), k.ID, *have, want)
		}
		*version, *made = *have, *since
		if exists && equal(*v, next) {
			return "", nil
		}
		event := "changed"
		if !exists {
			event, *made = "created", s.cfg.Now().UTC()
		}
		*version++
		*v = next
		return event, nil
	})
	if err != nil {
		return r, err
	}
	if v := s.tenants.view(ctx, k.Tenant); v != nil {
		v.wait(ctx, r.Sequence)
	}
	return r, nil
}

func equal(a, b any) bool {
	x, errx := json.Marshal(a)
	y, erry := json.Marshal(b)
	return errx == nil && erry == nil && string(x) == string(y)
}

// remove deletes a definition: first an event that says so, for the views, then the purge. Killed in
// between, the record counts as not there, and retention or the next definition purges it.
func remove[T any](ctx context.Context, s *Service, st *records.Store[T], k records.Key) error {
	r, err := st.Update(ctx, k, func(*T) (string, error) { return deleted, nil })
	if err != nil {
		return err
	}
	if v := s.tenants.view(ctx, k.Tenant); v != nil {
		v.wait(ctx, r.Sequence)
	}
	return st.Delete(ctx, k)
}

// owned is the key of a definition in the caller's workspace, which must be there.
func (s *Service) owned(ctx context.Context, by mesh.Caller, name string) (records.Key, *view, error) {
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return records.Key{}, nil, err
	}
	if by.Workspace != schemas.NoWorkspace {
		if _, err := v.activeWorkspace(ctx, by.Workspace); err != nil {
			return records.Key{}, nil, err
		}
	}
	return records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: name}, v, nil
}

func inWorkspace(by mesh.Caller, what string) error {
	if by.Workspace == schemas.NoWorkspace {
		return fault.New(fault.Invalid, "%s belongs to a workspace; name one", what)
	}
	return nil
}

func invalid(err error) error {
	if err == nil {
		return nil
	}
	return fault.New(fault.Invalid, "%v", err)
}

// AgentPut makes or changes an agent. Tasks that were accepted keep the version they were accepted with.
func (s *Service) AgentPut(ctx context.Context, by mesh.Caller, req workspace.Put[workspace.Agent]) (workspace.Agent, error) {
	if err := invalid(definition.Agent(&req.Value)); err != nil {
		return workspace.Agent{}, err
	}
	if err := inWorkspace(by, "an agent"); err != nil {
		return workspace.Agent{}, err
	}
	k, v, err := s.owned(ctx, by, req.Value.Name)
	if err != nil {
		return workspace.Agent{}, err
	}
	if _, err := v.template(ctx, by.Workspace, req.Value.Template); err != nil {
		return workspace.Agent{}, err
	}
	r, err := define(ctx, s, s.stores.agents, k, req.Value, req.Version, func(a *workspace.Agent) (*int, *time.Time) { return &a.Version, &a.CreatedAt })
	return r.Value, err
}

// AgentGet reads an agent.
func (s *Service) AgentGet(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Agent, error) {
	r, err := get(ctx, s.stores.agents, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: req.Name})
	return r.Value, err
}

// AgentList lists the workspace's agents by name.
func (s *Service) AgentList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.Agent], error) {
	return listOf(ctx, s, by, req, func(v *view) *table[workspace.Agent] { return v.agents }, func(a workspace.Agent) string { return a.Name })
}

// AgentDelete removes an agent. Its accepted tasks still run.
func (s *Service) AgentDelete(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Empty, error) {
	return workspace.Empty{}, remove(ctx, s, s.stores.agents, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: req.Name})
}

// TemplatePut makes or changes a template of the workspace, or with workspace "-" of the tenant.
func (s *Service) TemplatePut(ctx context.Context, by mesh.Caller, req workspace.Put[workspace.Template]) (workspace.Template, error) {
	if err := invalid(definition.Template(&req.Value)); err != nil {
		return workspace.Template{}, err
	}
	if err := checkSnapshot(req.Value.Image, by.Tenant); err != nil {
		return workspace.Template{}, err
	}
	k, v, err := s.owned(ctx, by, req.Value.Name)
	if err != nil {
		return workspace.Template{}, err
	}
	if err := v.allows(req.Value.Level, req.Value.Isolation); err != nil {
		return workspace.Template{}, err
	}
	r, err := define(ctx, s, s.stores.templates, k, req.Value, req.Version, func(t *workspace.Template) (*int, *time.Time) { return &t.Version, &t.CreatedAt })
	return r.Value, err
}

// TemplateGet gives the template that a task of the workspace would use.
func (s *Service) TemplateGet(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Template, error) {
	if err := invalid(schemas.CheckName("template", req.Name)); err != nil {
		return workspace.Template{}, err
	}
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return workspace.Template{}, err
	}
	t, err := v.template(ctx, by.Workspace, req.Name)
	if err != nil {
		return workspace.Template{}, err
	}
	return *t, nil
}

// TemplateList lists the templates that a task of the workspace can use: its own, the tenant's, and
// those that the operator gives to all; of one name the nearest.
func (s *Service) TemplateList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.Template], error) {
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return workspace.Page[workspace.Template]{}, err
	}
	byName := map[string]workspace.Template{}
	add := func(v *view, ws string) {
		if v == nil {
			return
		}
		for _, r := range v.templates.in(ws) {
			byName[r.ID] = r.Value
		}
	}
	add(s.tenants.view(ctx, workspace.SystemTenant), schemas.NoWorkspace)
	add(v, schemas.NoWorkspace)
	add(v, by.Workspace)
	var out []workspace.Template
	for _, t := range byName {
		out = append(out, t)
	}
	return pageOf(out, req, func(t workspace.Template) string { return t.Name })
}

// TemplateDelete removes a template of the workspace, or with workspace "-" of the tenant.
func (s *Service) TemplateDelete(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Empty, error) {
	return workspace.Empty{}, remove(ctx, s, s.stores.templates, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: req.Name})
}

// TriggerPut makes or changes a trigger. What it starts is resolved anew at each start.
func (s *Service) TriggerPut(ctx context.Context, by mesh.Caller, req workspace.Put[workspace.Trigger]) (workspace.Trigger, error) {
	if err := invalid(definition.Trigger(&req.Value)); err != nil {
		return workspace.Trigger{}, err
	}
	if err := inWorkspace(by, "a trigger"); err != nil {
		return workspace.Trigger{}, err
	}
	k, _, err := s.owned(ctx, by, req.Value.Name)
	if err != nil {
		return workspace.Trigger{}, err
	}
	r, err := define(ctx, s, s.stores.triggers, k, req.Value, req.Version, func(t *workspace.Trigger) (*int, *time.Time) { return &t.Version, &t.CreatedAt })
	return r.Value, err
}

// TriggerGet reads a trigger.
func (s *Service) TriggerGet(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Trigger, error) {
	r, err := get(ctx, s.stores.triggers, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: req.Name})
	return r.Value, err
}

// TriggerList lists the workspace's triggers by name.
func (s *Service) TriggerList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.Trigger], error) {
	return listOf(ctx, s, by, req, func(v *view) *table[workspace.Trigger] { return v.triggers }, func(t workspace.Trigger) string { return t.Name })
}

// TriggerDelete removes a trigger. What it started goes on.
func (s *Service) TriggerDelete(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Empty, error) {
	return workspace.Empty{}, remove(ctx, s, s.stores.triggers, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: req.Name})
}

func listOf[T any](ctx context.Context, s *Service, by mesh.Caller, req workspace.List, of func(*view) *table[T], name func(T) string) (workspace.Page[T], error) {
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return workspace.Page[T]{}, err
	}
	var out []T
	for _, r := range of(v).in(by.Workspace) {
		out = append(out, r.Value)
	}
	return pageOf(out, req, name)
}
