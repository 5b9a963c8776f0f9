package workspace

import (
	"encoding/json"
	"time"
)

// Manifest is one document of a file for `weft apply`: a kind with its name and spec.
type Manifest struct {
	Kind string          `json:"kind"` // Workspace, Agent, Template, Trigger
	Name string          `json:"name"`
	Spec json.RawMessage `json:"spec"`
}

// Tenant is the record of who owns things, entity "tenant" in the tenant's own log, workspace "-".
type Tenant struct {
	Name      string    `json:"name"`
	Quota     Quota     `json:"quota"`
	Policy    *Policy   `json:"policy,omitempty"` // absent: the default
	State     string    `json:"state"`            // active, deleting
	CreatedAt time.Time `json:"created_at"`
}

// Quota bounds a tenant or a workspace. 0 takes the default of the level above.
type Quota struct {
	MaxPending int   `json:"max_pending,omitempty"` // tasks that wait
	MaxRunning int   `json:"max_running,omitempty"` // tasks queued or running
	DiskBytes  int64 `json:"disk_bytes,omitempty"`  // files of a workspace
	Sandboxes  int   `json:"sandboxes,omitempty"`   // interactive ones
	Weight     int   `json:"weight,omitempty"`      // of a tenant: its share of turns beside others, 1 if 0
	// PoolMembers bounds the sum of Max over a tenant's warm pools, which is what they may hold on each node.
	PoolMembers int `json:"pool_members,omitempty"`
}

// Workspace is the record of a shared place, entity "workspace".
type Workspace struct {
	Name      string            `json:"name"`
	Quota     Quota             `json:"quota"`
	Labels    map[string]string `json:"labels,omitempty"`
	State     string            `json:"state"` // active, deleting
	CreatedAt time.Time         `json:"created_at"`
}

// Resources limits a sandbox.
type Resources struct {
	CPUMillis   int64 `json:"cpu_millis,omitempty"`   // 1000 is one core
	MemoryBytes int64 `json:"memory_bytes,omitempty"` // no swap beyond it
	PIDs        int64 `json:"pids,omitempty"`
	DiskBytes   int64 `json:"disk_bytes,omitempty"`   // of what it writes: its overlay and /tmp
	OutputBytes int64 `json:"output_bytes,omitempty"` // of stdout and stderr together, beyond it is dropped and said so
	// CPUWeight is its share of a busy machine's CPUs, against other sandboxes: 1 to 10,000, 100 by default.
	CPUWeight int64 `json:"cpu_weight,omitempty"`
	// OpenFiles of each process, 64 to 1,048,576; no more than the node itself may have.
	OpenFiles int64 `json:"open_files,omitempty"`
	// IOReadBPS and IOWriteBPS bound the bytes a second from and to disks, of what does not come from memory. 0: no bound. Where
	// the kernel can't, inspect says so.
	IOReadBPS  int64 `json:"io_read_bps,omitempty"`
	IOWriteBPS int64 `json:"io_write_bps,omitempty"`
}

// Template is an image with its defaults, entity "template", workspace "-" or a workspace's own.
type Template struct {
	Name      string            `json:"name"`
	Version   int               `json:"version"`
	Image     string            `json:"image"` // name or path of an OCI archive on the node, or a reference to a registry that it may pull from
	Level     string            `json:"level,omitempty"`
	Resources Resources         `json:"resources"`
	Env       map[string]string `json:"env,omitempty"`
	Workdir   string            `json:"workdir,omitempty"`
	Isolation
	CreatedAt time.Time `json:"created_at"`
}

// SecretUse is a credential that an agent wants in its sandbox. The secrets service gives it only
// under a grant to this agent.
type SecretUse struct {
	Name string `json:"name"`
	// As says how: "file" puts it at /run/secrets/<name> with mode 0400, "env" into the variable
	// Env, "vault" lets the paths of the grant through at $VAULT_ADDR.
	As  string `json:"as"`
	Env string `json:"env,omitempty"`
}

// Agent is a named, versioned definition, entity "agent". Every change makes a new version; a task
// keeps the version with which it was admitted.
type Agent struct {
	Name        string            `json:"name"`
	Version     int               `json:"version"`
	Template    string            `json:"template"`
	Level       string            `json:"level,omitempty"` // standard, or what the template says
	Entrypoint  []string          `json:"entrypoint"`
	Env         map[string]string `json:"env,omitempty"`
	Workdir     string            `json:"workdir,omitempty"` // default /workspace
	Resources   Resources         `json:"resources"`
	Secrets     []SecretUse       `json:"secrets,omitempty"`
	Files       string            `json:"files,omitempty"` // private (default), readonly, none
	TimeoutMS   int64             `json:"timeout_ms,omitempty"`
	MaxAttempts int               `json:"max_attempts,omitempty"`
	BackoffMS   int64             `json:"backoff_ms,omitempty"` // before the second try; doubles, at most 5 minutes
	MaxRunning  int               `json:"max_running,omitempty"`
	CreatedAt   time.Time         `json:"created_at"`
}

// Trigger starts a task when something happens, entity "trigger".
type Trigger struct {
	Name      string          `json:"name"`
	Version   int             `json:"version"`
	Message   *MessageTrigger `json:"message,omitempty"` // exactly one of Message and Event
	Event     *EventTrigger   `json:"event,omitempty"`
	Gather    bool            `json:"gather,omitempty"` // wait until all of a group have come, then start once
	Start     Submission      `json:"start"`
	CreatedAt time.Time       `json:"created_at"`
}

// MessageTrigger matches messages by recipient and by who may send.
type MessageTrigger struct {
	To   string   `json:"to"`
	From []string `json:"from"` // allowed senders, at least one; others never start it
}

// EventTrigger matches final and other events of tasks.
type EventTrigger struct {
	Events []string          `json:"events"` // complete, error, cancelled …
	Agents []string          `json:"agents"` // whose tasks, at least one
	Labels map[string]string `json:"labels,omitempty"`
}

// TriggerInput is what a triggered task finds as its input: what made it start.
type TriggerInput struct {
	Trigger  string            `json:"trigger"`
	Group    *Group            `json:"group,omitempty"`
	Messages []json.RawMessage `json:"messages,omitempty"` // bodies, in the order of arrival
	Tasks    []string          `json:"tasks,omitempty"`    // ids of the tasks that sent or ended
	// Sequences are those of the messages, in the same order. Where the bodies together would go over
	// half of a submission's size they are left out and Truncated is set: the messages operation has them.
	Sequences []uint64 `json:"sequences,omitempty"`
	Truncated bool     `json:"truncated,omitempty"`
}

// Gather is the record of a group that a gathering trigger waits for, entity "gather". Events:
// waiting, fired. Who comes twice (a task's second attempt) counts once, with its last message.
type Gather struct {
	Trigger string         `json:"trigger"`
	Group   Group          `json:"group"`
	Members []GatherMember `json:"members"`
	Depth   int            `json:"depth,omitempty"` // the deepest of the members'
	Task    string         `json:"task,omitempty"`  // the task that was started; set once
	At      time.Time      `json:"at"`
}

// GatherMember is one of a group: a task, or a message without one.
type GatherMember struct {
	Member   string `json:"member"`
	Task     string `json:"task,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"` // of its message
}
