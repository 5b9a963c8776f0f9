package workspace

import "time"

// Operations of the service for principals, on the req plane. Put is create or replace; list replies
// are sorted by name or by creation, newest first, and take a cursor.
const (
	OpWorkspacePut    = "workspace-put"
	OpWorkspaceGet    = "workspace-get"
	OpWorkspaceList   = "workspace-list"
	OpWorkspaceDelete = "workspace-delete"
	OpAgentPut        = "agent-put"
	OpAgentGet        = "agent-get"
	OpAgentList       = "agent-list"
	OpAgentDelete     = "agent-delete"
	OpTemplatePut     = "template-put"
	OpTemplateGet     = "template-get"
	OpTemplateList    = "template-list"
	OpTemplateDelete  = "template-delete"
	OpTriggerPut      = "trigger-put"
	OpTriggerGet      = "trigger-get"
	OpTriggerList     = "trigger-list"
	OpTriggerDelete   = "trigger-delete"
	OpTaskGet         = "task-get"
	OpTaskList        = "task-list"
	OpTaskCancel      = "task-cancel"
	OpTaskRetry       = "task-retry"
	OpTaskHistory     = "task-history"
	OpTaskOutput      = "task-output" // a byte stream: replay from an offset, then live
	OpEvents          = "events"      // many replies: replay from a time or a sequence, then live
	OpMessages        = "messages"    // of the caller's inbox or of a channel, after a sequence
	OpSandboxCreate   = "sandbox-create"
	OpSandboxGet      = "sandbox-get"
	OpSandboxList     = "sandbox-list"
	OpSandboxKill     = "sandbox-kill"
	OpNodeList        = "node-list"
	OpMeshState       = "mesh-state"
)

// Operations for the operator, on the int plane with caller "operator".
const (
	OpTenantPut    = "tenant-put"
	OpTenantList   = "tenant-list"
	OpTenantDelete = "tenant-delete"
	OpDLQList      = "dlq-list"
	OpDLQRedrive   = "dlq-redrive"
	OpDLQDrop      = "dlq-drop"
	OpNodeDrain    = "node-drain"
)

// Operations for nodes and services, on the int plane.
const (
	OpClaim        = "claim"
	OpRenew        = "renew"
	OpProgress     = "progress"
	OpFinish       = "finish"
	OpHeartbeat    = "heartbeat"
	OpAttempt      = "attempt" // who holds a task now, for fencing by the other services
	OpSandboxEnded = "sandbox-ended"
)

// Name asks for one thing by name.
type Name struct {
	Name string `json:"name"`
}

// ID asks for one thing by identifier.
type ID struct {
	ID string `json:"id"`
}

// Empty is the body of a request or reply with nothing to say.
type Empty struct{}

// MeshState says whether what is published is stored. The server acknowledges nothing while its disk is full.
type MeshState struct {
	Storing bool   `json:"storing"`
	Reason  string `json:"reason,omitempty"` // why it does not, and what has to happen
}

// Put carries a definition. If Version is not 0 it must be the present one, else conflict.
type Put[T any] struct {
	Value   T   `json:"value"`
	Version int `json:"version,omitempty"`
}

// List pages through things. Limit is 1 to 1000, 100 if 0.
type List struct {
	Limit  int    `json:"limit,omitempty"`
	Cursor string `json:"cursor,omitempty"`
}

// Page is one page of a list; Cursor is empty on the last.
type Page[T any] struct {
	Items  []T    `json:"items"`
	Cursor string `json:"cursor,omitempty"`
}

