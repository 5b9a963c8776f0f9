package memory

import (
	"context"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// History gives every version of a key, the newest first. A key that never was has an empty one. Errors: invalid.
func (s *Service) History(ctx context.Context, by mesh.Caller, req memory.HistoryRequest) (memory.HistoryReply, error) {
	if err := checkKey(req.Key); err != nil {
		return memory.HistoryReply{}, err
	}
	items, next, err := s.list(ctx, by, store.Filter{Key: req.Key, AllVersions: true}, req.Limit, req.Cursor)
	return memory.HistoryReply{Items: items, NextCursor: next}, err
}
