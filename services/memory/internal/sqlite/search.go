package sqlite

import (
	"context"
	"sort"
	"strings"

	"github.com/weftmesh/weft/services/memory/internal/store"
)

// candidates is how many matches a search ranks at most. Ranking costs 2 to 3 µs each on the machine it
// was measured on, so this keeps a search below 20 ms whatever the size of the workspace.
const candidates = 3000

// Search implements store.Store. Of the query's terms those in the fewest items count: they are taken,
// the rarest first, until together they are in as many items as are ranked; what is then left out is in so
// many items that it would hardly move a score. If even the rarest term is in more items than are
// ranked, the newest are.
func (s *Store) Search(ctx context.Context, sc store.Scope, q store.Query) (hits []store.Hit, err error) {
	err = s.read(ctx, sc, nil, func(ctx context.Context, db *database) error {
		terms, err := db.selective(ctx, q.Terms)
		if err != nil || len(terms) == 0 {
			return err
		}
		w := where(store.Filter{Kinds: q.Kinds, Tags: q.Tags, AsOf: q.AsOf})
		args := append([]any{store.RecencyWeight, q.AsOf.UnixMicro(), store.RecencyHalf.Microseconds(), match(terms)}, w.args...)
		args = append(args, candidates, q.Limit, q.Offset)
		rows, err := db.readers.QueryContext(ctx, `
			SELECT `+columns+`, s.score FROM (
				SELECT seq, score FROM (
					SELECT i.seq, i.created, i.id,
						-bm25(words, 1.0, 2.0, 1.5) * (1.0 + ? / (1.0 + max(0.0, ? - i.created) / ?)) AS score
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

// selective picks the terms to search for, see Search.
func (db *database) selective(ctx context.Context, terms []string) ([]string, error) {
	docs, err := db.frequencies(ctx, terms)
	if err != nil {
		return nil, err
	}
	sorted := make([]string, 0, len(terms))
	for _, t := range terms {
		if docs[t] > 0 {
			sorted = append(sorted, t)
		}
	}
	sort.SliceStable(sorted, func(a, b int) bool { return docs[sorted[a]] < docs[sorted[b]] })
	total := 0
	for n, t := range sorted {
		if total += docs[t]; n > 0 && total > candidates {
			return sorted[:n], nil
		}
	}
	return sorted, nil
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
