package runtime

import "github.com/weftmesh/weft/schemas/workspace"

// Operations of the manager on the writable layers of a node's sandboxes, on the node plane.
const (
	OpSandboxFork     = "sandbox-fork"
	OpSandboxSnapshot = "sandbox-snapshot"
	OpSnapshotRemove  = "snapshot-remove"
)

// SandboxFork makes sandboxes with the files of another one on the same node, all or none.
type SandboxFork struct {
	Source    string              `json:"source"`
	Sandboxes []workspace.Sandbox `json:"sandboxes"`
}

// SandboxSnapshot makes an image of a sandbox's image and of what the sandbox has changed of it.
type SandboxSnapshot struct {
	ID    string `json:"id"`
	Image string `json:"image"` // what it will be called: workspace.SnapshotPrefix, then tenant, node and an identifier with slashes between
}

// Snapshot is the image that was made.
type Snapshot struct {
	Image  string `json:"image"`
	Digest string `json:"digest"` // of its manifest; equal contents have equal digests
	Layer  int64  `json:"layer"`  // bytes of the layer that was added
}

// SnapshotRef names an image that a snapshot made.
type SnapshotRef struct {
	Image string `json:"image"`
}
