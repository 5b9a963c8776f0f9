package client

import (
	"context"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Pools are the warm pools that a caller may set, as they stand on each node.
type Pools interface {
	// Put makes the pool of a template, or changes it; the same again changes nothing. What is in use stays.
	Put(ctx context.Context, p workspace.Pool) (workspace.Pool, error)
	// Get gives the pool of a template.
	Get(ctx context.Context, template string) (workspace.PoolStatus, error)
	// List gives all of them by name.
	List(ctx context.Context) ([]workspace.PoolStatus, error)
	// Delete removes a pool; its unused members go.
	Delete(ctx context.Context, template string) error
}

// Pools are those of the workspace and of the tenant, and, to read, the shared ones of templates that it can use;
// with workspace "-" without the workspace's.
func (c *Client) Pools() Pools { return ownPools{c} }

// Pools are those that serve every tenant.
func (o *Operator) Pools() Pools { return sharedPools{o} }

type ownPools struct{ c *Client }

func (p ownPools) Put(ctx context.Context, v workspace.Pool) (workspace.Pool, error) {
	return ask[workspace.Pool](ctx, p.c, schemas.WorkspaceManager, workspace.OpPoolPut, workspace.Put[workspace.Pool]{Value: v})
}

func (p ownPools) Get(ctx context.Context, template string) (workspace.PoolStatus, error) {
	return ask[workspace.PoolStatus](ctx, p.c, schemas.WorkspaceManager, workspace.OpPoolGet, workspace.Name{Name: template})
}

func (p ownPools) List(ctx context.Context) ([]workspace.PoolStatus, error) {
	return list[workspace.PoolStatus](ctx, p.c, schemas.WorkspaceManager, workspace.OpPoolList, 0)
}

func (p ownPools) Delete(ctx context.Context, template string) error {
	_, err := ask[workspace.Empty](ctx, p.c, schemas.WorkspaceManager, workspace.OpPoolDelete, workspace.Name{Name: template})
	return err
}

type sharedPools struct{ o *Operator }

func (p sharedPools) Put(ctx context.Context, v workspace.Pool) (workspace.Pool, error) {
	return operate[workspace.Pool](ctx, p.o, workspace.OpPoolPut, workspace.Put[workspace.Pool]{Value: v})
}

func (p sharedPools) Get(ctx context.Context, template string) (workspace.PoolStatus, error) {
	return operate[workspace.PoolStatus](ctx, p.o, workspace.OpPoolGet, workspace.Name{Name: template})
}

func (p sharedPools) List(ctx context.Context) ([]workspace.PoolStatus, error) {
	return all(0, func(n int, cursor string) ([]workspace.PoolStatus, string, error) {
		r, err := operate[workspace.Page[workspace.PoolStatus]](ctx, p.o, workspace.OpPoolList, workspace.List{Limit: n, Cursor: cursor})
		return r.Items, r.Cursor, err
	})
}

func (p sharedPools) Delete(ctx context.Context, template string) error {
	_, err := operate[workspace.Empty](ctx, p.o, workspace.OpPoolDelete, workspace.Name{Name: template})
	return err
}
