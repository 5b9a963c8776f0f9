package vault_test

import (
	"context"
	"encoding/base64"
	"net/http"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/secrets/bao"
	"github.com/weftmesh/weft/services/secrets/internal/baotest"
	"github.com/weftmesh/weft/services/secrets/internal/name"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

func TestMain(m *testing.M) { baotest.Main(m) }

func secret(tenant, workspace, n string) name.Secret {
	return name.Secret{Tenant: tenant, Workspace: workspace, Name: n}
}

// with gives an API client that acts with token.
func with(t *testing.T, s *bao.Server, token value.Value) *api.Logical {
	t.Helper()
	v, err := vault.Dial(s.Address(), "")
	require.NoError(t, err)
	t.Cleanup(func() { vault.Hang(v) })
	return vault.As(v, token).Logical()
}

func TestSecretsAreStoredListedAndRemoved(t *testing.T) {
	c := baotest.Client(t, baotest.Start(t))
	ctx := baotest.Context(t)
	db, key := secret("acme", "demo", "db"), secret("acme", "demo", "key")

	_, err := c.Describe(ctx, db)
	require.True(t, fault.Is(err, fault.NotFound), err)
	require.True(t, fault.Is(c.Remove(ctx, db), fault.NotFound))
	list, err := c.List(ctx, "acme", "demo")
	require.NoError(t, err)
	require.Empty(t, list)

	for want := 1; want <= 3; want++ {
		info, err := c.PutKV(ctx, db, value.Of("v"))
		require.NoError(t, err)
		require.Equal(t, want, info.Version)
		require.Equal(t, secrets.KindKV, info.Kind)
		require.WithinDuration(t, time.Now(), info.UpdatedAt, time.Minute)
	}
	for range 2 { // the second put keeps the key
		info, err := c.PutKey(ctx, key, "ed25519")
		require.NoError(t, err)
		require.Equal(t, vault.Info{Secret: secrets.Secret{Name: "key", Kind: secrets.KindTransit, Version: 1, UpdatedAt: info.UpdatedAt}, KeyType: "ed25519"}, info)
	}
	_, err = c.PutKV(ctx, key, value.Of("v"))
	require.True(t, fault.Is(err, fault.Conflict), err)
	_, err = c.PutKey(ctx, db, "ed25519")
	require.True(t, fault.Is(err, fault.Conflict), err)
	_, err = c.PutKey(ctx, key, "rsa-3072")
	require.True(t, fault.Is(err, fault.Conflict), err)

	list, err = c.List(ctx, "acme", "demo")
	require.NoError(t, err)
	require.Equal(t, []string{"db", "key"}, list)
	spaces, err := c.Workspaces(ctx, "acme")
	require.NoError(t, err)
	require.Equal(t, []string{"demo"}, spaces)

	require.NoError(t, c.Remove(ctx, db))
	require.NoError(t, c.Remove(ctx, key))
	list, err = c.List(ctx, "acme", "demo")
	require.NoError(t, err)
	require.Empty(t, list)
	// The name is free for the other kind.
	_, err = c.PutKV(ctx, key, value.Of("v"))
	require.NoError(t, err)
}

func TestARemovalThatWasCutOffIsFinished(t *testing.T) {
	s := baotest.Start(t)
	c := baotest.Client(t, s)
	ctx := baotest.Context(t)
	key := secret("acme", "demo", "key")
	_, err := c.PutKey(ctx, key, "ed25519")
	require.NoError(t, err)
	// Died after the key was deleted and before its metadata was.
	service, err := s.Login(ctx, nil)
	require.NoError(t, err)
	v := with(t, s, service)
	_, err = v.Write(key.Transit("keys")+"/config", map[string]any{"deletion_allowed": true})
	require.NoError(t, err)
	_, err = v.Delete(key.Transit("keys"))
	require.NoError(t, err)
	require.NoError(t, c.Remove(ctx, key))
	require.True(t, fault.Is(c.Remove(ctx, key), fault.NotFound))
}

// lease makes a token with access, in the two steps.
func lease(t *testing.T, c *vault.Client, policy string, ttl time.Duration, access ...vault.Access) vault.Token {
	t.Helper()
	ctx := baotest.Context(t)
	tok, err := c.Create(ctx, vault.TokenSpec{Policy: vault.LeasePrefix + policy, TTL: ttl, Meta: map[string]string{"sandbox": policy}})
	require.NoError(t, err)
	require.NoError(t, c.Empower(ctx, vault.LeasePrefix+policy, access))
	return tok
}

func requireDenied(t *testing.T, err error) {
	t.Helper()
	var re *api.ResponseError
	require.ErrorAs(t, err, &re)
	require.Equal(t, http.StatusForbidden, re.StatusCode, err)
}

func TestATokenMayDoNothingBeforeItIsEmpoweredAndAfterItIsRevoked(t *testing.T) {
	s := baotest.Start(t)
	c := baotest.Client(t, s)
	ctx := baotest.Context(t)
	key := secret("acme", "demo", "key")
	_, err := c.PutKey(ctx, key, "ed25519")
	require.NoError(t, err)
	policy := vault.LeasePrefix + "one"
	tok, err := c.Create(ctx, vault.TokenSpec{Policy: policy, TTL: time.Minute})
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(time.Minute), tok.ExpiresAt, 5*time.Second)
	v := with(t, s, tok.Value)
	input := map[string]any{"input": base64.StdEncoding.EncodeToString([]byte("report"))}
	_, err = v.Write(key.Transit("sign"), input)
	requireDenied(t, err)
	_, err = v.Read("auth/token/lookup-self")
	requireDenied(t, err) // not even the default policy

	access := []vault.Access{{Secret: key, Kind: secrets.KindTransit, KeyType: "ed25519"}}
	require.NoError(t, c.Empower(ctx, policy, access))
	signed, err := v.Write(key.Transit("sign"), input)
	require.NoError(t, err)
	ok, err := c.Verify(ctx, key, []byte("report"), signed.Data["signature"].(string))
	require.NoError(t, err)
	require.True(t, ok)
	for _, bad := range []string{"", "vault:v1:AAAA", "vault:v9:" + signed.Data["signature"].(string)[9:], "nonsense"} {
		ok, err = c.Verify(ctx, key, []byte("report"), bad)
		require.NoError(t, err)
		require.False(t, ok, bad)
	}
	ok, err = c.Verify(ctx, key, []byte("tampered"), signed.Data["signature"].(string))
	require.NoError(t, err)
	require.False(t, ok)

	policies, err := c.Policies(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{policy}, policies)
	require.NoError(t, c.Revoke(ctx, tok.Accessor, policy))
	_, err = v.Write(key.Transit("sign"), input)
	requireDenied(t, err)
	_, err = c.Lookup(ctx, tok.Accessor)
	require.True(t, fault.Is(err, fault.NotFound), err)
	_, err = c.Renew(ctx, tok.Accessor, time.Minute)
	require.True(t, fault.Is(err, fault.NotFound), err)
	require.NoError(t, c.Revoke(ctx, tok.Accessor, policy), "twice")
	require.NoError(t, c.Revoke(ctx, "", policy))
	policies, err = c.Policies(ctx)
	require.NoError(t, err)
	require.Empty(t, policies)
}

