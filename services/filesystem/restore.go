package filesystem

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

// Restore makes the files of a snapshot the head again, as a new version: what was the head stays a snapshot. Restoring what the head
// holds already changes nothing.
func (s *Service) Restore(ctx context.Context, by mesh.Caller, req wire.RestoreRequest) (wire.Head, error) {
	sp, limit, err := s.caller(ctx, by)
	if err != nil {
		return wire.Head{}, err
	}
	if err := sp.hold(ctx); err != nil {
		return wire.Head{}, err
	}
	defer sp.release()
	st, err := s.head(ctx, sp)
	if err == nil {
		err = s.settle(ctx, sp, st)
	}
	if err != nil {
		return wire.Head{}, err
	}
	r, err := s.snapshot(ctx, sp, req.Snapshot)
	if err != nil {
		return wire.Head{}, err
	}
	root, err := chunks.ParseHash(r.Value.Manifest)
	if err != nil {
		return wire.Head{}, err
	}
	if root == st.root {
		return st.Value, nil
	}
	if err := s.fits(sp.tree, root, st, limit); err != nil {
		return wire.Head{}, err
	}
	next, err := s.advance(ctx, sp, st, change{event: eventRestored, root: root, principal: by.Principal, message: "restored from " + req.Snapshot})
	if fault.Is(err, fault.Conflict) {
		err = fault.Wrap(err, fault.Conflict, "the files of workspace %q were changed by somebody else meanwhile; try again", sp.name)
	}
	return next.Value, err
}
