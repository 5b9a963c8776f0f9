package vault

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// Config says which Vault, and as whom.
type Config struct {
	Address   string        // unix:///path/of/socket, http://… or https://…
	Namespace string        // of OpenBao or Vault Enterprise; empty is the root
	Auth      Auth          // how the service gets its own token
	Timeout   time.Duration // of one call; 5 s if 0
	Clock     func() time.Time
	Logger    *slog.Logger
}

// Client is the service's connection to Vault. It is safe for use by several goroutines.
type Client struct {
	base    *api.Client // without a token, never changed; as gives it one
	auth    Auth
	timeout time.Duration
	clock   func() time.Time
	log     *slog.Logger
	address string
	ns      string

	login sync.Mutex                  // one login at a time
	token atomic.Pointer[value.Value] // the service's own; nil before the first login
}

// New makes a client. It does not connect: a Vault that is down at the start is unavailable for the
// operations that need it, and nothing else.
func New(cfg Config) (*Client, error) {
	base, err := Dial(cfg.Address, cfg.Namespace)
	if err != nil {
		return nil, err
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{base: base, auth: cfg.Auth, timeout: cfg.Timeout, clock: cfg.Clock, log: cfg.Logger, address: cfg.Address, ns: cfg.Namespace}, nil
}

// Dial makes a bare API client for address without a token, and without retries: a call whose answer
// was lost is the caller's to repeat, because only the caller knows whether that is harmless.
func Dial(address, namespace string) (*api.Client, error) {
	cfg := api.DefaultConfig() // takes VAULT_CACERT and its like from the environment
	if cfg.Error != nil {
		return nil, fault.Wrap(cfg.Error, fault.Invalid, "the VAULT_ variables of the environment are not valid")
	}
	cfg.Address = address
	cfg.MaxRetries = 0
	c, err := api.NewClient(cfg)
	if err != nil {
		return nil, fault.Wrap(err, fault.Invalid, "the address of Vault %q is not valid", address)
	}
	c.ClearToken() // NewClient takes VAULT_TOKEN by itself; who we are is said by Auth only
	c.ClearNamespace()
	if namespace != "" {
		c.SetNamespace(namespace)
	}
	return c, nil
}

// As gives a client of the same connections that acts with token. It copies and changes no other state,
// where the library's own Clone would write to the connections that are in use.
func As(base *api.Client, token value.Value) *api.Client {
	return base.WithRequestCallbacks(func(r *api.Request) { r.ClientToken = token.Reveal() })
}

// Hang closes the idle connections of a client that is no longer used.
func Hang(base *api.Client) { base.CloneConfig().HttpClient.CloseIdleConnections() }

// Close closes idle connections.
func (c *Client) Close() { Hang(c.base) }

// Address is where this client reaches Vault.
func (c *Client) Address() string { return c.address }

// Namespace is the namespace that everything is in, usually none.
func (c *Client) Namespace() string { return c.ns }

// do calls fn with a deadline. If Vault refuses because the service's own token has ended, it logs in
// again and calls fn once more.
func (c *Client) do(ctx context.Context, what string, fn func(context.Context, *api.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	token := c.token.Load()
	if token == nil {
		var err error
		if token, err = c.relogin(ctx, nil); err != nil {
			return err
		}
	}
	v := As(c.base, *token)
	err := fn(ctx, v)
	if status(err) == http.StatusForbidden {
		if _, self := v.Auth().Token().LookupSelfWithContext(ctx); status(self) == http.StatusForbidden {
			if token, err = c.relogin(ctx, token); err != nil {
				return err
			}
			err = fn(ctx, As(c.base, *token))
		}
	}
	return toFault(what, err)
}

// relogin replaces the token old, unless another goroutine has done so meanwhile.
func (c *Client) relogin(ctx context.Context, old *value.Value) (*value.Value, error) {
	c.login.Lock()
	defer c.login.Unlock()
	if now := c.token.Load(); now != old {
		return now, nil
	}
	token, err := c.auth.Login(ctx, c.base)
	if err != nil {
		return nil, err
	}
	c.token.Store(&token)
	c.log.Info("logged in to Vault", "address", c.address)
	return &token, nil
}

// Ready tells whether Vault is there, unsealed, and takes the service's token.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, "check Vault", func(ctx context.Context, v *api.Client) error {
		_, err := v.Auth().Token().LookupSelfWithContext(ctx)
		return err
	})
}

// KeepAlive renews the service's own token until ctx ends, at a third of what it has left. A token
// that can't be renewed is left alone; when it ends, the next call logs in again.
func (c *Client) KeepAlive(ctx context.Context) {
	for {
		wait := 30 * time.Second
		var left time.Duration
		err := c.do(ctx, "renew the service's token", func(ctx context.Context, v *api.Client) error {
			self, err := v.Auth().Token().LookupSelfWithContext(ctx)
			if err != nil {
				return err
			}
			if left, err = self.TokenTTL(); err != nil || left == 0 {
				return err
			}
			if ok, _ := self.TokenIsRenewable(); ok {
				if _, err = v.Auth().Token().RenewSelfWithContext(ctx, 0); err != nil {
					return err
				}
			}
			return nil
		})
		switch {
		case err != nil && ctx.Err() == nil:
			c.log.Warn("the service's Vault token was not renewed", "err", err)
		case left > 0:
			wait = min(max(left/3, time.Second), 10*time.Minute)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// status is the HTTP status with which Vault refused, or 0.
func status(err error) int {
	var re *api.ResponseError
	if errors.As(err, &re) {
		return re.StatusCode
	}
	return 0
}

// toFault gives err the code that the caller of the service should see. Vault's own text goes to the
// log as the cause; it names paths and no values.
func toFault(what string, err error) error {
	var already *fault.Error
	if err == nil || errors.As(err, &already) {
		return err
	}
	switch code := status(err); {
	case errors.Is(err, api.ErrSecretNotFound) || code == http.StatusNotFound:
		return fault.Wrap(err, fault.NotFound, "%s: Vault has no such thing", what)
	case code == http.StatusForbidden:
		return fault.Wrap(err, fault.Internal, "%s: Vault's policy does not allow it to the secrets service; its token needs the policy %s", what, ServicePolicy)
	case code == http.StatusBadRequest:
		return fault.Wrap(err, fault.Internal, "%s: Vault refused the request", what)
	case code == http.StatusRequestEntityTooLarge:
		return fault.Wrap(err, fault.Invalid, "%s: it is too large for Vault", what)
	}
	return fault.Wrap(err, fault.Unavailable, "%s: Vault is sealed, down or out of reach; try again", what)
}