func TestALeaseReachesExactlyItsPaths(t *testing.T) {
	s := baotest.Start(t)
	c := baotest.Client(t, s)
	ctx := baotest.Context(t)
	mine, other := secret("acme", "demo", "db"), secret("acme", "demo", "db2")
	foreign := secret("acme-2", "demo", "db")
	key, otherKey := secret("acme", "demo", "key"), secret("acme", "demo", "key2")
	for _, k := range []name.Secret{mine, other, foreign} {
		_, err := c.PutKV(ctx, k, value.Of("value of "+k.Data()))
		require.NoError(t, err)
	}
	for _, k := range []name.Secret{key, otherKey} {
		_, err := c.PutKey(ctx, k, "ed25519")
		require.NoError(t, err)
	}
	tok := lease(t, c, "exact", time.Minute,
		vault.Access{Secret: mine, Kind: secrets.KindKV}, vault.Access{Secret: key, Kind: secrets.KindTransit, KeyType: "ed25519"})
	got, err := c.ReadKV(ctx, tok.Value, mine)
	require.NoError(t, err)
	require.Equal(t, "value of "+mine.Data(), got.Reveal())
	for _, k := range []name.Secret{other, foreign} {
		_, err = c.ReadKV(ctx, tok.Value, k)
		require.Error(t, err)
	}

	v := with(t, s, tok.Value)
	for _, path := range []string{other.Data(), foreign.Data(), mine.Metadata(), "weft-kv/metadata/acme", otherKey.Transit("keys"), "sys/policies/acl/weft-sbx-exact", "auth/token/lookup-self",
		"weft-kv/data/acme/demo/../demo/db2", "weft-kv/data/acme//demo/db2", key.Transit("export/signing-key"), key.Transit("backup")} {
		_, err := v.ReadWithContext(ctx, path)
		require.Error(t, err, path)
	}
	for _, path := range []string{"weft-kv/metadata/acme/demo", "weft-transit/keys", "auth/token/accessors"} {
		_, err := v.ListWithContext(ctx, path)
		requireDenied(t, err)
	}
	input := base64.StdEncoding.EncodeToString([]byte("x"))
	for _, path := range []string{otherKey.Transit("sign"), mine.Data(), "auth/token/create", "auth/token/create/" + vault.Role, "auth/token/renew-self", "auth/token/revoke-self",
		"sys/policies/acl/weft-sbx-exact", key.Transit("keys") + "/config", key.Transit("keys") + "/rotate", key.Transit("sign") + "/sha2-512"} {
		_, err := v.WriteWithContext(ctx, path, map[string]any{"input": input})
		requireDenied(t, err)
	}
	// The body can't name another key than the path.
	signed, err := v.WriteWithContext(ctx, key.Transit("sign"), map[string]any{"input": input, "name": otherKey.Key()})
	require.NoError(t, err)
	ok, err := c.Verify(ctx, otherKey, []byte("x"), signed.Data["signature"].(string))
	require.NoError(t, err)
	require.False(t, ok)
}

