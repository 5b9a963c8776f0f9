package manager_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

// TestASandboxWhoseManagerDied: what a manager that was killed has left in "creating" is gone on with by whoever asks
// under the same claim, and ended where nobody does and the node knows nothing of it.
func TestASandboxWhoseManagerDied(t *testing.T) {
	slow := func(c *manager.Config) { c.NodeTimeout, c.ClaimLease = 10*time.Minute, 10*time.Minute }
	b := newBed(t, slow)
	c := b.m.Node("n1")
	var mu sync.Mutex
	made := map[string]int{}
	creates(b, c, "n1", func(_ context.Context, s workspace.Sandbox) error {
		mu.Lock()
		defer mu.Unlock()
		made[s.Claim]++
		if s.Claim == "broken" {
			return fault.New(fault.Unavailable, "no image")
		}
		return nil
	})
	beat := func() {
		must[workspace.HeartbeatReply](b, c, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 90, DiskFree: 1 << 40})
	}
	beat()
	conn := b.m.Service(schemas.WorkspaceManager)
	boxes, claims := records.New[workspace.Sandbox](conn, workspace.EntitySandbox, 1), records.New[workspace.HeldClaim](conn, workspace.EntityClaim, 1)
	left := func(claim string, age time.Duration) string {
		box := workspace.Sandbox{ID: schemas.NewID(), Tenant: "acme", Workspace: "demo", Principal: "ann", Template: "base", Claim: claim, Generation: 1, Node: "n1",
			State: workspace.SandboxCreating, CreatedAt: time.Now().Add(-age).UTC(), Run: workspace.RunSpec{Image: "base", TTLMS: 3_600_000}}
		_, err := boxes.Create(b.ctx(), records.Key{Tenant: "acme", Workspace: "demo", ID: box.ID}, box.State, box)
		require.NoError(t, err)
		if claim != "" {
			_, err = claims.Create(b.ctx(), records.Key{Tenant: "acme", Workspace: "demo", ID: claim}, "held", workspace.HeldClaim{Name: claim, Template: "base", Sandbox: box.ID})
			require.NoError(t, err)
		}
		return box.ID
	}
	claim := func(name string) (workspace.Sandbox, error) {
		return ask[workspace.Sandbox](b.ctx(), b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base", Claim: name})
	}
	id := left("session", 3*time.Second)
	var all sync.WaitGroup
	got, errs := make([]workspace.Sandbox, 5), make([]error, 5)
	for i := range got {
		all.Go(func() { got[i], errs[i] = claim("session") })
	}
	all.Wait()
	for i := range got {
		require.NoError(t, errs[i])
		require.Equal(t, []string{id, workspace.SandboxRunning}, []string{got[i].ID, got[i].State})
	}
	require.Equal(t, []string{"creating", "running"}, b.events(workspace.EntitySandbox, id), "it became running once")

	// What can't be made is told, and the name is free again.
	left("broken", 3*time.Second)
	_, err := claim("broken")
	require.ErrorContains(t, err, "no image")
	_, err = claim("broken")
	require.ErrorContains(t, err, "no image")
	mu.Lock()
	require.GreaterOrEqual(t, made["broken"], 2)
	mu.Unlock()

	// One that was begun a moment ago may still be made by another replica; an old one of which the node knows nothing is not.
	young, old := left("", 0), left("", 20*time.Second)
	state := func(id string) string {
		return must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxGet, workspace.ID{ID: id}).State
	}
	require.Eventually(t, func() bool { beat(); return state(old) == workspace.SandboxStopped }, patient, 100*time.Millisecond)
	require.Equal(t, workspace.SandboxCreating, state(young))
}
