package client

import (
	"context"
	"encoding/json"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Operator does what only the holder of the mesh's keys may do: tenants, dead letters, nodes.
type Operator struct {
	conn *mesh.Conn
	keys *accounts.Keyring
	url  string
}

// Close closes the connection.
func (o *Operator) Close() { o.conn.Close() }

// Conn is the operator's connection.
func (o *Operator) Conn() *mesh.Conn { return o.conn }

func operate[Rep any](ctx context.Context, o *Operator, op string, req any) (Rep, error) {
	subject, err := schemas.Int(schemas.Operator, schemas.WorkspaceManager, op)
	if err != nil {
		var zero Rep
		return zero, err
	}
	return mesh.Request[Rep](ctx, o.conn, subject, req)
}

// CreateTenant makes a tenant: its keys, its account in the NATS servers, its record and streams. What
// an earlier call did not finish is finished.
func (o *Operator) CreateTenant(ctx context.Context, t workspace.Tenant) (workspace.Tenant, error) {
	a, err := o.keys.AddTenant(t.Name)
	if err != nil {
		return t, err
	}
	if err := o.claims(ctx, "$SYS.REQ.CLAIMS.UPDATE", a.JWT); err != nil {
		return t, err
	}
	return operate[workspace.Tenant](ctx, o, workspace.OpTenantPut, workspace.TenantPut{Tenant: t, Account: a.Account, AgentSeed: a.AgentSeed})
}

// Tenants gives the tenants by name.
func (o *Operator) Tenants(ctx context.Context) ([]workspace.Tenant, error) {
	return all(0, func(n int, cursor string) ([]workspace.Tenant, string, error) {
		p, err := operate[workspace.Page[workspace.Tenant]](ctx, o, workspace.OpTenantList, workspace.List{Limit: n, Cursor: cursor})
		return p.Items, p.Cursor, err
	})
}

// DeleteTenant removes everything of a tenant, then its account and keys. It returns when that is done;
// if ctx ends before, a repeat goes on where it stopped.
func (o *Operator) DeleteTenant(ctx context.Context, name string) error {
	if err := schemas.CheckName("tenant", name); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	_, err := operate[workspace.Tenant](ctx, o, workspace.OpTenantDelete, workspace.Name{Name: name})
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	known := o.hasKeys(name)
	if err != nil && !known {
		return err
	}
	if err := o.awaitGone(ctx, name); err != nil || !known {
		return err
	}
	a, err := o.keys.AddTenant(name)
	if err != nil {
		return err
	}
	req, err := o.keys.DeleteRequest(a.Account)
	if err != nil {
		return err
	}
	if err := o.claims(ctx, "$SYS.REQ.CLAIMS.DELETE", req); err != nil {
		return err
	}
	return o.keys.RemoveTenant(name)
}

func (o *Operator) hasKeys(tenant string) bool {
	names, err := o.keys.Tenants()
	for _, n := range names {
		if n == tenant {
			return true
		}
	}
	return err != nil
}

// awaitGone waits until the manager no longer lists a tenant.
func (o *Operator) awaitGone(ctx context.Context, name string) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		ts, err := o.Tenants(ctx)
		if err != nil {
			return err
		}
		there := false
		for _, t := range ts {
			there = there || t.Name == name
		}
		if !there {
			return nil
		}
		select {
		case <-ctx.Done():
			return fault.Wrap(ctx.Err(), fault.Deadline, "tenant %s is being deleted, but not gone yet; repeat to wait on", name)
		case <-tick.C:
		}
	}
}

// claims sends account claims to the NATS servers, as a user of the system account.
func (o *Operator) claims(ctx context.Context, subject, body string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	sys, err := mesh.Connect(ctx, mesh.Options{URL: o.url, Name: "system",
		Credentials: func() (accounts.Credentials, error) { return o.keys.System() }})
	if err != nil {
		return err
	}
	defer sys.Close()
	m, err := sys.NATS().RequestWithContext(ctx, subject, []byte(body))
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "no NATS server answers for its accounts; is the mesh running?")
	}
	var r struct {
		Error *struct {
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &r); err != nil {
		return fault.Wrap(err, fault.Internal, "the NATS server's answer about the account can't be read")
	}
	if r.Error != nil {
		return fault.New(fault.Denied, "the NATS server did not accept the account: %s", r.Error.Description)
	}
	return nil
}

