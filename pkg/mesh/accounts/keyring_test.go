package accounts

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
)

func TestKeyringIsStableAndPrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	require.False(t, HasKeyring(dir))
	a, err := OpenKeyring(dir)
	require.NoError(t, err)
	require.True(t, HasKeyring(dir))
	tn, err := a.AddTenant("acme")
	require.NoError(t, err)
	b, err := OpenKeyring(dir)
	require.NoError(t, err)
	again, err := b.AddTenant("acme")
	require.NoError(t, err)
	require.Equal(t, tn.Account, again.Account)
	require.Equal(t, tn.AgentSeed, again.AgentSeed)
	require.NoError(t, filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		require.NoError(t, err)
		st, err := d.Info()
		require.NoError(t, err)
		require.Zero(t, st.Mode().Perm()&0o077, p)
		return nil
	}))
	names, err := b.Tenants()
	require.NoError(t, err)
	require.Equal(t, []string{"acme"}, names)
	require.NoError(t, b.RemoveTenant("acme"))
	_, err = b.User("acme", "alice", time.Hour)
	require.Equal(t, fault.NotFound, fault.CodeOf(err))
}

func TestNamesThatWouldWidenAreNeverMinted(t *testing.T) {
	k, err := OpenKeyring(t.TempDir())
	require.NoError(t, err)
	tn, err := k.AddTenant("acme")
	require.NoError(t, err)
	m, err := NewMinter(tn.Account, tn.AgentSeed)
	require.NoError(t, err)
	u, err := nkeys.CreateUser()
	require.NoError(t, err)
	pub, err := u.PublicKey()
	require.NoError(t, err)
	id := schemas.NewID()
	for _, bad := range []string{"*", ">", "a.b", "", "demo*", "a b", "{{name()}}"} {
		_, err = m.Agent(bad, "bob", id, pub, time.Minute)
		require.Equal(t, fault.Invalid, fault.CodeOf(err), "workspace %q", bad)
		_, err = m.Agent("demo", bad, id, pub, time.Minute)
		require.Equal(t, fault.Invalid, fault.CodeOf(err), "principal %q", bad)
		_, err = m.Agent("demo", "bob", bad, pub, time.Minute)
		require.Equal(t, fault.Invalid, fault.CodeOf(err), "sandbox %q", bad)
		_, err = m.Agent("demo", "bob", id, bad, time.Minute)
		require.Equal(t, fault.Invalid, fault.CodeOf(err), "user key %q", bad)
		_, err = k.User("acme", bad, time.Minute)
		require.Equal(t, fault.Invalid, fault.CodeOf(err), "user %q", bad)
		_, err = k.Node(bad, "default")
		require.Equal(t, fault.Invalid, fault.CodeOf(err), "node %q", bad)
		_, err = k.Node("n1", bad)
		require.Equal(t, fault.Invalid, fault.CodeOf(err), "pool %q", bad)
		_, err = k.AddTenant(bad)
		require.Equal(t, fault.Invalid, fault.CodeOf(err), "tenant %q", bad)
	}
	// A node may not take a service's name: it would speak as that service on the int plane.
	for _, reserved := range []string{schemas.Secrets, schemas.WorkspaceManager, schemas.Operator} {
		_, err = k.Node(reserved, "default")
		require.Equal(t, fault.Invalid, fault.CodeOf(err))
	}
}

func TestEveryUserIsScopedAndExpires(t *testing.T) {
	k, err := OpenKeyring(t.TempDir())
	require.NoError(t, err)
	_, err = k.AddTenant("acme")
	require.NoError(t, err)
	var creds []Credentials
	for _, r := range weftRoles() {
		c, err := k.Service(r.Name)
		require.NoError(t, err)
		creds = append(creds, c)
	}
	n, err := k.Node("n1", "default")
	require.NoError(t, err)
	u, err := k.User("acme", "alice", time.Hour)
	require.NoError(t, err)
	for _, c := range append(creds, n, u) {
		uc, err := jwt.DecodeUserClaims(c.JWT)
		require.NoError(t, err)
		require.True(t, uc.HasEmptyPermissions(), "%s: a scoped user carries no permissions of its own", c.Name)
		require.NotEmpty(t, uc.IssuerAccount, c.Name)
		require.NotZero(t, uc.Expires, c.Name)
	}
	f, err := u.File()
	require.NoError(t, err)
	back, err := ParseFile(f)
	require.NoError(t, err)
	require.Equal(t, u, back)
}
