package sqlite

import (
	"context"
	"strings"

	"github.com/weftmesh/weft/services/memory/internal/rank"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Search implements store.Store. It weighs the items that have one of the selective terms; if even the
// rarest of these is in more than rank.Candidates, the newest.
func (s *Store) Search(ctx context.Context, sc store.Scope, q store.Query) (hits []store.Hit, err error) {
	err = s.read(ctx, sc, nil, func(ctx context.Context, db *database) error {
		docs, err := db.frequencies(ctx, q.Terms)
		if err != nil {
			return err
		}
		terms := rank.Selective(q.Terms, docs)
		if len(terms) == 0 {
			return nil
		}
		w := where(store.Filter{Kinds: q.Kinds, Tags: q.Tags, AsOf: q.AsOf})
		args := append([]any{
			rank.TextWeight, rank.KeyWeight, rank.TagWeight,
			rank.RecencyWeight, q.Now.UnixMicro(), float64(rank.RecencyHalf.Microseconds()), match(terms),
		}, w.args...)
		args = append(args, rank.Candidates, q.Limit, q.Offset)
		rows, err := db.readers.QueryContext(ctx, `
			SELECT `+columns+`, s.score FROM (
				SELECT seq, score FROM (
					SELECT i.seq, i.created, i.id,
						-bm25(words, ?, ?, ?) * (1.0 + ? / (1.0 + max(0.0, ? - i.created) / ?)) AS score
					FROM words CROSS JOIN items i ON i.seq = words.rowid
					WHERE words MATCH ? AND `+strings.Join(w.terms, " AND ")+`
					ORDER BY words.rowid DESC LIMIT ?)
				ORDER BY score DESC, created DESC, id DESC LIMIT ? OFFSET ?) s
			JOIN items i USING (seq) JOIN bodies b USING (seq)
			ORDER BY s.score DESC, i.created DESC, i.id DESC`, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var h store.Hit
			if h.Item, err = scan(rows, sc.Workspace, &h.Score); err != nil {
				return err
			}
			hits = append(hits, h)
		}
		return rows.Err()
	})
	return hits, err
}

// match makes the full-text expression. Terms consist of letters, marks and digits only, but they came
// from a user once, so they are quoted as strings all the same.
func match(terms []string) string {
	quoted := make([]string, len(terms))
	for i, t := range terms {
		quoted[i] = `"` + strings.ReplaceAll(t, `"`, `""`) + `"`
	}
	return strings.Join(quoted, " OR ")
}

// frequencies tells in how many items each term is.
func (db *database) frequencies(ctx context.Context, terms []string) (map[string]int, error) {
	docs, unknown := db.freq.get(terms)
	if len(unknown) == 0 {
		return docs, nil
	}
	args := make([]any, len(unknown))
	for i, t := range unknown {
		args[i] = t
	}
	rows, err := db.readers.QueryContext(ctx,
		`SELECT term, doc FROM vocabulary WHERE term IN (?`+strings.Repeat(", ?", len(args)-1)+`)`, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := map[string]int{}
	for rows.Next() {
		var term string
		var n int
		if err := rows.Scan(&term, &n); err != nil {
			return nil, err
		}
		docs[term], found[term] = n, n
	}
	db.freq.put(found)
	return docs, rows.Err()
}