// TaskList filters tasks. Empty fields match all.
type TaskList struct {
	List
	States []State           `json:"states,omitempty"`
	Agent  string            `json:"agent,omitempty"`
	Group  string            `json:"group,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
	Since  *time.Time        `json:"since,omitempty"`
}

// Change is one event of a record: the whole record after it, and where it stands in the log.
type Change[T any] struct {
	Event     string    `json:"event"` // submitted, queued …
	Entity    string    `json:"entity"`
	Workspace string    `json:"workspace"`
	ID        string    `json:"id"`
	Sequence  uint64    `json:"sequence"` // in the tenant's log
	Time      time.Time `json:"time"`
	EventID   string    `json:"event_id"`
	Value     T         `json:"value"`
}

// EventsRequest asks for the log of a workspace ("-" for all of the tenant's that the caller may see).
type EventsRequest struct {
	FromSequence uint64     `json:"from_sequence,omitempty"`
	FromTime     *time.Time `json:"from_time,omitempty"`
	Entities     []string   `json:"entities,omitempty"`
	IDs          []string   `json:"ids,omitempty"`
	Follow       bool       `json:"follow,omitempty"`
}

// ChannelPrefix begins the names of channels: recipients that every principal of the workspace may
// read. Any other name is a principal's inbox, which only that principal reads.
const ChannelPrefix = "ch-"

// MessagesRequest reads messages to the caller, or to a channel, after a sequence.
type MessagesRequest struct {
	To string `json:"to,omitempty"` // default: the caller
	// After is the sequence after which to read. 0 is after what the caller had read when a task of it last
	// completed, so that an attempt that is tried again finds what the one before it found.
	After     uint64 `json:"after,omitempty"`
	FromStart bool   `json:"from_start,omitempty"` // read from the oldest message that is kept
	Limit     int    `json:"limit,omitempty"`      // 1 to 1000
	WaitMS    int64  `json:"wait_ms,omitempty"`    // wait for the first one at most so long, up to 30 s
}

// Message is one message between principals as it is read back.
type Message struct {
	Sequence uint64            `json:"sequence"`
	To       string            `json:"to"`
	From     string            `json:"from"`
	Time     time.Time         `json:"time"`
	Headers  map[string]string `json:"headers,omitempty"`
	Body     []byte            `json:"body"` // base64 in JSON
}

// Headers of a message: which group it is one of, and which task sent it.
const (
	HeaderGroup     = "Weft-Group"
	HeaderGroupSize = "Weft-Group-Size"
	HeaderTask      = "Weft-Task"
	HeaderDepth     = "Weft-Depth"
)

// OutputRequest asks for the output of a task's attempt from an offset of each stream.
type OutputRequest struct {
	Task    string           `json:"task"`
	Attempt int              `json:"attempt,omitempty"` // 0 is the current or last
	Offsets map[string]int64 `json:"offsets,omitempty"` // by stream: stdout, stderr, log
	Follow  bool             `json:"follow,omitempty"`
}

// OutputChunk is one reply to an OutputRequest. The last one has End set.
type OutputChunk struct {
	Stream  string `json:"stream,omitempty"`
	Offset  int64  `json:"offset"`
	Attempt int    `json:"attempt"`
	Data    []byte `json:"data,omitempty"`
	Gap     int64  `json:"gap,omitempty"` // bytes before Offset that are no longer kept
	End     bool   `json:"end,omitempty"`
}

// Claim is a node's request to hold an attempt. UserKey is the public NATS user key that the node made
// for the sandbox's own connection; NodeKey is the node's public curve key, to which leases are sealed.
type Claim struct {
	QueueItem
	Sandbox string `json:"sandbox"`
	UserKey string `json:"user_key"`
	NodeKey string `json:"node_key"`
}

// ClaimReply is what the node runs. The order is fixed: env and input are those of the submission
// over those of the agent over those of the template.
type ClaimReply struct {
	Task     Task      `json:"task"`
	Agent    *Agent    `json:"agent,omitempty"` // absent where the submission names a template and command, or the agent was deleted since
	Template Template  `json:"template"`
	Run      RunSpec   `json:"run"`
	UserJWT  string    `json:"user_jwt"` // of the principal that runs, for UserKey; the node renews it with the claim
	Deadline time.Time `json:"deadline"` // of this claim; renew before it
}

// RunSpec is the resolved command of an attempt or a sandbox.
type RunSpec struct {
	Principal string            `json:"principal"` // as whom it runs
	Argv      []string          `json:"argv,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Workdir   string            `json:"workdir"`
	Image     string            `json:"image"`
	Level     string            `json:"level"`
	Resources Resources         `json:"resources"`
	Isolation
	Files     string      `json:"files"` // private, readonly, none
	Secrets   []SecretUse `json:"secrets,omitempty"`
	TimeoutMS int64       `json:"timeout_ms"`
	TTLMS     int64       `json:"ttl_ms,omitempty"`  // of an interactive sandbox
	IdleMS    int64       `json:"idle_ms,omitempty"` // of an interactive sandbox
	// WarnMS is how long before its stop an interactive sandbox is announced to be stopped; 0 is a minute, or a
	// quarter of the limit where that is shorter. GraceMS is from SIGTERM to SIGKILL then; 0 is the node's own.
	WarnMS  int64 `json:"warn_ms,omitempty"`
	GraceMS int64 `json:"grace_ms,omitempty"`
}

