package manager

import (
	"context"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/definition"
)

// WorkspacePut makes a workspace, or changes its quota and labels.
func (s *Service) WorkspacePut(ctx context.Context, by mesh.Caller, req workspace.Put[workspace.Workspace]) (workspace.Workspace, error) {
	want := req.Value
	if err := invalid(definition.Workspace(&want)); err != nil {
		return want, err
	}
	v, err := s.viewOf(ctx, by)
	if err != nil {
		return want, err
	}
	k := workspaceKey(by.Tenant, want.Name)
	if r, err := s.stores.workspaces.Get(ctx, k); err == nil && r.Event == deleted {
		if err := s.stores.workspaces.Delete(ctx, k); err != nil {
			return want, err
		}
	}
	r, err := s.stores.workspaces.Put(ctx, k, func(w *workspace.Workspace, exists bool) (string, error) {
		if !exists {
			*w = want
			w.State, w.CreatedAt = workspace.Active, s.cfg.Now().UTC()
			return "created", nil
		}
		if w.State == workspace.Deleting {
			return "", fault.New(fault.Conflict, "workspace %q is being deleted; wait until it is gone", want.Name)
		}
		next := *w
		next.Quota, next.Labels = want.Quota, want.Labels
		if equal(*w, next) {
			return "", nil
		}
		*w = next
		return "changed", nil
	})
	if err == nil {
		v.wait(ctx, r.Sequence)
	}
	return r.Value, err
}

// WorkspaceGet reads a workspace; without a name the caller's own.
func (s *Service) WorkspaceGet(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Workspace, error) {
	if req.Name == "" {
		req.Name = by.Workspace
	}
	if err := invalid(schemas.CheckName("workspace", req.Name)); err != nil {
		return workspace.Workspace{}, err
	}
	r, err := get(ctx, s.stores.workspaces, workspaceKey(by.Tenant, req.Name))
	return r.Value, err
}

// WorkspaceList lists the tenant's workspaces by name.
func (s *Service) WorkspaceList(ctx context.Context, by mesh.Caller, req workspace.List) (workspace.Page[workspace.Workspace], error) {
	by.Workspace = schemas.NoWorkspace
	return listOf(ctx, s, by, req, func(v *view) *table[workspace.Workspace] { return v.workspaces }, func(w workspace.Workspace) string { return w.Name })
}

// WorkspaceDelete begins to remove a workspace with all that is in it; the leader does it from here on.
// It is gone when workspace-get says not_found.
func (s *Service) WorkspaceDelete(ctx context.Context, by mesh.Caller, req workspace.Name) (workspace.Workspace, error) {
	if err := invalid(schemas.CheckName("workspace", req.Name)); err != nil {
		return workspace.Workspace{}, err
	}
	k := workspaceKey(by.Tenant, req.Name)
	if _, err := get(ctx, s.stores.workspaces, k); err != nil {
		return workspace.Workspace{}, err
	}
	r, err := s.stores.workspaces.Update(ctx, k, func(w *workspace.Workspace) (string, error) {
		if w.State == workspace.Deleting {
			return "", nil
		}
		w.State = workspace.Deleting
		return workspace.Deleting, nil
	})
	if err != nil {
		return r.Value, err
	}
	failpoint.Hit(fpDeleteAfterMark)
	signal(s.purge)
	return r.Value, nil
}
