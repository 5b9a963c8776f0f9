package secrets_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// BenchmarkLease measures what a task pays for one secret: issue and revoke, on a real OpenBao and a real
// bus, and a renewal.
func BenchmarkLease(b *testing.B) {
	f := start(b)
	f.putKV(alice, "db", "hunter2")
	f.grant(alice, "db", "writer", wire.AsFile)
	use := workspace.SecretUse{Name: "db", As: wire.AsFile}
	b.Run("issue+revoke", func(b *testing.B) {
		for b.Loop() {
			ref := f.run("writer", use)
			_, err := f.Issue(b.Context(), n1, request(ref))
			require.NoError(b, err)
			_, err = f.Revoke(b.Context(), n1, wire.RevokeRequest{LeaseRef: ref})
			require.NoError(b, err)
		}
	})
	ref := f.run("writer", use)
	f.issue(ref)
	b.Run("renew", func(b *testing.B) {
		for b.Loop() {
			r, err := f.Renew(b.Context(), n1, wire.RenewRequest{Leases: []wire.LeaseRef{ref}})
			require.NoError(b, err)
			require.Empty(b, r.Results[0].Code)
		}
	})
}
