package rank_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/memory/internal/rank"
)

func TestRecency(t *testing.T) {
	require.InDelta(t, 1.5, rank.Recency(0), 1e-9)
	require.InDelta(t, 1.5, rank.Recency(-time.Hour), 1e-9, "from a clock that is ahead")
	require.InDelta(t, 1.25, rank.Recency(rank.RecencyHalf), 1e-9)
	require.InDelta(t, 1, rank.Recency(100*365*24*time.Hour), 1e-3)
}

func TestSelective(t *testing.T) {
	docs := map[string]int{"rare": 2, "some": 2000, "more": 2500, "most": 90_000, "rarer": 1}
	for _, c := range []struct {
		name        string
		terms, want []string
	}{
		{"the rarest until there are enough", []string{"most", "some", "more", "rare", "rarer"}, []string{"rarer", "rare", "some"}},
		{"one at least", []string{"most"}, []string{"most"}},
		{"unknown ones never", []string{"nowhere", "rare"}, []string{"rare"}},
		{"none", nil, []string{}},
	} {
		require.Equal(t, c.want, rank.Selective(c.terms, docs), c.name)
	}
}

func TestBM25(t *testing.T) {
	m := rank.BM25{Items: 1000, Docs: map[string]int{"rare": 3, "common": 300, "everywhere": 1000}, Length: 20}
	one := func(term string, freq, length float64) float64 {
		return m.Score(map[string]float64{term: freq}, length)
	}
	require.Greater(t, one("rare", 1, 20), one("common", 1, 20))
	require.Greater(t, one("common", 2, 20), one("common", 1, 20))
	require.Greater(t, one("common", 1, 10), one("common", 1, 30), "short beats long")
	require.Positive(t, one("everywhere", 1, 20))
	require.Zero(t, m.Score(nil, 20))
}
