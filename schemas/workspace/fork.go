package workspace

import "time"

// Operations that copy an interactive sandbox with a writable root, on the req plane.
const (
	OpSandboxFork     = "sandbox-fork"
	OpSandboxSnapshot = "sandbox-snapshot"
)

// MaxForks bounds how many sandboxes one fork makes.
const MaxForks = 16

// SandboxFork makes Count sandboxes with the files that a sandbox has now: those of its writable root, and its own view of the
// workspace's. Processes start anew. All of them are made or none.
type SandboxFork struct {
	ID    string `json:"id"`
	Count int    `json:"count,omitempty"` // 1 to MaxForks; 1 if 0
}

// SandboxSnapshot makes a template of what a sandbox has changed of its root: its image is that of the sandbox with these
// changes as one more layer, kept on the sandbox's node. Files of the workspace are not in it.
type SandboxSnapshot struct {
	ID       string `json:"id"`
	Template string `json:"template"` // its name, in the sandbox's workspace; one that is there gets a new version
}

// SnapshotImage is an image that a snapshot made, on the node that has it.
type SnapshotImage struct {
	Image     string    `json:"image"`
	CreatedAt time.Time `json:"created_at"`
}

// SnapshotPrefix begins the names of images that snapshots made; the tenant and the node that has it
// follow. No other tenant can use them.
const SnapshotPrefix = "weft.snapshot/"
