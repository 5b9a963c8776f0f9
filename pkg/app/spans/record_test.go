package spans

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRecordedSpansAreRead(t *testing.T) {
	dir := t.TempDir()
	root, next := Begin("weft run", "weft", "")
	require.Equal(t, root.Trace, TraceOf(next))
	require.Equal(t, root.ID, SpanOf(next))
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			s, _ := Begin("child", "weft", next)
			s.End = time.Now()
			require.NoError(t, Record(dir, s))
		})
	}
	all.Wait()
	root.End = time.Now()
	require.NoError(t, Record(dir, root))
	got, err := Read(dir, root.Trace)
	require.NoError(t, err)
	require.Len(t, got, 21)
	for _, s := range got[1:] {
		require.Equal(t, root.ID, s.Parent)
	}
	require.NoError(t, Record(filepath.Join(dir, "nothing"), root), "nobody keeps spans there")
}

func TestRecordTurnsTheFileOver(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, ownFile)
	require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("x", maxOwn+1)), 0o600))
	s, _ := Begin("weft check", "weft", "garbage")
	require.Empty(t, s.Parent)
	require.NoError(t, Record(dir, s))
	got, err := Read(dir, s.Trace)
	require.NoError(t, err)
	require.Len(t, got, 1)
	st, err := os.Stat(path)
	require.NoError(t, err)
	require.Less(t, st.Size(), int64(4096))
	require.FileExists(t, path+".1")
}
