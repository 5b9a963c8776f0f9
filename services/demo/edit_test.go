package demo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
)

func TestChangeEditsThreeFilesOfDifferentFolders(t *testing.T) {
	ten := strings.Repeat("line\n", 10)
	files := []string{"a/1", "a/2", "a/3", "b/1", "b/2", "c/1", "d/binary", "short"}
	content := map[string]string{"a/1": ten, "a/2": ten, "a/3": ten, "b/1": ten, "b/2": ten, "c/1": strings.TrimSuffix(ten, "\n"), "d/binary": "\x00" + ten, "short": "x\n"}
	dir := plant(t, content)
	got, err := change(dir, files)
	require.NoError(t, err)
	require.Equal(t, []Edit{
		{"a/2", "3 lines added", 10, 13},
		{"b/2", "2 lines removed", 10, 8},
		{"c/1", "1 line changed", 10, 10},
	}, got)
	for f, before := range content {
		b, err := os.ReadFile(filepath.Join(dir, f))
		require.NoError(t, err)
		edited := f == "a/2" || f == "b/2" || f == "c/1"
		require.Equal(t, edited, string(b) != before, f)
	}
	again := plant(t, content)
	same, err := change(again, files)
	require.NoError(t, err)
	require.Equal(t, got, same, "the same files give the same edits")
}

func TestChangeOfOneFolderTakesThreeOfIt(t *testing.T) {
	body := strings.Repeat("line\n", 5) + "no newline"
	dir := plant(t, map[string]string{"a/1": body, "a/2": body, "a/3": body})
	got, err := change(dir, []string{"a/1", "a/2", "a/3"})
	require.NoError(t, err)
	require.Len(t, got, 3)
	for _, e := range got {
		require.Equal(t, 6, e.Before)
	}
}

func TestChangeSaysWhatIsMissing(t *testing.T) {
	dir := plant(t, map[string]string{"a": strings.Repeat("line\n", 10), "b": "x"})
	_, err := change(dir, []string{"a", "b"})
	require.Equal(t, fault.Invalid, fault.CodeOf(err))
	require.ErrorContains(t, err, "only 1")
}
