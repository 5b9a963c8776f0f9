// Package corpus makes items and queries like natural ones, and measures a store with them.
package corpus

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

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

// New makes one.
func New(seed uint64) *Corpus {
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

// writers is how many goroutines fill a store; a store may join their writes.
const writers = 64

// Fill adds n items, one a minute up to now, to a workspace.
func Fill(ctx context.Context, s store.Store, tenant, workspace string, n int) error {
	sc := store.Scope{Tenant: tenant, Workspace: workspace}
	items := make(chan memory.Item)
	errs := make(chan error, writers)
	for range writers {
		go func() {
			var first error
			for it := range items {
				if first == nil {
					_, first = s.Add(ctx, sc, it, math.MaxInt)
				}
			}
			errs <- first
		}()
	}
	c := New(1)
	start := time.Now().UTC().Truncate(time.Microsecond).Add(-time.Duration(n) * time.Minute)
	for i := range n {
		at := start.Add(time.Duration(i) * time.Minute)
		items <- memory.Item{
			ID: schemas.NewID(), Workspace: workspace, Kind: memory.Semantic, Text: c.Text(), Tags: []string{fmt.Sprint("t", i%50)},
			Source: memory.Source{Principal: "bench"}, CreatedAt: at, ValidFrom: at,
		}
	}
	close(items)
	var all []error
	for range writers {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// Search makes n searches for the best 10 in a workspace that Fill filled, one after the other, and gives how long
// each took, as the store alone sees it.
func Search(ctx context.Context, s store.Store, tenant, workspace string, n int) ([]time.Duration, error) {
	c := New(2)
	var took []time.Duration
	for range n {
		query := c.Query()
		start := time.Now()
		hits, err := s.Search(ctx, store.Scope{Tenant: tenant, Workspace: workspace},
			store.Query{Terms: lexical.Query(query), Now: start, Limit: 10})
		took = append(took, time.Since(start))
		if err != nil {
			return nil, err
		}
		if len(hits) == 0 {
			return nil, fmt.Errorf("nothing found for %q", query)
		}
	}
	return took, nil
}
