package mongo

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Get implements store.Store.
func (s *Store) Get(ctx context.Context, sc store.Scope, id string) (item memory.Item, err error) {
	err = s.call(ctx, func(ctx context.Context) error {
		if err := s.settle(ctx, sc); err != nil {
			return err
		}
		d, err := s.byID(ctx, sc, id)
		item = d.item()
		return err
	})
	return item, err
}

// ByKey implements store.Store.
func (s *Store) ByKey(ctx context.Context, sc store.Scope, key string, asOf time.Time) (item memory.Item, err error) {
	err = s.call(ctx, func(ctx context.Context) error {
		if err := s.settle(ctx, sc); err != nil {
			return err
		}
		from := int64(forever)
		if !asOf.IsZero() {
			from = asOf.UnixMicro()
		}
		d, err := s.one(ctx, append(chained(sc, keyChain(key)), bson.E{Key: "valid_from", Value: bson.D{{Key: "$lte", Value: from}}}))
		if err == nil && (asOf.IsZero() && d.ValidTo != forever || !asOf.IsZero() && d.ValidTo <= from) {
			err = store.ErrNotFound
		}
		item = d.item()
		return err
	})
	return item, err
}

// List implements store.Store.
func (s *Store) List(ctx context.Context, sc store.Scope, f store.Filter, after store.Position, limit int) (items []memory.Item, err error) {
	err = s.call(ctx, func(ctx context.Context) error {
		if err := s.settle(ctx, sc); err != nil {
			return err
		}
		q := where(sc, f)
		if !after.IsZero() {
			q = append(q, bson.E{Key: "order", Value: bson.D{{Key: "$lt", Value: order(after.Created, after.ID)}}})
		}
		found, err := s.find(ctx, q, options.Find().SetSort(newestFirst).SetLimit(int64(limit)).SetProjection(whole))
		for _, d := range current(found) {
			items = append(items, d.item())
		}
		return err
	})
	return items, err
}

// current leaves out what is superseded by another of found and not closed yet: a writer is between the two.
func current(found []document) []document {
	superseded := map[string]bool{}
	for _, d := range found {
		superseded[d.Supersedes] = d.Supersedes != ""
	}
	return slices.DeleteFunc(found, func(d document) bool { return d.ValidTo == forever && superseded[d.Item] })
}

var (
	newestFirst = bson.D{{Key: "order", Value: -1}}
	// whole is an item without what only the index needs.
	whole = bson.D{{Key: "terms", Value: 0}, {Key: "frequency", Value: 0}}
)

// where says in the query language what f picks. Values never are operators: they are strings and numbers.
func where(sc store.Scope, f store.Filter) bson.D {
	q := bson.D{{Key: "tenant", Value: sc.Tenant}, {Key: "workspace", Value: sc.Workspace}}
	and := func(field string, value any) { q = append(q, bson.E{Key: field, Value: value}) }
	if f.ID != "" {
		and("_id", documentID(sc, f.ID))
	}
	if len(f.Kinds) > 0 {
		and("kind", bson.D{{Key: "$in", Value: f.Kinds}})
	}
	if len(f.Tags) > 0 {
		and("tags", bson.D{{Key: "$all", Value: f.Tags}})
	}
	if f.Key != "" {
		and("chain", keyChain(f.Key))
	}
	if f.KeyPrefix != "" {
		and("key", bson.D{{Key: "$regex", Value: "^" + regexp.QuoteMeta(f.KeyPrefix)}})
	}
	if f.Principal != "" {
		and("principal", f.Principal)
	}
	if f.Task != "" {
		and("task", f.Task)
	}
	if f.Pinned != nil {
		and("pinned", *f.Pinned)
	}
	created := bson.D{}
	if !f.CreatedFrom.IsZero() {
		created = append(created, bson.E{Key: "$gte", Value: f.CreatedFrom.UnixMicro()})
	}
	if !f.CreatedBefore.IsZero() {
		created = append(created, bson.E{Key: "$lt", Value: f.CreatedBefore.UnixMicro()})
	}
	if len(created) > 0 {
		and("created", created)
	}
	switch {
	case f.AllVersions:
	case f.AsOf.IsZero():
		and("valid_to", int64(forever))
	default:
		and("valid_from", bson.D{{Key: "$lte", Value: f.AsOf.UnixMicro()}})
		and("valid_to", bson.D{{Key: "$gt", Value: f.AsOf.UnixMicro()}})
	}
	return q
}

func chained(sc store.Scope, chain string) bson.D {
	return bson.D{{Key: "tenant", Value: sc.Tenant}, {Key: "workspace", Value: sc.Workspace}, {Key: "chain", Value: chain}}
}

// last is the item of a chain with the highest version.
func (s *Store) last(ctx context.Context, sc store.Scope, chain string) (document, error) {
	return s.one(ctx, chained(sc, chain))
}

// one is the document that matches and has the highest version.
func (s *Store) one(ctx context.Context, q bson.D) (document, error) {
	found, err := s.find(ctx, q, options.Find().SetSort(bson.D{{Key: "version", Value: -1}}).SetLimit(1).SetProjection(whole))
	if err != nil {
		return document{}, err
	}
	if len(found) == 0 {
		return document{}, store.ErrNotFound
	}
	return found[0], nil
}

// byID tells an item that never was from one that was forgotten. A tombstone is written before its item is
// deleted, so where both are, the item is as good as gone.
func (s *Store) byID(ctx context.Context, sc store.Scope, id string) (document, error) {
	err := s.tombstones.FindOne(ctx, bson.D{{Key: "_id", Value: documentID(sc, id)}}).Err()
	switch {
	case err == nil:
		return document{}, store.ErrForgotten
	case !errors.Is(err, mongo.ErrNoDocuments):
		return document{}, err
	}
	return s.one(ctx, bson.D{{Key: "_id", Value: documentID(sc, id)}})
}

func (s *Store) find(ctx context.Context, q bson.D, o *options.FindOptionsBuilder) ([]document, error) {
	c, err := s.items.Find(ctx, q, o)
	if err != nil {
		return nil, err
	}
	var found []document
	return found, c.All(ctx, &found)
}
