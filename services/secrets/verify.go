package secrets

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
)

// Verify says whether a signature over data was made with a transit key of the workspace. Everybody in
// the workspace may ask: it takes no secret to verify. A signature that is none is not valid, no error.
func (s *Service) Verify(ctx context.Context, by mesh.Caller, req wire.VerifyRequest) (wire.VerifyReply, error) {
	secret, err := secretOf(by, req.Name)
	if err != nil {
		return wire.VerifyReply{}, err
	}
	info, err := s.cfg.Vault.Describe(ctx, secret)
	if err != nil {
		return wire.VerifyReply{}, noSecret(err, req.Name)
	}
	if !vault.Signs(info.KeyType) {
		return wire.VerifyReply{}, fault.New(fault.Invalid, "secret %q is not a key that signs", req.Name)
	}
	ok, err := s.cfg.Vault.Verify(ctx, secret, req.Data, req.Signature)
	return wire.VerifyReply{Valid: ok}, err
}
