package mongo

import (
	"context"
	"errors"

	"go.mongodb.org/mongo-driver/v2/mongo"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// maxTries bounds how often a write that lost a race begins anew.
const maxTries = 100

var errRace = fault.New(fault.Unavailable, "too many write this key at the same time; try again")

// Add implements store.Store. The insertion is the whole of it.
func (s *Store) Add(ctx context.Context, sc store.Scope, item memory.Item, maxItems int) (memory.Item, error) {
	err := s.call(ctx, func(ctx context.Context) error {
		for range maxTries {
			if err := s.checkNew(ctx, sc, item.ID, maxItems); err != nil {
				return err
			}
			item.Version = 1
			chain := "item:" + item.ID
			if item.Key != "" {
				chain = keyChain(item.Key)
				last, err := s.last(ctx, sc, chain)
				switch {
				case err == nil && last.ValidTo == forever:
					return &store.KeyTaken{ID: last.Item, Version: last.Version}
				case err == nil:
					item.Version = last.Version + 1
				case !errors.Is(err, store.ErrNotFound):
					return err
				}
			}
			inserted, err := s.insert(ctx, sc, newDocument(sc, item, chain))
			if err != nil || inserted {
				return err
			}
		}
		return errRace
	})
	return item, err
}

// Supersede implements store.Store. The insertion decides; should the process die right after it, settle
// completes what it implies.
func (s *Store) Supersede(ctx context.Context, sc store.Scope, r store.Supersede) (memory.Item, error) {
	var item memory.Item
	err := s.call(ctx, func(ctx context.Context) error {
		for range maxTries {
			if err := s.settle(ctx, sc); err != nil {
				return err
			}
			if err := s.checkNew(ctx, sc, r.NewID, r.MaxItems); err != nil {
				return err
			}
			d, err := s.successor(ctx, sc, r)
			if err != nil {
				return err
			}
			inserted, err := s.supersede(ctx, sc, d)
			if err != nil {
				return err
			}
			if inserted {
				item = d.item()
				return nil
			}
		}
		return errRace
	})
	return item, err
}

// successor makes the document that supersedes what r names.
func (s *Store) successor(ctx context.Context, sc store.Scope, r store.Supersede) (document, error) {
	old, err := s.superseded(ctx, sc, r)
	missing := errors.Is(err, store.ErrNotFound)
	if err != nil && !missing {
		return document{}, err
	}
	valid := !missing && old.ValidTo == forever
	actual := 0
	if valid {
		actual = old.Version
	}
	switch {
	case r.Expected != nil && *r.Expected != actual:
		return document{}, &store.VersionMismatch{Expected: *r.Expected, Actual: actual}
	case !valid && !r.Upsert:
		return document{}, store.ErrNotFound
	}
	var before *memory.Item
	if valid {
		it := old.item()
		before = &it
	}
	item, err := r.Build(before)
	if err != nil {
		return document{}, err
	}
	item.ID, item.Version = r.NewID, old.Version+1 // of no item: 1
	chain := old.Chain
	if missing {
		chain = keyChain(r.Key)
	}
	if valid {
		item.Supersedes = old.Item
	}
	return newDocument(sc, item, chain), nil
}

// superseded finds the last item of the chain that r names. It is valid, or its key has no valid item.
func (s *Store) superseded(ctx context.Context, sc store.Scope, r store.Supersede) (document, error) {
	if r.ID == "" {
		return s.last(ctx, sc, keyChain(r.Key))
	}
	d, err := s.byID(ctx, sc, r.ID)
	if err != nil {
		return d, err
	}
	last, err := s.last(ctx, sc, d.Chain)
	if err == nil && last.Item != d.Item {
		err = store.ErrNotFound
	}
	return last, err
}

// insert gives false if the document's id or its place in the chain is taken.
func (s *Store) insert(ctx context.Context, sc store.Scope, d document) (bool, error) {
	_, err := s.items.InsertOne(ctx, d)
	if mongo.IsDuplicateKeyError(err) {
		return false, nil
	}
	if err == nil {
		s.counted(sc, 1)
	}
	return err == nil, err
}

// checkNew says whether an item may be made under id.
func (s *Store) checkNew(ctx context.Context, sc store.Scope, id string, maxItems int) error {
	switch d, err := s.byID(ctx, sc, id); {
	case err == nil:
		return &store.Exists{Item: d.item()}
	case !errors.Is(err, store.ErrNotFound):
		return err
	}
	n, err := s.count(ctx, sc, maxItems)
	if err == nil && n >= maxItems {
		err = store.ErrFull
	}
	return err
}
