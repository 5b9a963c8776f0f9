package client

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Client acts as one principal in one workspace. It is safe for concurrent use.
type Client struct {
	conn              *mesh.Conn
	tenant, workspace string
}

// New makes a client of an open connection. The principal is the connection's user; workspace is a
// name, or "-" for what concerns the tenant as a whole.
func New(conn *mesh.Conn, tenant, workspace string) (*Client, error) {
	if err := schemas.CheckName("tenant", tenant); err != nil {
		return nil, fault.New(fault.Invalid, "%v", err)
	}
	if err := schemas.CheckWorkspace(workspace); err != nil {
		return nil, fault.New(fault.Invalid, "%v", err)
	}
	return &Client{conn: conn, tenant: tenant, workspace: workspace}, nil
}

// In gives a client for another workspace over the same connection.
func (c *Client) In(workspace string) (*Client, error) { return New(c.conn, c.tenant, workspace) }

// Conn is the connection, for what this package has no method for.
func (c *Client) Conn() *mesh.Conn { return c.conn }

// Tenant is the tenant that the client acts in.
func (c *Client) Tenant() string { return c.tenant }

// Workspace is the workspace that the client acts in, "-" for the tenant as a whole.
func (c *Client) Workspace() string { return c.workspace }

// Principal is as whom the client acts.
func (c *Client) Principal() string { return c.conn.Name() }

// Close closes the connection, and with it every client that shares it.
func (c *Client) Close() { c.conn.Close() }

// req is the subject of an operation in the client's workspace.
func (c *Client) req(service, op string) (string, error) {
	s, err := schemas.Req(c.tenant, c.workspace, c.Principal(), service, op)
	if err != nil {
		return "", fault.New(fault.Invalid, "%v", err)
	}
	return s, nil
}

// tenantWide is the client for operations on the tenant as a whole.
func (c *Client) tenantWide() *Client {
	return &Client{conn: c.conn, tenant: c.tenant, workspace: schemas.NoWorkspace}
}

// ask is one request to a service.
func ask[Rep any](ctx context.Context, c *Client, service, op string, req any) (Rep, error) {
	subject, err := c.req(service, op)
	if err != nil {
		var zero Rep
		return zero, err
	}
	return mesh.Request[Rep](ctx, c.conn, subject, req)
}

// open opens a byte stream to a service.
func (c *Client) open(ctx context.Context, service, op string, req any) (*stream.Session, error) {
	subject, err := c.req(service, op)
	if err != nil {
		return nil, err
	}
	return stream.Open(ctx, c.conn, subject, req)
}

// maxPage is how many items one page of a list may have.
const maxPage = 1000

// all reads every page of a list, up to limit items; 0 is all.
func all[T any](limit int, page func(limit int, cursor string) ([]T, string, error)) ([]T, error) {
	out := []T{}
	for cursor := ""; ; {
		n := maxPage
		if limit > 0 {
			n = min(n, limit-len(out))
		}
		items, next, err := page(n, cursor)
		if err != nil {
			return nil, err
		}
		out = append(out, items...)
		if next == "" || next == cursor || limit > 0 && len(out) >= limit {
			return out, nil
		}
		cursor = next
	}
}

// list reads a list operation that has no filters.
func list[T any](ctx context.Context, c *Client, service, op string, limit int) ([]T, error) {
	return all(limit, func(n int, cursor string) ([]T, string, error) {
		p, err := ask[workspace.Page[T]](ctx, c, service, op, workspace.List{Limit: n, Cursor: cursor})
		return p.Items, p.Cursor, err
	})
}
