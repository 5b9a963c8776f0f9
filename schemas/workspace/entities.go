package workspace

// Entities of the log that this service owns.
const (
	EntityTenant    = "tenant"
	EntityWorkspace = "workspace"
	EntityTemplate  = "template"
	EntityAgent     = "agent"
	EntityTrigger   = "trigger"
	EntityTask      = "task"
	EntityGather    = "gather"
	EntitySandbox   = "sandbox"
	EntityNode      = "node"
	EntityClaim     = "claim" // which sandbox is there under a claim's name
)

// SystemTenant is the tenant in whose log the nodes' records are.
const SystemTenant = "system"

// States of a tenant or a workspace.
const (
	Active   = "active"
	Deleting = "deleting"
)

// States of a node.
const (
	NodeReady    = "ready"
	NodeDraining = "draining"
	NodeLost     = "lost"
)

// States of an interactive sandbox, which are its events too.
const (
	SandboxCreating = "creating"
	SandboxRunning  = "running"
	SandboxStopped  = "stopped"
)

// LabelNode is the label of a workspace that names the only node on which its tasks run, as where that
// node holds its files.
const LabelNode = "weft.dev/node"
