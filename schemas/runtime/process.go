package runtime

import (
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
)

// Operations on the processes of one sandbox, on the sbx plane. exec and attach open byte streams. Wherever a
// process is named, its id or its name will do.
const (
	OpExec          = "exec"           // in the foreground: it ends with its caller
	OpProcessStart  = "process-start"  // in the background
	OpProcessList   = "process-list"   //
	OpProcessGet    = "process-get"    //
	OpProcessWait   = "process-wait"   // a long poll
	OpProcessSignal = "process-signal" //
	OpProcessResize = "process-resize" //
	OpProcessStop   = "process-stop"   //
	OpProcessForget = "process-forget" //
	OpAttach        = "attach"         //

	OpSignal = "signal" // the name that process-signal had first
	OpResize = "resize" // likewise
)

// Output modes of a background process: what happens when it writes faster than its output is taken.
const (
	// OutputAttached holds it back for whoever is attached, and drops the oldest output while nobody is. One
	// who takes nothing while others wait is not waited for. It is the default.
	OutputAttached = "attached"
	// OutputRing never holds it back.
	OutputRing = "ring"
)

// Bounds of a process.
const (
	MaxBuffer     = 64 << 20 // bytes kept of each output
	MinBuffer     = 4 << 10
	DefaultBuffer = 1 << 20
	MaxWaitMS     = 60_000 // of one process-wait
	MaxLabels     = 32
	MaxLabelBytes = 3 << 10 // of all labels together
)

// ExecRequest starts a process in a running sandbox, and is what process-start takes, too. Its streams follow on
// a byte stream of the channels stdin, stdout and stderr; with a terminal stderr stays empty.
type ExecRequest struct {
	// ID of the process, 20 characters of base32hex, made by the caller: with it a caller who lost the
	// connection can come back by attach. Empty: the node makes one.
	ID        string            `json:"id,omitempty"`
	Argv      []string          `json:"argv"`
	Env       map[string]string `json:"env,omitempty"`
	Workdir   string            `json:"workdir,omitempty"`
	User      *User             `json:"user,omitempty"` // nil: the sandbox's usual one
	Rlimits   []Rlimit          `json:"rlimits,omitempty"`
	PTY       bool              `json:"pty,omitempty"`
	Rows      uint16            `json:"rows,omitempty"`
	Cols      uint16            `json:"cols,omitempty"`
	Stdin     bool              `json:"stdin,omitempty"`      // the caller sends stdin
	TimeoutMS int64             `json:"timeout_ms,omitempty"` // after it the whole tree gets SIGTERM
	GraceMS   int64             `json:"grace_ms,omitempty"`   // and so much later SIGKILL; 0 is 5 s
}

