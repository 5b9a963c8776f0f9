package forward_test

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/secrets/forward"
	"github.com/weftmesh/weft/services/secrets/internal/baotest"
	"github.com/weftmesh/weft/services/secrets/internal/name"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

func TestMain(m *testing.M) { baotest.Main(m) }

const token = "s.sandbox-token"

// upstream records what reaches Vault's side.
type upstream struct {
	mu   sync.Mutex
	seen []*http.Request
	body []string
}

func (u *upstream) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	u.mu.Lock()
	u.seen, u.body = append(u.seen, r), append(u.body, string(b))
	u.mu.Unlock()
	if strings.HasSuffix(r.URL.Path, "moved") {
		w.Header().Set("Location", "http://elsewhere/")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	w.Header().Set("X-Vault-Secret-Header", "x")
	w.Header().Set("Set-Cookie", "a=b")
	_, _ = io.WriteString(w, `{"data":{"ok":true}}`)
}

func (u *upstream) requests() []*http.Request {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.seen
}

type audit struct {
	mu      sync.Mutex
	entries []secrets.Audit
}

func (a *audit) add(e secrets.Audit) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.entries = append(a.entries, e)
}

func (a *audit) all() []secrets.Audit {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]secrets.Audit(nil), a.entries...)
}

var granted = []string{
	"PUT /v1/weft-transit/sign/acme.demo.key", "POST /v1/weft-transit/sign/acme.demo.key",
	"GET /v1/weft-kv/data/acme/demo/db", "GET /v1/weft-kv/data/acme/demo/moved",
}

// serve runs a handler in front of addr and gives where it listens.
func serve(t *testing.T, cfg forward.Config) (h *forward.Handler, addr string) {
	t.Helper()
	h, err := forward.New(cfg)
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	srv := &http.Server{Handler: h, DisableGeneralOptionsHandler: true, ReadHeaderTimeout: time.Minute, MaxHeaderBytes: 16 << 10} // as the node's
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close(); <-done; h.Close() })
	return h, l.Addr().String()
}

func start(t *testing.T) (*upstream, *audit, *forward.Handler, string) {
	t.Helper()
	u, a := &upstream{}, &audit{}
	srv := httptest.NewServer(u)
	t.Cleanup(srv.Close)
	h, addr := serve(t, forward.Config{Addr: srv.URL, Token: token, Paths: granted, Audit: a.add,
		Who: secrets.Audit{Tenant: "acme", Workspace: "demo", Agent: "reviewer", Sandbox: "00000000000000000001"}})
	return u, a, h, addr
}

// raw sends bytes as they are and reads one answer.
func raw(t *testing.T, addr, request string) *http.Response {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	go func() { _, _ = io.WriteString(c, request) }()
	method, _, _ := strings.Cut(request, " ")
	res, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	require.NoError(t, err)
	b, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	res.Body = io.NopCloser(bytes.NewReader(b))
	return res
}

func text(t *testing.T, r *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return string(b)
}

func TestGrantedRequestsGoThroughAsTheSandbox(t *testing.T) {
	u, a, _, addr := start(t)
	for _, c := range []struct{ method, path, real string }{
		{"PUT", "/v1/weft-transit/sign/acme.demo.key", "/v1/weft-transit/sign/acme.demo.key"},
		{"POST", "/v1/transit/sign/key", "/v1/weft-transit/sign/acme.demo.key"},
		{"GET", "/v1/kv/data/db", "/v1/weft-kv/data/acme/demo/db"},
	} {
		res := raw(t, addr, c.method+" "+c.path+" HTTP/1.1\r\nHost: vault\r\nX-Vault-Token: s.stolen\r\nx-vault-token: s.stolen2\r\nX-Vault-Namespace: other\r\nX-Vault-Wrap-TTL: 60\r\nX-Vault-Policy-Override: true\r\nX-HTTP-Method-Override: DELETE\r\nAuthorization: Bearer s.stolen\r\nX-Forwarded-For: 1.2.3.4\r\nCookie: a=b\r\nContent-Length: 2\r\n\r\n{}")
		require.Equal(t, 200, res.StatusCode)
		require.Equal(t, `{"data":{"ok":true}}`, text(t, res))
		require.Empty(t, res.Header.Get("X-Vault-Secret-Header"))
		require.Empty(t, res.Header.Get("Set-Cookie"))
		got := u.requests()[len(u.requests())-1]
		require.Equal(t, c.method, got.Method)
		require.Equal(t, c.real, got.RequestURI)
		require.Equal(t, []string{token}, got.Header["X-Vault-Token"])
		for header := range got.Header {
			require.Contains(t, []string{"X-Vault-Token", "X-Vault-Request", "Content-Type", "Content-Length", "User-Agent", "Accept-Encoding"}, header)
		}
	}
	entries := a.all()
	require.Len(t, entries, 3)
	require.Equal(t, "use", entries[1].Action)
	require.Equal(t, "/v1/transit/sign/key", entries[1].Path)
	require.Equal(t, 200, entries[1].Status)
	require.Equal(t, "reviewer", entries[1].Agent)
	require.Empty(t, entries[1].Code)
}

