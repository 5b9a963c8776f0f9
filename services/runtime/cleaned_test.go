package runtime

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// What a node finds of nobody's, at its start and later, it tells the manager, also one that was away.
func TestLeftoversAreTold(t *testing.T) {
	machine.Need(t)
	w := newWorld(t)
	first, later := schemas.NewID(), schemas.NewID()
	require.NoError(t, os.MkdirAll(filepath.Join(machine.RunDir, "sb", first), 0o700))
	startNode(t, w.config())
	t.Cleanup(func() { requireClean(t, w) })
	away := func(is bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.down = is
	}
	told := func(id string) func() bool {
		return func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return slices.ContainsFunc(w.cleaned, func(c workspace.Cleaned) bool {
				return !c.At.IsZero() && slices.Contains(c.Items, workspace.CleanedItem{Kind: "directory", ID: id})
			})
		}
	}
	require.Eventually(t, told(first), 60*time.Second, 10*time.Millisecond)
	away(true)
	dir := filepath.Join(machine.RunDir, "sb", later)
	require.NoError(t, os.MkdirAll(dir, 0o700))
	require.Eventually(t, func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) }, 60*time.Second, 10*time.Millisecond)
	require.False(t, told(later)())
	away(false)
	require.Eventually(t, told(later), 60*time.Second, 10*time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	times := 0
	for _, c := range w.cleaned {
		for _, i := range c.Items {
			if i.ID == first {
				times++
			}
		}
	}
	require.Equal(t, 1, times, "it is told once")
}