func TestALeaseEndsWithoutRenewalAndLivesWithIt(t *testing.T) {
	s := baotest.Start(t)
	c := baotest.Client(t, s)
	ctx := baotest.Context(t)
	db := secret("acme", "demo", "db")
	_, err := c.PutKV(ctx, db, value.Of("v"))
	require.NoError(t, err)
	access := vault.Access{Secret: db, Kind: secrets.KindKV}
	kept, left := lease(t, c, "kept", 2*time.Second, access), lease(t, c, "left", 2*time.Second, access)
	start := time.Now()
	require.Eventually(t, func() bool {
		_, err := c.Renew(ctx, kept.Accessor, 2*time.Second)
		require.NoError(t, err)
		_, err = c.ReadKV(ctx, left.Value, db)
		return err != nil
	}, 10*time.Second, 200*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(start), time.Second)
	_, err = c.Lookup(ctx, left.Accessor)
	require.True(t, fault.Is(err, fault.NotFound), err)
	h, err := c.Lookup(ctx, kept.Accessor)
	require.NoError(t, err)
	require.True(t, h.Ours)
	require.Equal(t, map[string]string{"sandbox": "kept"}, h.Meta)
	_, err = c.ReadKV(ctx, kept.Value, db)
	require.NoError(t, err)

	accessors, err := c.Accessors(ctx)
	require.NoError(t, err)
	require.Contains(t, accessors, kept.Accessor)
	require.NotContains(t, accessors, left.Accessor)
}

