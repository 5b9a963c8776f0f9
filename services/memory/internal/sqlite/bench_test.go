package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/memory/internal/sqlite"
	"github.com/weftmesh/weft/services/memory/storetest"
)

// BenchmarkSearch reports p50 and p95 of searches over 100,000 items, one to eight words each.
func BenchmarkSearch(b *testing.B) {
	s, err := sqlite.Open(b.TempDir(), sqlite.Options{})
	require.NoError(b, err)
	defer s.Close()
	storetest.BenchSearch(b, s, 100_000)
}

// BenchmarkAdd adds one item after the other, each on disk before the next.
func BenchmarkAdd(b *testing.B) {
	s, err := sqlite.Open(b.TempDir(), sqlite.Options{})
	require.NoError(b, err)
	defer s.Close()
	storetest.BenchAdd(b, s)
}
