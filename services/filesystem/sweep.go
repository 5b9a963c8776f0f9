package filesystem

import (
	"context"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

// Run sweeps now and then until ctx ends. What goes wrong is logged and tried again at the next time.
func (s *Service) Run(ctx context.Context) error {
	tick := time.NewTicker(s.cfg.SweepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.log.ErrorContext(ctx, "sweep", "err", err)
		}
	}
}

// Sweep removes what nobody needs any more: old snapshots that nobody named, records of overlays that ended, old artifacts, layers and contents.
func (s *Service) Sweep(ctx context.Context) error {
	entries, err := os.ReadDir(s.path("chunks"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if schemas.CheckName("tenant", e.Name()) == nil {
			err = errors.Join(err, s.sweepTenant(ctx, e.Name()))
		}
	}
	return err
}

func (s *Service) sweepTenant(ctx context.Context, name string) error {
	heads, err := s.cfg.Records.Heads.List(ctx, name, "*")
	if err != nil {
		return err
	}
	overlays, err := s.cfg.Records.Overlays.List(ctx, name, "*") // a workspace may have these and no files yet
	if err != nil {
		return err
	}
	spaces := map[string]bool{}
	for _, h := range heads {
		spaces[h.Workspace] = true
	}
	for _, o := range overlays {
		spaces[o.Workspace] = true
	}
	for w := range spaces {
		if err := s.sweepSpace(ctx, name, w); err != nil {
			return err
		}
	}
	return s.sweepChunks(ctx, name)
}

// sweepSpace is held up by, and holds up, changes of this workspace only.
func (s *Service) sweepSpace(ctx context.Context, owner, name string) error {
	sp, err := s.space(owner, name)
	if err != nil {
		return err
	}
	if err := sp.hold(ctx); err != nil {
		return err
	}
	defer sp.release()
	if err := s.sweepTrees(ctx, sp); err != nil {
		return err
	}
	overlays, err := s.cfg.Records.Overlays.List(ctx, owner, name)
	if err != nil {
		return err
	}
	return errors.Join(s.sweepSnapshots(ctx, sp, overlays), s.sweepOverlays(ctx, sp, overlays), s.sweepArtifacts(ctx, sp), s.trees.Prune(sp.trees()))
}

// orphanAge is how old an overlay is before a sweep asks whether anybody still holds it.
const orphanAge = 10 * time.Minute

// sweepTrees removes overlays of attempts that nobody holds, in case the node that should have said so is no more.
func (s *Service) sweepTrees(ctx context.Context, sp *space) error {
	ids, err := s.trees.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		o, err := s.trees.Get(id)
		if err != nil || o.Tenant != sp.owner || o.Workspace != sp.name || s.cfg.Clock().Sub(o.At) < orphanAge {
			continue
		}
		who := owner{o.Tenant, o.Workspace, o.Owner, o.Attempt, id, o.Node}
		if err := s.current(ctx, who); !fault.Is(err, fault.Conflict) {
			continue // it runs, or nobody could say
		}
		s.log.InfoContext(ctx, "overlay of an attempt that nobody holds", "sandbox", id, "owner", o.Owner, "attempt", o.Attempt)
		if err := s.discard(ctx, sp, who); err != nil {
			return err
		}
	}
	return nil
}

// sweepSnapshots keeps the head, what was named, what an open overlay or a young merge started from, the last SnapshotKeep and all younger than SnapshotAge.
func (s *Service) sweepSnapshots(ctx context.Context, sp *space, overlays []records.Record[wire.Overlay]) error {
	st, err := s.head(ctx, sp)
	if err != nil {
		return err
	}
	keep := map[string]bool{st.Value.Snapshot: true}
	for _, o := range overlays {
		if o.Value.State == overlayOpen {
			keep[o.Value.Base] = true
			keep[mergeID(sp, o.Value.Owner, o.Value.Attempt)] = true // says that the merge took place
		}
	}
	rs, err := s.cfg.Records.Snapshots.List(ctx, sp.owner, sp.name)
	if err != nil {
		return err
	}
	slices.SortFunc(rs, func(a, b records.Record[wire.Snapshot]) int { return b.Value.CreatedAt.Compare(a.Value.CreatedAt) })
	now, unnamed := s.cfg.Clock(), 0
	for _, r := range rs {
		if r.Value.Named || keep[r.ID] {
			continue
		}
		if unnamed++; unnamed <= s.cfg.SnapshotKeep || now.Sub(r.Value.CreatedAt) < s.cfg.SnapshotAge {
			continue
		}
		if err := s.cfg.Records.Snapshots.Delete(ctx, r.Key); err != nil {
			return err
		}
	}
	return nil
}

