package filesystem

import (
	"context"
	"errors"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// Events of the records that this service writes.
const (
	eventPut       = "put"
	eventRemoved   = "removed"
	eventMerged    = "merged"
	eventRestored  = "restored"
	eventCreated   = "created"
	eventNamed     = "named"
	eventOpened    = "opened"
	eventDiscarded = "discarded"
)

// headID is the identifier of a workspace's one head record.
const headID = "head"

// afterHead lies between the head and all that follows from it.
var afterHead = failpoint.Register("filesystem.head.after-head")

// maxConflicts bounds the paths that a record names, in number and in bytes, so that it stays a small message.
const (
	maxConflicts     = 1000
	maxConflictBytes = 128 << 10
)

// state is a workspace's head as it was read.
type state struct {
	records.Record[wire.Head]
	root chunks.Hash
}

// head reads the present head; the empty one, with sequence 0, if nothing was ever written.
func (s *Service) head(ctx context.Context, sp *space) (state, error) {
	r, err := s.cfg.Records.Heads.Get(ctx, sp.key(headID))
	if fault.Is(err, fault.NotFound) {
		return state{Record: records.Record[wire.Head]{Key: sp.key(headID), Value: wire.Head{Workspace: sp.name}}, root: manifest.Empty}, nil
	}
	if err != nil {
		return state{}, err
	}
	root, err := chunks.ParseHash(r.Value.Manifest)
	return state{r, root}, err
}

// change describes a step of the head.
type change struct {
	event     string
	snapshot  string // its id; a new one if empty
	root      chunks.Hash
	principal string
	message   string
	task      string
	attempt   int
	changed   int
	conflicts []string
}

// advance makes c the head if it still is as from says, else conflict. The head's record is the one write that decides; the snapshot's record follows from it and is
// made up for by settle if this process ends between the two. c's chunks must be durable. The caller holds the lock.
func (s *Service) advance(ctx context.Context, sp *space, from state, c change) (state, error) {
	total, err := sp.tree.Root(c.root)
	if err != nil {
		return from, err
	}
	if c.snapshot == "" {
		c.snapshot = s.cfg.NewID()
	}
	h := wire.Head{
		Workspace: sp.name, Snapshot: c.snapshot, Manifest: c.root.String(), Generation: from.Value.Generation + 1,
		Files: int(total.Files), Bytes: total.Size, Task: c.task, Attempt: c.attempt, UpdatedAt: s.cfg.Clock().UTC(),
		Parent: from.Value.Snapshot, Message: c.message, Principal: c.principal, FilesChanged: c.changed, Conflicts: clipPaths(c.conflicts),
	}
	r, err := s.cfg.Records.Heads.Write(ctx, sp.key(headID), from.Sequence, c.event, h)
	if err != nil {
		return from, err
	}
	failpoint.Hit(afterHead)
	st := state{r, c.root}
	return st, s.settle(ctx, sp, st)
}

// settle makes sure that the head's snapshot has its record. Every operation that changes the head calls it first,
// so at most the head's own is ever missing. The caller holds the lock.
func (s *Service) settle(ctx context.Context, sp *space, st state) error {
	h := st.Value
	if h.Snapshot == "" || h.Snapshot == sp.settled {
		return nil
	}
	_, err := s.cfg.Records.Snapshots.Get(ctx, sp.key(h.Snapshot))
	if fault.Is(err, fault.NotFound) {
		_, err = s.cfg.Records.Snapshots.Write(ctx, sp.key(h.Snapshot), 0, eventCreated, wire.Snapshot{
			ID: h.Snapshot, Workspace: sp.name, Manifest: h.Manifest, Parent: h.Parent, Message: h.Message, Principal: h.Principal,
			Task: h.Task, Attempt: h.Attempt, Files: h.Files, Bytes: h.Bytes, CreatedAt: h.UpdatedAt, FilesChanged: h.FilesChanged, Conflicts: h.Conflicts,
		})
	}
	if err == nil {
		sp.settled = h.Snapshot
	}
	return err
}

// version gives the manifest of a snapshot, or of the head if id is empty, and the id.
func (s *Service) version(ctx context.Context, sp *space, id string) (chunks.Hash, string, error) {
	if id == "" {
		st, err := s.head(ctx, sp)
		return st.root, st.Value.Snapshot, err
	}
	r, err := s.snapshot(ctx, sp, id)
	if err != nil {
		return chunks.Hash{}, "", err
	}
	root, err := chunks.ParseHash(r.Value.Manifest)
	return root, id, err
}

func (s *Service) snapshot(ctx context.Context, sp *space, id string) (records.Record[wire.Snapshot], error) {
	if err := checkID("snapshot", id); err != nil {
		return records.Record[wire.Snapshot]{}, err
	}
	return s.cfg.Records.Snapshots.Get(ctx, sp.key(id))
}

// edit changes the head by a function of the tree that it finds, while nobody else of this process does. An edit that
// changes nothing makes no version. limit is the workspace's quota in bytes.
func (s *Service) edit(ctx context.Context, sp *space, b *chunks.Batch, limit int64, c change, fn func(st state, e *manifest.Editor) error) (state, error) {
	if err := sp.hold(ctx); err != nil {
		return state{}, err
	}
	defer sp.release()
	st, err := s.head(ctx, sp)
	if err == nil {
		err = s.settle(ctx, sp, st)
	}
	if err != nil {
		return st, err
	}
	e, err := sp.tree.Through(b).Edit(st.root, s.cfg.Clock().UnixNano())
	if err != nil {
		return st, err
	}
	if err := fn(st, e); err != nil {
		return st, err
	}
	if c.root, err = e.Commit(b); err != nil {
		return st, err
	}
	if c.root == st.root {
		return st, nil
	}
	if err := s.fits(sp.tree.Through(b), c.root, st, limit); err != nil {
		return st, err
	}
	if err := b.Commit(); err != nil {
		return st, storeFault(err)
	}
	next, err := s.advance(ctx, sp, st, c)
	if fault.Is(err, fault.Conflict) {
		return st, fault.Wrap(err, fault.Conflict, "the files of workspace %q were changed by somebody else meanwhile; try again", sp.name)
	}
	return next, err
}

// fits refuses a tree that is over the workspace's quota, unless it is smaller than what is there.
func (s *Service) fits(t *manifest.Tree, root chunks.Hash, from state, limit int64) error {
	e, err := t.Root(root)
	if err != nil {
		return err
	}
	if e.Size > limit && e.Size > from.Value.Bytes {
		return fault.New(fault.Exhausted, "the files would have %d bytes, the workspace's quota is %d; remove some, or ask for a larger quota", e.Size, limit)
	}
	if e.Files > s.cfg.WorkspaceFiles && e.Files > int64(from.Value.Files) {
		return fault.New(fault.Exhausted, "there would be %d files, a workspace may have %d; remove some", e.Files, s.cfg.WorkspaceFiles)
	}
	return nil
}

// clipPaths keeps a list small enough for a record.
func clipPaths(paths []string) []string {
	size := 0
	for i, p := range paths {
		if size += len(p); i == maxConflicts || size > maxConflictBytes {
			return paths[:i:i]
		}
	}
	return paths
}

// pathFault is the fault for a path from outside that can't be used.
func pathFault(path string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, manifest.ErrNotFound):
		return fault.New(fault.NotFound, "no file or directory %q", path)
	case errors.Is(err, manifest.ErrNotDir):
		return fault.New(fault.Invalid, "the path %q leads through something that is not a directory", path)
	}
	return err
}
