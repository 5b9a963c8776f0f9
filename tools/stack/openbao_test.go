package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/needs"
)

// TestOpenBao starts the server with Raft storage and a unix socket, as the daemon does, and uses the
// engines that Weft builds on. Raft wants a TCP listener too, even alone; nobody uses that here.
func TestOpenBao(t *testing.T) {
	path, err := toolchain.Find("bao")
	needs.All(t, err)
	bao := startBao(t, path)

	bao.do("PUT", "sys/mounts/secret", `{"type":"kv","options":{"version":"2"}}`, 204)
	bao.do("PUT", "sys/mounts/transit", `{"type":"transit"}`, 204)
	bao.do("POST", "secret/data/greeting", `{"options":{"cas":0},"data":{"text":"hello"}}`, 200)
	bao.do("POST", "secret/data/greeting", `{"options":{"cas":0},"data":{"text":"other"}}`, 400)
	require.Equal(t, "hello", bao.do("GET", "secret/data/greeting", "", 200).at("data", "data", "text"))

	bao.do("POST", "transit/keys/report", `{"type":"ed25519"}`, 200)
	signature := bao.do("POST", "transit/sign/report", `{"input":"aGVsbG8="}`, 200).at("data", "signature")
	require.Equal(t, true, bao.do("POST", "transit/verify/report", fmt.Sprintf(`{"input":"aGVsbG8=","signature":%q}`, signature), 200).at("data", "valid"))
	require.Equal(t, false, bao.do("POST", "transit/verify/report", fmt.Sprintf(`{"input":"SGVsbG8=","signature":%q}`, signature), 200).at("data", "valid"))

	child := bao.do("POST", "auth/token/create", `{"ttl":"60s","policies":["default"]}`, 200)
	require.EqualValues(t, 60, child.at("auth", "lease_duration"))
	bao.do("POST", "auth/token/revoke-accessor", fmt.Sprintf(`{"accessor":%q}`, child.at("auth", "accessor")), 204)
	bao.token, _ = child.at("auth", "client_token").(string)
	bao.do("GET", "auth/token/lookup-self", "", 403)
}

// bao is a running server and its root token.
type bao struct {
	t     *testing.T
	http  *http.Client
	token string
}

// reply is a decoded JSON body.
type reply map[string]any

// at returns the value under a path of keys.
func (r reply) at(keys ...string) any {
	var value any = map[string]any(r)
	for _, key := range keys {
		m, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = m[key]
	}
	return value
}

func startBao(t *testing.T, path string) *bao {
	t.Helper()
	dir, err := os.MkdirTemp("", "bao") // a short path: that of a socket has at most 107 bytes
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket, config := filepath.Join(dir, "s"), filepath.Join(dir, "config.hcl")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
storage "raft" { path = %q
  node_id = "one"
  performance_multiplier = "1" }
listener "unix" { address = %q }
listener "tcp" { address = "127.0.0.1:0"
  cluster_address = "127.0.0.1:0"
  tls_disable = true }
api_addr = "http://127.0.0.1:1"
cluster_addr = "https://127.0.0.1:0"
disable_mlock = true
`, dir, socket), 0o600))
	var log bytes.Buffer
	cmd := exec.Command(path, "server", "-config="+config)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, cmd.Start())
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	b := &bao{t: t, http: &http.Client{Transport: transport, Timeout: 30 * time.Second}}
	require.Eventually(t, func() bool {
		response, err := b.http.Get("http://bao/v1/sys/seal-status")
		if err != nil {
			return false
		}
		return response.Body.Close() == nil
	}, 30*time.Second, 20*time.Millisecond)

	keys := b.do("PUT", "sys/init", `{"secret_shares":1,"secret_threshold":1}`, 200)
	b.token, _ = keys["root_token"].(string)
	key, _ := keys["keys_base64"].([]any)
	require.Len(t, key, 1)
	b.do("PUT", "sys/unseal", fmt.Sprintf(`{"key":%q}`, key[0]), 200)
	require.Eventually(t, func() bool {
		response, err := b.http.Get("http://bao/v1/sys/health")
		if err != nil {
			return false
		}
		_ = response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, 30*time.Second, 20*time.Millisecond)
	return b
}

// do sends one request and wants one status.
func (b *bao) do(method, path, body string, want int) reply {
	b.t.Helper()
	request, err := http.NewRequestWithContext(b.t.Context(), method, "http://bao/v1/"+path, strings.NewReader(body))
	require.NoError(b.t, err)
	request.Header.Set("X-Vault-Token", b.token)
	response, err := b.http.Do(request)
	require.NoError(b.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(b.t, err)
	require.Equal(b.t, want, response.StatusCode, "%s %s: %s", method, path, text)
	decoded := reply{}
	if len(text) > 0 {
		require.NoError(b.t, json.Unmarshal(text, &decoded))
	}
	return decoded
}
