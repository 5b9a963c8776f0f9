package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory/internal/lexical"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Corpus makes texts and queries like natural ones: of 40,000 words some are in most texts and most in
// few (Zipf's law). The same seed gives the same ones.
type Corpus struct {
	random *rand.Rand
	zipf   *rand.Zipf
}

// NewCorpus makes one.
func NewCorpus(seed uint64) *Corpus {
	random := rand.New(rand.NewPCG(seed, 0))
	return &Corpus{random: random, zipf: rand.NewZipf(random, 1.07, 4, 40_000)}
}

func (c *Corpus) word() string {
	const syllables = "ba co du fe gi ka lo mu ne pi ra so tu ve wi xa yo zu che tho"
	all := strings.Fields(syllables)
	var b strings.Builder
	for n := c.zipf.Uint64() + 20; n > 0; n /= 20 {
		b.WriteString(all[n%20])
	}
	return b.String()
}

// Text has 10 to 60 words.
func (c *Corpus) Text() string { return c.words(10 + c.random.IntN(51)) }

// Query has 1 to 8 words.
func (c *Corpus) Query() string { return c.words(1 + c.random.IntN(8)) }

func (c *Corpus) words(n int) string {
	w := make([]string, n)
	for i := range w {
		w[i] = c.word()
	}
	return strings.Join(w, " ")
}

// Fill adds n items of the corpus to a workspace, from several goroutines.
func Fill(ctx context.Context, s store.Store, sc store.Scope, n int) error {
	c := NewCorpus(1)
	items := make(chan memory.Item)
	errs := make(chan error, 64)
	for range cap(errs) {
		go func() {
			var first error
			for it := range items {
				if first == nil {
					_, first = s.Add(ctx, sc, it, n+1_000_000)
				}
			}
			errs <- first
		}()
	}
	start := time.Now().UTC().Truncate(time.Microsecond).Add(-time.Duration(n) * time.Minute)
	for i := range n {
		at := start.Add(time.Duration(i) * time.Minute)
		items <- memory.Item{
			ID: schemas.NewID(), Workspace: sc.Workspace, Kind: memory.Semantic, Text: c.Text(), Tags: []string{fmt.Sprint("t", i%50)},
			Source: memory.Source{Principal: "bench"}, CreatedAt: at, ValidFrom: at,
		}
	}
	close(items)
	var first error
	for range cap(errs) {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// BenchSearch measures searches over n items.
func BenchSearch(b *testing.B, s store.Store, n int) {
	sc := store.Scope{Tenant: "bench", Workspace: "bench"}
	start := time.Now()
	require.NoError(b, Fill(b.Context(), s, sc, n))
	b.Logf("%d items added in %v", n, time.Since(start).Round(time.Millisecond))
	c := NewCorpus(2)
	var took []time.Duration
	for b.Loop() {
		q := lexical.Query(c.Query())
		start := time.Now()
		hits, err := s.Search(b.Context(), sc, store.Query{Terms: q, Now: start, Limit: 10})
		took = append(took, time.Since(start))
		require.NoError(b, err)
		require.NotEmpty(b, hits)
	}
	slices.Sort(took)
	for _, p := range []int{50, 95, 99} {
		b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
}

// BenchAdd measures adds, one after the other.
func BenchAdd(b *testing.B, s store.Store) {
	sc := store.Scope{Tenant: "bench", Workspace: "bench"}
	c := NewCorpus(1)
	for b.Loop() {
		now := time.Now().UTC().Truncate(time.Microsecond)
		_, err := s.Add(b.Context(), sc, memory.Item{
			ID: schemas.NewID(), Kind: memory.Semantic, Text: c.Text(), CreatedAt: now, ValidFrom: now,
		}, 10_000_000)
		require.NoError(b, err)
	}
}
