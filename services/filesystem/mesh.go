package filesystem

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// schemaVersion is that of all records of this service.
const schemaVersion = 1

// askTimeout bounds a question to another service.
const askTimeout = 5 * time.Second

// OnMesh fills in what the service takes from the mesh: its records, the workspaces, and who holds an attempt. c is connected as the filesystem service.
func (c Config) OnMesh(conn *mesh.Conn) Config {
	c.Records = Records{
		Heads:     records.New[wire.Head](conn, "head", schemaVersion),
		Snapshots: records.New[wire.Snapshot](conn, "snapshot", schemaVersion),
		Overlays:  records.New[wire.Overlay](conn, "overlay", schemaVersion),
		Artifacts: records.New[wire.Artifact](conn, "artifact", schemaVersion),
	}
	c.Workspaces = records.New[workspace.Workspace](conn, "workspace", workspaceSchema)
	c.Attempts = attempts{conn}
	return c
}

// workspaceSchema is the newest shape of the workspace-manager's record of a workspace that this service can read.
const workspaceSchema = 1

// attempts asks the workspace-manager.
type attempts struct{ c *mesh.Conn }

func (a attempts) Attempt(ctx context.Context, req workspace.AttemptRequest) (workspace.AttemptReply, error) {
	subject, err := schemas.Int(schemas.Filesystem, schemas.WorkspaceManager, workspace.OpAttempt)
	if err != nil {
		return workspace.AttemptReply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	return mesh.Request[workspace.AttemptReply](ctx, a.c, subject, req)
}