func TestRenewalStopsAtTheMaximum(t *testing.T) {
	s := baotest.Start(t)
	c := baotest.Client(t, s)
	ctx := baotest.Context(t)
	// The maximum is the role's; a short one makes it visible.
	_, err := baotest.Root(t, s).Logical().WriteWithContext(ctx, "auth/token/roles/"+vault.Role, map[string]any{"token_explicit_max_ttl": "5s"})
	require.NoError(t, err)
	tok, err := c.Create(ctx, vault.TokenSpec{Policy: vault.LeasePrefix + "max", TTL: 2 * time.Second})
	require.NoError(t, err)
	until, err := c.Renew(ctx, tok.Accessor, time.Hour)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(4*time.Second), until, 3*time.Second)

	require.NoError(t, vault.Provision(ctx, baotest.Root(t, s)))
	tok, err = c.Create(ctx, vault.TokenSpec{Policy: vault.LeasePrefix + "max", TTL: 2 * time.Second})
	require.NoError(t, err)
	until, err = c.Renew(ctx, tok.Accessor, 10*vault.MaxTTL)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(vault.MaxTTL), until, time.Minute)
}

func TestKilledVaultIsUnavailableAndComesBackWithItsLeases(t *testing.T) {
	s := baotest.Start(t)
	c := baotest.Client(t, s)
	ctx := baotest.Context(t)
	db := secret("acme", "demo", "db")
	_, err := c.PutKV(ctx, db, value.Of("v"))
	require.NoError(t, err)
	tok := lease(t, c, "kept", time.Minute, vault.Access{Secret: db, Kind: secrets.KindKV})
	require.NoError(t, syscall.Kill(s.Pid(), syscall.SIGKILL))
	var seen []fault.Code
	require.Eventually(t, func() bool {
		_, err := c.ReadKV(ctx, tok.Value, db)
		if err != nil {
			seen = append(seen, fault.CodeOf(err))
		}
		return err == nil
	}, 20*time.Second, 5*time.Millisecond)
	require.NotEmpty(t, seen)
	for _, code := range seen {
		require.Equal(t, fault.Unavailable, code)
	}
	_, err = c.Renew(ctx, tok.Accessor, time.Minute)
	require.NoError(t, err)
}

func TestAppRole(t *testing.T) {
	s := baotest.Start(t)
	admin := baotest.Root(t, s)
	ctx := baotest.Context(t)
	require.NoError(t, admin.Sys().EnableAuthWithOptionsWithContext(ctx, "approle", &api.EnableAuthOptions{Type: "approle"}))
	_, err := admin.Logical().WriteWithContext(ctx, "auth/approle/role/weft", map[string]any{"token_policies": vault.ServicePolicy, "token_ttl": "4s", "token_max_ttl": "5s"})
	require.NoError(t, err)
	role, err := admin.Logical().ReadWithContext(ctx, "auth/approle/role/weft/role-id")
	require.NoError(t, err)
	id, err := admin.Logical().WriteWithContext(ctx, "auth/approle/role/weft/secret-id", nil)
	require.NoError(t, err)
	auth := vault.AppRole{RoleID: role.Data["role_id"].(string), SecretID: value.Of(id.Data["secret_id"].(string))}

	c, err := vault.New(vault.Config{Address: s.Address(), Auth: auth, Logger: baotest.Logger(t)})
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.Ensure(ctx))
	db := secret("acme", "demo", "db")
	_, err = c.PutKV(ctx, db, value.Of("v"))
	require.NoError(t, err)
	tok := lease(t, c, "role", time.Minute, vault.Access{Secret: db, Kind: secrets.KindKV})
	// The service's own token ends after 5 s, whatever is done; the lease and the service go on.
	run, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); c.KeepAlive(run) }()
	begin := time.Now()
	require.Eventually(t, func() bool {
		require.NoError(t, c.Ready(ctx))
		return time.Since(begin) > 7*time.Second
	}, 20*time.Second, 100*time.Millisecond)
	cancel()
	<-done
	_, err = c.ReadKV(ctx, tok.Value, db)
	require.NoError(t, err)

	auth.SecretID = value.Of("wrong")
	w, err := vault.New(vault.Config{Address: s.Address(), Auth: auth})
	require.NoError(t, err)
	defer w.Close()
	err = w.Ready(ctx)
	require.True(t, fault.Is(err, fault.Unavailable), err)
	require.ErrorContains(t, err, "VAULT_SECRET_ID")
}

