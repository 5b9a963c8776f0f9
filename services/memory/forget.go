package memory

import (
	"context"
	"reflect"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// forgetStep is how many items are forgotten in one transaction: other writers wait no longer than for that.
const forgetStep = 200

// Forget deletes items for good, superseded versions too. Errors: invalid; not_found for an id that is unknown or
// forgotten already. A deadline or crash amid a large one leaves a part done; repeated, it does the rest.
func (s *Service) Forget(ctx context.Context, by mesh.Caller, req memory.ForgetRequest) (memory.ForgetReply, error) {
	var reply memory.ForgetReply
	sc, err := scope(by)
	if err != nil {
		return reply, err
	}
	f, err := forgetFilter(req)
	if err != nil {
		return reply, err
	}
	mark := store.Mark{By: by.Principal, At: s.now()}
	if f.ID != "" {
		if _, err := s.store.Get(ctx, sc, f.ID); err != nil {
			return reply, s.failure(err, "item "+f.ID)
		}
	}
	for {
		n, err := s.store.Forget(ctx, sc, f, mark, forgetStep)
		reply.Count += n
		if err != nil || n < forgetStep {
			return reply, s.failure(err, "")
		}
	}
}

func forgetFilter(req memory.ForgetRequest) (store.Filter, error) {
	given := 0
	for _, is := range []bool{req.ID != "", req.Filter != nil, req.All} {
		if is {
			given++
		}
	}
	switch {
	case given != 1:
		return store.Filter{}, invalid("say what to forget by one of id, filter, and all")
	case req.ID != "":
		return store.Filter{ID: req.ID, AllVersions: true}, checkItemID(req.ID)
	case req.All:
		return store.Filter{AllVersions: true}, nil
	case reflect.ValueOf(emptied(*req.Filter)).IsZero():
		return store.Filter{}, invalid("the filter is empty, which would forget everything: say all if that is meant")
	}
	f, err := filter(*req.Filter)
	f.AllVersions = true
	return f, err
}

// emptied makes empty lists nil.
func emptied(f memory.Filter) memory.Filter {
	if len(f.Kinds) == 0 {
		f.Kinds = nil
	}
	if len(f.Tags) == 0 {
		f.Tags = nil
	}
	return f
}
