package runtime

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/internal/spool"
)

// A stream's end goes with its last bytes; one on which nothing was written is over without a message.
func TestSilentStreamsPublishNothing(t *testing.T) {
	sp, err := spool.Open(t.TempDir(), 1<<20)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sp.Close()) })
	a := &attempt{spool: sp}
	ended := map[spool.Stream]bool{}
	next := map[spool.Stream]int64{}
	chunks, err := a.pending(next, ended)
	require.NoError(t, err)
	require.Empty(t, chunks)
	require.Empty(t, ended, "more may come")
	require.NoError(t, sp.Append(spool.Stdout, []byte("said"), 4))
	for _, st := range spool.All() {
		require.NoError(t, sp.End(st))
	}
	chunks, err = a.pending(next, ended)
	require.NoError(t, err)
	require.Equal(t, []Chunk{{Stream: spool.Stdout, Data: []byte("said"), EOF: true}}, chunks)
	require.Len(t, ended, len(spool.All())-1, "stdout's is to be published")
}
