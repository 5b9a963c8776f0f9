package filesystem

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// Remove takes a file or a tree out of the head. An empty path is everything. Removing what is not there is not_found, so a repeat
// says that it is gone.
func (s *Service) Remove(ctx context.Context, by mesh.Caller, req wire.RemoveRequest) (wire.PutReply, error) {
	sp, limit, err := s.caller(ctx, by)
	if err != nil {
		return wire.PutReply{}, err
	}
	if err := checkPath(req.Path); err != nil {
		return wire.PutReply{}, err
	}
	b := sp.chunks.Batch()
	defer b.Abort()
	st, err := s.edit(ctx, sp, b, limit, change{event: eventRemoved, principal: by.Principal}, func(_ state, e *manifest.Editor) error {
		return pathFault(req.Path, e.Remove(req.Path))
	})
	return putReply(st), storeFault(err)
}

func putReply(st state) wire.PutReply {
	return wire.PutReply{Snapshot: st.Value.Snapshot, Files: st.Value.Files, Bytes: st.Value.Bytes}
}

// caller checks who asks and gives the workspace, if it exists, with its quota.
func (s *Service) caller(ctx context.Context, by mesh.Caller) (*space, int64, error) {
	sp, err := s.space(by.Tenant, by.Workspace)
	if err != nil {
		return nil, 0, err
	}
	limit, err := s.quota(ctx, sp)
	if fault.Is(err, fault.NotFound) {
		err = fault.Wrap(err, fault.NotFound, "no workspace %q", by.Workspace)
	}
	return sp, limit, err
}
