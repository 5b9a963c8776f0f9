package secrets_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets"
)

func ask[Rep any](f *fixture, c *mesh.Conn, ws, op string, req any) (Rep, error) {
	subject, err := schemas.Req("acme", ws, c.Name(), schemas.Secrets, op)
	require.NoError(f.t, err)
	ctx, cancel := context.WithTimeout(f.ctx, 20*time.Second)
	defer cancel()
	return mesh.Request[Rep](ctx, c, subject, req)
}

func askInt[Rep any](f *fixture, c *mesh.Conn, op string, req any) (Rep, error) {
	subject, err := schemas.Int(c.Name(), schemas.Secrets, op)
	require.NoError(f.t, err)
	ctx, cancel := context.WithTimeout(f.ctx, 20*time.Second)
	defer cancel()
	return mesh.Request[Rep](ctx, c, subject, req)
}

// TestOnTheMesh goes the whole way as the roles that go it: a user stores and grants, a node is issued,
// renews and revokes, the manager deletes; and an agent in a sandbox gets nothing by asking.
func TestOnTheMesh(t *testing.T) {
	f := start(t)
	f.serveManager()
	cfg := secrets.Config{Vault: f.vault}.OnMesh(f.conn) // with the real way to ask who holds an attempt
	s, err := secrets.New(cfg)
	require.NoError(t, err)
	stop, err := s.Serve(f.conn)
	require.NoError(t, err)
	t.Cleanup(stop)
	user, node, manager := f.mesh.User("acme", "alice"), f.mesh.Node("n1"), f.mesh.Service(schemas.WorkspaceManager)

	secret, err := ask[wire.Secret](f, user, "demo", wire.OpPut, wire.PutRequest{Name: "report-key", Kind: wire.KindTransit})
	require.NoError(t, err)
	require.Equal(t, wire.KindTransit, secret.Kind)
	_, err = ask[wire.Secret](f, user, "demo", wire.OpPut, wire.PutRequest{Name: "db", Value: "hunter2"})
	require.NoError(t, err)
	list, err := ask[workspace.Page[wire.Secret]](f, user, "demo", wire.OpList, workspace.List{})
	require.NoError(t, err)
	require.Len(t, list.Items, 2)
	grant, err := ask[wire.Grant](f, user, "demo", wire.OpGrant, wire.GrantRequest{Secret: "report-key", Agent: "reviewer", As: []string{wire.AsVault}})
	require.NoError(t, err)
	require.Equal(t, "alice", grant.GrantedBy)
	_, err = ask[wire.Secret](f, user, "-", wire.OpPut, wire.PutRequest{Name: "x", Value: "hunter2"})
	requireCode(t, fault.Invalid, err)

	ref := f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})
	rep, err := askInt[wire.IssueReply](f, node, wire.OpIssue, request(ref))
	require.NoError(t, err)
	issued, err := unseal(f.node, rep)
	require.NoError(t, err)
	signature, err := f.sign(issued.VaultToken)
	require.NoError(t, err)
	valid, err := ask[wire.VerifyReply](f, user, "demo", wire.OpVerify, wire.VerifyRequest{Name: "report-key", Data: []byte("report"), Signature: signature})
	require.NoError(t, err)
	require.True(t, valid.Valid)
	renewed, err := askInt[wire.RenewReply](f, node, wire.OpRenew, wire.RenewRequest{Leases: []wire.LeaseRef{ref}})
	require.NoError(t, err)
	require.Empty(t, renewed.Results[0].Code, renewed.Results[0].Message)

	_, err = askInt[wire.IssueReply](f, f.mesh.Node("n2"), wire.OpIssue, request(ref))
	requireCode(t, fault.Conflict, err)
	_, err = askInt[wire.RevokeReply](f, f.mesh.Node("n2"), wire.OpRevoke, wire.RevokeRequest{LeaseRef: ref})
	requireCode(t, fault.Denied, err)
	_, err = askInt[workspace.Empty](f, node, wire.OpDeleteWorkspace, wire.DeleteWorkspace{Tenant: "acme"})
	requireCode(t, fault.Denied, err)

	agent := f.mesh.Agent("acme", "demo", "analyst", schemas.NewID())
	for op, req := range map[string]any{
		wire.OpPut: wire.PutRequest{Name: "x", Value: "y"}, wire.OpList: workspace.List{}, wire.OpDelete: workspace.Name{Name: "db"},
		wire.OpGrant: wire.GrantRequest{Secret: "db", Agent: "analyst", As: []string{wire.AsFile}}, wire.OpGrantList: workspace.List{}, wire.OpGrantRevoke: workspace.ID{ID: grant.ID},
		wire.OpLeaseList: workspace.List{}, wire.OpLeaseRevoke: workspace.ID{ID: ref.Sandbox}, wire.OpVerify: wire.VerifyRequest{Name: "report-key"},
	} {
		_, err := ask[workspace.Empty](f, agent, "demo", op, req)
		requireCode(t, fault.Denied, err)
	}

	leases, err := ask[workspace.Page[wire.Lease]](f, user, "demo", wire.OpLeaseList, workspace.List{})
	require.NoError(t, err)
	require.Len(t, leases.Items, 1)
	ended, err := ask[wire.RevokeReply](f, user, "demo", wire.OpLeaseRevoke, workspace.ID{ID: ref.Sandbox})
	require.NoError(t, err)
	require.Equal(t, 1, ended.Leases)
	f.requireDead(issued.VaultToken)
	require.Equal(t, "operator alice", f.lease(ref).Reason)
	again, err := askInt[wire.RevokeReply](f, node, wire.OpRevoke, wire.RevokeRequest{LeaseRef: ref})
	require.NoError(t, err)
	require.Zero(t, again.Leases)
	taken, err := ask[wire.RevokeReply](f, user, "demo", wire.OpGrantRevoke, workspace.ID{ID: grant.ID})
	require.NoError(t, err)
	require.Zero(t, taken.Leases)
	_, err = ask[workspace.Empty](f, user, "demo", wire.OpDelete, workspace.Name{Name: "db"})
	require.NoError(t, err)
	_, err = askInt[workspace.Empty](f, manager, wire.OpDeleteWorkspace, wire.DeleteWorkspace{Tenant: "acme", Workspace: "demo"})
	require.NoError(t, err)
	f.requireNothingLeft()

	actions := map[string]bool{}
	for _, e := range f.audited("acme") {
		actions[e.Action] = true
	}
	for _, a := range []string{wire.AuditPut, wire.AuditDelete, wire.AuditGrant, wire.AuditGrantRevoke, wire.AuditIssue, wire.AuditRevoke} {
		require.True(t, actions[a], a)
	}
}
