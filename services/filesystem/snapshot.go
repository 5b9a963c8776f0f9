package filesystem

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	wire "github.com/weftmesh/weft/schemas/filesystem"
)

// maxMessage bounds what people write beside a snapshot, in bytes.
const maxMessage = 4096

// Snapshot names the present head, so that it is kept until the workspace is deleted. Naming it again replaces the message.
func (s *Service) Snapshot(ctx context.Context, by mesh.Caller, req wire.SnapshotRequest) (wire.Snapshot, error) {
	if len(req.Message) > maxMessage {
		return wire.Snapshot{}, fault.New(fault.Invalid, "a message has at most %d bytes", maxMessage)
	}
	sp, _, err := s.caller(ctx, by)
	if err != nil {
		return wire.Snapshot{}, err
	}
	if err := sp.hold(ctx); err != nil {
		return wire.Snapshot{}, err
	}
	defer sp.release()
	st, err := s.head(ctx, sp)
	if err == nil {
		err = s.settle(ctx, sp, st)
	}
	if err != nil {
		return wire.Snapshot{}, err
	}
	if st.Value.Snapshot == "" {
		return wire.Snapshot{}, fault.New(fault.NotFound, "workspace %q has no files yet; put some first", sp.name)
	}
	r, err := s.snapshot(ctx, sp, st.Value.Snapshot)
	if err != nil {
		return wire.Snapshot{}, err
	}
	v := r.Value
	if v.Named && v.Message == req.Message {
		return v, nil
	}
	v.Named, v.Message = true, req.Message
	if v.Principal == "" {
		v.Principal = by.Principal
	}
	_, err = s.cfg.Records.Snapshots.Write(ctx, sp.key(v.ID), r.Sequence, eventNamed, v)
	return v, err
}

// SnapshotList pages through a workspace's snapshots, newest first.
func (s *Service) SnapshotList(ctx context.Context, by mesh.Caller, req wire.SnapshotListRequest) (wire.SnapshotListReply, error) {
	rep := wire.SnapshotListReply{Snapshots: []wire.Snapshot{}}
	sp, _, err := s.caller(ctx, by)
	if err != nil {
		return rep, err
	}
	rs, err := s.cfg.Records.Snapshots.List(ctx, sp.owner, sp.name)
	if err != nil {
		return rep, err
	}
	p, err := page(values(rs), req, func(v wire.Snapshot) (time.Time, string) { return v.CreatedAt, v.ID })
	for i := range p.items {
		p.items[i].Conflicts = nil // they may be many; the merge's own answer has them
	}
	rep.Snapshots, rep.Cursor = append(rep.Snapshots, p.items...), p.cursor
	return rep, err
}

func values[T any](rs []records.Record[T]) []T {
	out := make([]T, len(rs))
	for i, r := range rs {
		out[i] = r.Value
	}
	return out
}

// paged is one page of a list and where the next one begins.
type paged[T any] struct {
	items  []T
	cursor string
}

// page cuts one page out of all, newest first. A cursor is the time and the id of the last one before it, so that a
// page does not shift when something is added.
func page[T any](all []T, req wire.SnapshotListRequest, key func(T) (time.Time, string)) (paged[T], error) {
	var out paged[T]
	limit := req.Limit
	switch {
	case limit == 0:
		limit = 100
	case limit < 1 || limit > 1000:
		return out, fault.New(fault.Invalid, "limit %d must be 1 to 1,000", limit)
	}
	mark := func(v T) string {
		t, id := key(v)
		return t.UTC().Format(cursorTime) + "/" + id
	}
	if t, id, ok := strings.Cut(req.Cursor, "/"); req.Cursor != "" {
		if _, err := time.Parse(cursorTime, t); err != nil || !ok || checkID("cursor", id) != nil {
			return out, fault.New(fault.Invalid, "the cursor %.80q is none that a list gave", req.Cursor)
		}
	}
	slices.SortFunc(all, func(a, b T) int { return cmp.Compare(mark(b), mark(a)) })
	for _, v := range all {
		if req.Cursor != "" && mark(v) >= req.Cursor {
			continue
		}
		if len(out.items) == limit {
			out.cursor = mark(out.items[limit-1])
			break
		}
		out.items = append(out.items, v)
	}
	return out, nil
}

// cursorTime sorts as text.
const cursorTime = "20060102T150405.000000000"
