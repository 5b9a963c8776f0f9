package secrets_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets"
)

func TestSecretsOfAWorkspace(t *testing.T) {
	f := start(t)
	f.putKV(alice, "db", "hunter2")
	f.putKV(alice, "db", "hunter3")
	f.putKey(alice, "key")
	f.putKey(alice, "key")
	for _, n := range []string{"a", "c", "e"} {
		f.putKV(alice, n, "some value")
	}
	f.putKV(mesh.Caller{Tenant: "acme", Workspace: "other", Principal: "alice"}, "elsewhere", "x1234")
	f.putKV(bob, "foreign", "x1234")

	all, err := f.List(f.ctx, alice, workspace.List{})
	require.NoError(t, err)
	require.Empty(t, all.Cursor)
	require.Len(t, all.Items, 5)
	require.Equal(t, "db", all.Items[2].Name)
	require.Equal(t, 2, all.Items[2].Version)
	require.Equal(t, wire.KindTransit, all.Items[4].Kind)

	var names []string
	for cursor := ""; ; {
		page, err := f.List(f.ctx, alice, workspace.List{Limit: 2, Cursor: cursor})
		require.NoError(t, err)
		for _, i := range page.Items {
			names = append(names, i.Name)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	require.Equal(t, []string{"a", "c", "db", "e", "key"}, names)

	for _, n := range names {
		_, err := f.Delete(f.ctx, alice, workspace.Name{Name: n})
		require.NoError(t, err)
	}
	all, err = f.List(f.ctx, alice, workspace.List{})
	require.NoError(t, err)
	require.Equal(t, []wire.Secret{}, all.Items)
	_, err = f.Delete(f.ctx, alice, workspace.Name{Name: "db"})
	requireCode(t, fault.NotFound, err)
	require.ErrorContains(t, err, "weft secret put db")
	theirs, err := f.List(f.ctx, bob, workspace.List{})
	require.NoError(t, err)
	require.Len(t, theirs.Items, 1)
}

func TestBadPuts(t *testing.T) {
	f := start(t)
	f.putKV(alice, "db", "hunter2")
	for what, c := range map[string]struct {
		by   mesh.Caller
		req  wire.PutRequest
		code fault.Code
		say  string
	}{
		"no workspace":     {mesh.Caller{Tenant: "acme", Workspace: "-", Principal: "alice"}, wire.PutRequest{Name: "x", Value: "y"}, fault.Invalid, "belong to a workspace"},
		"name":             {alice, wire.PutRequest{Name: "../x", Value: "y"}, fault.Invalid, "DNS label"},
		"no name":          {alice, wire.PutRequest{Value: "y"}, fault.Invalid, "DNS label"},
		"no value":         {alice, wire.PutRequest{Name: "x"}, fault.Invalid, "must not be empty"},
		"large":            {alice, wire.PutRequest{Name: "x", Value: strings.Repeat("a", wire.MaxValue+1)}, fault.Invalid, "65536"},
		"kind":             {alice, wire.PutRequest{Name: "x", Kind: "pki", Value: "y"}, fault.Invalid, "kind"},
		"value of key":     {alice, wire.PutRequest{Name: "x", Kind: wire.KindTransit, Value: "y"}, fault.Invalid, "takes no value"},
		"key type":         {alice, wire.PutRequest{Name: "x", Kind: wire.KindTransit, KeyType: "rot13"}, fault.Invalid, "ed25519"},
		"key type of kv":   {alice, wire.PutRequest{Name: "x", Value: "y", KeyType: "ed25519"}, fault.Invalid, "key_type"},
		"key over a value": {alice, wire.PutRequest{Name: "db", Kind: wire.KindTransit}, fault.Conflict, "weft secret rm db"},
	} {
		_, err := f.Put(f.ctx, c.by, c.req)
		requireCode(t, c.code, err)
		require.ErrorContains(t, err, c.say, what)
	}
	_, err := f.List(f.ctx, alice, workspace.List{Limit: 1001})
	requireCode(t, fault.Invalid, err)
}

func TestGrants(t *testing.T) {
	f := start(t)
	f.putKV(alice, "db", "hunter2")
	f.putKey(alice, "key")
	for what, c := range map[string]struct {
		req  wire.GrantRequest
		code fault.Code
		say  string
	}{
		"missing secret": {wire.GrantRequest{Secret: "nope", Agent: "a", As: []string{"file"}}, fault.NotFound, "weft secret put nope"},
		"no way":         {wire.GrantRequest{Secret: "db", Agent: "a"}, fault.Invalid, "file, env or vault"},
		"unknown way":    {wire.GrantRequest{Secret: "db", Agent: "a", As: []string{"stdin"}}, fault.Invalid, "stdin"},
		"agent":          {wire.GrantRequest{Secret: "db", Agent: "A*", As: []string{"file"}}, fault.Invalid, "agent"},
		"key as file":    {wire.GrantRequest{Secret: "key", Agent: "a", As: []string{"file", "vault"}}, fault.Invalid, "never leaves Vault"},
		"short ttl":      {wire.GrantRequest{Secret: "db", Agent: "a", As: []string{"file"}, TTLMS: 10}, fault.Invalid, "ttl_ms"},
		"long ttl":       {wire.GrantRequest{Secret: "db", Agent: "a", As: []string{"file"}, TTLMS: 1e12}, fault.Invalid, "ttl_ms"},
	} {
		_, err := f.Grant(f.ctx, alice, c.req)
		requireCode(t, c.code, err)
		require.ErrorContains(t, err, c.say, what)
	}
	g := f.grant(alice, "db", "writer", "file", "env", "file")
	require.Equal(t, secrets.GrantID("acme", "demo", "db", "writer"), g.ID)
	require.Equal(t, []string{"env", "file"}, g.As)
	require.Equal(t, "alice", g.GrantedBy)
	again := f.grant(alice, "db", "writer", "env", "file")
	require.Equal(t, g, again, "the same grant changes nothing")
	f.grant(alice, "db", "writer2", "file")
	f.grant(alice, "key", "reviewer", "vault")
	f.putKV(bob, "db", "hunter2")
	f.grant(bob, "db", "writer", "file")

	page, err := f.GrantList(f.ctx, alice, workspace.List{Limit: 2})
	require.NoError(t, err)
	require.Len(t, page.Items, 2)
	require.Equal(t, "writer", page.Items[0].Agent)
	page, err = f.GrantList(f.ctx, alice, workspace.List{Cursor: page.Cursor})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.Equal(t, "key", page.Items[0].Secret)

	_, err = f.GrantRevoke(f.ctx, alice, workspace.ID{ID: g.ID})
	require.NoError(t, err)
	_, err = f.GrantRevoke(f.ctx, alice, workspace.ID{ID: g.ID})
	requireCode(t, fault.NotFound, err)
	_, err = f.GrantRevoke(f.ctx, alice, workspace.ID{ID: "x"})
	requireCode(t, fault.Invalid, err)
	_, err = f.GrantRevoke(f.ctx, alice, workspace.ID{ID: secrets.GrantID("globex", "demo", "db", "writer")})
	requireCode(t, fault.NotFound, err)
	page, err = f.GrantList(f.ctx, bob, workspace.List{})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
}

func TestVerify(t *testing.T) {
	f := start(t)
	_, issued := f.signing()
	signature, err := f.sign(issued.VaultToken)
	require.NoError(t, err)
	ok, err := f.Verify(f.ctx, alice, wire.VerifyRequest{Name: "report-key", Data: []byte("report"), Signature: signature})
	require.NoError(t, err)
	require.True(t, ok.Valid)
	for _, bad := range []wire.VerifyRequest{
		{Name: "report-key", Data: []byte("tampered"), Signature: signature},
		{Name: "report-key", Data: []byte("report"), Signature: "vault:v1:AAAA"},
		{Name: "report-key", Data: []byte("report")},
	} {
		ok, err = f.Verify(f.ctx, alice, bad)
		require.NoError(t, err)
		require.False(t, ok.Valid)
	}
	f.putKV(alice, "db", "hunter2")
	_, err = f.Verify(f.ctx, alice, wire.VerifyRequest{Name: "db"})
	requireCode(t, fault.Invalid, err)
	_, err = f.Verify(f.ctx, bob, wire.VerifyRequest{Name: "report-key", Data: []byte("report"), Signature: signature})
	requireCode(t, fault.NotFound, err)
}

func TestDeletingASecretEndsItsGrantsAndLeases(t *testing.T) {
	f := start(t)
	ref, issued := f.signing()
	_, err := f.Delete(f.ctx, alice, workspace.Name{Name: "report-key"})
	require.NoError(t, err)
	f.requireDead(issued.VaultToken)
	require.Equal(t, wire.ReasonGrantRevoked, f.lease(ref).Reason)
	// A later secret of the same name is not granted by what was.
	f.putKey(alice, "report-key")
	_, err = f.Issue(f.ctx, n1, request(f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})))
	requireCode(t, fault.Denied, err)
}

