package mongo

import (
	"context"
	"errors"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// mark says that an item is about to be inserted which supersedes another. It is made before, and
// removed when the other is closed, so that a writer's death leaves work that others find.
type mark struct {
	ID        string `bson:"_id"` // of the item's document
	Tenant    string `bson:"tenant"`
	Workspace string `bson:"workspace"`
	Item      string `bson:"item"`
	At        int64  `bson:"at"` // microseconds since 1970
}

// markAge is after how long a mark whose item is not there is given up. Its writer has long met its deadline.
const markAge = 4 * opTimeout

// Points at which tests kill the process.
var (
	afterMarked = failpoint.Register("memory.supersede.marked")
	afterInsert = failpoint.Register("memory.supersede.inserted")
	afterClose  = failpoint.Register("memory.supersede.closed")
)

// supersede inserts d and closes what it supersedes. It gives false if d's place in the chain is taken.
func (s *Store) supersede(ctx context.Context, sc store.Scope, d document) (bool, error) {
	if d.Supersedes == "" {
		return s.insert(ctx, sc, d)
	}
	m := mark{ID: d.ID, Tenant: sc.Tenant, Workspace: sc.Workspace, Item: d.Item, At: s.now().UnixMicro()}
	_, err := s.marks.ReplaceOne(ctx, bson.D{{Key: "_id", Value: m.ID}}, m, upsert)
	if err != nil {
		return false, err
	}
	failpoint.Hit(afterMarked)
	inserted, err := s.insert(ctx, sc, d)
	if err != nil {
		return false, err // inserted or not: the mark tells
	}
	failpoint.Hit(afterInsert)
	// It is decided now. A caller who goes away at this point leaves nothing half done.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	if inserted {
		if err := s.closeOld(ctx, sc, d); err != nil {
			return false, err
		}
	}
	return inserted, s.unmark(ctx, m)
}

var upsert = options.Replace().SetUpsert(true)

// settle finishes what writers who died had begun in a workspace. Reads and writes do it first.
func (s *Store) settle(ctx context.Context, sc store.Scope) error {
	c, err := s.marks.Find(ctx, bson.D{{Key: "tenant", Value: sc.Tenant}, {Key: "workspace", Value: sc.Workspace}})
	if err != nil {
		return err
	}
	var marks []mark
	if err := c.All(ctx, &marks); err != nil {
		return err
	}
	for _, m := range marks {
		d, err := s.byID(ctx, sc, m.Item)
		switch {
		case err == nil:
			err = s.closeOld(ctx, sc, d)
		case errors.Is(err, store.ErrForgotten):
			err = nil
		case errors.Is(err, store.ErrNotFound):
			if age := s.now().Sub(time.UnixMicro(m.At)); age < markAge {
				continue // its writer is at work
			}
			err = nil
		}
		if err == nil {
			err = s.unmark(ctx, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// closeOld writes into the item that d supersedes since when, and by what.
func (s *Store) closeOld(ctx context.Context, sc store.Scope, d document) error {
	if d.Supersedes == "" {
		return nil
	}
	_, err := s.items.UpdateOne(ctx,
		bson.D{{Key: "_id", Value: documentID(sc, d.Supersedes)}, {Key: "valid_to", Value: int64(forever)}},
		bson.D{{Key: "$set", Value: bson.D{{Key: "valid_to", Value: d.ValidFrom}, {Key: "superseded_by", Value: d.Item}}}})
	failpoint.Hit(afterClose)
	return err
}

func (s *Store) unmark(ctx context.Context, m mark) error {
	_, err := s.marks.DeleteOne(ctx, bson.D{{Key: "_id", Value: m.ID}})
	return err
}
