package storetest

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/lexical"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

func asOf(t *testing.T, b *bench) {
	before := b.now()
	v1 := b.add(t, "blue", key("colour"))
	v2 := b.replace(t, "colour", "green")
	other := b.add(t, "blue too")

	for at, want := range map[time.Time]string{
		v1.ValidFrom:                        "blue",
		v2.ValidFrom.Add(-time.Microsecond): "blue",
		v2.ValidFrom:                        "green",
		b.now().Add(time.Hour):              "green",
		{}:                                  "green",
	} {
		it, err := b.ByKey(t.Context(), b.sc, "colour", at)
		require.NoError(t, err)
		require.Equal(t, want, it.Text, at)
	}
	_, err := b.ByKey(t.Context(), b.sc, "colour", before)
	require.ErrorIs(t, err, store.ErrNotFound)

	items, err := b.List(t.Context(), b.sc, store.Filter{AsOf: v1.ValidFrom}, store.Position{}, 10)
	require.NoError(t, err)
	require.Equal(t, []string{"blue"}, texts(items))
	require.Equal(t, []string{"blue"}, found(b.find(t, store.Query{Terms: []string{"blue"}, AsOf: v1.ValidFrom})))
	require.Equal(t, []string{"blue too"}, found(b.find(t, store.Query{Terms: []string{"blue"}, AsOf: other.ValidFrom})))
	require.Empty(t, b.find(t, store.Query{Terms: []string{"blue"}, AsOf: before}))
}

func list(t *testing.T, b *bench) {
	same := b.now().Add(time.Minute)
	for i := range 7 {
		if i%2 == 0 {
			b.add(t, fmt.Sprint(i), created(same))
		} else {
			b.add(t, fmt.Sprint(i))
		}
	}
	all, err := b.List(t.Context(), b.sc, store.Filter{}, store.Position{}, 100)
	require.NoError(t, err)
	require.Len(t, all, 7)
	for i, it := range all[1:] {
		p := all[i]
		require.True(t, p.CreatedAt.After(it.CreatedAt) || p.CreatedAt.Equal(it.CreatedAt) && p.ID > it.ID, "the newest first")
	}
	var paged []memory.Item
	var at store.Position
	for {
		page, err := b.List(t.Context(), b.sc, store.Filter{}, at, 2)
		require.NoError(t, err)
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
		last := page[len(page)-1]
		at = store.Position{Created: last.CreatedAt, ID: last.ID}
	}
	require.Equal(t, all, paged)
}

func listFilters(t *testing.T, b *bench) {
	task := schemas.NewID()
	a := b.add(t, "a", key("app/a"), tags("x", "y"), kind(memory.Episodic))
	b.add(t, "b", key("app/b"), tags("x"), func(it *memory.Item) { it.Source = memory.Source{Principal: "bob", Task: task} })
	c := b.add(t, "c", kind(memory.Procedural), func(it *memory.Item) { it.Pinned = true })
	yes, no := true, false
	for _, f := range []struct {
		name   string
		filter store.Filter
		want   []string
	}{
		{"all", store.Filter{}, []string{"c", "b", "a"}},
		{"id", store.Filter{ID: a.ID}, []string{"a"}},
		{"kinds", store.Filter{Kinds: []memory.Kind{memory.Episodic, memory.Procedural}}, []string{"c", "a"}},
		{"one tag", store.Filter{Tags: []string{"x"}}, []string{"b", "a"}},
		{"all tags", store.Filter{Tags: []string{"x", "y"}}, []string{"a"}},
		{"no such tag", store.Filter{Tags: []string{"x", "z"}}, []string{}},
		{"key", store.Filter{Key: "app/a"}, []string{"a"}},
		{"key prefix", store.Filter{KeyPrefix: "app/"}, []string{"b", "a"}},
		{"principal", store.Filter{Principal: "bob"}, []string{"b"}},
		{"task", store.Filter{Task: task}, []string{"b"}},
		{"pinned", store.Filter{Pinned: &yes}, []string{"c"}},
		{"not pinned", store.Filter{Pinned: &no}, []string{"b", "a"}},
		{"from", store.Filter{CreatedFrom: c.CreatedAt}, []string{"c"}},
		{"before", store.Filter{CreatedBefore: c.CreatedAt}, []string{"b", "a"}},
		{"together", store.Filter{Tags: []string{"x"}, Principal: "bob", KeyPrefix: "app"}, []string{"b"}},
	} {
		items, err := b.List(t.Context(), b.sc, f.filter, store.Position{}, 10)
		require.NoError(t, err, f.name)
		require.Equal(t, f.want, texts(items), f.name)
	}
}

