package secrets

import (
	"bytes"
	"log/slog"
	"os"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/secrets/bao"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// VaultOptions say which Vault to use. Exactly one of Token, TokenFile, RoleID and Server is set; they
// are how the service gets its own token.
type VaultOptions struct {
	Address   string // unix:///path, http://… or https://…; Server's own if that is set
	Namespace string
	Token     value.Value
	TokenFile string
	RoleMount string // of RoleID; approle if empty
	RoleID    string
	SecretID  value.Value
	Server    *bao.Server // the one that we run
	Timeout   time.Duration
	Clock     func() time.Time
	Logger    *slog.Logger
}

// Connect makes the adapter. It does not wait for Vault: without it the operations are unavailable.
func Connect(o VaultOptions) (Vault, error) {
	cfg := vault.Config{Address: o.Address, Namespace: o.Namespace, Timeout: o.Timeout, Clock: o.Clock, Logger: o.Logger}
	switch {
	case o.Server != nil:
		cfg.Address, cfg.Auth = o.Server.Address(), o.Server
	case o.RoleID != "":
		cfg.Auth = vault.AppRole{Mount: o.RoleMount, RoleID: o.RoleID, SecretID: o.SecretID}
	case o.TokenFile != "":
		cfg.Auth = vault.TokenFile(o.TokenFile)
	default:
		cfg.Auth = vault.StaticToken(o.Token)
	}
	if cfg.Address == "" {
		return nil, fault.New(fault.Invalid, "no Vault is configured; set VAULT_ADDR, or let weftd run its own")
	}
	return vault.New(cfg)
}

// VaultFromEnv reads the variables that Vault's own tools use: VAULT_ADDR, VAULT_NAMESPACE, and one of
// VAULT_TOKEN, VAULT_TOKEN_FILE, or VAULT_ROLE_ID with VAULT_SECRET_ID (or VAULT_SECRET_ID_FILE). ok is false
// without VAULT_ADDR: then there is no external Vault.
func VaultFromEnv(getenv func(string) string) (o VaultOptions, ok bool, err error) {
	if o.Address = getenv("VAULT_ADDR"); o.Address == "" {
		return o, false, nil
	}
	o.Namespace = getenv("VAULT_NAMESPACE")
	o.Token, o.TokenFile = value.Of(getenv("VAULT_TOKEN")), getenv("VAULT_TOKEN_FILE")
	o.RoleMount, o.RoleID, o.SecretID = getenv("VAULT_ROLE_MOUNT"), getenv("VAULT_ROLE_ID"), value.Of(getenv("VAULT_SECRET_ID"))
	if f := getenv("VAULT_SECRET_ID_FILE"); f != "" && o.SecretID.Empty() {
		b, err := os.ReadFile(f)
		if err != nil {
			return o, true, fault.Wrap(err, fault.Invalid, "VAULT_SECRET_ID_FILE %s can't be read", f)
		}
		o.SecretID = value.OfBytes(bytes.TrimSpace(b))
	}
	if o.Token.Empty() && o.TokenFile == "" && o.RoleID == "" {
		return o, true, fault.New(fault.Invalid, "VAULT_ADDR is set, but no way to log in; set VAULT_TOKEN, VAULT_TOKEN_FILE, or VAULT_ROLE_ID and VAULT_SECRET_ID")
	}
	return o, true, nil
}
