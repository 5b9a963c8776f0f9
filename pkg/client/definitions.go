package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Definitions are the things of one kind that are put, read, listed and deleted by name.
type Definitions[T any] struct {
	c    *Client
	kind string
}

// Workspaces are those of the tenant.
func (c *Client) Workspaces() Definitions[workspace.Workspace] {
	return Definitions[workspace.Workspace]{c.tenantWide(), workspace.EntityWorkspace}
}

// Agents are those of the workspace.
func (c *Client) Agents() Definitions[workspace.Agent] {
	return Definitions[workspace.Agent]{c, workspace.EntityAgent}
}

// Templates are those of the workspace and of the tenant; with workspace "-" of the tenant alone.
func (c *Client) Templates() Definitions[workspace.Template] {
	return Definitions[workspace.Template]{c, workspace.EntityTemplate}
}

// Triggers are those of the workspace.
func (c *Client) Triggers() Definitions[workspace.Trigger] {
	return Definitions[workspace.Trigger]{c, workspace.EntityTrigger}
}

// Put makes v, or changes it; what is the same already stays at its version. If version is not 0 it
// must be the present one, else conflict.
func (d Definitions[T]) Put(ctx context.Context, v T, version int) (T, error) {
	return ask[T](ctx, d.c, schemas.WorkspaceManager, d.kind+"-put", workspace.Put[T]{Value: v, Version: version})
}

// Get reads one.
func (d Definitions[T]) Get(ctx context.Context, name string) (T, error) {
	return ask[T](ctx, d.c, schemas.WorkspaceManager, d.kind+"-get", workspace.Name{Name: name})
}

// List gives up to limit of them by name; 0 is all.
func (d Definitions[T]) List(ctx context.Context, limit int) ([]T, error) {
	return list[T](ctx, d.c, schemas.WorkspaceManager, d.kind+"-list", limit)
}

// Delete removes one. A workspace goes with everything in it, which takes a while: Delete returns when it is
// gone; if ctx ends before, the deletion goes on, and a repeat waits on.
func (d Definitions[T]) Delete(ctx context.Context, name string) error {
	_, err := ask[json.RawMessage](ctx, d.c, schemas.WorkspaceManager, d.kind+"-delete", workspace.Name{Name: name})
	if err != nil || d.kind != workspace.EntityWorkspace {
		return err
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := d.Get(ctx, name); fault.Is(err, fault.NotFound) {
			return nil
		} else if err != nil && !fault.Is(err, fault.Unavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(ctx.Err(), fault.Deadline, "workspace %s is being deleted, but not gone yet; repeat to wait on", name)
		case <-tick.C:
		}
	}
}
