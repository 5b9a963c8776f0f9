package wire

import "time"

// Stream is one of the two outputs of a process. A process with a terminal has only Stdout.
type Stream uint8

// The outputs of a process.
const (
	Stdout Stream = 1
	Stderr Stream = 2
)

// OutputMode says what happens when a process writes faster than its output is taken.
type OutputMode string

const (
	// OutputAttached holds the process back while a reader is attached, and drops the oldest output
	// while none is. It suits commands that a person or a client runs. It is the default.
	OutputAttached OutputMode = "attached"
	// OutputRing never holds the process back: the oldest output is dropped and counted.
	OutputRing OutputMode = "ring"
	// OutputLossless holds the process back until its output was acknowledged, also while nobody is
	// attached, so that none is ever lost. It suits attempts, whose output is spooled.
	OutputLossless OutputMode = "lossless"
)

// Size of a terminal, in characters.
type Size struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}

// Rlimit is one resource limit, set in the process before its program starts.
type Rlimit struct {
	// Name as in getrlimit(2) without RLIMIT_, in lower case: nofile, nproc, as, core, cpu, data,
	// fsize, memlock, stack, rss, locks, sigpending, msgqueue, nice, rtprio, rttime.
	Name string `json:"name"`
	Soft uint64 `json:"soft"`
	Hard uint64 `json:"hard"`
}

// Identity is whom a process runs as, or with whose permissions a file is touched. UID 0 is
// refused, as it is the supervisor's own, unless the sandbox was made with root inside.
type Identity struct {
	UID    uint32   `json:"uid"`
	GID    uint32   `json:"gid"`
	Groups []uint32 `json:"groups,omitempty"`
}

// ProcessSpec is what is to be run.
type ProcessSpec struct {
	// ID names the process in this sandbox: 20 characters of base32hex. Empty: one is made.
	ID string `json:"id"`
	// Argv is the command and its arguments. A command without a slash is looked up in the PATH of Env.
	Argv []Text `json:"argv"`
	// Env is the whole environment, as "NAME=value"; nothing is inherited.
	Env []Text `json:"env,omitempty"`
	// Dir is the working directory; empty means "/".
	Dir      Text     `json:"dir,omitempty"`
	Identity Identity `json:"identity"`
	Rlimits  []Rlimit `json:"rlimits,omitempty"`
	// Stdin keeps standard input open for WriteStdin; else it is /dev/null (with a PTY it is always open).
	Stdin bool `json:"stdin,omitempty"`
	// PTY gives the process a controlling terminal of this size; stdout and stderr are then one.
	PTY *Size `json:"pty,omitempty"`
	// Timeout after which the whole tree gets SIGTERM, and Grace later SIGKILL. 0: none.
	Timeout time.Duration `json:"timeout_ns,omitempty"`
	// Grace between SIGTERM and SIGKILL at a timeout; 0 means 5 s.
	Grace time.Duration `json:"grace_ns,omitempty"`
	// Output mode; empty means OutputAttached.
	Output OutputMode `json:"output,omitempty"`
	// Buffer is how many bytes are kept of each output; 0 means 1 MiB; 4 KiB to 64 MiB.
	Buffer int `json:"buffer,omitempty"`
	// KillLeftovers ends what is left of the process's tree when the process itself has ended.
	KillLeftovers bool `json:"kill_leftovers,omitempty"`
	// Labels are kept with the process and listed with it, at most 4 KiB together.
	Labels map[string]string `json:"labels,omitempty"`
}

// Reason says why a process ended.
type Reason string

// Why a process ended.
const (
	ReasonExited   Reason = "exited"   // by itself
	ReasonSignaled Reason = "signaled" // by a signal that this supervisor was not asked to end it with
	ReasonTimeout  Reason = "timeout"  // its ProcessSpec.Timeout was over
	ReasonKilled   Reason = "killed"   // it was asked to stop
	ReasonFailed   Reason = "failed"   // it never started: Exit.Code is 126 or 127, Exit.Message says why
)

