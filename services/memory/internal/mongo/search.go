package mongo

import (
	"cmp"
	"context"
	"slices"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo/options"

	"github.com/weftmesh/weft/services/memory/internal/rank"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// hit is what a search weighs: a document's narrow part, with the counts of the terms searched for.
type hit struct {
	ID        string             `bson:"_id"`
	Order     string             `bson:"order"`
	Created   int64              `bson:"created"`
	Length    float64            `bson:"length"`
	Frequency map[string]float64 `bson:"frequency"`
	score     float64
}

// Search implements store.Store. It fetches the narrow part of the items that have one of the selective
// terms, the newest rank.Candidates of them, weighs these, and fetches the best.
func (s *Store) Search(ctx context.Context, sc store.Scope, q store.Query) (hits []store.Hit, err error) {
	err = s.call(ctx, func(ctx context.Context) error {
		if err := s.settle(ctx, sc); err != nil {
			return err
		}
		docs, err := s.frequencies(ctx, sc, q.Terms)
		if err != nil {
			return err
		}
		terms := rank.Selective(q.Terms, docs)
		if len(terms) == 0 {
			return nil
		}
		found, err := s.candidates(ctx, sc, q, terms)
		if err != nil || len(found) == 0 {
			return err
		}
		items, err := s.count(ctx, sc, 1<<60)
		if err != nil {
			return err
		}
		weigh(found, rank.BM25{Items: items, Docs: docs}, q.Now)
		found = found[min(q.Offset, len(found)):min(q.Offset+q.Limit, len(found))]
		hits, err = s.fetch(ctx, found)
		return err
	})
	return hits, err
}

// frequencies tells in how many items each term is, counting no further than matters.
func (s *Store) frequencies(ctx context.Context, sc store.Scope, terms []string) (map[string]int, error) {
	docs := map[string]int{}
	for _, t := range terms {
		n, err := s.items.CountDocuments(ctx, bson.D{
			{Key: "tenant", Value: sc.Tenant}, {Key: "workspace", Value: sc.Workspace}, {Key: "terms", Value: t},
		}, options.Count().SetLimit(rank.Candidates+1))
		if err != nil {
			return nil, err
		}
		docs[t] = int(n)
	}
	return docs, nil
}

func (s *Store) candidates(ctx context.Context, sc store.Scope, q store.Query, terms []string) ([]hit, error) {
	filter := where(sc, store.Filter{Kinds: q.Kinds, Tags: q.Tags, AsOf: q.AsOf})
	filter = append(filter, bson.E{Key: "terms", Value: bson.D{{Key: "$in", Value: terms}}})
	fields := bson.D{{Key: "order", Value: 1}, {Key: "created", Value: 1}, {Key: "length", Value: 1}}
	for _, t := range terms {
		fields = append(fields, bson.E{Key: "frequency." + t, Value: 1})
	}
	c, err := s.items.Find(ctx, filter, options.Find().SetSort(newestFirst).SetLimit(rank.Candidates).SetProjection(fields))
	if err != nil {
		return nil, err
	}
	var found []hit
	return found, c.All(ctx, &found)
}

// weigh gives each its score and sorts, the best first; ties go to the newer.
func weigh(found []hit, m rank.BM25, now time.Time) {
	for _, h := range found {
		m.Length += h.Length / float64(len(found))
	}
	for i := range found {
		h := &found[i]
		h.score = m.Score(h.Frequency, h.Length) * rank.Recency(now.Sub(fromMicro(h.Created)))
	}
	slices.SortFunc(found, func(a, b hit) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.Order, a.Order))
	})
}

// fetch gives the whole items in the order of found. One that was forgotten meanwhile is left out.
func (s *Store) fetch(ctx context.Context, found []hit) ([]store.Hit, error) {
	ids := make([]string, len(found))
	for i, h := range found {
		ids[i] = h.ID
	}
	if len(ids) == 0 {
		return nil, nil
	}
	docs, err := s.find(ctx, bson.D{{Key: "_id", Value: bson.D{{Key: "$in", Value: ids}}}}, options.Find().SetProjection(whole))
	if err != nil {
		return nil, err
	}
	byID := make(map[string]document, len(docs))
	for _, d := range current(docs) {
		byID[d.ID] = d
	}
	var hits []store.Hit
	for _, h := range found {
		if d, ok := byID[h.ID]; ok {
			hits = append(hits, store.Hit{Item: d.item(), Score: h.score})
		}
	}
	return hits, nil
}
