package manager

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Deadlines of what the manager asks of others.
const (
	createTimeout = 60 * time.Second
	killTimeout   = 60 * time.Second
	lifeTimeout   = 25 * time.Second
	// snapshotTimeout is for gigabytes that are packed and unpacked again.
	snapshotTimeout = 4 * time.Minute
	purgeTimeout    = 60 * time.Second
	outputSilence   = 20 * time.Second
)

// meshNodes asks nodes over the node plane.
type meshNodes struct{ c *mesh.Conn }

func (m *meshNodes) ask(ctx context.Context, node, op string, timeout time.Duration, req any) error {
	subject, err := schemas.Node(node, schemas.WorkspaceManager, op)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	_, err = mesh.Request[workspace.Empty](ctx, m.c, subject, req)
	return err
}

// CreateSandbox waits until the sandbox is ready.
func (m *meshNodes) CreateSandbox(ctx context.Context, node string, req runtime.SandboxCreate) error {
	return m.ask(ctx, node, runtime.OpSandboxCreate, createTimeout, req)
}

// KillSandbox waits until the sandbox has ended.
func (m *meshNodes) KillSandbox(ctx context.Context, node string, req runtime.SandboxKill) error {
	return m.ask(ctx, node, runtime.OpSandboxKill, killTimeout, req)
}

// ExtendSandbox moves the end of a sandbox.
func (m *meshNodes) ExtendSandbox(ctx context.Context, node string, req runtime.SandboxExtend) error {
	return m.ask(ctx, node, runtime.OpSandboxExtend, lifeTimeout, req)
}

// PauseSandbox waits until nothing in it runs.
func (m *meshNodes) PauseSandbox(ctx context.Context, node string, req runtime.SandboxRef) error {
	return m.ask(ctx, node, runtime.OpSandboxPause, lifeTimeout, req)
}

// ResumeSandbox waits until it goes on.
func (m *meshNodes) ResumeSandbox(ctx context.Context, node string, req runtime.SandboxRef) error {
	return m.ask(ctx, node, runtime.OpSandboxResume, lifeTimeout, req)
}

// ForkSandbox waits until all forks are ready.
func (m *meshNodes) ForkSandbox(ctx context.Context, node string, req runtime.SandboxFork) error {
	return m.ask(ctx, node, runtime.OpSandboxFork, createTimeout, req)
}

// SnapshotSandbox waits until the image can be used.
func (m *meshNodes) SnapshotSandbox(ctx context.Context, node string, req runtime.SandboxSnapshot) (runtime.Snapshot, error) {
	subject, err := schemas.Node(node, schemas.WorkspaceManager, runtime.OpSandboxSnapshot)
	if err != nil {
		return runtime.Snapshot{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	return mesh.Request[runtime.Snapshot](ctx, m.c, subject, req)
}

// RemoveSnapshot removes an image.
func (m *meshNodes) RemoveSnapshot(ctx context.Context, node string, req runtime.SnapshotRef) error {
	return m.ask(ctx, node, runtime.OpSnapshotRemove, lifeTimeout, req)
}

// Output gives the spooled output of an attempt from the offsets on.
func (m *meshNodes) Output(ctx context.Context, node string, req workspace.OutputRequest, each func(workspace.OutputChunk) error) error {
	subject, err := schemas.Node(node, schemas.WorkspaceManager, runtime.OpOutput)
	if err != nil {
		return err
	}
	return mesh.RequestMany(ctx, m.c, subject, req, outputSilence, each)
}

// servicePurger has one service remove what it owns.
type servicePurger struct {
	c    *mesh.Conn
	name string
}

// meshPurgers are all services that own things of a workspace, wherever they run.
func meshPurgers(c *mesh.Conn) []Purger {
	return []Purger{servicePurger{c, schemas.Filesystem}, servicePurger{c, schemas.Secrets}, servicePurger{c, schemas.Memory}}
}

// Name is the service's.
func (p servicePurger) Name() string { return p.name }

func (p servicePurger) ask(ctx context.Context, op string, req any) error {
	subject, err := schemas.Int(schemas.WorkspaceManager, p.name, op)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, purgeTimeout)
	defer cancel()
	_, err = mesh.Request[workspace.Empty](ctx, p.c, subject, req)
	return err
}

// DeleteWorkspace asks for what is in a workspace.
func (p servicePurger) DeleteWorkspace(ctx context.Context, tenant, ws string) error {
	return p.ask(ctx, "delete-workspace", workspace.DeleteWorkspace{Tenant: tenant, Workspace: ws})
}

// DeleteTenant asks for what is left of a tenant when its workspaces are gone: what is kept by tenant, as the
// contents that several workspaces share, and what lies under no workspace.
func (p servicePurger) DeleteTenant(ctx context.Context, tenant string) error {
	if p.name != schemas.Memory {
		return p.ask(ctx, "delete-workspace", workspace.DeleteWorkspace{Tenant: tenant})
	}
	return p.ask(ctx, memory.OpDeleteTenant, memory.DeleteTenantRequest{Tenant: tenant})
}
