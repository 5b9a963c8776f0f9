// Package forward is what a sandbox finds at its VAULT_ADDR: an HTTP handler that adds the sandbox's
// token to a request and lets exactly the requests of its grants through to Vault.
//
// The sandbox never holds the token. A request is let through when its method and its path, byte for
// byte as they were sent, are in the list that came with the lease; so no encoding, dot segment, query or
// wildcard can mean something else than it says. Of the client's headers nothing is passed on, and of
// Vault's only the type of the content.
//
// A program need not know in which mount and under which name Weft keeps a secret: it asks for
// /v1/transit/sign/report-key or /v1/kv/data/db, and the real path is put in its place.
package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/name"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// Limits of a request.
const (
	MaxBody     = 1 << 20 // bytes of a request's body
	maxAnswer   = 8 << 20 // bytes of Vault's answer
	maxPath     = 512     // bytes of a path; longer ones are in no list
	maxInFlight = 16      // requests of one sandbox at once
	callTimeout = 30 * time.Second
)

// Config is what a lease gives (secrets.Issued), and whom to tell.
type Config struct {
	Addr      string   // unix:///path, http://… or https://…
	Namespace string   // usually empty
	Token     string   // of the sandbox
	Paths     []string // "<METHOD> <path>"
	// Who is the sandbox: the fields that every audit entry gets.
	Who secrets.Audit
	// Audit is called once for each request, refused ones too, after it was answered. It must not wait long.
	Audit  func(secrets.Audit)
	Clock  func() time.Time
	Logger *slog.Logger
}

// Handler serves one sandbox. It is safe for concurrent use.
type Handler struct {
	cfg     Config
	token   value.Value
	base    *api.Client
	client  *http.Client
	allowed map[string]string // "<METHOD> <path as asked>" to the real path
	slots   chan struct{}
	closed  atomic.Bool
}

