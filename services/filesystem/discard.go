package filesystem

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Discard throws an overlay away. Discarding twice, or what was never prepared, or what was merged, is no error: nothing of
// the sandbox is on this node afterwards.
func (s *Service) Discard(ctx context.Context, by mesh.Caller, req wire.Discard) (workspace.Empty, error) {
	o := owner{req.Tenant, req.Workspace, req.Owner, req.Attempt, req.Sandbox, by.Principal}
	sp, err := s.check(o)
	if err != nil {
		return workspace.Empty{}, err
	}
	if err := sp.hold(ctx); err != nil {
		return workspace.Empty{}, err
	}
	defer sp.release()
	if t, err := s.trees.Get(o.sandbox); err == nil && (t.Node != o.node || t.Owner != o.id || t.Attempt != o.attempt || t.Tenant != o.tenant || t.Workspace != o.workspace) {
		return workspace.Empty{}, fault.New(fault.Denied, "sandbox %s is not that of attempt %d of %s on node %s", o.sandbox, o.attempt, o.id, o.node)
	}
	return workspace.Empty{}, s.discard(ctx, sp, o)
}

// discard closes the record of an open overlay and removes its files. The caller holds the lock.
func (s *Service) discard(ctx context.Context, sp *space, o owner) error {
	r, err := s.cfg.Records.Overlays.Get(ctx, sp.key(o.id))
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if v := r.Value; err == nil && v.Attempt == o.attempt && v.Sandbox == o.sandbox && v.State == overlayOpen {
		v.State, v.At = overlayDiscarded, s.cfg.Clock().UTC()
		event := eventDiscarded
		// A merge that was killed after it had changed the head did take place.
		if done, err := s.mergedAlready(ctx, sp, o); err != nil {
			return err
		} else if done != nil {
			v.State, v.Snapshot, v.Merged, event = overlayMerged, done.Snapshot, done, eventMerged
		}
		if _, err := s.cfg.Records.Overlays.Write(ctx, sp.key(o.id), r.Sequence, event, v); err != nil {
			return err
		}
	}
	return s.trees.Remove(o.sandbox)
}

// mergedAlready gives what a merge answered or would have; nil if the head never took it.
func (s *Service) mergedAlready(ctx context.Context, sp *space, o owner) (*wire.Merged, error) {
	st, err := s.head(ctx, sp)
	if err == nil {
		err = s.settle(ctx, sp, st)
	}
	if err != nil {
		return nil, err
	}
	r, err := s.cfg.Records.Snapshots.Get(ctx, sp.key(mergeID(sp, o.id, o.attempt)))
	if fault.Is(err, fault.NotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &wire.Merged{Snapshot: r.Value.ID, FilesChanged: r.Value.FilesChanged, Conflicts: r.Value.Conflicts}, nil
}
