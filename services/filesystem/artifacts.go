package filesystem

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// ArtifactList pages through what tasks left, newest first.
func (s *Service) ArtifactList(ctx context.Context, by mesh.Caller, req wire.SnapshotListRequest) (workspace.Page[wire.Artifact], error) {
	rep := workspace.Page[wire.Artifact]{}
	sp, _, err := s.caller(ctx, by)
	if err != nil {
		return rep, err
	}
	rs, err := s.cfg.Records.Artifacts.List(ctx, sp.owner, sp.name)
	if err != nil {
		return rep, err
	}
	p, err := page(values(rs), req, func(v wire.Artifact) (time.Time, string) { return v.CreatedAt, v.ID })
	rep.Items, rep.Cursor = append([]wire.Artifact{}, p.items...), p.cursor
	return rep, err
}

// ArtifactGet writes an artifact's zip to w. Its record has the SHA-256 by which the receiver can check it.
func (s *Service) ArtifactGet(ctx context.Context, by mesh.Caller, req workspace.ID, w io.Writer) (wire.Artifact, error) {
	sp, _, err := s.caller(ctx, by)
	if err != nil {
		return wire.Artifact{}, err
	}
	if err := checkID("artifact", req.ID); err != nil {
		return wire.Artifact{}, err
	}
	r, err := s.cfg.Records.Artifacts.Get(ctx, sp.key(req.ID))
	if err != nil {
		return wire.Artifact{}, err
	}
	dir, err := s.artifactDir(sp)
	if err != nil {
		return wire.Artifact{}, err
	}
	defer dir.Close()
	f, err := dir.Open(req.ID + ".zip")
	if errors.Is(err, fs.ErrNotExist) {
		return wire.Artifact{}, fault.Wrap(err, fault.NotFound, "artifact %s is too old and was removed", req.ID)
	}
	if err != nil {
		return wire.Artifact{}, err
	}
	defer f.Close()
	_, err = io.Copy(&interruptibleWriter{ctx, w}, f)
	return r.Value, err
}
