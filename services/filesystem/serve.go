package filesystem

import (
	"context"
	"errors"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// How long a call may take at most; a caller who waits less ends it sooner. Streams have no limit of their own: they end with
// their caller.
const (
	callTimeout   = 15 * time.Second
	mergeTimeout  = 2 * time.Minute // reads what a sandbox wrote and zips it
	deleteTimeout = 2 * time.Minute
)

// Serve serves every operation on the mesh until stop is called, which waits for the calls under way.
func (s *Service) Serve(c *mesh.Conn) (stop func(), err error) {
	req, err := c.ServeReq(schemas.Filesystem,
		mesh.Op(wire.OpList, callTimeout, s.List),
		mesh.Op(wire.OpStat, callTimeout, s.Stat),
		stream.Op(c, wire.OpGet, s.getStream),
		stream.Op(c, wire.OpPut, s.putStream),
		mesh.Op(wire.OpRemove, callTimeout, s.Remove),
		mesh.Op(wire.OpSnapshot, callTimeout, s.Snapshot),
		mesh.Op(wire.OpSnapshotList, callTimeout, s.SnapshotList),
		mesh.Op(wire.OpSnapshotDiff, callTimeout, s.Diff),
		mesh.Op(wire.OpSnapshotRestore, callTimeout, s.Restore),
		mesh.Op(wire.OpArtifactList, callTimeout, s.ArtifactList),
		stream.Op(c, wire.OpArtifactGet, s.artifactStream),
	)
	if err != nil {
		return nil, err
	}
	internal, err := c.ServeInt(schemas.Filesystem,
		mesh.Op(wire.OpPrepare, callTimeout, s.Prepare),
		mesh.Op(wire.OpMerge, mergeTimeout, s.Merge),
		mesh.Op(wire.OpDiscard, callTimeout, s.Discard),
		mesh.Op(wire.OpHeld, deleteTimeout, s.Held),
		mesh.Op(wire.OpDeleteWorkspace, deleteTimeout, s.deleteFor),
	)
	if err != nil {
		req.Stop()
		return nil, err
	}
	return func() {
		req.Stop()
		internal.Stop()
	}, nil
}

// getStream sends the bytes on the channel stream.Data; the result is the entry.
func (s *Service) getStream(ctx context.Context, by mesh.Caller, req wire.GetRequest, st *stream.Session) (wire.Entry, error) {
	out := st.Channel(stream.Data)
	e, err := s.Get(ctx, by, req, out)
	return e, errors.Join(err, closeIf(err, out))
}

// putStream receives the bytes on the channel stream.Data; the result says what the head is now.
func (s *Service) putStream(ctx context.Context, by mesh.Caller, req wire.PutRequest, st *stream.Session) (wire.PutReply, error) {
	return s.Put(ctx, by, req, st.Channel(stream.Data))
}

// artifactStream sends the zip on the channel stream.Data; the result is the artifact's record.
func (s *Service) artifactStream(ctx context.Context, by mesh.Caller, req workspace.ID, st *stream.Session) (wire.Artifact, error) {
	out := st.Channel(stream.Data)
	a, err := s.ArtifactGet(ctx, by, req, out)
	return a, errors.Join(err, closeIf(err, out))
}

// closeIf ends the bytes where they are complete; after an error the stream's end says that they are not.
func closeIf(err error, c *stream.Channel) error {
	if err != nil {
		return nil
	}
	return c.CloseWrite()
}

// deleteFor is DeleteWorkspace for who may ask it.
func (s *Service) deleteFor(ctx context.Context, by mesh.Caller, req wire.DeleteWorkspace) (workspace.Empty, error) {
	if by.Principal != schemas.WorkspaceManager && by.Principal != schemas.Operator {
		return workspace.Empty{}, fault.New(fault.Denied, "only the workspace-manager and the operator delete workspaces, not %s", by.Principal)
	}
	return s.DeleteWorkspace(ctx, req)
}