func TestDeletingAWorkspaceAndATenant(t *testing.T) {
	f := start(t)
	for range 2 {
		ref, issued := f.signing()
		f.putKV(alice, "db", "hunter2")
		f.putKV(bob, "db", "hunter2")
		f.grant(bob, "db", "reader", wire.AsFile)
		theirs := f.runIn("globex", "reader", workspace.SecretUse{Name: "db", As: wire.AsFile})
		f.issue(theirs)

		for _, by := range []mesh.Caller{n1, {Principal: "filesystem"}} {
			_, err := f.DeleteWorkspace(f.ctx, by, wire.DeleteWorkspace{Tenant: "acme", Workspace: "demo"})
			requireCode(t, fault.Denied, err)
		}
		for range 2 { // repeating is harmless
			_, err := f.DeleteWorkspace(f.ctx, mgr, wire.DeleteWorkspace{Tenant: "acme", Workspace: "demo"})
			require.NoError(t, err)
		}
		f.requireDead(issued.VaultToken)
		_, err := f.leases.List(f.ctx, "acme", "demo")
		require.NoError(t, err)
		page, err := f.LeaseList(f.ctx, alice, workspace.List{})
		require.NoError(t, err)
		require.Empty(t, page.Items)
		grants, err := f.GrantList(f.ctx, alice, workspace.List{})
		require.NoError(t, err)
		require.Empty(t, grants.Items)
		list, err := f.List(f.ctx, alice, workspace.List{})
		require.NoError(t, err)
		require.Empty(t, list.Items)
		require.Equal(t, wire.LeaseActive, f.lease(theirs).State)
		_ = ref

		_, err = f.DeleteWorkspace(f.ctx, mgr, wire.DeleteWorkspace{Tenant: "globex"})
		require.NoError(t, err)
		f.requireNothingLeft()
	}
	_, err := f.DeleteWorkspace(f.ctx, mgr, wire.DeleteWorkspace{Tenant: "*"})
	requireCode(t, fault.Invalid, err)
	_, err = f.DeleteWorkspace(f.ctx, mgr, wire.DeleteWorkspace{Tenant: "acme", Workspace: "*"})
	requireCode(t, fault.Invalid, err)
}

// full is a Vault whose workspaces have as many secrets as they may.
type full struct{ secrets.Vault }

func (full) List(context.Context, string, string) ([]string, error) {
	names := make([]string, wire.MaxSecrets)
	for i := range names {
		names[i] = fmt.Sprintf("s%04d", i)
	}
	return names, nil
}

func TestAWorkspaceMayBeFull(t *testing.T) {
	f := start(t, func(c *secrets.Config) { c.Vault = full{c.Vault} })
	_, err := f.Put(f.ctx, alice, wire.PutRequest{Name: "another", Value: "hunter2"})
	requireCode(t, fault.Exhausted, err)
	f.putKV(alice, "s0000", "hunter2")
}
