package runtime

import (
	"context"
	"time"

	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/spool"
)

// What the node needs of others. mesh.go has each of them over the mesh.

// Queue gives attempts that wait for a node.
type Queue interface {
	// Pull waits for attempts, and gives at least one and at most limit, or ctx's error.
	Pull(ctx context.Context, limit int) ([]Delivery, error)
	// Close waits for what the last Pull has left under way. It is called after ctx ended.
	Close()
}

// Delivery is one message of the queue. Exactly one of its methods is called.
type Delivery interface {
	// Item it carries. An error means that it could not be read.
	Item() (workspace.QueueItem, error)
	// Ack takes it off the queue.
	Ack(ctx context.Context) error
	// Again puts it back for any node, not before delay.
	Again(ctx context.Context, delay time.Duration) error
}

// Manager is the workspace-manager, which owns the records.
type Manager interface {
	Claim(ctx context.Context, req workspace.Claim) (workspace.ClaimReply, error)
	Renew(ctx context.Context, req workspace.Renew) (workspace.Renewed, error)
	Progress(ctx context.Context, req workspace.Progress) error
	Finish(ctx context.Context, req workspace.Finish) error
	// Heartbeat says what the node is and has, and is told which pools to keep.
	Heartbeat(ctx context.Context, req workspace.Heartbeat) (workspace.HeartbeatReply, error)
	SandboxEnded(ctx context.Context, req runtime.SandboxEnded) error
	// NodeCleaned says what the node removed that belonged to no record.
	NodeCleaned(ctx context.Context, req workspace.Cleaned) error
	// SandboxWarned says that an interactive sandbox is about to be stopped, or no longer is.
	SandboxWarned(ctx context.Context, req runtime.SandboxWarned) error
}

// Files is the filesystem service on this machine.
type Files interface {
	Prepare(ctx context.Context, req filesystem.Prepare) (filesystem.Prepared, error)
	Merge(ctx context.Context, req filesystem.Merge) (filesystem.Merged, error)
	Discard(ctx context.Context, req filesystem.Discard) error
	Held(ctx context.Context, req filesystem.Held) error
}

// Secrets is the secrets service.
type Secrets interface {
	Issue(ctx context.Context, req secrets.IssueRequest) (secrets.IssueReply, error)
	Renew(ctx context.Context, req secrets.RenewRequest) (secrets.RenewReply, error)
	Revoke(ctx context.Context, req secrets.RevokeRequest) (secrets.RevokeReply, error)
}

// Output takes live output.
type Output interface {
	// Publish stores chunks in their order and returns how many of them, from the first on, are stored.
	// Fewer than all comes with the error.
	Publish(ctx context.Context, item workspace.QueueItem, chunks []Chunk) (int, error)
}

// Chunk is a piece of one stream of output.
type Chunk struct {
	Stream spool.Stream
	Offset int64
	Data   []byte // at most schemas.MaxFrame
	EOF    bool   // nothing follows on this stream
}
