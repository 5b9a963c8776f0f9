package filesystem

import (
	"context"
	"errors"
	"slices"

	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/filesystem/internal/tree"
)

// Held removes every overlay that was prepared for the calling node and whose sandbox the node no longer has: after a crash of either side nothing stays behind. What
// was prepared after the node made its list stays, because the list can't know of it.
func (s *Service) Held(ctx context.Context, by mesh.Caller, req wire.Held) (workspace.Empty, error) {
	ids, err := s.trees.List()
	if err != nil {
		return workspace.Empty{}, err
	}
	for _, id := range ids {
		if slices.Contains(req.Sandboxes, id) {
			continue
		}
		err = errors.Join(err, s.removeOrphan(ctx, id, by.Principal, req))
	}
	return workspace.Empty{}, err
}

func (s *Service) removeOrphan(ctx context.Context, id, node string, req wire.Held) error {
	o, err := s.trees.Get(id)
	if errors.Is(err, tree.ErrNoOverlay) { // killed before it was anything
		return s.trees.Remove(id)
	}
	if err != nil {
		return err
	}
	if o.Node != node || !req.AsOf.IsZero() && o.At.After(req.AsOf) {
		return nil
	}
	sp, err := s.space(o.Tenant, o.Workspace)
	if err != nil {
		return err
	}
	if err := sp.hold(ctx); err != nil {
		return err
	}
	defer sp.release()
	s.log.InfoContext(ctx, "overlay of a sandbox that is gone", "sandbox", id, "owner", o.Owner, "attempt", o.Attempt)
	return s.discard(ctx, sp, owner{o.Tenant, o.Workspace, o.Owner, o.Attempt, id, node})
}
