package mongo

import (
	"context"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// tombstone is what stays of a forgotten item.
type tombstone struct {
	ID          string `bson:"_id"`
	Tenant      string `bson:"tenant"`
	Workspace   string `bson:"workspace"`
	Kind        string `bson:"kind"`
	Created     int64  `bson:"created"`
	ForgottenAt int64  `bson:"forgotten_at"`
	ForgottenBy string `bson:"forgotten_by"`
}

var afterMark = failpoint.Register("memory.forget.marked")

// Forget implements store.Store. Tombstones are written first: a process that dies in between leaves items
// that a repeated forget deletes, and none that a repeated add would bring back.
func (s *Store) Forget(ctx context.Context, sc store.Scope, f store.Filter, mark store.Mark, limit int) (n int, err error) {
	err = s.call(ctx, func(ctx context.Context) error {
		if err := s.settle(ctx, sc); err != nil {
			return err
		}
		for n < limit {
			found, err := s.find(ctx, where(sc, f), options.Find().SetLimit(int64(limit-n)).SetProjection(whole))
			if err != nil || len(found) == 0 {
				return err
			}
			deleted, err := s.bury(ctx, sc, found, mark)
			n += deleted
			if err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

func (s *Store) bury(ctx context.Context, sc store.Scope, found []document, mark store.Mark) (int, error) {
	ids := make([]string, len(found))
	stones := make([]any, len(found))
	for i, d := range found {
		ids[i] = d.ID
		stones[i] = tombstone{
			ID: d.ID, Tenant: d.Tenant, Workspace: d.Workspace, Kind: d.Kind, Created: d.Created,
			ForgottenAt: mark.At.UnixMicro(), ForgottenBy: mark.By,
		}
	}
	_, err := s.tombstones.InsertMany(ctx, stones, options.InsertMany().SetOrdered(false))
	if err != nil && !mongo.IsDuplicateKeyError(err) {
		return 0, err
	}
	failpoint.Hit(afterMark)
	res, err := s.items.DeleteMany(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}})
	if err != nil {
		return 0, err
	}
	s.counted(sc, -int(res.DeletedCount))
	return int(res.DeletedCount), nil
}

// DeleteWorkspace implements store.Store. What is written at the same time may stay; services delete a
// workspace when nobody can reach it any more.
func (s *Store) DeleteWorkspace(ctx context.Context, sc store.Scope) error {
	return s.deleteAll(ctx, bson.D{{Key: "tenant", Value: sc.Tenant}, {Key: "workspace", Value: sc.Workspace}})
}

// DeleteTenant implements store.Store, as DeleteWorkspace.
func (s *Store) DeleteTenant(ctx context.Context, tenant string) error {
	return s.deleteAll(ctx, bson.D{{Key: "tenant", Value: tenant}})
}

func (s *Store) deleteAll(ctx context.Context, q bson.D) error {
	return s.callFor(ctx, deleteTimeout, func(ctx context.Context) error {
		defer s.recount()
		for _, c := range []*mongo.Collection{s.items, s.tombstones, s.marks} {
			if _, err := c.DeleteMany(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
}
