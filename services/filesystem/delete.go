package filesystem

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

var midDelete = failpoint.Register("filesystem.delete.after-records")

// DeleteWorkspace removes everything of a workspace: overlays, layers, artifacts and records; without a workspace everything of the tenant,
// contents too. Of one workspace the contents go with the next sweep, when no other workspace of the tenant needs them. Doing
// it again, or after being killed in the middle, does the rest.
func (s *Service) DeleteWorkspace(ctx context.Context, req wire.DeleteWorkspace) (workspace.Empty, error) {
	if err := schemas.CheckName("tenant", req.Tenant); err != nil {
		return workspace.Empty{}, fault.New(fault.Invalid, "%v", err)
	}
	if req.Workspace == "" {
		return workspace.Empty{}, s.deleteTenant(ctx, req.Tenant)
	}
	sp, err := s.space(req.Tenant, req.Workspace)
	if err != nil {
		return workspace.Empty{}, err
	}
	if err := sp.hold(ctx); err != nil {
		return workspace.Empty{}, err
	}
	defer sp.release()
	return workspace.Empty{}, s.deleteSpace(ctx, req.Tenant, req.Workspace, sp)
}

// deleteSpace removes what lies under one workspace. The caller holds the lock.
func (s *Service) deleteSpace(ctx context.Context, tenant, name string, sp *space) error {
	if err := s.removeOverlays(tenant, name); err != nil {
		return err
	}
	r := s.cfg.Records
	// The head last: without it a half-deleted workspace would look empty while its snapshots are there.
	err := errors.Join(r.Overlays.DeleteAll(ctx, tenant, name), r.Artifacts.DeleteAll(ctx, tenant, name), r.Snapshots.DeleteAll(ctx, tenant, name))
	if err == nil {
		err = r.Heads.DeleteAll(ctx, tenant, name)
	}
	if err != nil {
		return err
	}
	failpoint.Hit(midDelete)
	if sp != nil {
		sp.settled = ""
	}
	return errors.Join(s.trees.Forget(tenant, name), os.RemoveAll(s.path("artifacts", tenant, name)))
}

func (s *Service) deleteTenant(ctx context.Context, name string) error {
	s.mu.Lock()
	var held []*space
	for key, sp := range s.spaces {
		if strings.HasPrefix(key, name+"/") {
			held = append(held, sp)
		}
	}
	s.mu.Unlock()
	for _, sp := range held { // wait for what is under way
		if err := sp.hold(ctx); err != nil {
			return err
		}
		defer sp.release()
	}
	if err := s.removeOverlays(name, ""); err != nil {
		return err
	}
	r := s.cfg.Records
	if err := errors.Join(r.Overlays.DeleteAll(ctx, name, "*"), r.Artifacts.DeleteAll(ctx, name, "*"), r.Snapshots.DeleteAll(ctx, name, "*"), r.Heads.DeleteAll(ctx, name, "*")); err != nil {
		return err
	}
	failpoint.Hit(midDelete)
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.spaces {
		if strings.HasPrefix(key, name+"/") {
			delete(s.spaces, key)
		}
	}
	var err error
	if t := s.tenants[name]; t != nil {
		err = t.chunks.Close()
		delete(s.tenants, name)
	}
	return errors.Join(err, s.trees.Forget(name, ""), os.RemoveAll(s.path("artifacts", name)), os.RemoveAll(s.path("chunks", name)))
}

// removeOverlays removes those of a workspace, or of all of a tenant.
func (s *Service) removeOverlays(tenant, name string) error {
	ids, err := s.trees.List()
	for _, id := range ids {
		o, gerr := s.trees.Get(id)
		if gerr == nil && o.Tenant == tenant && (name == "" || o.Workspace == name) {
			err = errors.Join(err, s.trees.Remove(id))
		}
	}
	return err
}