// sweepOverlays removes the records of overlays that ended longer ago than artifacts are kept: until then they answer repeats and fence late attempts.
func (s *Service) sweepOverlays(ctx context.Context, sp *space, overlays []records.Record[wire.Overlay]) error {
	for _, o := range overlays {
		if o.Value.State == overlayOpen || s.cfg.Clock().Sub(o.Value.At) < s.cfg.ArtifactAge {
			continue
		}
		if err := s.cfg.Records.Overlays.Delete(ctx, sp.key(o.ID)); err != nil {
			return err
		}
	}
	return nil
}

// sweepArtifacts removes the oldest: the record first, so that none names a file that is gone.
func (s *Service) sweepArtifacts(ctx context.Context, sp *space) error {
	rs, err := s.cfg.Records.Artifacts.List(ctx, sp.owner, sp.name)
	if err != nil {
		return err
	}
	slices.SortFunc(rs, func(a, b records.Record[wire.Artifact]) int { return b.Value.CreatedAt.Compare(a.Value.CreatedAt) })
	known := map[string]bool{}
	for i, r := range rs {
		if i < s.cfg.ArtifactKeep && s.cfg.Clock().Sub(r.Value.CreatedAt) < s.cfg.ArtifactAge {
			known[r.ID+".zip"] = true
			continue
		}
		if err := s.cfg.Records.Artifacts.Delete(ctx, r.Key); err != nil {
			return err
		}
	}
	dir, err := s.artifactDir(sp)
	if err != nil {
		return err
	}
	defer dir.Close()
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	names, err := d.Readdirnames(-1)
	d.Close()
	for _, n := range names { // also what a killed process had half written
		if !known[n] {
			err = errors.Join(err, dir.Remove(n))
		}
	}
	return err
}

// sweepChunks marks what heads, snapshots and open overlays need, and sweeps the rest that is older than the grace period.
// An operation that goes on meanwhile is safe: what it made or relied on is younger.
func (s *Service) sweepChunks(ctx context.Context, name string) error {
	s.mu.Lock()
	t, err := s.tenant(name)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	live := map[chunks.Hash]struct{}{}
	add := func(h chunks.Hash) bool {
		_, known := live[h]
		live[h] = struct{}{}
		return !known
	}
	mark := func(manifest string) error {
		h, err := chunks.ParseHash(manifest)
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		return t.tree.Live(h, add)
	}
	if err := s.markAll(ctx, name, mark); err != nil {
		return err
	}
	sw, err := t.chunks.Sweep(func(h chunks.Hash) bool { _, ok := live[h]; return ok }, s.cfg.ChunkGrace, s.cfg.Clock())
	if sw.Removed > 0 {
		s.log.InfoContext(ctx, "swept contents", "tenant", name, "removed", sw.Removed, "kept", sw.Kept, "bytes", sw.Bytes)
	}
	return err
}

// markAll calls mark for every manifest that a record or an overlay on disk names. If one can't be read nothing is swept.
func (s *Service) markAll(ctx context.Context, name string, mark func(string) error) error {
	heads, err := s.cfg.Records.Heads.List(ctx, name, "*")
	if err != nil {
		return err
	}
	for _, r := range heads {
		if err := mark(r.Value.Manifest); err != nil {
			return fault.Wrap(err, fault.Internal, "head of workspace %q", r.Workspace)
		}
	}
	snapshots, err := s.cfg.Records.Snapshots.List(ctx, name, "*")
	if err != nil {
		return err
	}
	for _, r := range snapshots {
		if err := mark(r.Value.Manifest); err != nil {
			return fault.Wrap(err, fault.Internal, "snapshot %s of workspace %q", r.ID, r.Workspace)
		}
	}
	ids, err := s.trees.List()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if o, err := s.trees.Get(id); err == nil && o.Tenant == name {
			if err := mark(o.Manifest); err != nil {
				return fault.Wrap(err, fault.Internal, "overlay of sandbox %s", id)
			}
		}
	}
	return nil
}
