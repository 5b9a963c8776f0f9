package sqlite_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/memory/corpus"
	"github.com/weftmesh/weft/services/memory/internal/sqlite"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

func benchStore(b *testing.B) *sqlite.Store {
	s, err := sqlite.Open(b.TempDir(), sqlite.Options{})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	return s
}

// BenchmarkSearch reports p50, p95 and p99 of searches of one to eight words over 100,000 items. Run it with
// -benchtime 500x.
func BenchmarkSearch(b *testing.B) {
	s := benchStore(b)
	start := time.Now()
	require.NoError(b, corpus.Fill(b.Context(), s, "bench", "bench", 100_000))
	b.Logf("100,000 items added in %v", time.Since(start).Round(time.Millisecond))
	b.ResetTimer()
	took, err := corpus.Search(b.Context(), s, "bench", "bench", b.N)
	require.NoError(b, err)
	slices.Sort(took)
	for _, p := range []int{50, 95, 99} {
		b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
}

// BenchmarkAdd adds one item after the other, each on disk before the next.
func BenchmarkAdd(b *testing.B) {
	s := benchStore(b)
	c := corpus.New(1)
	for b.Loop() {
		it := item(c.Text())
		it.CreatedAt = time.Now()
		_, err := s.Add(b.Context(), store.Scope{Tenant: "bench", Workspace: "bench"}, it, 10_000_000)
		require.NoError(b, err)
	}
}
