// Package runtime holds the wire structs of the runtime service: what a node is asked, and the
// operations on one sandbox on the sbx plane.
package runtime

import (
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
)

// Operations of the manager on a node, on the node plane.
const (
	OpSandboxCreate = "sandbox-create"
	OpSandboxKill   = "sandbox-kill"
	OpOutput        = "output" // replay of an attempt's spooled output
	OpDrain         = "drain"
)

// Operations on one sandbox, on the sbx plane, beside those of process.go. read and write open byte streams.
const (
	OpRead    = "read"
	OpWrite   = "write"
	OpInspect = "inspect"
)

// SandboxCreate makes an interactive sandbox on the node that serves it.
type SandboxCreate struct {
	Sandbox workspace.Sandbox `json:"sandbox"`
	UserJWT string            `json:"user_jwt,omitempty"`
}

// SandboxKill ends one; ending it twice is not an error.
type SandboxKill struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
	By     string `json:"by,omitempty"` // with reason killed: who
}

// SandboxEnded tells the manager how an interactive sandbox ended.
type SandboxEnded struct {
	Tenant    string           `json:"tenant"`
	Workspace string           `json:"workspace"`
	ID        string           `json:"id"`
	Exit      workspace.Exit   `json:"exit"`
	Fault     *workspace.Fault `json:"fault,omitempty"`
	// LastOutput is what its processes wrote last.
	LastOutput []workspace.LastOutput `json:"last_output,omitempty"`
}

// FileRequest opens a file of the sandbox's own view, to read it or to replace it atomically.
type FileRequest struct {
	Path string `json:"path"` // absolute
	Mode uint32 `json:"mode,omitempty"`
}

// FileInfo is the last word of a read or write stream: the file as it is now.
type FileInfo struct {
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"` // permission bits
	ModTime time.Time `json:"mod_time"`
}

// Drain has a node take nothing new; with Undo it takes work again. What it runs goes on.
type Drain struct {
	Undo bool `json:"undo,omitempty"`
}

// Inspect is what a sandbox is, in full.
type Inspect struct {
	ID        string            `json:"id"`
	Level     string            `json:"level"`
	Image     string            `json:"image"`
	Labels    map[string]string `json:"labels"`
	PIDs      int               `json:"pids"`
	Memory    int64             `json:"memory_bytes"`
	CPUMS     int64             `json:"cpu_ms"`
	Isolation *Isolation        `json:"isolation,omitempty"`
	Processes []Process         `json:"processes"`
	Life
}
