package client

import (
	"context"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// PutSecret stores a value, or makes a transit key. No operation gives a value back.
func (c *Client) PutSecret(ctx context.Context, r secrets.PutRequest) (secrets.Secret, error) {
	return ask[secrets.Secret](ctx, c, schemas.Secrets, secrets.OpPut, r)
}

// Secrets gives the workspace's secrets without their values.
func (c *Client) Secrets(ctx context.Context, limit int) ([]secrets.Secret, error) {
	return list[secrets.Secret](ctx, c, schemas.Secrets, secrets.OpList, limit)
}

// DeleteSecret deletes a secret and its grants.
func (c *Client) DeleteSecret(ctx context.Context, name string) error {
	_, err := ask[workspace.Empty](ctx, c, schemas.Secrets, secrets.OpDelete, workspace.Name{Name: name})
	return err
}

// GrantSecret lets an agent have a secret.
func (c *Client) GrantSecret(ctx context.Context, r secrets.GrantRequest) (secrets.Grant, error) {
	return ask[secrets.Grant](ctx, c, schemas.Secrets, secrets.OpGrant, r)
}

// Grants gives the workspace's grants.
func (c *Client) Grants(ctx context.Context, limit int) ([]secrets.Grant, error) {
	return list[secrets.Grant](ctx, c, schemas.Secrets, secrets.OpGrantList, limit)
}

// RevokeGrant takes a grant back, and the leases that hang on it. It says how many those were.
func (c *Client) RevokeGrant(ctx context.Context, id string) (int, error) {
	r, err := ask[secrets.RevokeReply](ctx, c, schemas.Secrets, secrets.OpGrantRevoke, workspace.ID{ID: id})
	return r.Leases, err
}

// Leases gives what sandboxes were given.
func (c *Client) Leases(ctx context.Context, limit int) ([]secrets.Lease, error) {
	return list[secrets.Lease](ctx, c, schemas.Secrets, secrets.OpLeaseList, limit)
}

// RevokeLeases ends all leases of a sandbox and says how many there were.
func (c *Client) RevokeLeases(ctx context.Context, sandbox string) (int, error) {
	r, err := ask[secrets.RevokeReply](ctx, c, schemas.Secrets, secrets.OpLeaseRevoke, workspace.ID{ID: sandbox})
	return r.Leases, err
}

// VerifySignature checks a transit signature over data.
func (c *Client) VerifySignature(ctx context.Context, r secrets.VerifyRequest) (bool, error) {
	v, err := ask[secrets.VerifyReply](ctx, c, schemas.Secrets, secrets.OpVerify, r)
	return v.Valid, err
}
