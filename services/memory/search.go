package memory

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/lexical"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

const (
	usualHits    = 10
	snippetBytes = 200
)

// Search gives the items that match a query best. A query without a word in it finds nothing.
// Errors: invalid.
func (s *Service) Search(ctx context.Context, by mesh.Caller, req memory.SearchRequest) (memory.SearchReply, error) {
	sc, err := scope(by)
	if err != nil {
		return memory.SearchReply{}, err
	}
	q, err := s.query(req)
	if err != nil {
		return memory.SearchReply{}, err
	}
	reply := memory.SearchReply{Hits: []memory.Hit{}}
	if len(q.Terms) == 0 {
		return reply, nil
	}
	limit := q.Limit
	q.Limit++ // one more tells whether there is a next page
	hits, err := s.store.Search(ctx, sc, q)
	if err != nil {
		return reply, s.failure(err, "")
	}
	size := 0
	for _, h := range hits {
		n, err := jsonSize(h.Item)
		if err != nil {
			return reply, err
		}
		if size += n; len(reply.Hits) == limit || len(reply.Hits) > 0 && size > pageBytes {
			if offset := q.Offset + len(reply.Hits); offset < memory.MaxSearchDepth {
				reply.NextCursor = searchCursor(q.Now, offset)
			}
			break
		}
		reply.Hits = append(reply.Hits, memory.Hit{
			Item: h.Item, Score: h.Score, Snippet: lexical.Snippet(h.Item.Text, q.Terms, snippetBytes),
		})
	}
	return reply, nil
}

// query checks a request and turns it into the store's query.
func (s *Service) query(req memory.SearchRequest) (store.Query, error) {
	q := store.Query{Kinds: req.Kinds, AsOf: timeOf(req.AsOf), Now: s.now()}
	if err := first([]error{checkString("query", req.Query, memory.MaxText), checkKinds(req.Kinds)}); err != nil {
		return q, err
	}
	var err error
	if q.Tags, err = checkTags(req.Tags); err != nil {
		return q, err
	}
	if q.Limit, err = limitOf(req.Limit, usualHits); err != nil {
		return q, err
	}
	if req.Cursor != "" {
		if q.Now, q.Offset, err = parseSearchCursor(req.Cursor); err != nil {
			return q, err
		}
		if q.AsOf.IsZero() {
			q.AsOf = q.Now
		}
	} else if !q.AsOf.IsZero() {
		q.Now = q.AsOf.Truncate(time.Microsecond)
	}
	q.Terms = lexical.Query(req.Query)
	return q, nil
}
