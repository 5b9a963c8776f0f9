package manager

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas/workspace"
)

func boxState(ws, id, state string, seq uint64) records.Record[workspace.Sandbox] {
	return records.Record[workspace.Sandbox]{Key: records.Key{Tenant: "acme", Workspace: ws, ID: id}, Sequence: seq, Event: state,
		Value: workspace.Sandbox{ID: id, Tenant: "acme", Workspace: ws, State: state}}
}

// TestTheLivingAreCounted: in whatever order states come, twice or late, the count is that of the newest ones.
func TestTheLivingAreCounted(t *testing.T) {
	v := newView(&Service{}, "acme")
	tb := v.sandboxes
	count := func(all, demo, prod int) {
		t.Helper()
		a, d := tb.living("demo")
		_, p := tb.living("prod")
		require.Equal(t, []int{all, demo, prod}, []int{a, d, p})
		require.Len(t, tb.inLife(), all)
	}
	count(0, 0, 0)
	tb.put(boxState("demo", "a", workspace.SandboxCreating, 1))
	tb.put(boxState("demo", "a", workspace.SandboxRunning, 3))
	tb.put(boxState("demo", "a", workspace.SandboxCreating, 1)) // the log comes round
	tb.put(boxState("prod", "b", workspace.SandboxPaused, 4))
	count(2, 1, 1)
	got, _ := tb.get(records.Key{Tenant: "acme", Workspace: "demo", ID: "a"})
	require.Equal(t, workspace.SandboxRunning, got.Value.State)
	tb.put(boxState("demo", "a", workspace.SandboxStopped, 5))
	tb.put(boxState("demo", "a", workspace.SandboxRunning, 3))
	tb.put(boxState("demo", "c", workspace.SandboxStopped, 6)) // one that ended before this process began
	count(1, 0, 1)
	require.Len(t, tb.in("*"), 3)
	tb.put(boxState("prod", "b", deleted, 7))
	tb.forget(records.Key{Tenant: "acme", Workspace: "demo", ID: "c"})
	tb.forget(records.Key{Tenant: "acme", Workspace: "demo", ID: "c"})
	count(0, 0, 0)
	require.Empty(t, tb.count)
}

// TestAWriterIsAheadOfTheLog: what a writer notes is there at once, and brings nothing back that was deleted since.
func TestAWriterIsAheadOfTheLog(t *testing.T) {
	v := newView(&Service{}, "acme")
	v.applied = 4
	v.sandbox(boxState("demo", "a", workspace.SandboxRunning, 5))
	all, _ := v.sandboxes.living("demo")
	require.Equal(t, 1, all)
	v.sandboxes.put(boxState("demo", "a", deleted, 6))
	v.applied = 6
	v.sandbox(boxState("demo", "a", workspace.SandboxRunning, 5))
	all, _ = v.sandboxes.living("demo")
	require.Zero(t, all)
}
