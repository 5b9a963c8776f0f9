package secrets

import (
	"context"
	"slices"
	"strings"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/name"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

// Put stores a new version of a value, or makes a key in the transit engine, where it stays. A key that
// is there already is kept, so repeating is harmless; a repeated value is another version of the same.
func (s *Service) Put(ctx context.Context, by mesh.Caller, req wire.PutRequest) (wire.Secret, error) {
	v := value.Of(req.Value)
	req.Value = ""
	secret, err := secretOf(by, req.Name)
	if err != nil {
		return wire.Secret{}, err
	}
	if err := s.room(ctx, secret); err != nil {
		return wire.Secret{}, err
	}
	var info vault.Info
	switch req.Kind {
	case "", wire.KindKV:
		if err := checkValue(req, v); err != nil {
			return wire.Secret{}, err
		}
		info, err = s.cfg.Vault.PutKV(ctx, secret, v)
	case wire.KindTransit:
		if req.KeyType == "" {
			req.KeyType = "ed25519"
		}
		if !v.Empty() {
			return wire.Secret{}, fault.New(fault.Invalid, "a transit key is made inside Vault and takes no value; leave value out")
		}
		if !slices.Contains(vault.KeyTypes(), req.KeyType) {
			return wire.Secret{}, fault.New(fault.Invalid, "key_type %q must be one of %s", clip(req.KeyType), strings.Join(vault.KeyTypes(), ", "))
		}
		info, err = s.cfg.Vault.PutKey(ctx, secret, req.KeyType)
	default:
		return wire.Secret{}, fault.New(fault.Invalid, "kind %q must be %s or %s", clip(req.Kind), wire.KindKV, wire.KindTransit)
	}
	s.audit(ctx, wire.Audit{Action: wire.AuditPut, Tenant: by.Tenant, Workspace: by.Workspace, Principal: by.Principal, Secrets: []string{req.Name}}, err)
	return info.Secret, err
}

// room refuses a new name where a workspace has MaxSecrets already. Two puts at once may pass it by one.
func (s *Service) room(ctx context.Context, secret name.Secret) error {
	names, err := s.cfg.Vault.List(ctx, secret.Tenant, secret.Workspace)
	if err != nil {
		return err
	}
	if len(names) >= wire.MaxSecrets && !slices.Contains(names, secret.Name) {
		return fault.New(fault.Exhausted, "workspace %q has %d secrets, which is the limit; delete some", secret.Workspace, len(names))
	}
	return nil
}

func checkValue(req wire.PutRequest, v value.Value) error {
	switch {
	case v.Empty():
		return fault.New(fault.Invalid, "value must not be empty; `weft secret put %s` reads it from its standard input", req.Name)
	case v.Len() > wire.MaxValue:
		return fault.New(fault.Invalid, "value has %d bytes, but a secret takes %d; put larger things into a file of the workspace, encrypted", v.Len(), wire.MaxValue)
	case req.KeyType != "":
		return fault.New(fault.Invalid, "key_type is only for kind %s", wire.KindTransit)
	}
	return nil
}
