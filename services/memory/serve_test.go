package memory_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/services/memory"
)

// ask makes a request as principal of acme's workspace demo.
func ask[Rep any](t *testing.T, c *mesh.Conn, principal, op string, req any) (Rep, error) {
	t.Helper()
	subject, err := schemas.Req("acme", "demo", principal, schemas.Memory, op)
	require.NoError(t, err)
	return mesh.Request[Rep](meshtest.Context(t), c, subject, req)
}

// Every operation, over a real server, by a user and by an agent.
func TestServe(t *testing.T) {
	m := meshtest.Start(t, "acme")
	d := open(t, memory.Limits{})
	stop, err := d.Serve(m.Service(schemas.Memory))
	require.NoError(t, err)
	defer stop()
	user, agent := m.User("acme", "ann"), m.Agent("acme", "demo", "bob", schemas.NewID())

	added, err := ask[wire.AddReply](t, user, "ann", wire.OpAdd, wire.AddRequest{Key: "k", Text: "the gateway restarts at night"})
	require.NoError(t, err)
	require.Equal(t, "ann", added.Item.Source.Principal)
	replaced, err := ask[wire.SupersedeReply](t, agent, "bob", wire.OpSupersede, wire.SupersedeRequest{Key: "k", Text: "the gateway restarts at noon"})
	require.NoError(t, err)
	require.Equal(t, "bob", replaced.Item.Source.Principal)
	got, err := ask[wire.GetReply](t, agent, "bob", wire.OpGet, wire.GetRequest{Key: "k", AsOf: &added.Item.ValidFrom})
	require.NoError(t, err)
	require.Equal(t, added.Item.ID, got.Item.ID)
	found, err := ask[wire.SearchReply](t, user, "ann", wire.OpSearch, wire.SearchRequest{Query: "gateways restarting"})
	require.NoError(t, err)
	require.Len(t, found.Hits, 1)
	listed, err := ask[wire.ListReply](t, user, "ann", wire.OpList, wire.ListRequest{})
	require.NoError(t, err)
	require.Len(t, listed.Items, 1)
	history, err := ask[wire.HistoryReply](t, user, "ann", wire.OpHistory, wire.HistoryRequest{Key: "k"})
	require.NoError(t, err)
	require.Len(t, history.Items, 2)
	text, err := ask[wire.ContextReply](t, agent, "bob", wire.OpContext, wire.ContextRequest{Query: "gateway"})
	require.NoError(t, err)
	require.Len(t, text.Blocks, 1)
	gone, err := ask[wire.ForgetReply](t, user, "ann", wire.OpForget, wire.ForgetRequest{Filter: &wire.Filter{Key: "k"}})
	require.NoError(t, err)
	require.Equal(t, 2, gone.Count)
	_, err = ask[wire.GetReply](t, user, "ann", wire.OpGet, wire.GetRequest{Key: "k"})
	refused(t, err, fault.NotFound, `no valid item with key "k"`)
	_, err = ask[wire.AddReply](t, user, "ann", wire.OpAdd, map[string]any{"text": 7})
	refused(t, err, fault.Invalid, `"text"`)

	manager := m.Service(schemas.WorkspaceManager)
	for op, req := range map[string]any{
		wire.OpDeleteWorkspace: wire.DeleteWorkspaceRequest{Tenant: "acme", Workspace: "demo"},
		wire.OpDeleteTenant:    wire.DeleteTenantRequest{Tenant: "acme"},
	} {
		subject, err := schemas.Int(schemas.WorkspaceManager, schemas.Memory, op)
		require.NoError(t, err)
		_, err = mesh.Request[wire.DeleteReply](meshtest.Context(t), manager, subject, req)
		require.NoError(t, err)
	}
}
