package secrets_test

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/baotest"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
)

func TestReconcileEndsWhatIsNotHeld(t *testing.T) {
	f := start(t)
	kept, keptToken := f.signing()
	use := workspace.SecretUse{Name: "report-key", As: wire.AsVault}
	finished, retried, deleted := f.run("reviewer", use), f.run("reviewer", use), f.run("reviewer", use)
	var tokens []string
	for _, ref := range []wire.LeaseRef{finished, retried, deleted} {
		tokens = append(tokens, f.issue(ref).VaultToken)
	}
	f.manager.set(finished, func(a *workspace.AttemptReply) { a.State = workspace.Complete })
	f.manager.set(retried, func(a *workspace.AttemptReply) { a.Attempt, a.Sandbox, a.Node = 2, "", "" })
	f.manager.set(deleted, func(a *workspace.AttemptReply) { *a = workspace.AttemptReply{} })

	f.manager.fail(fault.New(fault.Unavailable, "nobody answers"))
	require.Error(t, f.Reconcile(f.ctx))
	for _, ref := range []wire.LeaseRef{finished, retried, deleted} {
		require.Equal(t, wire.LeaseActive, f.lease(ref).State, "not knowing is no reason to revoke")
	}
	f.manager.fail(nil)
	for range 2 {
		require.NoError(t, f.Reconcile(f.ctx))
		for _, ref := range []wire.LeaseRef{finished, retried, deleted} {
			require.Equal(t, wire.ReasonNotHeld, f.lease(ref).Reason)
		}
		for _, token := range tokens {
			f.requireDead(token)
		}
		require.Equal(t, wire.LeaseActive, f.lease(kept).State)
		_, err := f.sign(keptToken.VaultToken)
		require.NoError(t, err)
	}
}

func TestReconcileEndsLeasesWithoutAGrantAndExpiredOnes(t *testing.T) {
	f := start(t)
	ref, issued := f.signing()
	f.putKV(alice, "db", "hunter2")
	f.grant(alice, "db", "writer", wire.AsFile)
	other := f.run("writer", workspace.SecretUse{Name: "db", As: wire.AsFile})
	f.issue(other)
	// Died between the deletion of the grant and the end of its leases.
	require.NoError(t, f.cfg.Grants.Delete(f.ctx, records.Key{Tenant: "acme", Workspace: "demo", ID: secrets.GrantID("acme", "demo", "report-key", "reviewer")}))
	// Ended in Vault by other means.
	require.NoError(t, f.vault.Revoke(f.ctx, f.lease(other).Accessor, ""))
	f.clock.advance(2 * time.Minute)
	require.NoError(t, f.Reconcile(f.ctx))
	require.Equal(t, wire.ReasonGrantRevoked, f.lease(ref).Reason)
	f.requireDead(issued.VaultToken)
	require.Equal(t, wire.ReasonExpired, f.lease(other).Reason)
	f.requireNothingLeft()
}

func TestReconcileEndsAbandonedIssues(t *testing.T) {
	f := start(t)
	f.putKey(alice, "report-key")
	f.grant(alice, "report-key", "reviewer", wire.AsVault)
	ref := f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})
	key := records.Key{Tenant: "acme", Workspace: "demo", ID: ref.Sandbox}
	_, err := f.leases.Create(f.ctx, key, "issuing", wire.Lease{Sandbox: ref.Sandbox, Task: ref.Task, Attempt: 1, Agent: "reviewer", Node: "n1",
		Secrets: []string{"report-key"}, State: wire.LeaseIssuing, Generation: 1, IssuedAt: f.clock.now()})
	require.NoError(t, err)
	require.NoError(t, f.Reconcile(f.ctx))
	require.Equal(t, wire.LeaseIssuing, f.lease(ref).State, "it may still be under way")
	f.clock.advance(61 * time.Second)
	require.NoError(t, f.Reconcile(f.ctx))
	require.Equal(t, wire.ReasonAbandoned, f.lease(ref).Reason)
	_, err = f.sign(f.issue(ref).VaultToken)
	require.NoError(t, err, "the attempt is still held and may ask again")
}

func TestReconcileRevokesWhatNoRecordKnowsAndNothingElse(t *testing.T) {
	f := start(t)
	kept, issued := f.signing()
	admin := baotest.Root(t, f.bao)
	foreign, err := admin.Auth().Token().CreateWithContext(f.ctx, &api.TokenCreateRequest{Policies: []string{"default"}, TTL: "10m"})
	require.NoError(t, err)
	require.NoError(t, admin.Sys().PutPolicyWithContext(f.ctx, "somebodys", `path "x" { capabilities = ["read"] }`))

	meta := func(sandbox, generation string) map[string]string {
		return map[string]string{"weft_tenant": "acme", "weft_workspace": "demo", "weft_sandbox": sandbox, "weft_generation": generation}
	}
	for _, m := range []map[string]string{nil, meta("00000000000000000000", "1"), meta(kept.Sandbox, "1"), meta(kept.Sandbox, "7"), {"weft_tenant": "*", "weft_workspace": ">", "weft_sandbox": "x"}} {
		_, err := f.vault.Create(f.ctx, vault.TokenSpec{Policy: vault.LeasePrefix + "x", TTL: time.Minute, Meta: m})
		require.NoError(t, err)
	}
	for _, p := range []string{"x", "acme.demo.00000000000000000000.1", "acme.demo." + kept.Sandbox + ".7", "a.b.c.d", "acme.demo." + kept.Sandbox + ".x"} {
		require.NoError(t, f.vault.Empower(f.ctx, vault.LeasePrefix+p, nil))
	}
	for range 2 {
		require.NoError(t, f.Reconcile(f.ctx))
		accessors, policies := f.ours()
		require.Equal(t, []string{f.lease(kept).Accessor}, accessors)
		require.Equal(t, []string{vault.LeasePrefix + "acme.demo." + kept.Sandbox + ".1"}, policies)
	}
	_, err = f.sign(issued.VaultToken)
	require.NoError(t, err)
	_, err = f.as(foreign.Auth.ClientToken).ReadWithContext(f.ctx, "auth/token/lookup-self")
	require.NoError(t, err)
	_, err = admin.Sys().GetPolicyWithContext(f.ctx, "somebodys")
	require.NoError(t, err)
}

func TestReconcileForgetsOldLeases(t *testing.T) {
	f := start(t)
	ref, _ := f.signing()
	_, err := f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: ref})
	require.NoError(t, err)
	f.clock.advance(23 * time.Hour)
	require.NoError(t, f.Reconcile(f.ctx))
	require.Equal(t, wire.LeaseRevoked, f.lease(ref).State)
	f.clock.advance(2 * time.Hour)
	require.NoError(t, f.Reconcile(f.ctx))
	_, err = f.leases.Get(f.ctx, records.Key{Tenant: "acme", Workspace: "demo", ID: ref.Sandbox})
	requireCode(t, fault.NotFound, err)
}

func TestRunReconcilesAndEnds(t *testing.T) {
	f := start(t, func(c *secrets.Config) { c.ReconcileEvery = 50 * time.Millisecond })
	ref, issued := f.signing()
	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	f.manager.set(ref, func(a *workspace.AttemptReply) { a.State = workspace.Error })
	require.Eventually(t, func() bool { return f.lease(ref).State == wire.LeaseRevoked }, 20*time.Second, 20*time.Millisecond)
	f.requireDead(issued.VaultToken)
	require.NoError(t, f.Ready(f.ctx))
	cancel()
	require.NoError(t, <-done)
}
