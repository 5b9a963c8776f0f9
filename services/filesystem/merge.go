package filesystem

import (
	"context"
	"errors"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
	"github.com/weftmesh/weft/services/filesystem/internal/merge"
	"github.com/weftmesh/weft/services/filesystem/internal/tree"
)

// Points between the writes of a merge.
var (
	beforeHead     = failpoint.Register("filesystem.merge.before-head")
	afterMergeHead = failpoint.Register("filesystem.merge.after-head")
	afterArtifact  = failpoint.Register("filesystem.merge.after-artifact")
	afterMerged    = failpoint.Register("filesystem.merge.after-record")
)

// Merge ends an overlay: with Keep its changes go into the head, under the attempt's number. Asked again it gives the same answer, also
// when this process was killed in between: the head's record decides, and its snapshot has an id that follows from owner and
// attempt. A late attempt, or one that no longer runs, is a conflict and changes nothing.
//
// Without Keep the head stays; the artifact is made of what was changed all the same.
func (s *Service) Merge(ctx context.Context, by mesh.Caller, req wire.Merge) (wire.Merged, error) {
	o := owner{req.Tenant, req.Workspace, req.Owner, req.Attempt, req.Sandbox, by.Principal}
	sp, err := s.check(o)
	if err != nil {
		return wire.Merged{}, err
	}
	sources, err := s.checkSources(req.Artifacts)
	if err != nil {
		return wire.Merged{}, err
	}
	if err := sp.hold(ctx); err != nil {
		return wire.Merged{}, err
	}
	defer sp.release()
	rec, err := s.overlay(ctx, sp, o)
	if err != nil {
		return wire.Merged{}, err
	}
	if rec.Value.State != overlayOpen {
		if rec.Value.Merged == nil {
			return wire.Merged{}, fault.New(fault.Conflict, "the files of attempt %d were discarded", req.Attempt)
		}
		return *rec.Value.Merged, s.trees.Remove(req.Sandbox)
	}
	out, err := s.mergeOpen(ctx, sp, o, req, rec, sources)
	return out, storeFault(err)
}

// overlay gives the record of an attempt's overlay, and refuses an attempt that is not the last one prepared.
func (s *Service) overlay(ctx context.Context, sp *space, o owner) (records.Record[wire.Overlay], error) {
	r, err := s.cfg.Records.Overlays.Get(ctx, sp.key(o.id))
	if t, terr := s.trees.Get(o.sandbox); terr == nil && t.Node != o.node {
		return r, fault.New(fault.Denied, "the files of sandbox %s were prepared for another node than %s", o.sandbox, o.node)
	}
	switch {
	case fault.Is(err, fault.NotFound):
		return r, fault.New(fault.NotFound, "no files were prepared for %s", o.id)
	case err != nil:
		return r, err
	case r.Value.Attempt > o.attempt:
		return r, fault.New(fault.Conflict, "attempt %d was overtaken by attempt %d; its changes are not taken", o.attempt, r.Value.Attempt)
	case r.Value.Attempt < o.attempt:
		return r, fault.New(fault.NotFound, "no files were prepared for attempt %d", o.attempt)
	case r.Value.Sandbox != o.sandbox:
		return r, fault.New(fault.Conflict, "attempt %d has its files in sandbox %s, not %s", o.attempt, r.Value.Sandbox, o.sandbox)
	}
	return r, nil
}

// mergeID is the identifier of the snapshot that an attempt's merge makes.
func mergeID(sp *space, owner string, attempt int) string {
	return schemas.DerivedID("merge", sp.owner, sp.name, owner, itoa(attempt))
}

func (s *Service) mergeOpen(ctx context.Context, sp *space, o owner, req wire.Merge, rec records.Record[wire.Overlay], sources []source) (wire.Merged, error) {
	base, _, err := s.base(ctx, sp, rec.Value.Base)
	if err != nil {
		return wire.Merged{}, err
	}
	limit, err := s.quota(ctx, sp)
	if err != nil {
		return wire.Merged{}, err
	}
	b := sp.chunks.Batch()
	defer b.Abort()
	theirs, skipped, err := s.readOverlay(sp, b, req.Sandbox, base, limit)
	if fault.Is(err, fault.Exhausted) && !req.Keep { // nothing is lost that somebody wanted; the logs still make an artifact
		theirs, skipped, err = base, []tree.Skipped{{Path: "…", Reason: err.Error()}}, nil
	}
	if err != nil {
		return wire.Merged{}, err
	}
	view := sp.tree.Through(b)
	diff, err := differences(view, base, theirs)
	if err != nil {
		return wire.Merged{}, err
	}
	out := wire.Merged{FilesChanged: diff.leaves(), Skipped: skippedLines(skipped)}
	if req.Keep {
		if err := s.keep(ctx, sp, b, o, req.Principal, base, theirs, limit, &out); err != nil {
			return wire.Merged{}, err
		}
		failpoint.Hit(afterMergeHead)
	}
	art, err := s.makeArtifact(ctx, sp, b, view, req, diff, sources, out)
	if err != nil {
		return wire.Merged{}, err
	}
	out.Artifact = art
	failpoint.Hit(afterArtifact)
	v, event := rec.Value, eventMerged
	v.State, v.Snapshot, v.Merged, v.At = overlayMerged, out.Snapshot, &out, s.cfg.Clock().UTC()
	if !req.Keep {
		v.State, event = overlayDiscarded, eventDiscarded
	}
	if _, err := s.cfg.Records.Overlays.Write(ctx, sp.key(req.Owner), rec.Sequence, event, v); err != nil {
		return wire.Merged{}, err
	}
	failpoint.Hit(afterMerged)
	return out, s.trees.Drop(req.Sandbox)
}

