package keyring_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/workspace-manager/internal/keyring"
)

func TestSealedOnlyForItsTenantAndKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys", "manager.key")
	k, err := keyring.Open(path)
	require.NoError(t, err)
	fi, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), fi.Mode().Perm())

	sealed := k.Seal("acme", []byte("SAAGENT"))
	require.NotContains(t, string(sealed), "SAAGENT")

	again, err := keyring.Open(path)
	require.NoError(t, err)
	b, err := again.Open("acme", sealed)
	require.NoError(t, err)
	require.Equal(t, "SAAGENT", string(b))

	_, err = again.Open("other", sealed)
	require.Error(t, err)
	_, err = again.Open("acme", append(sealed[:len(sealed)-1], sealed[len(sealed)-1]^1))
	require.Error(t, err)
	_, err = again.Open("acme", nil)
	require.Error(t, err)

	foreign, err := keyring.Open(filepath.Join(t.TempDir(), "k"))
	require.NoError(t, err)
	_, err = foreign.Open("acme", k.Seal("acme", []byte("x")))
	require.ErrorContains(t, err, "key file")
}

func TestMalformedKeyFileIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "k")
	require.NoError(t, os.WriteFile(path, []byte("short"), 0o600))
	_, err := keyring.Open(path)
	require.ErrorContains(t, err, "64 hexadecimal digits")
}
