package manager_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

// A snapshot becomes a template of its tenant alone, is used on the node that has it, and is removed when nothing names it.
func TestSnapshotsBecomeTemplates(t *testing.T) {
	b := newBed(t, func(c *manager.Config) { c.KeepSnapshot = 200 * time.Millisecond })
	n := newBoxNode(b)
	var mu sync.Mutex
	var made, removed []string
	s, err := n.c.ServeNode("n1",
		mesh.Op(runtime.OpSandboxSnapshot, wait, func(_ context.Context, _ mesh.Caller, r runtime.SandboxSnapshot) (runtime.Snapshot, error) {
			mu.Lock()
			defer mu.Unlock()
			made = append(made, r.Image)
			return runtime.Snapshot{Image: r.Image}, nil
		}),
		mesh.Op(runtime.OpSnapshotRemove, wait, func(_ context.Context, _ mesh.Caller, r runtime.SnapshotRef) (workspace.Empty, error) {
			mu.Lock()
			defer mu.Unlock()
			removed = append(removed, r.Image)
			return workspace.Empty{}, nil
		}))
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	gone := func(image string) bool {
		mu.Lock()
		defer mu.Unlock()
		for _, i := range removed {
			if i == image {
				return true
			}
		}
		return false
	}
	base := workspace.Template{Name: "roomy", Image: "base", Env: map[string]string{"A": "b"}, Isolation: workspace.Isolation{WritableRoot: true}}
	put := func(c *mesh.Conn, tenant string, tpl workspace.Template) (workspace.Template, error) {
		return ask[workspace.Template](b.ctx(), c, tenant, "demo", workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: tpl})
	}
	_, err = put(b.user, "acme", base)
	require.NoError(t, err)
	box := must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "roomy"})
	refused[workspace.Template](b, fault.Invalid, b.user, "acme", "demo", workspace.OpSandboxSnapshot, workspace.SandboxSnapshot{ID: box.ID, Template: "No name"})
	refused[workspace.Template](b, fault.NotFound, b.user, "acme", "demo", workspace.OpSandboxSnapshot, workspace.SandboxSnapshot{ID: schemas.NewID(), Template: "x"})
	tpl := must[workspace.Template](b, b.user, "acme", "demo", workspace.OpSandboxSnapshot, workspace.SandboxSnapshot{ID: box.ID, Template: "mine"})
	require.True(t, strings.HasPrefix(tpl.Image, "weft.snapshot/acme/n1/"), tpl.Image)
	require.Equal(t, []string{"mine", "b"}, []string{tpl.Name, tpl.Env["A"]})
	require.True(t, tpl.WritableRoot)
	n.set(func(hb *workspace.Heartbeat) {
		hb.Snapshots = []workspace.SnapshotImage{{Image: tpl.Image, CreatedAt: time.Now().Add(-time.Hour)}, {Image: "weft.snapshot/acme/n1/orphan", CreatedAt: time.Now().Add(-time.Hour)},
			{Image: "weft.snapshot/acme/n1/fresh", CreatedAt: time.Now().Add(time.Hour)}}
	})

	// Nobody else's: not by a template of another tenant, nor of the operator's, nor in what nodes show.
	b.tenant("umbrella", workspace.Quota{})
	eve := b.m.User("umbrella", "eve")
	b.define(eve, "umbrella", "demo")
	_, err = put(eve, "umbrella", workspace.Template{Name: "stolen", Image: tpl.Image})
	require.True(t, fault.Is(err, fault.Denied), "%v", err)
	for _, node := range must[workspace.Page[workspace.NodeRecord]](b, eve, "umbrella", "demo", workspace.OpNodeList, workspace.List{}).Items {
		require.Empty(t, node.Snapshots)
	}

	// It is only on n1, which has to have room.
	other := b.node("n2", 4, exit0)
	n.set(func(hb *workspace.Heartbeat) { hb.Slots = 1 })
	refused[workspace.Sandbox](b, fault.Exhausted, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "mine"})
	n.set(func(hb *workspace.Heartbeat) { hb.Slots = 8 })
	use := must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "mine"})
	require.Equal(t, "n1", use.Node)
	other.stop()

	require.Eventually(t, func() bool { return gone("weft.snapshot/acme/n1/orphan") }, patient, 10*time.Millisecond)
	must[workspace.Empty](b, b.user, "acme", "demo", workspace.OpTemplateDelete, workspace.Name{Name: "mine"})
	b.never(500*time.Millisecond, func() bool { return gone(tpl.Image) || gone("weft.snapshot/acme/n1/fresh") })
	must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxKill, workspace.ID{ID: use.ID})
	require.Eventually(t, func() bool { return gone(tpl.Image) }, patient, 10*time.Millisecond)
}
