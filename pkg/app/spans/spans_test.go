package spans

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func line(t *testing.T, s Span) string {
	t.Helper()
	b, err := json.Marshal(s)
	require.NoError(t, err)
	return string(b) + "\n"
}

func TestReadGathersATraceFromAllFiles(t *testing.T) {
	dir := t.TempDir()
	at := time.Date(2026, 1, 31, 8, 0, 0, 0, time.UTC)
	first := line(t, Span{Trace: "a", ID: "2", Parent: "1", Name: "later", Start: at.Add(time.Second)}) +
		strings.Repeat("x", maxLine+10) + "\n" + // no line of ours; what follows it counts
		line(t, Span{Trace: "b", ID: "9", Name: "another trace", Start: at}) +
		line(t, Span{Trace: "a", ID: "3", Name: "last", Start: at.Add(2 * time.Second)}) +
		`{"trace":"a","na` // as a killed process leaves it
	require.NoError(t, os.WriteFile(filepath.Join(dir, "spans-1.jsonl"), []byte(first), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "spans-2.jsonl.1"), []byte(line(t, Span{Trace: "a", ID: "1", Name: "first", Start: at})), 0o600))
	got, err := Read(dir, "a")
	require.NoError(t, err)
	require.Len(t, got, 3)
	require.Equal(t, []string{"first", "later", "last"}, []string{got[0].Name, got[1].Name, got[2].Name})
	none, err := Read(filepath.Join(dir, "nothing"), "a")
	require.NoError(t, err)
	require.Empty(t, none)
}

func TestTraceOf(t *testing.T) {
	require.Equal(t, "0af7651916cd43dd8448eb211c80319c", TraceOf("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	require.Equal(t, "b7ad6b7169203331", SpanOf("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))
	require.Empty(t, SpanOf("00-0af7"))
	require.Empty(t, TraceOf(""))
	require.Empty(t, TraceOf("00-0af7651916cd43dd8448eb211c80319c"))
}
