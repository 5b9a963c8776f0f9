package name_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/secrets/internal/name"
)

func TestPaths(t *testing.T) {
	s := name.Secret{Tenant: "acme", Workspace: "demo", Name: "report-key"}
	require.NoError(t, s.Check())
	require.Equal(t, "weft-kv/data/acme/demo/report-key", s.Data())
	require.Equal(t, "weft-kv/metadata/acme/demo/report-key", s.Metadata())
	require.Equal(t, "weft-transit/sign/acme.demo.report-key", s.Transit("sign"))

	alias, ok := name.Alias(s.Data())
	require.True(t, ok)
	require.Equal(t, "kv/data/report-key", alias)
	alias, ok = name.Alias(s.Transit("sign"))
	require.True(t, ok)
	require.Equal(t, "transit/sign/report-key", alias)
	for _, p := range []string{"", "sys/health", "weft-kv/data/acme/demo", "weft-transit/sign/key", "weft-transit/sign/a.b.c/d", "weft-kv/metadata/a/b/c"} {
		_, ok = name.Alias(p)
		require.False(t, ok, p)
	}
}

func TestHostileNamesAreRefused(t *testing.T) {
	for _, bad := range []string{"", "-", ".", "..", "a.b", "a/b", "../x", "a%2fb", "*", "+", "A", "a b", "a\x00", "é", strings.Repeat("a", 64), "-a", "a-"} {
		for _, s := range []name.Secret{{bad, "w", "n"}, {"t", bad, "n"}, {"t", "w", bad}} {
			require.True(t, fault.Is(s.Check(), fault.Invalid), "%q", bad)
		}
	}
}

// FuzzNoTwoSecretsShareAPath is the isolation of tenants as far as names go: different names that
// pass the check never meet in one path, and every path stays below its own tenant.
func FuzzNoTwoSecretsShareAPath(f *testing.F) {
	f.Add("acme", "demo", "key", "acme", "demo-key", "x")
	f.Add("a", "b.c", "d", "a.b", "c", "d")
	f.Add("a", "b/c", "d", "a", "b", "c/d")
	f.Add("..", "..", "..", "a", "b", "c")
	f.Fuzz(func(t *testing.T, t1, w1, n1, t2, w2, n2 string) {
		a, b := name.Secret{Tenant: t1, Workspace: w1, Name: n1}, name.Secret{Tenant: t2, Workspace: w2, Name: n2}
		if a.Check() != nil || b.Check() != nil {
			return
		}
		if a == b {
			return
		}
		require.NotEqual(t, a.Data(), b.Data())
		require.NotEqual(t, a.Metadata(), b.Metadata())
		require.NotEqual(t, a.Key(), b.Key())
		require.True(t, strings.HasPrefix(a.Data(), "weft-kv/data/"+t1+"/"+w1+"/"))
		require.True(t, strings.HasPrefix(a.Key(), t1+"."+w1+"."))
	})
}
