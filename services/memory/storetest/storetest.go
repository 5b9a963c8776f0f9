// Package storetest is the contract of package store as a test suite. Every adapter passes it whole,
// except for what its Gaps name.
package storetest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Gaps names what an adapter is known not to do, so that its tests say so.
type Gaps struct {
	// ApproximateQuota: adds at the same time may pass the limit of items by a few.
	ApproximateQuota bool
}

// Run holds the store that open gives to the contract. open is called once for each test; the store starts
// empty, and the test closes it.
func Run(t *testing.T, open func(t *testing.T) store.Store, gaps Gaps) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *bench)
	}{
		{"add and get", addAndGet},
		{"add twice", addTwice},
		{"a key has one valid item", keyTaken},
		{"adds of one key at the same time", racingAdds},
		{"quota", quota},
		{"supersede", supersede},
		{"supersede refuses", supersedeRefuses},
		{"upsert", upsert},
		{"supersedes of one key at the same time", racingSupersedes},
		{"supersedes with an expected version at the same time", racingExpected},
		{"as of", asOf},
		{"list", list},
		{"list filters", listFilters},
		{"search", search},
		{"search filters", searchFilters},
		{"search prefers what is recent", searchRecency},
		{"search pages", searchPages},
		{"search of odd words", searchOdd},
		{"forget", forget},
		{"forget in steps", forgetInSteps},
		{"forget within a key", forgetWithinKey},
		{"workspaces and tenants are apart", apart},
		{"delete workspace and tenant", deletes},
		{"odd values", oddValues},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := open(t)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			c.run(t, &bench{Store: s, sc: store.Scope{Tenant: "acme", Workspace: "demo"}, gaps: gaps})
		})
	}
}

// bench is a store under test, and a clock that moves a second with each item made.
type bench struct {
	store.Store
	sc   store.Scope
	gaps Gaps
	n    int
}

// epoch is when the first item was made.
var epoch = time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC)

func (b *bench) now() time.Time { return epoch.Add(time.Duration(b.n) * time.Second) }

// item makes one, changed by each of with.
func (b *bench) item(text string, with ...func(*memory.Item)) memory.Item {
	b.n++
	it := memory.Item{
		ID: schemas.NewID(), Workspace: b.sc.Workspace, Kind: memory.Semantic, Text: text,
		Source: memory.Source{Principal: "ann"}, CreatedAt: b.now(), ValidFrom: b.now(),
	}
	for _, f := range with {
		f(&it)
	}
	return it
}

func key(k string) func(*memory.Item)       { return func(it *memory.Item) { it.Key = k } }
func tags(t ...string) func(*memory.Item)   { return func(it *memory.Item) { it.Tags = t } }
func kind(k memory.Kind) func(*memory.Item) { return func(it *memory.Item) { it.Kind = k } }
func created(t time.Time) func(*memory.Item) {
	return func(it *memory.Item) { it.CreatedAt, it.ValidFrom = t, t }
}

func (b *bench) add(t *testing.T, text string, with ...func(*memory.Item)) memory.Item {
	t.Helper()
	it, err := b.Add(t.Context(), b.sc, b.item(text, with...), 1_000_000)
	require.NoError(t, err)
	return it
}

// replace supersedes the valid item of key by one with text.
func (b *bench) replace(t *testing.T, key, text string) memory.Item {
	t.Helper()
	it, err := b.Supersede(t.Context(), b.sc, b.replacement(key, text))
	require.NoError(t, err)
	return it
}

func (b *bench) replacement(key, text string) store.Supersede {
	it := b.item(text)
	it.Key = key
	return store.Supersede{
		NewID: it.ID, Key: key, MaxItems: 1_000_000,
		Build: func(old *memory.Item) (memory.Item, error) {
			next := it
			if old != nil && !next.ValidFrom.After(old.ValidFrom) {
				next.ValidFrom = old.ValidFrom.Add(time.Microsecond)
			}
			return next, nil
		},
	}
}

func (b *bench) find(t *testing.T, q store.Query) []store.Hit {
	t.Helper()
	q.Now = q.AsOf
	if q.AsOf.IsZero() {
		q.Now = b.now()
	}
	if q.Limit == 0 {
		q.Limit = 10
	}
	hits, err := b.Search(t.Context(), b.sc, q)
	require.NoError(t, err)
	return hits
}

func texts(items []memory.Item) []string {
	out := []string{}
	for _, it := range items {
		out = append(out, it.Text)
	}
	return out
}

func found(hits []store.Hit) []string {
	out := []string{}
	for _, h := range hits {
		out = append(out, h.Item.Text)
	}
	return out
}