func TestEverythingElseIsRefused(t *testing.T) {
	u, a, _, addr := start(t)
	const p = "/v1/weft-transit/sign/acme.demo.key"
	for _, line := range []string{
		"GET " + p, "DELETE " + p, "LIST " + p, "PATCH " + p, "HEAD " + p, "put " + p, "TRACE " + p, "OPTIONS " + p, "SCAN " + p,
		"PUT /v1/weft-transit/sign/acme.demo.key2", "PUT /v1/weft-transit/sign/acme.demo", "PUT /v1/weft-transit/verify/acme.demo.key",
		"PUT " + p + "/", "PUT /" + p, "PUT /v1//weft-transit/sign/acme.demo.key", "PUT " + p + "/sha2-256",
		"PUT /v1/./weft-transit/sign/acme.demo.key", "PUT /v1/weft-transit/x/../sign/acme.demo.key", "PUT " + p + "/../acme.other.key",
		"PUT /v1/weft-transit/sign/acme%2Edemo.key", "PUT /v1/weft-transit%2Fsign/acme.demo.key", "PUT " + p + "%00", "PUT " + p + "%2f..%2facme.other.key", "PUT /v1/weft-transit/sign/%61cme.demo.key",
		"PUT /V1/weft-transit/sign/acme.demo.key", "PUT " + p + ";a=b", "PUT " + p + "\\..\\x", "PUT " + p + "#x",
		"GET /v1/weft-kv/data/acme/demo/db?version=1", "GET /v1/weft-kv/data/acme/demo/db?list=true", "GET /v1/weft-kv/data/acme/demo/db?", "GET /v1/weft-kv/data/acme/demo/db?help=1", "PUT " + p + "?namespace=x",
		"GET /v1/weft-kv/metadata/acme/demo/db", "GET /v1/kv/data/db2", "GET /v1/kv/data/", "GET /v1/kv/data/../data/db", "POST /v1/kv/data/db", "GET /v1/transit/sign/key",
		"GET /v1/auth/token/lookup-self", "PUT /v1/auth/token/create", "GET /v1/sys/health", "PUT /v1/sys/seal", "GET /", "GET /ui/", "OPTIONS *",
		"GET http://127.0.0.1/v1/weft-kv/data/acme/demo/db", "GET //evil/v1/weft-kv/data/acme/demo/db", "GET /v1/weft-kv/data/acme/demo/" + strings.Repeat("a", 600),
	} {
		res := raw(t, addr, line+" HTTP/1.1\r\nHost: vault\r\nX-HTTP-Method-Override: PUT\r\nX-Original-URL: "+p+"\r\nContent-Length: 0\r\n\r\n")
		body := text(t, res)
		require.GreaterOrEqual(t, res.StatusCode, 400, line)
		require.NotContains(t, body, token, line)
		if res.StatusCode == 403 && !strings.HasPrefix(line, "HEAD") {
			var e struct {
				Errors []string `json:"errors"`
				Code   string   `json:"code"`
			}
			require.NoError(t, json.Unmarshal([]byte(body), &e), line)
			require.Equal(t, "denied", e.Code)
			require.Len(t, e.Errors, 1)
			require.Contains(t, e.Errors[0], "weft secret grant")
		}
	}
	require.Empty(t, u.requests())
	for _, e := range a.all() {
		require.Equal(t, "denied", e.Code)
		require.LessOrEqual(t, len(e.Path), 1000)
	}
	require.NotEmpty(t, a.all())
}

