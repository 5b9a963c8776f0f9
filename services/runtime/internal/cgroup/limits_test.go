package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// On version 2 the files of all controllers lie in one directory; plain ones show what is written to them.
func TestLimitsOnVersion2(t *testing.T) {
	tree := &Tree{parent: "/weft/x", unified: true, all: []string{t.TempDir()}}
	g := tree.Group("one")
	require.ErrorIs(t, g.SetLimits(Limits{}), os.ErrNotExist, "a group that is gone stays gone")
	require.NoError(t, os.MkdirAll(g.dir("memory"), 0o755))
	for _, f := range []string{"memory.max", "cpu.max", "pids.max"} {
		require.NoError(t, os.WriteFile(filepath.Join(g.dir(""), f), nil, 0o644))
	}
	want := Limits{Memory: 1 << 30, Quota: 50_000, PIDs: 100}
	require.NoError(t, g.SetLimits(want))
	b, err := os.ReadFile(filepath.Join(g.dir(""), "cpu.max"))
	require.NoError(t, err)
	require.Equal(t, "50000 100000", string(b))
	got, err := g.Limits()
	require.NoError(t, err)
	require.Equal(t, want, got)
}
