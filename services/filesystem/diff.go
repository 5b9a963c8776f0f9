package filesystem

import (
	"context"
	"errors"

	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

// Diff lists what two snapshots differ in, page by page. Directories that exist on both sides are not listed themselves.
func (s *Service) Diff(ctx context.Context, by mesh.Caller, req wire.DiffRequest) (wire.DiffReply, error) {
	rep := wire.DiffReply{Changes: []wire.Change{}}
	limit, err := pageLimit(req.Limit)
	if err == nil {
		err = errors.Join(checkPath(req.Cursor), checkID("from", req.From))
	}
	if err != nil {
		return rep, err
	}
	sp, _, err := s.caller(ctx, by)
	if err != nil {
		return rep, err
	}
	from, _, err := s.version(ctx, sp, req.From)
	if err != nil {
		return rep, err
	}
	to, _, err := s.version(ctx, sp, req.To)
	if err != nil {
		return rep, err
	}
	size := 0
	err = sp.tree.DiffFrom(from, to, req.Cursor, func(c manifest.Change) error {
		if req.Cursor != "" && comparePaths(c.Path, req.Cursor) <= 0 {
			return nil
		}
		if size += len(c.Path) + 80; len(rep.Changes) == limit || size > pageBytes && len(rep.Changes) > 0 {
			rep.Cursor = rep.Changes[len(rep.Changes)-1].Path
			return errFull
		}
		ch := wire.Change{Path: c.Path, Kind: kindOf(c)}
		if c.To != nil && c.To.Type == manifest.File {
			ch.Size = c.To.Size
		}
		rep.Changes = append(rep.Changes, ch)
		return nil
	})
	if errors.Is(err, errFull) {
		err = nil
	}
	return rep, missing(err)
}
