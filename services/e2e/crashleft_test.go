package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
)

// lasting lists what belongs to sandboxes while the mesh runs: of leftovers, all but what a mesh without any
// task has: weftd, containerd, OpenBao, the mount under which sandboxes have theirs. The file of a socket to which
// nobody listens any more is no shim; the node's sweep removes it.
func lasting(t testing.TB, w *world) []string {
	t.Helper()
	var left []string
	spare := spareShims(t, w)
	all := leftovers(t, w.dir)
	spare = append(spare, spareShims(t, w)...) // one may have been started meanwhile
	for _, l := range all {
		f := strings.Fields(l)
		switch {
		case slices.ContainsFunc(spare, func(s string) bool { return strings.Contains(l, s) }): // a shim that waits for the next tenant
		case strings.Contains(l, ".spare/"): // a disk that waits for the next overlay
		case f[0] == "process" && slices.Contains([]string{"weftd", "containerd", "bao", "vault"}, filepath.Base(f[2])):
		case f[0] == "mount" && f[5] == filepath.Join(runDir(w.dir), "sb"):
		case f[0] == "directory" && filepath.Base(filepath.Dir(f[1])) == "shims" && !listens(f[1]):
		default:
			left = append(left, l)
		}
	}
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	require.NoError(t, err)
	for _, l := range loops {
		if b, err := os.ReadFile(l); err == nil && strings.HasPrefix(string(b), w.dir+"/") && !strings.Contains(string(b), ".spare/") {
			left = append(left, "loop device "+string(b))
		}
	}
	return left
}

// spareShims gives what tells of the shims that serve nobody yet: their names, and their sockets.
func spareShims(t testing.TB, w *world) (told []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(runDir(w.dir), "shim", "*", "address"))
	require.NoError(t, err)
	for _, f := range found {
		if b, err := os.ReadFile(f); err == nil { // else it has just been taken
			told = append(told, filepath.Base(filepath.Dir(f)), strings.TrimPrefix(string(b), "unix://"))
		}
	}
	return told
}

func listens(socket string) bool {
	c, err := net.DialTimeout("unix", socket, time.Second)
	if err == nil {
		_ = c.Close()
	}
	return err == nil
}

// bao asks the mesh's OpenBao as the secrets service does.
func bao(t testing.TB, w *world, method, path, body string) (int, map[string]any) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(w.dir, "vault", "keys.json"))
	require.NoError(t, err)
	var keys struct {
		Token string `json:"service_token"`
	}
	require.NoError(t, json.Unmarshal(b, &keys))
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.dir, "vault", "bao.sock"))
	}
	tr := &http.Transport{DialContext: dial}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx(t, 10*time.Second), method, "http://vault/v1/"+path, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("X-Vault-Token", keys.Token)
	rep, err := (&http.Client{Transport: tr}).Do(req)
	require.NoError(t, err)
	defer func() { _ = rep.Body.Close() }()
	var v map[string]any
	_ = json.NewDecoder(rep.Body).Decode(&v)
	return rep.StatusCode, v
}

// tokens lists the sandboxes that have a live token in OpenBao.
func tokens(t testing.TB, w *world) []string {
	t.Helper()
	code, v := bao(t, w, "LIST", "auth/token/accessors", "")
	require.Equal(t, http.StatusOK, code, "%v", v)
	var out []string
	keys, _ := v["data"].(map[string]any)["keys"].([]any)
	for _, k := range keys {
		code, v := bao(t, w, "POST", "auth/token/lookup-accessor", `{"accessor":"`+k.(string)+`"}`)
		if code != http.StatusOK {
			continue // it ended meanwhile
		}
		meta, _ := v["data"].(map[string]any)["meta"].(map[string]any)
		if s, ok := meta["weft_sandbox"].(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// allLeasesGone waits until OpenBao has no token of a sandbox and every lease is recorded as revoked: at most
// the TTL of a lease, 60 s.
func allLeasesGone(t testing.TB, w *world, c *client.Client) {
	t.Helper()
	var alive, open []string
	ok := func() bool {
		alive, open = tokens(t, w), nil
		leases, err := c.Leases(ctx(t, 10*time.Second), 0)
		require.NoError(t, err)
		require.NotEmpty(t, leases)
		for _, l := range leases {
			if l.State != "revoked" {
				open = append(open, l.Sandbox+" "+l.State)
			}
		}
		return len(alive)+len(open) == 0
	}
	for limit := time.Now().Add(62 * time.Second); !ok() && time.Now().Before(limit); {
		time.Sleep(200 * time.Millisecond)
	}
	require.Empty(t, alive, "tokens that live on in OpenBao")
	require.Empty(t, open, "leases that are not revoked")
}
