package manager

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

// TestABurstGoesOnToOtherNodes: a member counts as taken when its node is chosen, before the node says so.
func TestABurstGoesOnToOtherNodes(t *testing.T) {
	ref := workspace.PoolRef{Tenant: "acme", Workspace: "demo", Name: "base"}
	ns := newNodeSet(&Service{cfg: Config{Now: time.Now, NodeTimeout: time.Hour}})
	for name, ready := range map[string]int{"n1": 0, "n2": 2, "n3": 1} {
		n := ns.of(name)
		n.heard, n.beat = time.Now(), workspace.Heartbeat{Slots: 9, Pools: []workspace.PoolState{{PoolRef: ref, Ready: ready}}}
	}
	ns.of("n1").beat.Slots = 20
	var got []string
	for range 5 {
		got = append(got, ns.emptiest("", "", ref))
	}
	require.Equal(t, []string{"n2", "n2", "n3", "n1", "n1"}, got)
	require.Equal(t, "n1", ns.emptiest("", "", workspace.PoolRef{Tenant: "other", Workspace: "demo", Name: "base"}))
	require.Equal(t, "n3", ns.emptiest("n3", "", ref))
}