func search(t *testing.T, b *bench) {
	for _, text := range []string{
		"the deployment of the gateway failed because its certificate had expired",
		"gateway gateway gateway",
		"certificates are renewed every month by a timer",
		"lunch is at noon",
		"the kitchen has a new coffee machine",
		"a walk in the park",
	} {
		b.add(t, text)
	}
	b.add(t, "nothing to say", key("gateway/owner"), tags("expiring"))

	hits := b.find(t, store.Query{Terms: lexical.Query("Which certificate expires?")})
	require.Len(t, hits, 3, "by stem, in the text, the key and the tags")
	require.Equal(t, "the deployment of the gateway failed because its certificate had expired", hits[0].Item.Text, "two words beat one")
	for i, h := range hits {
		require.Positive(t, h.Score)
		if i > 0 {
			require.LessOrEqual(t, h.Score, hits[i-1].Score)
		}
	}
	require.Equal(t, "gateway gateway gateway", b.find(t, store.Query{Terms: lexical.Query("gateways")})[0].Item.Text, "often beats once")
	require.Empty(t, b.find(t, store.Query{Terms: lexical.Query("submarine")}))
	require.Len(t, b.find(t, store.Query{Terms: lexical.Query("gateway lunch"), Limit: 2}), 2)
}

func searchFilters(t *testing.T, b *bench) {
	b.add(t, "red one", tags("x"), kind(memory.Episodic))
	b.add(t, "red two", tags("x", "y"))
	b.add(t, "red three", kind(memory.Procedural))
	red := []string{"red"}
	require.ElementsMatch(t, []string{"red one", "red two"}, found(b.find(t, store.Query{Terms: red, Tags: []string{"x"}})))
	require.Equal(t, []string{"red two"}, found(b.find(t, store.Query{Terms: red, Tags: []string{"x", "y"}})))
	require.Equal(t, []string{"red three"}, found(b.find(t, store.Query{Terms: red, Kinds: []memory.Kind{memory.Procedural}})))
	require.Empty(t, b.find(t, store.Query{Terms: red, Kinds: []memory.Kind{memory.Procedural}, Tags: []string{"x"}}))
}

func searchRecency(t *testing.T, b *bench) {
	b.add(t, "meeting in room seven", created(epoch.Add(-1000*time.Hour)))
	b.add(t, "meeting in room eight", created(epoch))
	b.add(t, "meeting in room three", created(epoch.Add(-500*time.Hour)))
	b.add(t, "unrelated one")
	b.add(t, "unrelated two")
	b.add(t, "unrelated three")
	b.add(t, "unrelated four")
	hits := b.find(t, store.Query{Terms: lexical.Query("meetings")})
	require.Equal(t, []string{"meeting in room eight", "meeting in room three", "meeting in room seven"}, found(hits))
	require.Greater(t, hits[0].Score, hits[2].Score)
	require.Equal(t, "meeting in room seven", b.find(t, store.Query{Terms: lexical.Query("meeting seven")})[0].Item.Text,
		"age does not beat a better match")
}

func searchPages(t *testing.T, b *bench) {
	for i := range 9 {
		b.add(t, fmt.Sprintf("apple %d", i))
	}
	all := b.find(t, store.Query{Terms: []string{"appl"}, Limit: 100})
	require.Len(t, all, 9)
	var paged []store.Hit
	for off := 0; off < 12; off += 4 {
		paged = append(paged, b.find(t, store.Query{Terms: []string{"appl"}, Limit: 4, Offset: off})...)
	}
	require.Equal(t, all, paged)
}

// searchOdd tries what would be syntax, were it not quoted, and words that break at odd places.
func searchOdd(t *testing.T, b *bench) {
	b.add(t, "AND OR NOT NEAR text key tags café naïve 東京タワー résumé_final v1.2.3 don't İstanbul ǅ ﬁne ½ สวัสดี")
	for _, q := range []string{
		"AND", "NEAR(a b)", "text:foo OR key", "café", "CAFE", "naive", "京", "résumé final", "v1.2.3", "istanbul",
		"\"unbalanced key", "tags*", "^text", "-- text", "a AND", "{text key}: AND", "key\x00text", "text\xff\xfe",
		"ǆ", "fine", "½", "สวัสดี", "don't near",
	} {
		terms := lexical.Query(q)
		require.NotEmpty(t, terms, q)
		require.Len(t, b.find(t, store.Query{Terms: terms}), 1, "%q", q)
	}
	for _, term := range []string{`"`, `'`, `" OR "x`, `text : key`, `*`, `)`, "\x00", "\\", "$ne", "日\"本"} {
		require.Empty(t, b.find(t, store.Query{Terms: []string{term + " zzz"}}), "%q is a term, no syntax", term)
	}
}
