package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// vault is Vault itself, asked past the secrets service: what that believes of its leases is what is to
// be checked. The operator of a data directory can do so.
type vault struct {
	http  *http.Client
	token string
}

// openVault reads where the mesh's own Vault is, and the token of the secrets service.
func openVault(dataDir string) (*vault, error) {
	b, err := os.ReadFile(filepath.Join(dataDir, "vault", "keys.json"))
	if err != nil {
		return nil, err
	}
	var keys struct {
		ServiceToken string `json:"service_token"`
	}
	if err := json.Unmarshal(b, &keys); err != nil || keys.ServiceToken == "" {
		return nil, fmt.Errorf("there is no token for Vault in %s/vault", dataDir)
	}
	socket := filepath.Join(dataDir, "vault", "bao.sock")
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &vault{token: keys.ServiceToken, http: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: dial}}}, nil
}

// alive asks whether the token behind an accessor still exists.
func (v *vault) alive(ctx context.Context, accessor string) (bool, error) {
	body, err := json.Marshal(map[string]string{"accessor": accessor})
	if err != nil {
		return false, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://vault/v1/auth/token/lookup-accessor", bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header.Set("X-Vault-Token", v.token)
	rep, err := v.http.Do(r)
	if err != nil {
		return false, err
	}
	defer func() { _ = rep.Body.Close() }()
	said, err := io.ReadAll(io.LimitReader(rep.Body, 64<<10))
	switch {
	case err != nil:
		return false, err
	case rep.StatusCode == http.StatusOK:
		return true, nil
	case strings.Contains(string(said), "invalid accessor"), strings.Contains(string(said), "token not found"), strings.Contains(string(said), "bad token"):
		return false, nil
	}
	return false, fmt.Errorf("the answer of Vault was %s: %s", rep.Status, bytes.TrimSpace(said))
}

func (v *vault) close() { v.http.CloseIdleConnections() }
