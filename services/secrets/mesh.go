package secrets

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// schemaVersion is that of the records of grants and leases.
const schemaVersion = 1

// askTimeout bounds a question to another service, and the writing of an audit entry.
const askTimeout = 5 * time.Second

// OnMesh fills in what the service takes from the mesh. conn is connected as the secrets service.
func (c Config) OnMesh(conn *mesh.Conn) Config {
	c.Grants = records.New[wire.Grant](conn, "grant", schemaVersion)
	c.Leases = records.New[wire.Lease](conn, "lease", schemaVersion)
	c.Attempts = attempts{conn}
	c.Auditor = auditor{conn}
	return c
}

// attempts asks the workspace-manager.
type attempts struct{ c *mesh.Conn }

func (a attempts) Attempt(ctx context.Context, req workspace.AttemptRequest) (workspace.AttemptReply, error) {
	subject, err := schemas.Int(schemas.Secrets, schemas.WorkspaceManager, workspace.OpAttempt)
	if err != nil {
		return workspace.AttemptReply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return mesh.Request[workspace.AttemptReply](ctx, a.c, subject, req)
}

// auditor writes to the tenant's audit stream.
type auditor struct{ c *mesh.Conn }

func (a auditor) Audit(ctx context.Context, entry wire.Audit) error {
	subject, err := schemas.Audit(entry.Tenant, wire.AuditCategory)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err = a.c.Publish(ctx, subject, entry, nil)
	return err
}
