package mounts_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/mounts"
	"github.com/weftmesh/weft/pkg/needs"
)

func TestMounts(t *testing.T) {
	needs.Root(t)
	dir := filepath.Join(t.TempDir(), "a b\\c")
	inner := filepath.Join(dir, "in\tner")
	mount := func(at string) {
		t.Helper()
		require.NoError(t, os.MkdirAll(at, 0o700))
		require.NoError(t, unix.Mount("tmpfs", at, "tmpfs", 0, "size=64k"))
	}
	mount(dir)
	t.Cleanup(func() { _, _ = mounts.Detach(dir) })
	mount(inner)
	mount(inner) // one over the other
	mount(dir + "x")
	t.Cleanup(func() { _, _ = mounts.Detach(dir + "x") })

	points, err := mounts.Below(dir)
	require.NoError(t, err)
	require.Equal(t, []string{dir, inner, inner}, points, "in the order of mounting, with strange names, and no neighbour's")

	n, err := mounts.DetachBelow(dir)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	n, err = mounts.Detach(dir)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	n, err = mounts.Detach(dir)
	require.NoError(t, err)
	require.Zero(t, n)
	points, err = mounts.Below(dir + "x")
	require.NoError(t, err)
	require.Len(t, points, 1)
}
