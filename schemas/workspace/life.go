package workspace

import "time"

// Operations on the life of an interactive sandbox, on the req plane.
const (
	OpSandboxExtend = "sandbox-extend"
	OpSandboxPause  = "sandbox-pause"
	OpSandboxResume = "sandbox-resume"
)

// OpSandboxWarned is a node's word, on the int plane, that a sandbox is about to be stopped, or is no longer.
const OpSandboxWarned = "sandbox-warned"

// Reasons of an Exit. A command ends with the first six; a sandbox with any but signal.
const (
	ReasonExited      = "exited"       // by itself
	ReasonSignal      = "signal"       // by a signal that nobody of ours sent
	ReasonTimeout     = "timeout"      // its time limit, or its time to live, was over
	ReasonOOM         = "oom"          // the kernel ended it for want of memory
	ReasonPIDs        = "pids"         // too many processes ended it, where the level has no milder way
	ReasonStartFailed = "start-failed" // it could not be started
	ReasonCancelled   = "cancelled"    // what it was for was cancelled, or its workspace or tenant deleted
	ReasonKilled      = "killed"       // Exit.By ended it
	ReasonIdle        = "idle"         // nobody had used it for as long as it may be idle
	ReasonNodeLost    = "node-lost"    // its node is gone, or came back without it
)

// SandboxPaused is the state of a sandbox whose processes are frozen where they are.
const SandboxPaused = "paused"

// Events of a sandbox's record that are no states.
const (
	SandboxWarned   = "warned"   // it is about to be stopped: Sandbox.Warning says why and when
	SandboxKept     = "kept"     // it was used again after the warning, which is void
	SandboxExtended = "extended" // its time to live or its idle limit was changed
	SandboxResumed  = "resumed"  // it goes on after a pause
)

// Bounds of a sandbox's life, in milliseconds.
const (
	MaxTTLMS   = 24 * 3600 * 1000
	MaxGraceMS = 30 * 1000
)

// SandboxExtend keeps a sandbox alive, and counts as use of it.
type SandboxExtend struct {
	ID string `json:"id"`
	// TTLMS is its time to live from now on, at most MaxTTLMS; 0 is the one with which it was made. It never
	// shortens a life.
	TTLMS int64 `json:"ttl_ms,omitempty"`
	// IdleMS is its new idle limit; 0 leaves it as it is.
	IdleMS int64 `json:"idle_ms,omitempty"`
}

// StopWarning says that a sandbox is about to be stopped.
type StopWarning struct {
	Reason  string    `json:"reason"` // timeout or idle
	At      time.Time `json:"at"`     // when the warning was given
	StopsAt time.Time `json:"stops_at"`
}

// LastOutput is the end of what one process of a sandbox wrote, known secrets taken out. A record has at most
// MaxLastOutput bytes of it.
type LastOutput struct {
	Process string   `json:"process,omitempty"` // its id; empty for process 1, the supervisor
	Argv    []string `json:"argv,omitempty"`    // of at most 256 bytes
	Stdout  string   `json:"stdout,omitempty"`  // at most 4 KiB, valid UTF-8 without control characters but \n and \t
	Stderr  string   `json:"stderr,omitempty"`
	Exit    *Exit    `json:"exit,omitempty"`
}

// MaxLastOutput bounds the JSON of a record's last output, in bytes.
const MaxLastOutput = 64 << 10