// Renew keeps claims. One request carries all of a node's.
type Renew struct {
	Claims []Held `json:"claims"`
}

// Held names a claim of a node; UserKey asks for a fresh JWT when it is set. For an interactive
// sandbox Task is the sandbox's id and Attempt its generation.
type Held struct {
	QueueItem
	UserKey string `json:"user_key,omitempty"`
}

// Renewed answers each claim in order.
type Renewed struct {
	Claims []HeldReply `json:"claims"`
}

// Verdicts of a HeldReply.
const (
	VerdictKeep = "keep"
	VerdictStop = "stop"
	VerdictLost = "lost"
)

// HeldReply says what to do: "keep", "stop" (cancel: end it and finish), or "lost" (it is no longer
// this node's: end it and report nothing).
type HeldReply struct {
	Verdict  string    `json:"verdict"`
	Reason   string    `json:"reason,omitempty"`
	Deadline time.Time `json:"deadline"`
	UserJWT  string    `json:"user_jwt,omitempty"`
}

// Progress reports a milestone of an attempt; it is written with the next change of the record or within a second.
type Progress struct {
	QueueItem
	CommandAt     *time.Time `json:"command_at,omitempty"`
	FirstOutputAt *time.Time `json:"first_output_at,omitempty"`
}

// Finish ends an attempt. Exactly one of Outcome.Exit and Fault says why. Retry asks for another try
// where the fault was the node's and not the command's.
type Finish struct {
	QueueItem
	Outcome       Outcome    `json:"outcome"`
	Fault         *Fault     `json:"fault,omitempty"`
	Retry         bool       `json:"retry,omitempty"`
	CommandAt     *time.Time `json:"command_at,omitempty"`
	FirstOutputAt *time.Time `json:"first_output_at,omitempty"`
}

// AttemptRequest asks who holds a task, or with a sandbox's id as Task who holds an interactive sandbox.
type AttemptRequest struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
	Task      string `json:"task"`
}

// AttemptReply is the answer, read from the log's leader.
type AttemptReply struct {
	State     State       `json:"state"`
	Attempt   int         `json:"attempt"`
	Node      string      `json:"node,omitempty"`
	Sandbox   string      `json:"sandbox,omitempty"`
	NodeKey   string      `json:"node_key,omitempty"`
	Principal string      `json:"principal"` // as whom the attempt runs
	Secrets   []SecretUse `json:"secrets,omitempty"`
}

// Heartbeat is what a node says of itself every few seconds.
type Heartbeat struct {
	Pools       []PoolState       `json:"pools,omitempty"`
	Node        string            `json:"node"`
	Incarnation string            `json:"incarnation"` // new with every start of the daemon
	NodeKey     string            `json:"node_key"`
	Slots       int               `json:"slots"` // attempts and sandboxes it can hold
	Used        int               `json:"used"`
	Labels      map[string]string `json:"labels,omitempty"`
	Images      []string          `json:"images,omitempty"`
	Levels      []string          `json:"levels,omitempty"` // security levels that it has; none: it does not say
	Version     string            `json:"version"`
	DiskFree    int64             `json:"disk_free"`          // bytes where sandboxes write
	Draining    bool              `json:"draining,omitempty"` // takes nothing new
	Sandboxes   []string          `json:"sandboxes,omitempty"`
	// Snapshots are the images on it that snapshots of sandboxes made. Records and lists leave them out.
	Snapshots []SnapshotImage `json:"snapshots,omitempty"`
}

// NodeRecord is the record of a node, entity "node" of tenant "system", workspace "-".
type NodeRecord struct {
	Heartbeat
	State   string    `json:"state"`             // ready, draining, lost
	Drained bool      `json:"drained,omitempty"` // by the operator, until undone
	SeenAt  time.Time `json:"seen_at"`
	Reason  string    `json:"reason,omitempty"` // why it takes nothing new: drained, disk nearly full, no heartbeat
	// Cleaned is what it removed last that belonged to no record; CleanedTotal counts all of it. Tenants see no items.
	Cleaned      *Cleaned `json:"cleaned,omitempty"`
	CleanedTotal int      `json:"cleaned_total,omitempty"`
}

