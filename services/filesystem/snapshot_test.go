package filesystem

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
)

func TestSnapshots(t *testing.T) {
	f := setup(t)
	_, err := f.Snapshot(f.ctx, alice, wire.SnapshotRequest{Message: "nothing"})
	code(t, fault.NotFound, err)
	var ids []string
	for _, c := range []string{"one", "two", "three"} {
		f.now = f.now.Add(time.Second)
		ids = append(ids, f.put("f", c).Snapshot)
	}
	f.put("g", "x")
	named, err := f.Snapshot(f.ctx, alice, wire.SnapshotRequest{Message: "good"})
	require.NoError(t, err)
	require.True(t, named.Named)
	again, err := f.Snapshot(f.ctx, alice, wire.SnapshotRequest{Message: "good"})
	require.NoError(t, err)
	require.Equal(t, named, again)

	l, err := f.SnapshotList(f.ctx, alice, wire.SnapshotListRequest{Limit: 2})
	require.NoError(t, err)
	require.Len(t, l.Snapshots, 2)
	rest, err := f.SnapshotList(f.ctx, alice, wire.SnapshotListRequest{Limit: 2, Cursor: l.Cursor})
	require.NoError(t, err)
	require.Len(t, rest.Snapshots, 2)
	require.Empty(t, rest.Cursor)
	require.Equal(t, ids[0], rest.Snapshots[1].ID)
	require.Equal(t, ids[0], rest.Snapshots[0].Parent)
	_, err = f.SnapshotList(f.ctx, alice, wire.SnapshotListRequest{Cursor: "x"})
	code(t, fault.Invalid, err)

	d, err := f.Diff(f.ctx, alice, wire.DiffRequest{From: ids[0]})
	require.NoError(t, err)
	require.Equal(t, []wire.Change{{Path: "f", Kind: "modified", Size: 5}, {Path: "g", Kind: "added", Size: 1}}, d.Changes)
	d, err = f.Diff(f.ctx, alice, wire.DiffRequest{From: named.ID, To: ids[1], Limit: 1})
	require.NoError(t, err)
	require.Equal(t, []wire.Change{{Path: "f", Kind: "modified", Size: 3}}, d.Changes)
	d, err = f.Diff(f.ctx, alice, wire.DiffRequest{From: named.ID, To: ids[1], Cursor: d.Cursor})
	require.NoError(t, err)
	require.Equal(t, []wire.Change{{Path: "g", Kind: "removed"}}, d.Changes)
	_, err = f.Diff(f.ctx, alice, wire.DiffRequest{})
	code(t, fault.Invalid, err)

	h, err := f.Restore(f.ctx, alice, wire.RestoreRequest{Snapshot: ids[0]})
	require.NoError(t, err)
	require.Equal(t, named.ID, h.Parent)
	require.Equal(t, map[string]string{"f": "one"}, f.files())
	same, err := f.Restore(f.ctx, alice, wire.RestoreRequest{Snapshot: ids[0]})
	require.NoError(t, err)
	require.Equal(t, h.Snapshot, same.Snapshot)
	_, err = f.Restore(f.ctx, alice, wire.RestoreRequest{Snapshot: named.ID})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"f": "three", "g": "x"}, f.files())
	_, err = f.Restore(f.ctx, alice, wire.RestoreRequest{Snapshot: schemas.NewID()})
	code(t, fault.NotFound, err)
}
