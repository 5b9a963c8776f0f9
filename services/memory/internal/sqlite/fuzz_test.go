package sqlite_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/memory/internal/lexical"
	"github.com/weftmesh/weft/services/memory/internal/sqlite"
	"github.com/weftmesh/weft/services/memory/internal/store"
)

// Whatever a text is, a search for it finds it and no query breaks the full-text syntax; and what was
// put into the index can be taken out again.
func FuzzSearch(f *testing.F) {
	for _, s := range []string{
		"a b", `"`, `" OR 1`, "NEAR(a, b)", "text:x", "{text key}:x", "^a*", "-a", "\x00", "a\x00b", "é e\u0301", "日本", "\u200d", "ᄀ", "\U0001f600 x",
		"\U00011240", "AND", "x\u0345", "Ⅷ", "ß ẞ SS", "ꟲ", "\U0001e030",
	} {
		f.Add(s)
	}
	dir := f.TempDir()
	s, err := sqlite.Open(dir, sqlite.Options{})
	require.NoError(f, err)
	f.Cleanup(func() { require.NoError(f, s.Close()) })
	sc := store.Scope{Tenant: "acme", Workspace: "demo"}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.ToValidUTF8(text, "?")
		it := item(text)
		_, err := s.Add(t.Context(), sc, it, 1000)
		require.NoError(t, err)
		for _, term := range append(lexical.Query(text), text) {
			_, err := s.Search(t.Context(), sc, store.Query{Terms: []string{term}, Now: when, Limit: 10})
			require.NoError(t, err)
		}
		for _, term := range lexical.Query(text) {
			hits, err := s.Search(t.Context(), sc, store.Query{Terms: []string{term}, Now: when, Limit: 10})
			require.NoError(t, err)
			require.Len(t, hits, 1, "%q in %q", term, text)
		}
		n, err := s.Forget(t.Context(), sc, store.Filter{AllVersions: true}, store.Mark{By: "ann", At: when}, 10)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		for _, term := range lexical.Query(text) {
			hits, err := s.Search(t.Context(), sc, store.Query{Terms: []string{term}, Now: when, Limit: 10})
			require.NoError(t, err)
			require.Empty(t, hits)
		}
	})
}
