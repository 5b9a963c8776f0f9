package manager_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

// What is of a level that a node lacks goes to another that has it. Where none has, a sandbox is refused with a
// sentence, and an attempt is given to the node, which knows what is missing.
func TestALevelThatNotEveryNodeHas(t *testing.T) {
	b := newBed(t, func(c *manager.Config) { c.NodeTimeout, c.ClaimLease = time.Minute, time.Minute })
	n1, n2 := b.m.Node("n1"), b.m.Node("n2")
	creates(b, n1, "n1", func(context.Context, workspace.Sandbox) error { return nil })
	creates(b, n2, "n2", func(context.Context, workspace.Sandbox) error { return nil })
	beat := func(n string, slots int, levels ...string) {
		must[workspace.HeartbeatReply](b, b.m.Node(n), "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: slots, DiskFree: 1 << 40, Levels: levels})
	}
	create := workspace.SandboxCreate{Template: "base", Level: workspace.LevelHigh}
	claim := func(key string) workspace.Claim {
		id := b.submit(b.user, "acme", "demo", key, workspace.Submission{Agent: "worker", Level: workspace.LevelHigh})
		b.until(id, workspace.Queued)
		return workspace.Claim{QueueItem: workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: id, Attempt: 1}, Sandbox: schemas.NewID(), UserKey: userKey(t)}
	}

	beat("n1", 9, workspace.LevelStandard)
	err := refused[workspace.Sandbox](b, fault.Unavailable, b.user, "acme", "demo", workspace.OpSandboxCreate, create)
	require.ErrorContains(t, err, "make setup")
	must[workspace.ClaimReply](b, n1, "", "", workspace.OpClaim, claim("alone"))

	beat("n2", 2, workspace.LevelStandard, workspace.LevelHigh)
	require.Equal(t, "n2", must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxCreate, create).Node)
	require.Equal(t, "n1", must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base"}).Node)
	c := claim("shared")
	refused[workspace.ClaimReply](b, fault.Unavailable, n1, "", "", workspace.OpClaim, c)
	must[workspace.ClaimReply](b, n2, "", "", workspace.OpClaim, c)
}
