package client

import (
	"context"
	"time"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Waits where the caller's context has no deadline: a sandbox may use its whole grace to end, and gets new credentials
// before it is resumed.
const (
	killWait = 70 * time.Second
	lifeWait = 30 * time.Second
	// snapshotWait is for gigabytes that are packed and unpacked again.
	snapshotWait = 5 * time.Minute
)

// atMost bounds a context that has no deadline of its own.
func atMost(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, has := ctx.Deadline(); has {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

func lifeOp(ctx context.Context, c *Client, op string, req any) (workspace.Sandbox, error) {
	ctx, cancel := atMost(ctx, lifeWait)
	defer cancel()
	return ask[workspace.Sandbox](ctx, c, schemas.WorkspaceManager, op, req)
}

// KeepSandbox counts as use of a sandbox and lets it live for ttl from now on, or for as long as it was made for if that is 0. It
// never shortens a life. idle is its new idle limit; 0 leaves it.
func (c *Client) KeepSandbox(ctx context.Context, id string, ttl, idle time.Duration) (workspace.Sandbox, error) {
	return lifeOp(ctx, c, workspace.OpSandboxExtend, workspace.SandboxExtend{ID: id, TTLMS: ttl.Milliseconds(), IdleMS: idle.Milliseconds()})
}

// PauseSandbox freezes a sandbox where it is. Its time to live goes on; nobody can use it.
func (c *Client) PauseSandbox(ctx context.Context, id string) (workspace.Sandbox, error) {
	return lifeOp(ctx, c, workspace.OpSandboxPause, workspace.ID{ID: id})
}

// ResumeSandbox lets a paused sandbox go on, with fresh credentials where the old ones have ended.
func (c *Client) ResumeSandbox(ctx context.Context, id string) (workspace.Sandbox, error) {
	return lifeOp(ctx, c, workspace.OpSandboxResume, workspace.ID{ID: id})
}

// ForkSandbox makes count sandboxes with the files that a sandbox with a writable root has now. All of them are made, or none.
func (c *Client) ForkSandbox(ctx context.Context, id string, count int) ([]workspace.Sandbox, error) {
	ctx, cancel := atMost(ctx, killWait)
	defer cancel()
	page, err := ask[workspace.Page[workspace.Sandbox]](ctx, c, schemas.WorkspaceManager, workspace.OpSandboxFork, workspace.SandboxFork{ID: id, Count: count})
	return page.Items, err
}

// SnapshotSandbox makes a template of what a sandbox has changed of its root.
func (c *Client) SnapshotSandbox(ctx context.Context, id, template string) (workspace.Template, error) {
	ctx, cancel := atMost(ctx, snapshotWait)
	defer cancel()
	return ask[workspace.Template](ctx, c, schemas.WorkspaceManager, workspace.OpSandboxSnapshot, workspace.SandboxSnapshot{ID: id, Template: template})
}