func TestProtocolTricks(t *testing.T) {
	u, _, _, addr := start(t)
	const p = "/v1/weft-transit/sign/acme.demo.key"
	for what, request := range map[string]string{
		"websocket":      "GET /v1/weft-kv/data/acme/demo/db HTTP/1.1\r\nHost: v\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n",
		"h2c":            "GET /v1/weft-kv/data/acme/demo/db HTTP/1.1\r\nHost: v\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n",
		"huge header":    "GET /v1/weft-kv/data/acme/demo/db HTTP/1.1\r\nHost: v\r\nX: " + strings.Repeat("a", 64<<10) + "\r\n\r\n",
		"two lengths":    "PUT " + p + " HTTP/1.1\r\nHost: v\r\nContent-Length: 2\r\nContent-Length: 40\r\n\r\n{}",
		"bad header":     "PUT " + p + " HTTP/1.1\r\nHost: v\r\nX-Vault-Token : s.x\r\n\r\n",
		"no host":        "PUT " + p + " HTTP/1.1\r\n\r\n",
		"space in path":  "PUT " + p + " x HTTP/1.1\r\nHost: v\r\n\r\n",
		"connect":        "CONNECT 127.0.0.1:8200 HTTP/1.1\r\nHost: v\r\n\r\n",
		"newline in url": "PUT " + p + "\rX HTTP/1.1\r\nHost: v\r\n\r\n",
	} {
		res := raw(t, addr, request)
		require.GreaterOrEqual(t, res.StatusCode, 400, what)
		require.NotEqual(t, 101, res.StatusCode, what)
	}
	require.Empty(t, u.requests())

	// A request hidden in the body of another is a body, and nothing more.
	inner := "GET /v1/sys/health HTTP/1.1\r\nHost: v\r\n\r\n"
	res := raw(t, addr, fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: v\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", p, len(inner), inner))
	require.Equal(t, 200, res.StatusCode)
	res = raw(t, addr, fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: v\r\nTransfer-Encoding: chunked\r\nContent-Length: 4\r\nConnection: close\r\n\r\n0\r\n\r\n%s", p, inner))
	require.Contains(t, []int{200, 400}, res.StatusCode)
	for _, r := range u.requests() {
		require.Equal(t, p, r.RequestURI)
	}
}

func TestBodies(t *testing.T) {
	u, a, _, addr := start(t)
	const p = "/v1/weft-transit/sign/acme.demo.key"
	big := strings.Repeat("a", forward.MaxBody)
	res := raw(t, addr, fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: v\r\nContent-Length: %d\r\n\r\n%s", p, len(big), big))
	require.Equal(t, 200, res.StatusCode)
	require.Equal(t, big, u.body[0])
	res = raw(t, addr, fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: v\r\nContent-Length: %d\r\n\r\n%s", p, len(big)+1, big+"b"))
	require.Equal(t, 413, res.StatusCode)
	require.Contains(t, text(t, res), `"code":"invalid"`)
	res = raw(t, addr, fmt.Sprintf("PUT %s HTTP/1.1\r\nHost: v\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", p, len(big)+5, big+"bbbbb"))
	require.Equal(t, 413, res.StatusCode)
	require.Len(t, u.requests(), 1)
	require.Equal(t, "invalid", a.all()[1].Code)
}

func TestARedirectIsNotFollowedNorShown(t *testing.T) {
	_, _, _, addr := start(t)
	res := raw(t, addr, "GET /v1/kv/data/moved HTTP/1.1\r\nHost: v\r\n\r\n")
	require.Equal(t, 503, res.StatusCode)
	require.Empty(t, res.Header.Get("Location"))
}

func TestClosedAndDown(t *testing.T) {
	u, _, h, addr := start(t)
	h.Close()
	res := raw(t, addr, "GET /v1/kv/data/db HTTP/1.1\r\nHost: v\r\n\r\n")
	require.Equal(t, 403, res.StatusCode)
	require.Empty(t, u.requests())

	_, addr = serve(t, forward.Config{Addr: "unix:///nonexistent.sock", Token: token, Paths: granted})
	res = raw(t, addr, "GET /v1/kv/data/db HTTP/1.1\r\nHost: v\r\n\r\n")
	require.Equal(t, 503, res.StatusCode)
	require.Contains(t, text(t, res), `"code":"unavailable"`)
}

func TestBadPathsAreNotTaken(t *testing.T) {
	for _, p := range []string{"", "GET", "GET ", "GET v1/x", "GET /v1/../x", "GET /v1/*", "GET /v1/a b", "GET /v1//x", "GET /v1/x?y"} {
		_, err := forward.New(forward.Config{Addr: "http://127.0.0.1:1", Paths: []string{p}})
		require.True(t, fault.Is(err, fault.Invalid), p)
	}
}

func TestOnRealVault(t *testing.T) {
	s := baotest.Start(t)
	c := baotest.Client(t, s)
	ctx := baotest.Context(t)
	key, db := name.Secret{Tenant: "acme", Workspace: "demo", Name: "report-key"}, name.Secret{Tenant: "acme", Workspace: "demo", Name: "db"}
	_, err := c.PutKey(ctx, key, "ed25519")
	require.NoError(t, err)
	_, err = c.PutKV(ctx, db, value.Of("hunter2"))
	require.NoError(t, err)
	access := []vault.Access{{Secret: key, Kind: secrets.KindTransit, KeyType: "ed25519"}, {Secret: db, Kind: secrets.KindKV}}
	tok, err := c.Create(ctx, vault.TokenSpec{Policy: vault.LeasePrefix + "f", TTL: time.Minute})
	require.NoError(t, err)
	require.NoError(t, c.Empower(ctx, vault.LeasePrefix+"f", access))
	_, addr := serve(t, forward.Config{Addr: s.Address(), Token: tok.Value.Reveal(), Paths: append(access[0].Requests(), access[1].Requests()...)})

	input := `{"input":"` + base64.StdEncoding.EncodeToString([]byte("report")) + `"}`
	sign := fmt.Sprintf("POST /v1/transit/sign/report-key HTTP/1.1\r\nHost: v\r\nContent-Length: %d\r\n\r\n%s", len(input), input)
	res := raw(t, addr, sign)
	require.Equal(t, 200, res.StatusCode)
	var signed struct {
		Data struct {
			Signature string `json:"signature"`
		} `json:"data"`
	}
	require.NoError(t, json.Unmarshal([]byte(text(t, res)), &signed))
	ok, err := c.Verify(ctx, key, []byte("report"), signed.Data.Signature)
	require.NoError(t, err)
	require.True(t, ok)
	res = raw(t, addr, "GET /v1/kv/data/db HTTP/1.1\r\nHost: v\r\n\r\n")
	require.Contains(t, text(t, res), "hunter2")
	res = raw(t, addr, "GET /v1/transit/keys/report-key HTTP/1.1\r\nHost: v\r\n\r\n")
	require.Contains(t, text(t, res), "public_key")

	require.NoError(t, c.Revoke(ctx, tok.Accessor, vault.LeasePrefix+"f"))
	res = raw(t, addr, sign)
	require.Equal(t, 403, res.StatusCode)
	require.Contains(t, text(t, res), "permission denied")
}

// FuzzOnlyListedRequestsPass feeds arbitrary request lines: what reaches Vault is always a listed
// method and path with the sandbox's own token.
func FuzzOnlyListedRequestsPass(f *testing.F) {
	f.Add("PUT", "/v1/weft-transit/sign/acme.demo.key", "X-Vault-Token: x")
	f.Add("GET", "/v1/kv/data/db%2e", "Upgrade: x")
	f.Add("GET", "/v1/kv/data/db?list=true", "X-Vault-Namespace: x")
	f.Add("GET", "/v1/kv/data/../data/db", "Host: y")
	u := &upstream{}
	srv := httptest.NewServer(u)
	f.Cleanup(srv.Close)
	h, err := forward.New(forward.Config{Addr: srv.URL, Token: token, Paths: granted})
	require.NoError(f, err)
	f.Cleanup(h.Close)
	f.Fuzz(func(t *testing.T, method, path, header string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + path + " HTTP/1.1\r\nHost: v\r\n" + header + "\r\n\r\n")))
		if err != nil {
			return
		}
		before := len(u.requests())
		h.ServeHTTP(httptest.NewRecorder(), r)
		for _, got := range u.requests()[before:] {
			require.Contains(t, granted, got.Method+" "+got.RequestURI)
			require.Equal(t, []string{token}, got.Header["X-Vault-Token"])
			require.Empty(t, got.Header["X-Vault-Namespace"])
		}
	})
}
