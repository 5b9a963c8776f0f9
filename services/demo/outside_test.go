package demo

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestProbeCountsConnections(t *testing.T) {
	p, err := openProbe()
	require.NoError(t, err)
	defer p.close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	require.NoError(t, p.reachable(ctx))
	require.Zero(t, p.came.Load(), "its own connections do not count")
	c, err := net.Dial("tcp", p.addresses[0])
	require.NoError(t, err)
	require.NoError(t, c.Close())
	require.Eventually(t, func() bool { return p.came.Load() == 1 }, 10*time.Second, time.Millisecond)
}

// vaultAt serves a unix socket as OpenBao does, with the answers that it gave when it was asked.
func vaultAt(t *testing.T, answer http.HandlerFunc) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "demo-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Mkdir(filepath.Join(dir, "vault"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "vault", "keys.json"), []byte(`{"service_token":"s.abc"}`), 0o600))
	l, err := net.Listen("unix", filepath.Join(dir, "vault", "bao.sock"))
	require.NoError(t, err)
	s := httptest.NewUnstartedServer(answer)
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return dir
}

func TestVaultIsAskedAboutAnAccessor(t *testing.T) {
	dir := vaultAt(t, func(w http.ResponseWriter, r *http.Request) {
		var in struct{ Accessor string }
		_ = json.NewDecoder(r.Body).Decode(&in)
		switch {
		case r.Header.Get("X-Vault-Token") != "s.abc" || r.URL.Path != "/v1/auth/token/lookup-accessor":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"errors":["permission denied"]}`))
		case in.Accessor == "alive":
			_, _ = w.Write([]byte(`{"data":{"ttl":42}}`))
		case in.Accessor == "gone":
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"errors":["1 error occurred:\n\t* invalid accessor\n\n"]}`))
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte(`{"errors":["Vault is sealed"]}`))
		}
	})
	v, err := openVault(dir)
	require.NoError(t, err)
	defer v.close()
	ok, err := v.alive(context.Background(), "alive")
	require.NoError(t, err)
	require.True(t, ok)
	ok, err = v.alive(context.Background(), "gone")
	require.NoError(t, err)
	require.False(t, ok)
	_, err = v.alive(context.Background(), "unknown")
	require.ErrorContains(t, err, "sealed", "what Vault did not say is no answer")
	v.token = "wrong"
	_, err = v.alive(context.Background(), "gone")
	require.ErrorContains(t, err, "permission denied")
}

func TestOpenVaultSaysWhatIsMissing(t *testing.T) {
	_, err := openVault(t.TempDir())
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestNoLeftoversOfAMeshThatNeverWas(t *testing.T) {
	left, err := leftovers(filepath.Join(t.TempDir(), "data"))
	require.NoError(t, err)
	require.Empty(t, left)
}
