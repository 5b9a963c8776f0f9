package mongo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/memory/corpus"
)

// The same words and queries as SQLite is measured with find something here too. It is no measurement of
// MongoDB: FerretDB scans.
func TestCorpus(t *testing.T) {
	s := connect(t, fresh(t))
	defer s.Close()
	require.NoError(t, corpus.Fill(t.Context(), s, "bench", "bench", 200))
	_, err := corpus.Search(t.Context(), s, "bench", "bench", 10)
	require.NoError(t, err)
}
