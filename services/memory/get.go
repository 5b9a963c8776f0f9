package memory

import (
	"context"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/memory"
)

// Get gives one item. Errors: invalid; not_found, also for a forgotten item.
func (s *Service) Get(ctx context.Context, by mesh.Caller, req memory.GetRequest) (memory.GetReply, error) {
	sc, err := scope(by)
	if err != nil {
		return memory.GetReply{}, err
	}
	var item memory.Item
	switch {
	case (req.ID == "") == (req.Key == ""):
		return memory.GetReply{}, invalid("ask for an item by either id or key")
	case req.ID != "" && req.AsOf != nil:
		return memory.GetReply{}, invalid("as_of goes with a key: an item by id is the same at any time")
	case req.ID != "":
		if err := checkItemID(req.ID); err != nil {
			return memory.GetReply{}, err
		}
		item, err = s.store.Get(ctx, sc, req.ID)
		return memory.GetReply{Item: item}, s.failure(err, "item "+req.ID)
	}
	if err := checkKey(req.Key); err != nil {
		return memory.GetReply{}, err
	}
	item, err = s.store.ByKey(ctx, sc, req.Key, timeOf(req.AsOf))
	return memory.GetReply{Item: item}, s.failure(err, "valid item with key "+quote(req.Key))
}