// User is whom a process runs as, in the sandbox's own range of ids.
type User struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// Rlimit is one limit of a process, as setrlimit(2) has it, by name: nofile, nproc, as, core, cpu, data, fsize,
// memlock, stack and so on. None is raised above what the sandbox has.
type Rlimit struct {
	Name string `json:"name"`
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// ExecResult is the last word of an exec stream.
type ExecResult struct {
	Process string         `json:"process"`
	Exit    workspace.Exit `json:"exit"`
	CPUMS   int64          `json:"cpu_ms"`
	MaxRSS  int64          `json:"max_rss_bytes"`
	// Message says why a command could not be started at all (exit code 126 or 127).
	Message string `json:"message,omitempty"`
}

// ProcessStart starts a process that nobody has to stay with. Asked again with the same id, it gives the process
// that is there.
type ProcessStart struct {
	ExecRequest
	Name   string            `json:"name,omitempty"`   // a DNS label that no running process has
	Labels map[string]string `json:"labels,omitempty"` // names starting with dev.weft/ are reserved
	Output string            `json:"output,omitempty"` // OutputAttached or OutputRing
	Buffer int               `json:"buffer,omitempty"` // bytes kept of each output; 0 is 1 MiB
}

// ProcessRef names a process by its id or name.
type ProcessRef struct {
	Process string `json:"process"`
}

// ProcessList asks for the processes that run.
type ProcessList struct {
	All bool `json:"all,omitempty"` // also those that have ended and were not forgotten
}

// Processes of a sandbox, in the order of their starts.
type Processes struct {
	Items []Process `json:"items"`
}

// ProcessWait waits for a process's end, at most TimeoutMS (0 is the most, MaxWaitMS). The answer is the process;
// one that still runs then has "running" set: ask again.
type ProcessWait struct {
	Process   string `json:"process"`
	TimeoutMS int64  `json:"timeout_ms,omitempty"`
}

// SignalRequest sends a signal, by name (SIGTERM, TERM) or number, to a process.
type SignalRequest struct {
	Process string `json:"process"`
	Signal  string `json:"signal"`
	Target  string `json:"target,omitempty"` // group (the default), process or tree: all that descend from it
}

// ResizeRequest sets the size of a process's terminal.
type ResizeRequest struct {
	Process string `json:"process"`
	Rows    uint16 `json:"rows"`
	Cols    uint16 `json:"cols"`
}

// ProcessStop ends a process and all that descend from it: SIGTERM, and GraceMS later SIGKILL. The answer comes
// when none is left.
type ProcessStop struct {
	Process string `json:"process"`
	GraceMS *int64 `json:"grace_ms,omitempty"` // nil is 5 s, 0 is SIGKILL at once; at most 40 s
}

// Offsets are positions in the two outputs, in bytes from the beginning.
type Offsets struct {
	Stdout int64 `json:"stdout"`
	Stderr int64 `json:"stderr"`
}

// AttachRequest follows a process's output on a byte stream with the channels stdout and stderr, from where At or
// Tail say, and gives the process as it is at its end as result. Any number may be attached. Whoever leaves leaves the process running.
//
// The first control message is "started" with Attached. A control message "gap" with Gap says that output is
// missing: it was dropped before it could be sent.
type AttachRequest struct {
	Process string `json:"process"`
	// At is the first byte that is wanted of each output; what was dropped of it counts as a gap. nil: all that is kept.
	At *Offsets `json:"at,omitempty"`
	// Tail wants at most so many bytes of what is kept of each output; 0 is only what comes. Not with At.
	Tail *int64 `json:"tail,omitempty"`
	// Kept ends the stream when all that was written until its beginning has been sent.
	Kept bool `json:"kept,omitempty"`
	// Stdin takes the channel stdin as standard input, from offset "stdin" of Attached on. The newest who does so is the one.
	Stdin bool `json:"stdin,omitempty"`
	// Reader is an id of the caller's own, 20 characters of base32hex. What it has not received is kept for it
	// for a while after it has lost the connection, and under the same id it continues.
	Reader string `json:"reader,omitempty"`
	// Owner is for the one who had started the process by exec and comes back: it ends with this stream again.
	Owner bool `json:"owner,omitempty"`
}

// Attached says what one is attached to.
type Attached struct {
	Process Process `json:"process"`
	At      Offsets `json:"at"`    // of the first byte of each channel
	Stdin   int64   `json:"stdin"` // bytes of stdin that the process has taken so far
}

// Gap says that the byte after the first After of a channel is the one at Offset of the process's output.
type Gap struct {
	Stream string `json:"stream"`
	After  int64  `json:"after"`
	Offset int64  `json:"offset"`
	Lost   int64  `json:"lost"` // bytes
}

// Taken says how many bytes of stdin a process has taken; it comes as control message "taken" now and then.
type Taken struct {
	Stdin int64 `json:"stdin"`
}

// Process is one process that was started in a sandbox through its supervisor.
type Process struct {
	ID         string            `json:"id"`
	Name       string            `json:"name,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Argv       []string          `json:"argv"` // cut where it is long
	PID        int               `json:"pid"`  // inside the sandbox
	UID        uint32            `json:"uid"`
	PTY        bool              `json:"pty,omitempty"`
	Foreground bool              `json:"foreground,omitempty"` // it was started by exec, and ends with its caller
	Output     string            `json:"output,omitempty"`
	Running    bool              `json:"running"`
	StartedAt  time.Time         `json:"started_at"`
	EndedAt    *time.Time        `json:"ended_at,omitempty"`
	Exit       *workspace.Exit   `json:"exit,omitempty"`
	CPUMS      int64             `json:"cpu_ms,omitempty"`        // once it has ended
	MaxRSS     int64             `json:"max_rss_bytes,omitempty"` // likewise
	Message    string            `json:"message,omitempty"`       // why it could not be started at all
	Oldest     Offsets           `json:"oldest"`                  // the first bytes that are kept
	Written    Offsets           `json:"written"`                 // bytes so far
}

// DialRequest connects to an address inside the sandbox. The stream's channel data carries the bytes, and each direction
// ends by itself; the control message "connected" comes first.
type DialRequest struct {
	// Network is tcp or unix.
	Network string `json:"network"`
	// Port of 127.0.0.1 or, where nothing listens there, ::1. For tcp.
	Port int `json:"port,omitempty"`
	// Path of a socket, absolute, opened with the payload's permissions. For unix.
	Path string `json:"path,omitempty"`
}

// DialResult is the last word of a dial stream.
type DialResult struct {
	Sent     int64 `json:"sent"`     // bytes to the sandbox
	Received int64 `json:"received"` // bytes from it
}

// OpDial connects to a port or a unix socket inside.
const OpDial = "dial"
