package weftd

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/weftmesh/weft/pkg/app/lifecycle"
	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

// managerPart runs the workspace-manager.
func (d *daemon) managerPart() lifecycle.Part {
	var (
		conn *mesh.Conn
		svc  *manager.Service
	)
	return lifecycle.Part{Name: schemas.WorkspaceManager,
		Start: func(ctx context.Context) error {
			var err error
			if conn, err = d.connect(ctx, schemas.WorkspaceManager); err != nil {
				return err
			}
			cfg := manager.Config{Conn: conn, KeyFile: filepath.Join(d.cfg.dir("keys"), "manager.key"),
				Instance: d.cfg.Node, ClaimLease: d.cfg.Lease, MinDiskFree: d.cfg.Watermark}
			if d.bus != nil {
				cfg.Storing = d.bus.Ready
			}
			svc, err = manager.New(cfg)
			return err
		},
		Run:  func(ctx context.Context) error { return svc.Run(ctx) },
		Stop: func() { conn.Close() },
	}
}

// tenantsWithin bounds how long the first tenant may take to be known everywhere.
const tenantsWithin = 30 * time.Second

// ensureTenants tells the manager of every tenant in the keys, gives the first one a workspace, and all of them
// the built-in templates. Doing it again changes nothing.
func (d *daemon) ensureTenants(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tenantsWithin)
	defer cancel()
	op, err := d.connect(ctx, schemas.Operator)
	if err != nil {
		return err
	}
	defer op.Close()
	names, err := d.keys.Tenants()
	if err != nil {
		return err
	}
	for _, n := range names {
		err := d.ensureTenant(ctx, op, n)
		if fault.Is(err, fault.Conflict) {
			d.log.Warn("tenant is being deleted", "tenant", n, "err", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("tenant %s: %w", n, err)
		}
	}
	return d.ensureTemplates(ctx, op)
}

func (d *daemon) ensureTenant(ctx context.Context, op *mesh.Conn, name string) error {
	t, err := d.keys.AddTenant(name)
	if err != nil {
		return err
	}
	subject, err := schemas.Int(schemas.Operator, schemas.WorkspaceManager, workspace.OpTenantPut)
	if err != nil {
		return err
	}
	put := workspace.TenantPut{Tenant: workspace.Tenant{Name: name}, Account: t.Account, AgentSeed: t.AgentSeed}
	if err := retry(ctx, func() error {
		_, err := mesh.Request[workspace.Tenant](ctx, op, subject, put)
		return err
	}); err != nil {
		return err
	}
	if name != d.cfg.Tenant {
		return nil
	}
	creds, err := d.keys.User(name, "weftd", accounts.UserLife)
	if err != nil {
		return err
	}
	user, err := mesh.Connect(ctx, mesh.Options{Name: "weftd", Dial: d.bus.InProcessConn, Logger: d.log,
		Credentials: func() (accounts.Credentials, error) { return creds, nil }})
	if err != nil {
		return err
	}
	defer user.Close()
	return d.ensureWorkspace(ctx, user, name)
}

// firstWorkspace is what a new mesh begins with.
const firstWorkspace = "default"

func (d *daemon) ensureWorkspace(ctx context.Context, user *mesh.Conn, tenant string) error {
	_, err := ask[workspace.Workspace](ctx, user, tenant, workspace.OpWorkspaceGet, workspace.Name{Name: firstWorkspace})
	if !fault.Is(err, fault.NotFound) {
		return err
	}
	_, err = ask[workspace.Workspace](ctx, user, tenant, workspace.OpWorkspacePut, workspace.Put[workspace.Workspace]{Value: workspace.Workspace{Name: firstWorkspace}})
	return err
}

// ensureTemplates registers the images that `make setup` built, for every tenant; a changed path is a new version.
func (d *daemon) ensureTemplates(ctx context.Context, op *mesh.Conn) error {
	subject, err := schemas.Int(schemas.Operator, schemas.WorkspaceManager, workspace.OpTemplatePut)
	if err != nil {
		return err
	}
	for _, name := range []string{"base", "python"} {
		image, err := toolchain.Image(name)
		if err != nil {
			d.log.Warn("built-in template is missing", "template", name, "err", err)
			continue
		}
		t := workspace.Template{Name: name, Image: image, Level: "standard",
			Resources: workspace.Resources{CPUMillis: 2000, MemoryBytes: 512 << 20, PIDs: 512, DiskBytes: 1 << 30, OutputBytes: 64 << 20}}
		err = retry(ctx, func() error { // what is there already as it is makes no new version
			_, err := mesh.Request[workspace.Template](ctx, op, subject, workspace.Put[workspace.Template]{Value: t})
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ask asks the manager as a user of the tenant, for the tenant as a whole.
func ask[Rep any](ctx context.Context, user *mesh.Conn, tenant, op string, req any) (Rep, error) {
	var rep Rep
	subject, err := schemas.Req(tenant, schemas.NoWorkspace, user.Name(), schemas.WorkspaceManager, op)
	if err != nil {
		return rep, err
	}
	err = retry(ctx, func() error {
		var err error
		rep, err = mesh.Request[Rep](ctx, user, subject, req)
		return err
	})
	return rep, err
}

// retry tries again while the other side is not there yet.
func retry(ctx context.Context, f func() error) error {
	for {
		err := f()
		if !fault.Is(err, fault.Unavailable) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}
