// Package meshtest gives tests a real embedded nats-server in operator mode with the mesh's accounts,
// streams and buckets, and connections as any role.
package meshtest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/mesh/bus"
	"github.com/weftmesh/weft/pkg/mesh/provision"
)

// Mesh is a running bus with its keys.
type Mesh struct {
	Keys    *accounts.Keyring
	Bus     *bus.Server
	Dir     string
	Tenants map[string]*accounts.Tenant
	t       testing.TB
}

// Start runs a mesh with the tenants named, until the test ends. Writes are not fsynced.
func Start(t testing.TB, tenants ...string) *Mesh {
	t.Helper()
	return start(t, t.TempDir(), true, tenants)
}

// StartDurable is Start with every write fsynced, in dir, so that a second start finds the first one's data.
func StartDurable(t testing.TB, dir string, tenants ...string) *Mesh {
	t.Helper()
	return start(t, dir, false, tenants)
}

func start(t testing.TB, dir string, noSync bool, tenants []string) *Mesh {
	t.Helper()
	keys, err := accounts.OpenKeyring(dir + "/keys")
	require.NoError(t, err)
	m := &Mesh{Keys: keys, Dir: dir, Tenants: map[string]*accounts.Tenant{}, t: t}
	for _, n := range tenants {
		m.Tenants[n], err = keys.AddTenant(n)
		require.NoError(t, err)
	}
	m.Bus, err = bus.Start(Context(t), keys, bus.Config{Dir: dir + "/nats", Listen: "127.0.0.1:0", NoSync: noSync, Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	t.Cleanup(m.Bus.Stop)
	admin := m.Service(accounts.RoleAdmin)
	require.NoError(t, provision.All(Context(t), admin.JetStream(), 1))
	for _, n := range tenants {
		require.NoError(t, provision.Apply(Context(t), admin.JetStream(), provision.Tenant(n, 1)))
	}
	return m
}

// Service connects as one of WEFT's roles.
func (m *Mesh) Service(role string) *mesh.Conn {
	m.t.Helper()
	return m.connect(role, "", func() (accounts.Credentials, error) { return m.Keys.Service(role) })
}

// Node connects as a node of pool "default".
func (m *Mesh) Node(name string) *mesh.Conn {
	m.t.Helper()
	return m.connectWith(mesh.Options{Name: name, JetStream: accounts.NodeAPI,
		Credentials: func() (accounts.Credentials, error) { return m.Keys.Node(name, "default") }})
}

// User connects as a tenant's user.
func (m *Mesh) User(tenant, principal string) *mesh.Conn {
	m.t.Helper()
	return m.connect(principal, "", func() (accounts.Credentials, error) { return m.Keys.User(tenant, principal, time.Hour) })
}

// Agent connects as a sandbox of an agent would, with the permissions of its role.
func (m *Mesh) Agent(tenant, workspace, principal, sandbox string) *mesh.Conn {
	m.t.Helper()
	tn := m.Tenants[tenant]
	minter, err := accounts.NewMinter(tn.Account, tn.AgentSeed)
	require.NoError(m.t, err)
	return m.connect(principal, accounts.SandboxInboxPrefix(principal, sandbox), func() (accounts.Credentials, error) {
		return accounts.NewAgent(minter, workspace, principal, sandbox)
	})
}

func (m *Mesh) connect(name, inbox string, creds func() (accounts.Credentials, error)) *mesh.Conn {
	m.t.Helper()
	return m.connectWith(mesh.Options{Name: name, InboxPrefix: inbox, Credentials: creds})
}

func (m *Mesh) connectWith(o mesh.Options) *mesh.Conn {
	m.t.Helper()
	o.URL = m.Bus.URL()
	c, err := mesh.Connect(Context(m.t), o)
	require.NoError(m.t, err)
	m.t.Cleanup(c.Close)
	return c
}

// Context ends with the test, after 30 seconds at the latest.
func Context(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}
