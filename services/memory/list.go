package memory

import (
	"context"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// usualPage is how many items a list has if no limit is given.
const usualPage = 50

// List pages through items, the newest first. Items added meanwhile are before the cursor, so the pages
// neither repeat nor skip what was there at the first. Errors: invalid.
func (s *Service) List(ctx context.Context, by mesh.Caller, req memory.ListRequest) (memory.ListReply, error) {
	f, err := filter(req.Filter)
	if err != nil {
		return memory.ListReply{}, err
	}
	if req.AllVersions && req.AsOf != nil {
		return memory.ListReply{}, invalid("all_versions and as_of exclude each other")
	}
	f.AsOf, f.AllVersions = timeOf(req.AsOf), req.AllVersions
	items, next, err := s.list(ctx, by, f, req.Limit, req.Cursor)
	return memory.ListReply{Items: items, NextCursor: next}, err
}

func (s *Service) list(ctx context.Context, by mesh.Caller, f store.Filter, limit int, cursor string) (items []memory.Item, next string, err error) {
	sc, err := scope(by)
	if err != nil {
		return nil, "", err
	}
	if limit, err = limitOf(limit, usualPage); err != nil {
		return nil, "", err
	}
	after, err := parseListCursor(cursor)
	if err != nil {
		return nil, "", err
	}
	found, err := s.store.List(ctx, sc, f, after, limit+1)
	if err != nil {
		return nil, "", s.failure(err, "")
	}
	items, more, err := page(found, limit)
	if err == nil && more {
		next = listCursor(items[len(items)-1])
	}
	return items, next, err
}

// filter checks a filter and turns it into the store's.
func filter(f memory.Filter) (store.Filter, error) {
	out := store.Filter{
		Kinds: f.Kinds, Key: f.Key, KeyPrefix: f.KeyPrefix, Principal: f.Principal, Task: f.Task, Pinned: f.Pinned,
		CreatedFrom: timeOf(f.CreatedFrom), CreatedBefore: timeOf(f.CreatedBefore),
	}
	errs := []error{checkKinds(f.Kinds), checkSource(f.Task, 0)}
	var err error
	if out.Tags, err = checkTags(f.Tags); err != nil {
		errs = append(errs, err)
	}
	if f.Key != "" {
		errs = append(errs, checkKey(f.Key))
	}
	if f.KeyPrefix != "" {
		errs = append(errs, checkString("key_prefix", f.KeyPrefix, memory.MaxKey))
	}
	if f.Principal != "" {
		if err := schemas.CheckName("principal", f.Principal); err != nil {
			errs = append(errs, invalid("%v", err))
		}
	}
	return out, first(errs)
}