// MintUser makes a credentials file for a principal of a tenant, for use on another machine. It is valid
// for life.
func (o *Operator) MintUser(tenant, principal string, life time.Duration) ([]byte, error) {
	c, err := o.keys.User(tenant, principal, life)
	if err != nil {
		return nil, err
	}
	return c.File()
}

// DeadLetters gives up to limit dead letters that the filter picks, the oldest first; 0 is all.
func (o *Operator) DeadLetters(ctx context.Context, filter workspace.DLQList, limit int) ([]workspace.DeadLetter, error) {
	return all(limit, func(n int, cursor string) ([]workspace.DeadLetter, string, error) {
		filter.List = workspace.List{Limit: n, Cursor: cursor}
		p, err := operate[workspace.Page[workspace.DeadLetter]](ctx, o, workspace.OpDLQList, filter)
		return p.Items, p.Cursor, err
	})
}

// Redrive sends dead letters to where they were going, and says how many.
func (o *Operator) Redrive(ctx context.Context, sequences ...uint64) (int, error) {
	d, err := operate[workspace.DLQDone](ctx, o, workspace.OpDLQRedrive, workspace.DLQRef{Sequences: sequences})
	return d.Done, err
}

// Drop forgets dead letters, and says how many.
func (o *Operator) Drop(ctx context.Context, sequences ...uint64) (int, error) {
	d, err := operate[workspace.DLQDone](ctx, o, workspace.OpDLQDrop, workspace.DLQRef{Sequences: sequences})
	return d.Done, err
}

// Nodes gives the nodes with all that they have told of themselves.
func (o *Operator) Nodes(ctx context.Context) ([]workspace.NodeRecord, error) {
	return all(0, func(n int, cursor string) ([]workspace.NodeRecord, string, error) {
		p, err := operate[workspace.Page[workspace.NodeRecord]](ctx, o, workspace.OpNodeList, workspace.List{Limit: n, Cursor: cursor})
		return p.Items, p.Cursor, err
	})
}

// DrainNode makes a node take nothing new, or with undo take work again.
func (o *Operator) DrainNode(ctx context.Context, name string, undo bool) (workspace.NodeRecord, error) {
	return operate[workspace.NodeRecord](ctx, o, workspace.OpNodeDrain, workspace.NodeDrain{Name: name, Undo: undo})
}

// PutTemplate makes or changes a template that every tenant can use.
func (o *Operator) PutTemplate(ctx context.Context, t workspace.Template) (workspace.Template, error) {
	return operate[workspace.Template](ctx, o, workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: t})
}

// Templates gives the templates that every tenant can use, by name.
func (o *Operator) Templates(ctx context.Context) ([]workspace.Template, error) {
	return all(0, func(n int, cursor string) ([]workspace.Template, string, error) {
		p, err := operate[workspace.Page[workspace.Template]](ctx, o, workspace.OpTemplateList, workspace.List{Limit: n, Cursor: cursor})
		return p.Items, p.Cursor, err
	})
}

// DeleteTemplate removes one of them.
func (o *Operator) DeleteTemplate(ctx context.Context, name string) error {
	_, err := operate[workspace.Empty](ctx, o, workspace.OpTemplateDelete, workspace.Name{Name: name})
	return err
}

// Nodes gives the nodes, as any principal may see them.
func (c *Client) Nodes(ctx context.Context) ([]workspace.NodeRecord, error) {
	return list[workspace.NodeRecord](ctx, c.tenantWide(), schemas.WorkspaceManager, workspace.OpNodeList, 0)
}
