package secrets_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/name"
)

func secretName(tenant, ws, n string) name.Secret {
	return name.Secret{Tenant: tenant, Workspace: ws, Name: n}
}

func (f *fixture) renewOne(by mesh.Caller, ref wire.LeaseRef) wire.RenewResult {
	f.t.Helper()
	r, err := f.Renew(f.ctx, by, wire.RenewRequest{Leases: []wire.LeaseRef{ref}})
	require.NoError(f.t, err)
	require.Len(f.t, r.Results, 1)
	return r.Results[0]
}

func shortTTL(c *secrets.Config) { c.TTL = 2 * time.Second }

func TestALeaseLivesWhileItIsRenewedAndNoLonger(t *testing.T) {
	f := start(t, shortTTL)
	ref, issued := f.signing()
	begin := time.Now()
	require.Eventually(t, func() bool {
		r := f.renewOne(n1, ref)
		require.Empty(t, r.Code, r.Message)
		require.WithinDuration(t, time.Now().Add(2*time.Second), r.ExpiresAt, 2*time.Second)
		_, err := f.sign(issued.VaultToken)
		require.NoError(t, err)
		return time.Since(begin) > 4*time.Second
	}, 20*time.Second, 300*time.Millisecond)

	require.Eventually(t, func() bool { _, err := f.sign(issued.VaultToken); return err != nil }, 10*time.Second, 50*time.Millisecond)
	f.requireDead(issued.VaultToken)
	page, err := f.LeaseList(f.ctx, alice, workspace.List{})
	require.NoError(t, err)
	require.Equal(t, wire.LeaseRevoked, page.Items[0].State)
	require.Equal(t, wire.ReasonExpired, page.Items[0].Reason)
	r := f.renewOne(n1, ref)
	require.Equal(t, string(fault.NotFound), r.Code)
	require.Equal(t, string(fault.NotFound), f.renewOne(n1, ref).Code)
	require.Equal(t, wire.ReasonExpired, f.lease(ref).Reason)

	// The attempt is still the node's: it may have a new one.
	_, err = f.sign(f.issue(ref).VaultToken)
	require.NoError(t, err)
	require.Empty(t, f.renewOne(n1, ref).Code)
}

func TestALostAttemptIsNotRenewedButRevoked(t *testing.T) {
	f := start(t)
	ref, issued := f.signing()
	f.manager.fail(fault.New(fault.Unavailable, "nobody answers"))
	require.Equal(t, string(fault.Unavailable), f.renewOne(n1, ref).Code)
	f.manager.fail(nil)
	_, err := f.sign(issued.VaultToken)
	require.NoError(t, err, "not knowing is no reason to revoke")

	f.manager.set(ref, func(a *workspace.AttemptReply) { a.Attempt, a.Node = 2, "n2" })
	r := f.renewOne(n1, ref)
	require.Equal(t, string(fault.Conflict), r.Code)
	require.Contains(t, r.Message, "does not hold")
	f.requireDead(issued.VaultToken)
	require.Equal(t, wire.ReasonNotHeld, f.lease(ref).Reason)
	f.requireNothingLeft()
	require.Equal(t, string(fault.Conflict), f.renewOne(n1, ref).Code)
}

func TestRenewAnswersEachInOrder(t *testing.T) {
	f := start(t)
	ref, _ := f.signing()
	second := f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})
	f.issue(second)
	revoked := f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})
	f.issue(revoked)
	_, err := f.LeaseRevoke(f.ctx, alice, workspace.ID{ID: revoked.Sandbox})
	require.NoError(t, err)
	unknown := wire.LeaseRef{Tenant: "acme", Workspace: "demo", Task: schemas.NewID(), Attempt: 1, Sandbox: schemas.NewID()}
	r, err := f.Renew(f.ctx, n1, wire.RenewRequest{Leases: []wire.LeaseRef{ref, unknown, second, {}, revoked}})
	require.NoError(t, err)
	var codes []string
	for _, x := range r.Results {
		codes = append(codes, x.Code)
	}
	require.Equal(t, []string{"", "not_found", "", "invalid", "denied"}, codes)
	require.Equal(t, string(fault.Conflict), f.renewOne(mesh.Caller{Principal: "n2"}, ref).Code)
	require.Empty(t, f.renewOne(n1, ref).Code, "another node's try does no harm")
	_, err = f.Renew(f.ctx, n1, wire.RenewRequest{Leases: make([]wire.LeaseRef, 1001)})
	requireCode(t, fault.Invalid, err)

	failed := 0
	for _, e := range f.audited("acme") {
		if e.Action == wire.AuditRenew {
			failed++
		}
	}
	require.Equal(t, 3, failed) // unknown, revoked, n2's; without a tenant there is nowhere to write one
}

