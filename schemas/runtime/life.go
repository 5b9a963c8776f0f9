package runtime

import (
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
)

// Operations of the manager on the life of an interactive sandbox, on the node plane. Each may be repeated.
const (
	OpSandboxExtend = "sandbox-extend"
	OpSandboxPause  = "sandbox-pause"
	OpSandboxResume = "sandbox-resume"
)

// SandboxExtend moves the end of a sandbox, and counts as use of it.
type SandboxExtend struct {
	ID        string    `json:"id"`
	ExpiresAt time.Time `json:"expires_at"`
	IdleMS    int64     `json:"idle_ms,omitempty"` // 0 leaves it as it is
}

// SandboxRef names a sandbox that is to be paused or resumed.
type SandboxRef struct {
	ID string `json:"id"`
}

// SandboxWarned tells the manager that a sandbox is about to be stopped; without a Warning, that it no longer is.
type SandboxWarned struct {
	Tenant    string                 `json:"tenant"`
	Workspace string                 `json:"workspace"`
	ID        string                 `json:"id"`
	Warning   *workspace.StopWarning `json:"warning,omitempty"`
}

// Life is how long a sandbox still has.
type Life struct {
	ExpiresAt *time.Time             `json:"expires_at,omitempty"` // its time to live is over then
	IdleAt    *time.Time             `json:"idle_at,omitempty"`    // it ends then if nobody uses it; absent while it is paused
	Paused    bool                   `json:"paused,omitempty"`     // its processes are not listed then
	Warning   *workspace.StopWarning `json:"warning,omitempty"`    // it is about to be stopped
}