// Sandbox is the record of an interactive sandbox, entity "sandbox". Events: creating, running, warned, kept,
// extended, paused, resumed, stopped.
type Sandbox struct {
	ID         string       `json:"id"`
	Tenant     string       `json:"tenant"`
	Workspace  string       `json:"workspace"`
	Principal  string       `json:"principal"`
	Template   string       `json:"template"`
	Claim      string       `json:"claim,omitempty"`       // the name it was claimed under
	ForkedFrom string       `json:"forked_from,omitempty"` // the sandbox whose files it began with
	Generation int          `json:"generation"`
	Node       string       `json:"node,omitempty"`
	NodeKey    string       `json:"node_key,omitempty"`
	Run        RunSpec      `json:"run"`
	State      string       `json:"state"` // creating, running, paused, stopped
	Exit       *Exit        `json:"exit,omitempty"`
	Fault      *Fault       `json:"fault,omitempty"`
	CreatedAt  time.Time    `json:"created_at"`
	RunningAt  *time.Time   `json:"running_at,omitempty"`
	StoppedAt  *time.Time   `json:"stopped_at,omitempty"`
	ExpiresAt  *time.Time   `json:"expires_at,omitempty"` // its time to live is over then
	PausedAt   *time.Time   `json:"paused_at,omitempty"`  // while it is paused
	Warning    *StopWarning `json:"warning,omitempty"`    // it is about to be stopped
	// LastOutput is what its processes wrote last, once it has stopped. Lists leave it out.
	LastOutput []LastOutput `json:"last_output,omitempty"`
}

// SandboxCreate asks for an interactive sandbox of a template, or as an agent.
type SandboxCreate struct {
	Template string `json:"template,omitempty"`
	Agent    string `json:"agent,omitempty"`
	// Level asks for a stronger security level than the template or agent has: standard or high.
	Level     string            `json:"level,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Resources Resources         `json:"resources"`
	Files     string            `json:"files,omitempty"`
	TTLMS     int64             `json:"ttl_ms,omitempty"`   // 1 hour if 0
	IdleMS    int64             `json:"idle_ms,omitempty"`  // 15 minutes if 0
	WarnMS    int64             `json:"warn_ms,omitempty"`  // how long before its stop it is announced; see RunSpec
	GraceMS   int64             `json:"grace_ms,omitempty"` // from SIGTERM to SIGKILL, 10 s if 0
	// Claim is a name, unique in the workspace while the sandbox lives: who asks under the same name again gets
	// the sandbox that is there.
	Claim string `json:"claim,omitempty"`
}

// TenantPut creates or changes a tenant. AgentSeed is the signing key with which the manager mints the
// users of this tenant's sandboxes; it is kept encrypted and never read back.
type TenantPut struct {
	Tenant    Tenant `json:"tenant"`
	Account   string `json:"account"` // public key of the NATS account
	AgentSeed string `json:"agent_seed"`
}

// NodeDrain makes a node take nothing new, or with Undo take work again. What it runs goes on.
type NodeDrain struct {
	Name string `json:"name"`
	Undo bool   `json:"undo,omitempty"`
}

// DeleteWorkspace asks a service to remove all that it has of a workspace ("-": of the tenant as a whole).
// Asked again it does no harm.
type DeleteWorkspace struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
}

// DLQList pages through dead letters, oldest first. Tenant and Consumer are filters.
type DLQList struct {
	List
	Tenant   string `json:"tenant,omitempty"`
	Consumer string `json:"consumer,omitempty"`
}

// DLQRef names dead letters by sequence.
type DLQRef struct {
	Sequences []uint64 `json:"sequences"`
}

// DLQDone says how many were redriven or dropped; one that is no longer there is not counted.
type DLQDone struct {
	Done int `json:"done"`
}

// DeadLetter is a message that could not be decoded or delivered.
type DeadLetter struct {
	Sequence uint64            `json:"sequence"`
	Subject  string            `json:"subject"`
	Stream   string            `json:"stream"`
	Reason   string            `json:"reason"`
	Time     time.Time         `json:"time"`
	Headers  map[string]string `json:"headers,omitempty"`
	Body     []byte            `json:"body"`
}