// Exit is how a process ended.
type Exit struct {
	// Code is the exit code; 128 + the signal when a signal ended it; 127 when the command does not
	// exist, 126 when it can't be executed.
	Code int `json:"code"`
	// Signal that ended it, as SIGKILL; empty when it exited.
	Signal  string `json:"signal,omitempty"`
	Reason  Reason `json:"reason"`
	Message string `json:"message,omitempty"`
	// UserCPU and SystemCPU are of the process and those of its children that it waited for.
	UserCPU   time.Duration `json:"user_cpu_ns"`
	SystemCPU time.Duration `json:"system_cpu_ns"`
	// MaxRSS is its largest resident memory, in bytes.
	MaxRSS int64     `json:"max_rss_bytes"`
	Start  time.Time `json:"start"`
	End    time.Time `json:"end"`
	// Stdout and Stderr are how many bytes it wrote to each: the offset at which its output ends.
	Stdout uint64 `json:"stdout"`
	Stderr uint64 `json:"stderr"`
	// Dropped counts the bytes of both that were overwritten before anybody read them.
	Dropped uint64 `json:"dropped,omitempty"`
	// Leftovers reports that processes of its tree were still alive when a kill of the tree gave up.
	Leftovers bool `json:"leftovers,omitempty"`
}

// Offsets of the outputs: the first byte that is still wanted.
type Offsets struct {
	Stdout uint64 `json:"stdout"`
	Stderr uint64 `json:"stderr"`
}

// ProcessInfo is one process as it is listed.
type ProcessInfo struct {
	ID     string            `json:"id"`
	PID    int               `json:"pid"` // inside the sandbox; 0 if it never started
	Argv   []Text            `json:"argv"`
	UID    uint32            `json:"uid"`
	PTY    bool              `json:"pty,omitempty"`
	Output OutputMode        `json:"output"`
	Labels map[string]string `json:"labels,omitempty"`
	Start  time.Time         `json:"start"`
	Exit   *Exit             `json:"exit,omitempty"` // nil while it runs
	Oldest Offsets           `json:"oldest"`         // first bytes still kept
	End    Offsets           `json:"end"`            // bytes written so far
	Acked  Offsets           `json:"acked"`
}

// Target of a signal.
type Target string

// What a signal is sent to.
const (
	TargetProcess Target = "process"
	TargetGroup   Target = "group" // its process group, which it leads
	TargetTree    Target = "tree"  // all that descend from it, whatever group or session they moved to
)

// FileInfo is what stat says of one file. Symbolic links are followed, except by List and Remove.
type FileInfo struct {
	Name    Text      `json:"name"`
	Size    int64     `json:"size"`
	Mode    uint32    `json:"mode"` // permission bits, setuid, setgid, sticky
	Type    FileType  `json:"type"`
	UID     uint32    `json:"uid"`
	GID     uint32    `json:"gid"`
	ModTime time.Time `json:"mod_time"`
	Target  Text      `json:"target,omitempty"` // of a symbolic link
	Path    Text      `json:"path,omitempty"`   // within a tree: relative to its top
}

// FileType is the kind of a file.
type FileType string

// Kinds of files.
const (
	FileRegular FileType = "file"
	FileDir     FileType = "dir"
	FileSymlink FileType = "symlink"
	FileOther   FileType = "other" // device, FIFO or socket: never opened
)

// Usage is what the sandbox uses now. What could not be found out is 0.
type Usage struct {
	MemoryBytes int64         `json:"memory_bytes"`
	MemoryLimit int64         `json:"memory_limit_bytes,omitempty"`
	CPU         time.Duration `json:"cpu_ns"` // since the sandbox started
	PIDs        int           `json:"pids"`
	PIDsLimit   int           `json:"pids_limit,omitempty"`
	OOMKills    int           `json:"oom_kills"`
	// InitRSS is the resident memory of weft-init itself.
	InitRSS int64 `json:"init_rss_bytes"`
	// Source of memory and CPU: cgroup1, cgroup2 or proc (a sum over the processes).
	Source string `json:"source"`
}
