package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
)

type record struct{ Step string }

func TestRecordsAreWholeOrAbsent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "attempts")
	j, err := Open[record](dir)
	require.NoError(t, err)
	a, b := schemas.NewID(), schemas.NewID()
	require.NoError(t, j.Write(a, record{"claimed"}))
	require.NoError(t, j.Write(a, record{"exited"}))
	require.NoError(t, j.Note(b, record{"claimed"}))
	require.Error(t, j.Note("../x", record{}))
	require.Error(t, j.Write("../x", record{}))

	broken := schemas.NewID()
	require.NoError(t, os.WriteFile(filepath.Join(dir, broken+".json"), []byte("{"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "."+schemas.NewID()), []byte("{"), 0o600), "killed while writing")
	again, err := Open[record](dir)
	require.NoError(t, err)
	all, bad, err := again.All()
	require.NoError(t, err)
	require.Equal(t, map[string]record{a: {"exited"}, b: {"claimed"}}, all)
	require.Len(t, bad, 1)
	require.Contains(t, bad, broken)

	require.NoError(t, j.Remove(a))
	require.NoError(t, j.Remove(a), "twice is no error")
	all, _, err = j.All()
	require.NoError(t, err)
	require.Len(t, all, 1)
}
