package vault_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/secrets/internal/baotest"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// TestAnAccessorThatLeadsNowhere has the answers that OpenBao gives for an accessor whose token was never
// written because it was killed in between, which can't be brought about at will.
func TestAnAccessorThatLeadsNowhere(t *testing.T) {
	capability := "update"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/auth/token/lookup-accessor":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"errors":["1 error occurred:\n\t* permission denied\n\n"]}`))
		case "/v1/sys/capabilities-self":
			_ = json.NewEncoder(w).Encode(map[string]any{"data": map[string]any{"capabilities": []string{capability}, "auth/token/lookup-accessor": []string{capability}}})
		default:
			_, _ = w.Write([]byte(`{"data":{"ttl":100}}`))
		}
	}))
	defer srv.Close()
	c, err := vault.New(vault.Config{Address: srv.URL, Auth: vault.StaticToken(value.Of("s.x"))})
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Lookup(baotest.Context(t), "accessor")
	require.True(t, fault.Is(err, fault.NotFound), err)
	capability = "deny"
	_, err = c.Lookup(baotest.Context(t), "accessor")
	require.True(t, fault.Is(err, fault.Internal), err)
}
