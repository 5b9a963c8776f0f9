package manager

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// SandboxFork makes sandboxes with the files that a sandbox has now, on its node: the records first, then the node makes all
// or none. A manager that dies in between leaves records in "creating", which the reconciler ends with what the node may have
// made. Each fork is one more sandbox of the quota, with a time to live of its own.
func (s *Service) SandboxFork(ctx context.Context, by mesh.Caller, req workspace.SandboxFork) (workspace.Page[workspace.Sandbox], error) {
	none := workspace.Page[workspace.Sandbox]{Items: []workspace.Sandbox{}}
	def(&req.Count, 1)
	if req.Count < 1 || req.Count > workspace.MaxForks {
		return none, fault.New(fault.Invalid, `"count" must be 1 to %d`, workspace.MaxForks)
	}
	source, err := s.copied(ctx, by, req.ID)
	if err != nil {
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
	if err := v.admit(&source.Value.Run); err != nil { // the tenant's policy may have been narrowed since
		return none, err
	}
	if err := v.checkSandboxes(ws, req.Count); err != nil {
		return none, err
	}
	forks, err := s.forkRecords(ctx, source, req.Count)
	if err == nil {
		err = s.calls.ForkSandbox(ctx, source.Value.Node, runtime.SandboxFork{Source: source.ID, Sandboxes: valuesOf(forks)})
	}
	if err != nil {
		for _, r := range forks {
			_, _ = s.stopped(context.WithoutCancel(ctx), r.Key, workspace.Exit{Code: -1, Reason: workspace.ReasonStartFailed}, publicFault(err))
		}
		return none, err
	}
	for _, r := range forks {
		if r, err = s.started(ctx, r); err != nil {
			return none, err
		}
		v.sandbox(r)
		none.Items = append(none.Items, r.Value)
	}
	return none, nil
}

// copied reads a sandbox whose files are to be copied.
func (s *Service) copied(ctx context.Context, by mesh.Caller, id string) (records.Record[workspace.Sandbox], error) {
	r, err := s.live(ctx, by, id)
	if err == nil && !r.Value.Run.WritableRoot {
		err = fault.New(fault.Invalid, "sandbox %s has no writable root; make it from a template with writable_root", id)
	}
	return r, err
}

// forkRecords writes the records of forks; those that were written come with the error.
func (s *Service) forkRecords(ctx context.Context, source records.Record[workspace.Sandbox], count int) ([]records.Record[workspace.Sandbox], error) {
	var forks []records.Record[workspace.Sandbox]
	for range count {
		b := source.Value
		b.ID, b.ForkedFrom, b.Claim, b.Generation = schemas.NewID(), source.ID, "", 1
		b.State, b.CreatedAt = workspace.SandboxCreating, s.cfg.Now().UTC()
		b.RunningAt, b.PausedAt, b.Warning, b.ExpiresAt = nil, nil, nil, nil
		expires := expiry(&b)
		b.ExpiresAt = &expires
		r, err := s.stores.sandboxes.Create(ctx, records.Key{Tenant: b.Tenant, Workspace: b.Workspace, ID: b.ID}, b.State, b)
		if err != nil {
			return forks, err
		}
		s.nodes.hold(r)
		forks = append(forks, r)
	}
	return forks, nil
}

func valuesOf(rs []records.Record[workspace.Sandbox]) []workspace.Sandbox {
	var out []workspace.Sandbox
	for _, r := range rs {
		out = append(out, r.Value)
	}
	return out
}

// started writes that a sandbox can be used.
func (s *Service) started(ctx context.Context, r records.Record[workspace.Sandbox]) (records.Record[workspace.Sandbox], error) {
	return s.stores.sandboxes.UpdateFrom(ctx, r, func(b *workspace.Sandbox) (string, error) {
		if b.State != workspace.SandboxCreating {
			return "", nil
		}
		now := s.cfg.Now().UTC()
		b.State, b.RunningAt = workspace.SandboxRunning, &now
		return b.State, nil
	})
}