func TestRenewalsAreRecordedNowAndThen(t *testing.T) {
	f := start(t, shortTTL)
	ref, _ := f.signing()
	first := f.lease(ref).ExpiresAt
	require.Empty(t, f.renewOne(n1, ref).Code)
	require.Equal(t, first, f.lease(ref).ExpiresAt)
}

func TestRevokeIsForTheNodeOrTheManagerAndMayBeRepeated(t *testing.T) {
	f := start(t)
	ref, issued := f.signing()
	_, err := f.Revoke(f.ctx, mesh.Caller{Principal: "n2"}, wire.RevokeRequest{LeaseRef: ref, Reason: "x"})
	requireCode(t, fault.Denied, err)
	_, err = f.sign(issued.VaultToken)
	require.NoError(t, err)
	r, err := f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: ref, Reason: "finished"})
	require.NoError(t, err)
	require.Equal(t, 1, r.Leases)
	f.requireDead(issued.VaultToken)
	l := f.lease(ref)
	require.Equal(t, "finished", l.Reason)
	require.NotNil(t, l.RevokedAt)
	r, err = f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: ref, Reason: "again"})
	require.NoError(t, err)
	require.Zero(t, r.Leases)
	require.Equal(t, "finished", f.lease(ref).Reason)
	r, err = f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: wire.LeaseRef{Tenant: "acme", Workspace: "demo", Sandbox: schemas.NewID()}})
	require.NoError(t, err)
	require.Zero(t, r.Leases)
	_, err = f.Issue(f.ctx, n1, request(ref))
	requireCode(t, fault.Conflict, err)
	require.ErrorContains(t, err, "finished")

	other := f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})
	issued = f.issue(other)
	_, err = f.Revoke(f.ctx, mgr, wire.RevokeRequest{LeaseRef: other, Reason: "node-lost"})
	require.NoError(t, err)
	f.requireDead(issued.VaultToken)
	f.requireNothingLeft()
	revokes := 0
	for _, e := range f.audited("acme") {
		if e.Action == wire.AuditRevoke && e.Code == "" {
			revokes++
		}
	}
	require.Equal(t, 2, revokes)
}

func TestAGrantThatIsTakenBackEndsItsLeases(t *testing.T) {
	f := start(t)
	ref, issued := f.signing()
	f.putKV(alice, "db", "hunter2")
	g := f.grant(alice, "db", "writer", wire.AsFile, wire.AsVault)
	writer := f.run("writer", workspace.SecretUse{Name: "db", As: wire.AsVault})
	token := f.issue(writer).VaultToken
	_, err := f.as(token).ReadWithContext(f.ctx, "weft-kv/data/acme/demo/db")
	require.NoError(t, err)

	f.grant(alice, "db", "writer", wire.AsVault) // fewer ways: what was given with the others ends
	_, err = f.as(token).ReadWithContext(f.ctx, "weft-kv/data/acme/demo/db")
	require.Error(t, err)

	second := f.run("writer", workspace.SecretUse{Name: "db", As: wire.AsVault})
	token = f.issue(second).VaultToken
	r, err := f.GrantRevoke(f.ctx, alice, workspace.ID{ID: g.ID})
	require.NoError(t, err)
	require.Equal(t, 1, r.Leases)
	_, err = f.as(token).ReadWithContext(f.ctx, "weft-kv/data/acme/demo/db")
	require.Error(t, err)
	require.Equal(t, wire.ReasonGrantRevoked, f.lease(second).Reason)
	require.Equal(t, string(fault.Denied), f.renewOne(n1, second).Code)
	_, err = f.sign(issued.VaultToken)
	require.NoError(t, err, "others go on")
	require.Equal(t, wire.LeaseActive, f.lease(ref).State)
}

func TestLeaseList(t *testing.T) {
	f := start(t)
	f.putKey(alice, "report-key")
	f.grant(alice, "report-key", "reviewer", wire.AsVault)
	var want []string
	for range 5 {
		ref := f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})
		f.issue(ref)
		want = append([]string{ref.Sandbox}, want...)
		f.clock.advance(time.Millisecond)
	}
	var got []string
	for cursor := ""; ; {
		page, err := f.LeaseList(f.ctx, alice, workspace.List{Limit: 2, Cursor: cursor})
		require.NoError(t, err)
		for _, l := range page.Items {
			require.Equal(t, wire.LeaseActive, l.State)
			got = append(got, l.Sandbox)
		}
		if cursor = page.Cursor; cursor == "" {
			break
		}
	}
	require.Equal(t, want, got)
	page, err := f.LeaseList(f.ctx, bob, workspace.List{})
	require.NoError(t, err)
	require.Empty(t, page.Items)
	_, err = f.LeaseRevoke(f.ctx, bob, workspace.ID{ID: want[0]})
	require.NoError(t, err)
	require.Equal(t, wire.LeaseActive, f.lease(wire.LeaseRef{Tenant: "acme", Workspace: "demo", Sandbox: want[0]}).State)
}
