package vault

import (
	"context"
	"os"
	"strings"

	"github.com/hashicorp/vault/api"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// Auth gives the service its own token. Login is called at the start and whenever Vault no longer
// takes the token that it gave last; v is a connection without a valid token.
type Auth interface {
	Login(ctx context.Context, v *api.Client) (value.Value, error)
}

// StaticToken is an Auth with a token that was given from outside, as by VAULT_TOKEN.
type StaticToken value.Value

// Login gives the same token each time.
func (t StaticToken) Login(context.Context, *api.Client) (value.Value, error) {
	v := value.Value(t)
	if v.Empty() {
		return v, fault.New(fault.Unavailable, "no token for Vault; set VAULT_TOKEN, or VAULT_ROLE_ID and VAULT_SECRET_ID")
	}
	return v, nil
}

// TokenFile is an Auth that reads a file at every login, as a Vault agent keeps one up to date.
type TokenFile string

// Login reads the file.
func (f TokenFile) Login(context.Context, *api.Client) (value.Value, error) {
	b, err := os.ReadFile(string(f))
	if err != nil {
		return value.Value{}, fault.Wrap(err, fault.Unavailable, "the token of Vault can't be read from %s", string(f))
	}
	return value.Of(strings.TrimSpace(string(b))), nil
}

// AppRole is an Auth by role and secret id.
type AppRole struct {
	Mount    string // approle if empty
	RoleID   string
	SecretID value.Value
}

// Login exchanges the two ids for a token.
func (a AppRole) Login(ctx context.Context, v *api.Client) (value.Value, error) {
	mount := a.Mount
	if mount == "" {
		mount = "approle"
	}
	s, err := v.Logical().WriteWithContext(ctx, "auth/"+mount+"/login", map[string]any{
		"role_id": a.RoleID, "secret_id": a.SecretID.Reveal(),
	})
	switch code := status(err); {
	case code == 400 || code == 403 || code == 404:
		return value.Value{}, fault.Wrap(err, fault.Unavailable, "Vault refused the login by role; check VAULT_ROLE_ID and VAULT_SECRET_ID")
	case err != nil:
		return value.Value{}, toFault("log in to Vault", err)
	case s == nil || s.Auth == nil:
		return value.Value{}, fault.New(fault.Internal, "Vault gave no token for the login by role")
	}
	return value.Of(s.Auth.ClientToken), nil
}
