package client

import (
	"context"
	"io"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Files gives up to limit entries of the head or a snapshot, by path; 0 is all.
func (c *Client) Files(ctx context.Context, r filesystem.ListRequest, limit int) ([]filesystem.Entry, error) {
	return all(limit, func(n int, cursor string) ([]filesystem.Entry, string, error) {
		r.Limit, r.Cursor = n, cursor
		p, err := ask[filesystem.ListReply](ctx, c, schemas.Filesystem, filesystem.OpList, r)
		if r.Snapshot == "" { // further pages are of the version that the first one saw
			r.Snapshot = p.Snapshot
		}
		return p.Entries, p.Cursor, err
	})
}

// StatFile describes one path.
func (c *Client) StatFile(ctx context.Context, r filesystem.GetRequest) (filesystem.Entry, error) {
	return ask[filesystem.Entry](ctx, c, schemas.Filesystem, filesystem.OpStat, r)
}

// GetFile copies a file's bytes, or a directory as tar, to w.
func (c *Client) GetFile(ctx context.Context, r filesystem.GetRequest, w io.Writer) (filesystem.Entry, error) {
	var e filesystem.Entry
	s, err := c.open(ctx, schemas.Filesystem, filesystem.OpGet, r)
	if err != nil {
		return e, err
	}
	_, err = receive(ctx, s, w, &e)
	return e, err
}

// PutFile makes what r gives the content of a file, or with Tar of a tree, as one change of the head.
func (c *Client) PutFile(ctx context.Context, req filesystem.PutRequest, r io.Reader) (filesystem.PutReply, error) {
	var rep filesystem.PutReply
	s, err := c.open(ctx, schemas.Filesystem, filesystem.OpPut, req)
	if err != nil {
		return rep, err
	}
	_, err = send(ctx, s, r, &rep)
	return rep, err
}

// RemoveFile removes a file or a tree from the head.
func (c *Client) RemoveFile(ctx context.Context, path string) (filesystem.PutReply, error) {
	return ask[filesystem.PutReply](ctx, c, schemas.Filesystem, filesystem.OpRemove, filesystem.RemoveRequest{Path: path})
}

// Snapshot names the present head, so that it is kept.
func (c *Client) Snapshot(ctx context.Context, message string) (filesystem.Snapshot, error) {
	return ask[filesystem.Snapshot](ctx, c, schemas.Filesystem, filesystem.OpSnapshot, filesystem.SnapshotRequest{Message: message})
}

// Snapshots gives up to limit snapshots, the newest first; 0 is all.
func (c *Client) Snapshots(ctx context.Context, limit int) ([]filesystem.Snapshot, error) {
	return all(limit, func(n int, cursor string) ([]filesystem.Snapshot, string, error) {
		p, err := ask[filesystem.SnapshotListReply](ctx, c, schemas.Filesystem, filesystem.OpSnapshotList, filesystem.SnapshotListRequest{Limit: n, Cursor: cursor})
		return p.Snapshots, p.Cursor, err
	})
}

// DiffSnapshots lists what differs between two snapshots; an empty to is the head.
func (c *Client) DiffSnapshots(ctx context.Context, from, to string) ([]filesystem.Change, error) {
	return all(0, func(n int, cursor string) ([]filesystem.Change, string, error) {
		p, err := ask[filesystem.DiffReply](ctx, c, schemas.Filesystem, filesystem.OpSnapshotDiff, filesystem.DiffRequest{From: from, To: to, Limit: n, Cursor: cursor})
		return p.Changes, p.Cursor, err
	})
}

// RestoreSnapshot makes a snapshot the head again.
func (c *Client) RestoreSnapshot(ctx context.Context, id string) (filesystem.Head, error) {
	return ask[filesystem.Head](ctx, c, schemas.Filesystem, filesystem.OpSnapshotRestore, filesystem.RestoreRequest{Snapshot: id})
}

// Artifacts gives up to limit artifacts, the newest first; 0 is all.
func (c *Client) Artifacts(ctx context.Context, limit int) ([]filesystem.Artifact, error) {
	return all(limit, func(n int, cursor string) ([]filesystem.Artifact, string, error) {
		p, err := ask[workspace.Page[filesystem.Artifact]](ctx, c, schemas.Filesystem, filesystem.OpArtifactList, filesystem.SnapshotListRequest{Limit: n, Cursor: cursor})
		return p.Items, p.Cursor, err
	})
}

// GetArtifact copies an artifact's zip to w.
func (c *Client) GetArtifact(ctx context.Context, id string, w io.Writer) (filesystem.Artifact, error) {
	var a filesystem.Artifact
	s, err := c.open(ctx, schemas.Filesystem, filesystem.OpArtifactGet, workspace.ID{ID: id})
	if err != nil {
		return a, err
	}
	_, err = receive(ctx, s, w, &a)
	return a, err
}
