// Package workspace holds the wire structs of the workspace-manager service: tenants, workspaces,
// agents, templates, triggers, tasks, sandboxes and nodes, and the operations on them.
//
// Times are RFC 3339 in UTC, durations are whole milliseconds, sizes are bytes.
package workspace

import (
	"encoding/json"
	"time"
)

// State is where a task is on its way. The last four are final: nothing follows them.
type State string

// The states: pending → queued → running → complete, or error, cancelled, rejected.
const (
	Pending   State = "pending"   // accepted, waits for admission (or for its next try)
	Queued    State = "queued"    // admitted under an attempt number, waits for a node
	Running   State = "running"   // a node holds the attempt
	Complete  State = "complete"  // the command ended with exit code 0
	Error     State = "error"     // no try ended well
	Cancelled State = "cancelled" // somebody asked for its end
	Rejected  State = "rejected"  // the submission was not valid
)

// Final reports whether nothing can follow s.
func (s State) Final() bool {
	return s == Complete || s == Error || s == Cancelled || s == Rejected
}

// Priority orders tasks of one tenant; between tenants turns are fair.
type Priority string

// The priorities.
const (
	High   Priority = "high"
	Normal Priority = "normal"
	Low    Priority = "low"
)

// Submission is the body of a message on the task plane. An agent, or a template with a command, must
// be named; the rest has defaults from the agent, then from the workspace. Unknown fields are ignored.
type Submission struct {
	Agent    string `json:"agent,omitempty"`
	Template string `json:"template,omitempty"` // with Command, instead of an agent
	// Level asks for a stronger security level than the agent or template has: standard or high.
	Level       string            `json:"level,omitempty"`
	Command     []string          `json:"command,omitempty"` // replaces the agent's entrypoint
	Input       json.RawMessage   `json:"input,omitempty"`   // any JSON value; the command finds it at $WEFT_INPUT
	Env         map[string]string `json:"env,omitempty"`
	Priority    Priority          `json:"priority,omitempty"`
	TimeoutMS   int64             `json:"timeout_ms,omitempty"`   // of one attempt's run; 0 is the agent's
	MaxAttempts int               `json:"max_attempts,omitempty"` // 1 to 20; 0 is the agent's
	Labels      map[string]string `json:"labels,omitempty"`
	Group       *Group            `json:"group,omitempty"`
	Parent      string            `json:"parent,omitempty"` // the task that submits this one
	// Depth of triggers so far. A sender cannot lower it: the manager takes the larger of this and its own count.
	Depth int `json:"depth,omitempty"`
}

// Group says that a task or a message is one of Size that belong together, for fan-in triggers.
type Group struct {
	ID   string `json:"id"`   // up to 256 printable ASCII characters
	Size int    `json:"size"` // 1 to 10,000
}

// Fault is a code of schemas.Code and a sentence.
type Fault struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// Exit is how a command ended.
type Exit struct {
	Code   int    `json:"code"`             // 127 not found, 126 not executable, 128+n ended by signal n
	Signal string `json:"signal,omitempty"` // SIGKILL …
	Reason string `json:"reason"`           // one of the Reason constants
	By     string `json:"by,omitempty"`     // the principal who killed it
}

// Usage is what an attempt used.
type Usage struct {
	CPUMS       int64 `json:"cpu_ms"`
	MaxRSSBytes int64 `json:"max_rss_bytes"`
	StdoutBytes int64 `json:"stdout_bytes"`
	StderrBytes int64 `json:"stderr_bytes"`
	Truncated   bool  `json:"truncated,omitempty"` // output went over its cap; the rest was dropped
}

// Outcome is what an attempt left behind.
type Outcome struct {
	Exit         *Exit    `json:"exit,omitempty"`
	Usage        Usage    `json:"usage"`
	Snapshot     string   `json:"snapshot,omitempty"` // of the workspace, after the merge
	FilesChanged int      `json:"files_changed"`
	Conflicts    []string `json:"conflicts,omitempty"` // paths of which both versions were kept
	Artifact     string   `json:"artifact,omitempty"`  // id of the zip, see the filesystem service
	Leases       int      `json:"leases"`              // issued and revoked
}

// Attempt is one try of a task on one node. Its number is the fencing token.
type Attempt struct {
	Number        int        `json:"number"`
	Node          string     `json:"node,omitempty"`
	Sandbox       string     `json:"sandbox,omitempty"`
	NodeKey       string     `json:"node_key,omitempty"` // the node's public curve key when it claimed
	QueuedAt      time.Time  `json:"queued_at"`
	StartedAt     *time.Time `json:"started_at,omitempty"`      // claimed by the node
	CommandAt     *time.Time `json:"command_at,omitempty"`      // the command was started
	FirstOutputAt *time.Time `json:"first_output_at,omitempty"` // its first byte of output
	EndedAt       *time.Time `json:"ended_at,omitempty"`
	Outcome       *Outcome   `json:"outcome,omitempty"`
	Fault         *Fault     `json:"fault,omitempty"`
}

// Task is the record of one piece of work, entity "task". Its events are submitted, rejected, queued,
// running, progress, retrying, cancelling, complete, error, cancelled.
type Task struct {
	ID           string     `json:"id"`
	Tenant       string     `json:"tenant"`
	Workspace    string     `json:"workspace"`
	Key          string     `json:"key"`       // submission key, unique in the workspace
	Principal    string     `json:"principal"` // who submitted, as the server pinned it
	AgentVersion int        `json:"agent_version,omitempty"`
	Submission   Submission `json:"submission"`
	Run          *RunSpec   `json:"run,omitempty"`          // as resolved when it was accepted; absent if rejected
	MaxAttempts  int        `json:"max_attempts,omitempty"` // resolved; 0 is one try of the command, a few where a node is lost
	BackoffMS    int64      `json:"backoff_ms,omitempty"`   // resolved
	Depth        int        `json:"depth,omitempty"`        // of triggers, as the manager counts
	Trigger      string     `json:"trigger,omitempty"`      // which trigger started it
	RetryOf      string     `json:"retry_of,omitempty"`     // the ended task that task-retry repeats
	State        State      `json:"state"`
	Attempt      Attempt    `json:"attempt"`            // the current or last one; number 0 before the first
	Previous     []Attempt  `json:"previous,omitempty"` // earlier tries, oldest first, the last 19 at most
	NotBefore    *time.Time `json:"not_before,omitempty"`
	Cancel       string     `json:"cancel,omitempty"` // who asked for the end, while it still runs
	Fault        *Fault     `json:"fault,omitempty"`
	Traceparent  string     `json:"traceparent,omitempty"`
	CreatedAt    time.Time  `json:"created_at"`
	FinishedAt   *time.Time `json:"finished_at,omitempty"`
}

// QueueItem is the body of a message on the queue plane: a pointer, the record is the truth.
type QueueItem struct {
	Tenant    string `json:"tenant"`
	Workspace string `json:"workspace"`
	Task      string `json:"task"`
	Attempt   int    `json:"attempt"`
}
