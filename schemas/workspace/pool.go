package workspace

import "time"

// EntityPool is the record of a warm pool.
const EntityPool = "pool"

// Operations on warm pools, on the req plane, and on the int plane for those of all tenants.
const (
	OpPoolPut    = "pool-put"
	OpPoolGet    = "pool-get"
	OpPoolList   = "pool-list"
	OpPoolDelete = "pool-delete"
)

// Pool keeps pristine sandboxes of one template and level ready on every node. Each is used once. It has its
// template's name, and lies where the template does: in a workspace, or with workspace "-" for the whole tenant.
// A pool of the tenant system serves every tenant's runs of that template.
type Pool struct {
	Name    string `json:"name"` // the template's
	Version int    `json:"version"`
	Level   string `json:"level,omitempty"` // the template's if empty
	// Min members are kept ready on each node; recent demand raises that up to Max.
	Min int `json:"min"`
	Max int `json:"max"` // 1 to 1,000
	// MaxAgeMS after which an unused member is replaced; 0 is an hour.
	MaxAgeMS int64 `json:"max_age_ms,omitempty"`
	// Alias is the name that a SandboxWarmPool manifest gave it, by which claims of such manifests find it.
	Alias     string    `json:"alias,omitempty"`
	CreatedAt time.Time `json:"created_at"`
}

// WantedPool is a pool as a node is to keep it: in the answer to its heartbeat.
type WantedPool struct {
	PoolRef
	// Run is what the members are made for: image, level, isolation, resources. It names no principal.
	Run      RunSpec `json:"run"`
	Min      int     `json:"min"`
	Max      int     `json:"max"`
	MaxAgeMS int64   `json:"max_age_ms"`
}

// PoolRef names a pool. Tenant system serves everybody.
type PoolRef struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"` // "-" for the whole tenant
	Name      string `json:"name"`
}

// PoolState is a pool as it stands on one node: in the node's heartbeat.
type PoolState struct {
	PoolRef
	Node   string     `json:"node,omitempty"`
	Ready  int        `json:"ready"`
	Making int        `json:"making"`
	Target int        `json:"target"` // how many it wants now, between Min and Max
	Claims uint64     `json:"claims"` // handed over since the node's daemon started
	Misses uint64     `json:"misses"` // runs that found no member and started cold
	Oldest *time.Time `json:"oldest,omitempty"`
	Fault  *Fault     `json:"fault,omitempty"` // why the last member could not be made
}

// PoolStatus is a pool with its state on every node that keeps it.
type PoolStatus struct {
	PoolRef
	Pool   Pool        `json:"pool"`
	Shared bool        `json:"shared,omitempty"` // of the tenant system
	Fault  *Fault      `json:"fault,omitempty"`  // why no node keeps it, as that its template is gone
	Nodes  []PoolState `json:"nodes,omitempty"`
}

// HeartbeatReply tells a node what it is to keep ready.
type HeartbeatReply struct {
	Pools []WantedPool `json:"pools,omitempty"`
}

// HeldClaim is the record of a claim's name, entity "claim": the sandbox that was last made under it.
type HeldClaim struct {
	Name     string    `json:"name"`
	Template string    `json:"template"`
	Sandbox  string    `json:"sandbox"`
	At       time.Time `json:"at"`
}
