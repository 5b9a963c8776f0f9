package vault

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/vault/api"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// Token is a token as it was made.
type Token struct {
	Value     value.Value
	Accessor  string
	ExpiresAt time.Time
}

// TokenSpec says what token to make.
type TokenSpec struct {
	Policy string            // LeasePrefix + something; it need not exist yet
	TTL    time.Duration     // until it must be renewed, whole seconds
	Meta   map[string]string // what finds its owner again; seen in Vault's audit log
}

// Holder is what Vault knows of a token.
type Holder struct {
	Ours      bool // made under our role
	Meta      map[string]string
	ExpiresAt time.Time
}

// Create makes a token for a sandbox under our role. It may do nothing until Empower.
func (c *Client) Create(ctx context.Context, spec TokenSpec) (Token, error) {
	var t Token
	err := c.do(ctx, "make a token", func(ctx context.Context, v *api.Client) error {
		renewable := true
		s, err := v.Auth().Token().CreateWithRoleWithContext(ctx, &api.TokenCreateRequest{
			Policies:    []string{spec.Policy},
			TTL:         seconds(spec.TTL),
			Metadata:    spec.Meta,
			DisplayName: "weft-sandbox",
			Renewable:   &renewable,
		}, Role)
		if err != nil {
			return err
		}
		if s == nil || s.Auth == nil {
			return errNoAuth
		}
		t = Token{value.Of(s.Auth.ClientToken), s.Auth.Accessor, c.expiry(s.Auth.LeaseDuration)}
		return nil
	})
	return t, err
}

func (c *Client) expiry(seconds int) time.Time {
	return c.clock().Add(time.Duration(seconds) * time.Second).UTC()
}

// Empower writes the policy that a token was made for: exactly the paths of access.
func (c *Client) Empower(ctx context.Context, policy string, access []Access) error {
	return c.do(ctx, "write the policy of a lease", func(ctx context.Context, v *api.Client) error {
		return v.Sys().PutPolicyWithContext(ctx, policy, LeasePolicy(access))
	})
}

// Renew gives the token behind accessor another ttl from now, within MaxTTL of its creation. not_found if it ended.
func (c *Client) Renew(ctx context.Context, accessor string, ttl time.Duration) (time.Time, error) {
	var until time.Time
	err := c.do(ctx, "renew a lease", func(ctx context.Context, v *api.Client) error {
		s, err := v.Auth().Token().RenewAccessorWithContext(ctx, accessor, int(max(ttl, time.Second)/time.Second))
		if gone(err) {
			return fault.Wrap(err, fault.NotFound, "the lease has expired")
		}
		if err != nil {
			return err
		}
		if s == nil || s.Auth == nil {
			return errNoAuth
		}
		until = c.expiry(s.Auth.LeaseDuration)
		return nil
	})
	return until, err
}

// Revoke takes the power from a token and ends it with everything that was issued under it. Either
// part may be empty or gone already.
func (c *Client) Revoke(ctx context.Context, accessor, policy string) error {
	return c.do(ctx, "revoke a lease", func(ctx context.Context, v *api.Client) error {
		if policy != "" {
			if err := v.Sys().DeletePolicyWithContext(ctx, policy); err != nil && status(err) != http.StatusNotFound {
				return err
			}
		}
		if accessor == "" {
			return nil
		}
		if err := v.Auth().Token().RevokeAccessorWithContext(ctx, accessor); err != nil && !gone(err) {
			return err
		}
		return nil
	})
}

// Lookup says whose token is behind accessor. not_found if it has ended.
func (c *Client) Lookup(ctx context.Context, accessor string) (Holder, error) {
	var h Holder
	err := c.do(ctx, "look up a lease", func(ctx context.Context, v *api.Client) error {
		s, err := v.Auth().Token().LookupAccessorWithContext(ctx, accessor)
		if status(err) == http.StatusForbidden {
			dangles, cerr := may(ctx, v, "auth/token/lookup-accessor")
			if cerr != nil {
				return cerr
			}
			if dangles {
				err = nil
			}
		}
		if gone(err) || (err == nil && s == nil) {
			return fault.Wrap(api.ErrSecretNotFound, fault.NotFound, "the lease has ended")
		}
		if err != nil {
			return err
		}
		role, _ := s.Data["role"].(string)
		path, _ := s.Data["path"].(string)
		left, err := s.TokenTTL()
		if err != nil {
			return err
		}
		meta, err := s.TokenMetadata()
		if err != nil {
			return err
		}
		ours := role == Role && strings.HasPrefix(path, "auth/token/create/")
		uses, err := number(s.Data["num_uses"])
		if err != nil {
			return err
		}
		// Expired, or marked as revoked, which is a negative number of uses: no longer good for anything, but
		// not taken away yet. A Vault that was killed in the middle of a revocation takes it away at its TTL.
		if ours && (left <= 0 || uses < 0) {
			return fault.New(fault.NotFound, "the lease has ended")
		}
		h = Holder{Ours: ours, Meta: meta, ExpiresAt: c.clock().Add(left).UTC()}
		return nil
	})
	return h, err
}

// number reads an integer of Vault's answer.
func number(v any) (int64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, nil // absent
	}
	return n.Int64()
}

// may reports whether the service's own policy allows an update of path. A Vault that was killed while it
// made a token may keep an accessor that leads nowhere, and refuses to look that up in the very words with
// which it refuses those who may not look up anything. To take the one for the other would end every lease.
func may(ctx context.Context, v *api.Client, path string) (bool, error) {
	caps, err := v.Sys().CapabilitiesSelfWithContext(ctx, path)
	return slices.Contains(caps, "update") || slices.Contains(caps, "root"), err
}

// Accessors lists those of every token in this namespace of Vault, also of others.
func (c *Client) Accessors(ctx context.Context) ([]string, error) {
	return c.keys(ctx, "list tokens", "auth/token/accessors")
}

// Policies lists the policies of leases.
func (c *Client) Policies(ctx context.Context) ([]string, error) {
	all, err := c.keys(ctx, "list policies", "sys/policies/acl")
	var out []string
	for _, p := range all {
		if strings.HasPrefix(p, LeasePrefix) {
			out = append(out, p)
		}
	}
	return out, err
}

// gone reports whether Vault refused because there is no token behind an accessor. Which status it
// uses for that differs between operations and versions; the words do not.
func gone(err error) bool {
	switch status(err) {
	case http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound:
		return strings.Contains(err.Error(), "invalid accessor") || strings.Contains(err.Error(), "token not found") || strings.Contains(err.Error(), "bad token")
	}
	return false
}