// New makes the handler. It does not connect.
func New(cfg Config) (*Handler, error) {
	base, err := vault.Dial(cfg.Addr, cfg.Namespace)
	if err != nil {
		return nil, err
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Audit == nil {
		cfg.Audit = func(secrets.Audit) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handler{cfg: cfg, token: value.Of(cfg.Token), base: base, allowed: map[string]string{}, slots: make(chan struct{}, maxInFlight)}
	h.cfg.Token = "" // held once, redacted
	h.client = &http.Client{
		Transport:     base.CloneConfig().HttpClient.Transport,
		Timeout:       callTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for _, p := range cfg.Paths {
		method, path, ok := strings.Cut(p, " ")
		if !ok || !plain(path) {
			return nil, fault.New(fault.Invalid, "%q is not of the form <METHOD> <path>", clip(p))
		}
		h.allowed[method+" "+path] = path
		if alias, ok := Alias(path); ok {
			h.allowed[method+" "+alias] = path
		}
	}
	return h, nil
}

// Alias gives the friendly path of a real one: /v1/weft-transit/sign/acme.demo.report-key is
// /v1/transit/sign/report-key, /v1/weft-kv/data/acme/demo/db is /v1/kv/data/db. ok is false for others.
func Alias(path string) (alias string, ok bool) {
	rest, ok := strings.CutPrefix(path, "/v1/")
	if !ok {
		return "", false
	}
	alias, ok = name.Alias(rest)
	return "/v1/" + alias, ok
}

// Close refuses everything from now on and lets go of the connections to Vault.
func (h *Handler) Close() {
	h.closed.Store(true)
	vault.Hang(h.base)
}

// ServeHTTP answers one request.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	entry := h.cfg.Who
	entry.Time, entry.Action, entry.Method, entry.Path = h.cfg.Clock().UTC(), secrets.AuditUse, clip(r.Method), clip(r.RequestURI)
	status, body, err := h.answer(r)
	if err != nil {
		code, message := fault.Public(err)
		entry.Code, entry.Message = string(code), message
		if status == 0 {
			status = statusOf(code)
		}
		body = vaultError(code, message)
		if code == fault.Internal || code == fault.Unavailable {
			h.cfg.Logger.Warn("a request to Vault failed", "sandbox", h.cfg.Who.Sandbox, "err", err)
		}
	} else if status >= 400 {
		entry.Code, entry.Message = string(fault.Denied), "Vault refused it"
	}
	entry.Status = status
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if r.ProtoAtLeast(1, 1) && err != nil {
		w.Header().Set("Connection", "close") // what is left of a refused body is not read as a request
	}
	w.WriteHeader(status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
	h.cfg.Audit(entry)
}

// answer gives Vault's answer, or why there is none.
func (h *Handler) answer(r *http.Request) (status int, body []byte, err error) {
	if h.closed.Load() {
		return 0, nil, fault.New(fault.Denied, "the lease of this sandbox has ended")
	}
	real, err := h.permit(r)
	if err != nil {
		return 0, nil, err
	}
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	default:
		return http.StatusTooManyRequests, nil, fault.New(fault.Exhausted, "more than %d requests to Vault at once; wait for some to end", maxInFlight)
	}
	in, err := io.ReadAll(io.LimitReader(r.Body, MaxBody+1))
	if err != nil {
		return http.StatusBadRequest, nil, fault.Wrap(err, fault.Invalid, "the body of the request could not be read")
	}
	if len(in) > MaxBody {
		return http.StatusRequestEntityTooLarge, nil, fault.New(fault.Invalid, "the body is larger than %d bytes", MaxBody)
	}
	return h.call(r.Context(), r.Method, real, in)
}

// permit gives the real path of a request that the lease allows.
func (h *Handler) permit(r *http.Request) (string, error) {
	if r.Header.Get("Upgrade") != "" {
		return "", fault.New(fault.Denied, "protocol upgrades are not let through to Vault")
	}
	real, ok := h.allowed[r.Method+" "+r.RequestURI]
	// The second condition can only fail if the standard library's idea of the path differs from the
	// bytes that were compared.
	if !ok || !plain(r.RequestURI) || r.URL.Path != r.RequestURI {
		return "", fault.New(fault.Denied, "%s %s is not granted to this sandbox; an operator grants a secret for use here with `weft secret grant <secret> --agent %s --as vault`",
			clip(r.Method), clip(r.RequestURI), h.agent())
	}
	return real, nil
}

func (h *Handler) agent() string {
	if h.cfg.Who.Agent == "" {
		return "<agent>"
	}
	return h.cfg.Who.Agent
}

// call sends the request to Vault as the sandbox. Only what is set here goes out.
func (h *Handler) call(ctx context.Context, method, path string, in []byte) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	target := h.base.NewRequest(method, path)
	out, err := http.NewRequestWithContext(ctx, method, target.URL.String(), bytes.NewReader(in))
	if err != nil {
		return 0, nil, err
	}
	out.Host = target.Host
	out.Header.Set("Content-Type", "application/json")
	out.Header.Set("X-Vault-Request", "true")
	out.Header.Set("X-Vault-Token", h.token.Reveal())
	if h.cfg.Namespace != "" {
		out.Header.Set("X-Vault-Namespace", h.cfg.Namespace)
	}
	res, err := h.client.Do(out)
	if err != nil {
		return 0, nil, fault.Wrap(err, fault.Unavailable, "Vault does not answer; try again")
	}
	defer res.Body.Close()
	if res.StatusCode >= 300 && res.StatusCode < 400 {
		return 0, nil, fault.New(fault.Unavailable, "Vault is changing its leader; try again")
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = errors.New("answer too large")
	}
	if err != nil {
		return 0, nil, fault.Wrap(err, fault.Unavailable, "Vault's answer could not be read; try again")
	}
	return res.StatusCode, body, nil
}

// plain reports whether a path means what it says: letters, digits and - . _ in segments, none of them
// empty, "." or "..".
func plain(path string) bool {
	if len(path) < 2 || len(path) > maxPath || path[0] != '/' {
		return false
	}
	for _, seg := range strings.Split(path[1:], "/") {
		if seg == "" || seg == "." || seg == ".." {
			return false
		}
		for i := range len(seg) {
			c := seg[i]
			if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
				return false
			}
		}
	}
	return true
}

// clip makes what a client sent fit for a log and a sentence: short, printable ASCII.
func clip(s string) string {
	const most = 200
	if len(s) > most {
		s = s[:most] + "…"
	}
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}

func statusOf(code fault.Code) int {
	switch code {
	case fault.Denied:
		return http.StatusForbidden
	case fault.Invalid:
		return http.StatusBadRequest
	case fault.Exhausted:
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// vaultError is an error as Vault's clients read it, with our code beside it.
func vaultError(code fault.Code, message string) []byte {
	b, err := json.Marshal(map[string]any{"errors": []string{fmt.Sprintf("%s: %s", code, message)}, "code": string(code)})
	if err != nil {
		return []byte(`{"errors":["internal"],"code":"internal"}`)
	}
	return append(b, '\n')
}