// keep brings theirs into the head, unless an earlier try of this merge has.
func (s *Service) keep(ctx context.Context, sp *space, b *chunks.Batch, o owner, principal string, base, theirs chunks.Hash, limit int64, out *wire.Merged) error {
	st, err := s.head(ctx, sp)
	if err != nil {
		return err
	}
	if err := s.settle(ctx, sp, st); err != nil {
		return err
	}
	id := mergeID(sp, o.id, o.attempt)
	done, err := s.cfg.Records.Snapshots.Get(ctx, sp.key(id))
	if err == nil {
		out.Snapshot, out.Conflicts = id, done.Value.Conflicts
		return nil
	}
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	if err := s.current(ctx, o); err != nil {
		return err
	}
	view := sp.tree.Through(b)
	m, err := merge.Trees(view, b, base, st.root, theirs, "conflict-"+o.id+"-"+itoa(o.attempt), s.cfg.Clock())
	if err != nil {
		return err
	}
	out.Conflicts = clipPaths(m.Conflicts)
	if m.Root == st.root {
		out.Snapshot = st.Value.Snapshot
		return nil
	}
	if err := s.fits(view, m.Root, st, limit); err != nil {
		return err
	}
	if err := b.Commit(); err != nil {
		return err
	}
	failpoint.Hit(beforeHead)
	c := change{event: eventMerged, snapshot: id, root: m.Root, principal: principal, task: o.id, attempt: o.attempt, changed: out.FilesChanged, conflicts: m.Conflicts}
	_, err = s.advance(ctx, sp, st, c)
	if fault.Is(err, fault.Conflict) { // not the attempt's fault: asking again merges with what is there then
		return fault.Wrap(err, fault.Unavailable, "the files of workspace %q were changed by another process meanwhile; ask again", sp.name)
	}
	if err != nil {
		return err
	}
	out.Snapshot = id
	return nil
}

// current asks who holds the task: files are only for the attempt that runs, and for the node that holds it.
func (s *Service) current(ctx context.Context, o owner) error {
	a, err := s.cfg.Attempts.Attempt(ctx, workspace.AttemptRequest{Tenant: o.tenant, Workspace: o.workspace, Task: o.id})
	if fault.Is(err, fault.NotFound) {
		return fault.Wrap(err, fault.Conflict, "%s is no task or sandbox of workspace %q any more; end it", o.id, o.workspace)
	}
	if err != nil {
		return err
	}
	if a.State != workspace.Running || a.Attempt != o.attempt || a.Sandbox != o.sandbox {
		return fault.New(fault.Conflict, "attempt %d of %s is not the one that runs: it is %s with attempt %d; end this one", o.attempt, o.id, a.State, a.Attempt)
	}
	if a.Node != "" && a.Node != o.node {
		return fault.New(fault.Denied, "attempt %d of %s is held by another node than %s", o.attempt, o.id, o.node)
	}
	return nil
}

// base gives the manifest of the snapshot that an overlay started from; none is the empty tree.
func (s *Service) base(ctx context.Context, sp *space, id string) (chunks.Hash, string, error) {
	if id == "" {
		return manifest.Empty, "", nil
	}
	return s.version(ctx, sp, id)
}

// readOverlay gives the tree that a sandbox made of base.
func (s *Service) readOverlay(sp *space, b *chunks.Batch, sandbox string, base chunks.Hash, limit int64) (chunks.Hash, []tree.Skipped, error) {
	o, err := s.trees.Get(sandbox)
	if errors.Is(err, tree.ErrNoOverlay) {
		return base, nil, fault.Wrap(err, fault.NotFound, "the files of sandbox %s are gone: its node was restarted", sandbox)
	}
	if err != nil || o.ReadOnly {
		return base, nil, err
	}
	upper, err := s.trees.Upper(sandbox)
	if errors.Is(err, tree.ErrNoOverlay) {
		return base, nil, fault.Wrap(err, fault.NotFound, "the files of sandbox %s are gone: its node was restarted", sandbox)
	}
	if err != nil {
		return base, nil, err
	}
	defer upper.Close()
	root, skipped, err := tree.Read(sp.tree.Through(b), b, base, upper, tree.Limits{Files: s.cfg.WorkspaceFiles, Bytes: limit})
	var le *tree.LimitError
	if errors.As(err, &le) {
		return base, nil, fault.New(fault.Exhausted, "%v; the workspace's quota does not allow more", le)
	}
	return root, skipped, err
}
