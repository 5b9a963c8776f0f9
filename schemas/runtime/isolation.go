package runtime

import "github.com/weftmesh/weft/schemas/workspace"

// Isolation is all that is enforced on one sandbox: what its container is made from, and what the machine does
// not enforce.
type Isolation struct {
	Level string `json:"level"`
	// Runtime of containerd that runs it.
	Runtime string `json:"runtime"`
	// FirstID is the host's id of id 0 inside; IDs are how many follow. No other sandbox of the node has them.
	FirstID uint32 `json:"first_id,omitempty"`
	IDs     uint32 `json:"ids,omitempty"`
	// User is the uid inside under which everything runs that asks for no other.
	User         uint32 `json:"user"`
	RootInside   bool   `json:"root_inside"`
	WritableRoot bool   `json:"writable_root"`
	// NoNewPrivileges says that no program gains anything by being setuid.
	NoNewPrivileges bool `json:"no_new_privileges"`
	// Capabilities of uid 0 inside, in the sandbox's own user namespace. Every other user has none.
	Capabilities []string `json:"capabilities"`
	// SupervisorCapabilities are what process 1 keeps.
	SupervisorCapabilities []string `json:"supervisor_capabilities"`
	Seccomp                string   `json:"seccomp"` // profile of system calls
	Masked                 []string `json:"masked"`  // paths that look empty
	ReadOnly               []string `json:"read_only"`
	Tmpfs                  []Tmpfs  `json:"tmpfs"`
	// Limits of all its processes together, with the defaults filled in. DiskBytes bounds the writable root and /workspace.
	Limits workspace.Resources `json:"limits"`
	// Rlimits of each process.
	Rlimits    []Rlimit `json:"rlimits"`
	Namespaces []string `json:"namespaces"`
	Network    string   `json:"network"`
	// NotEnforced names limits that were asked for and that this machine's kernel can't enforce.
	NotEnforced []string `json:"not_enforced,omitempty"`
}

// Tmpfs is a writable file system in memory, which counts as the sandbox's.
type Tmpfs struct {
	Path    string   `json:"path"`
	Bytes   int64    `json:"bytes"`
	Files   int64    `json:"files"` // at most
	Mode    string   `json:"mode"`
	Owner   uint32   `json:"owner"` // inside
	Options []string `json:"options"`
}