func TestAVaultThatLacksWhatWeftNeeds(t *testing.T) {
	s := baotest.Start(t)
	admin := baotest.Root(t, s)
	ctx := baotest.Context(t)
	require.NoError(t, admin.Sys().UnmountWithContext(ctx, name.TransitMount))
	service, err := s.Login(ctx, nil)
	require.NoError(t, err)
	c, err := vault.New(vault.Config{Address: s.Address(), Auth: vault.StaticToken(service)})
	require.NoError(t, err)
	defer c.Close()
	err = c.Ensure(ctx)
	require.True(t, fault.Is(err, fault.Unavailable), err)
	require.ErrorContains(t, err, "administrator's VAULT_TOKEN")

	a, err := vault.New(vault.Config{Address: s.Address(), Auth: vault.StaticToken(baotest.RootToken(t, s))})
	require.NoError(t, err)
	defer a.Close()
	require.NoError(t, admin.Sys().PutPolicyWithContext(ctx, vault.ServicePolicy, `path "x" { capabilities = ["read"] }`))
	require.True(t, fault.Is(c.Ensure(ctx), fault.Unavailable))
	require.NoError(t, a.Ensure(ctx), "an administrator's token makes it, also where it is out of date")
	require.NoError(t, c.Ensure(ctx))

	require.NoError(t, admin.Sys().UnmountWithContext(ctx, name.TransitMount))
	require.NoError(t, admin.Sys().MountWithContext(ctx, name.TransitMount, &api.MountInput{Type: "kv"}))
	require.True(t, fault.Is(vault.Provision(ctx, admin), fault.Conflict))
}

func TestNoVault(t *testing.T) {
	c, err := vault.New(vault.Config{Address: "unix:///nonexistent/vault.sock", Auth: vault.StaticToken(value.Of("s.x"))})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.List(baotest.Context(t), "acme", "demo")
	require.True(t, fault.Is(err, fault.Unavailable), err)
	require.True(t, fault.Is(c.Ensure(baotest.Context(t)), fault.Unavailable))

	none, err := vault.New(vault.Config{Address: "unix:///nonexistent/vault.sock", Auth: vault.StaticToken{}})
	require.NoError(t, err)
	require.ErrorContains(t, none.Ready(baotest.Context(t)), "VAULT_TOKEN")
	file, err := vault.New(vault.Config{Address: "unix:///nonexistent/vault.sock", Auth: vault.TokenFile("/nonexistent/token")})
	require.NoError(t, err)
	require.True(t, fault.Is(file.Ready(baotest.Context(t)), fault.Unavailable))
}

func TestPoliciesHaveNoWildcardForLeases(t *testing.T) {
	p := vault.LeasePolicy([]vault.Access{{Secret: secret("a", "b", "c"), Kind: secrets.KindKV}, {Secret: secret("a", "b", "k"), Kind: secrets.KindTransit, KeyType: "aes256-gcm96"}})
	require.JSONEq(t, `{"path":{
		"weft-kv/data/a/b/c":{"capabilities":["read"]},
		"weft-transit/decrypt/a.b.k":{"capabilities":["update"]},
		"weft-transit/encrypt/a.b.k":{"capabilities":["update"]},
		"weft-transit/keys/a.b.k":{"capabilities":["read"]}}}`, p)
	require.NotContains(t, p, "*")
	require.NotContains(t, p, "+")
	require.Equal(t, []string{"PUT /v1/weft-transit/sign/a.b.k", "POST /v1/weft-transit/sign/a.b.k", "PUT /v1/weft-transit/verify/a.b.k", "POST /v1/weft-transit/verify/a.b.k", "GET /v1/weft-transit/keys/a.b.k"},
		vault.Access{Secret: secret("a", "b", "k"), Kind: secrets.KindTransit, KeyType: "ed25519"}.Requests())
}
