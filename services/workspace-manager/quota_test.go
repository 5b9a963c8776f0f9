package manager_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

// TestTheQuotaOfSandboxes: exactly so many as the quota says are given, also to many who ask at once; what ended makes
// room at once; and a manager that starts again knows all of it.
func TestTheQuotaOfSandboxes(t *testing.T) {
	slow := func(c *manager.Config) { c.NodeTimeout, c.ClaimLease = 10*time.Minute, 10*time.Minute }
	b := newBed(t, slow)
	n := newBoxNode(b)
	b.tenant("acme", workspace.Quota{Sandboxes: 5})
	create := func() (workspace.Sandbox, error) {
		return ask[workspace.Sandbox](b.ctx(), b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base"})
	}
	var ids []string
	full := func() {
		t.Helper()
		_, err := create()
		require.True(t, fault.Is(err, fault.Exhausted), "%v", err)
		require.ErrorContains(t, err, "has 5 sandboxes, its quota")
	}
	for range 5 {
		box, err := create()
		require.NoError(t, err)
		ids = append(ids, box.ID)
	}
	full()
	for round := range 3 {
		for _, id := range ids[:2] {
			must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxKill, workspace.ID{ID: id})
			box, err := create()
			require.NoError(t, err, "what was ended makes room")
			ids = append(ids[1:], box.ID)
		}
		full()
		if round == 1 {
			b.stop()
			b.s, b.stop = b.run("m1", slow)
			full()
			require.Eventually(t, func() bool { return n.beatOnce() == nil }, patient, 10*time.Millisecond)
		}
	}
	for _, id := range ids {
		must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxKill, workspace.ID{ID: id})
	}
	var given atomic.Int32
	var all sync.WaitGroup
	for range 5 {
		all.Go(func() {
			if _, err := create(); err == nil {
				given.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 5, given.Load())
	full()
}
