package supervisor

import (
	"context"
	"net"
	"time"
)

// Sandbox is the channel to one weft-init. It outlives connections.
type Sandbox struct{}

// ID of the sandbox.
func (s *Sandbox) ID() string

// Forward is one address inside the sandbox whose connections weft-init carries out to the node.
type Forward struct {
	Name string // given to the ForwardHandler, as "nats"
	Addr string // TCP address to listen at inside, as "127.0.0.1:4222"
}

// Mount is one bind mount that process 1 needs. All are read-only, nosuid, nodev.
type Mount struct{ Source, Destination string }

// Launch says how process 1 of the container has to be started.
type Launch struct {
	Args         []string // of process 1
	Env          []string // of process 1; holds no secret and reaches no payload
	Mounts       []Mount
	Capabilities []string // bounding, effective, permitted (not inheritable, not ambient)
	// User inside is 0:0; noNewPrivileges is true; the spec carries no seccomp profile, since
	// weft-init installs its own; rlimit NOFILE should be at least 4096.
}

// Launch gives that for weft-init at the host path initBinary.
func (s *Sandbox) Launch(initBinary string, forwards ...Forward) Launch

// WaitConnected returns when weft-init is connected, or ctx is done, or the sandbox is removed.
func (s *Sandbox) WaitConnected(ctx context.Context) error

// Connected reports whether it is connected now.
func (s *Sandbox) Connected() bool

// SetForwardHandler says who serves forwarded connections. Until it is set they are refused.
func (s *Sandbox) SetForwardHandler(h ForwardHandler)

// Start runs a process. It is done at most once per ProcessSpec.ID: should the connection break in
// between, it is asked again and gives the process that was started. An ID that is taken by an
// earlier Start is a conflict. A command that can't be executed is no error of Start: the
// process ends at once with code 126 or 127. The caller must call Close or Forget on the Process.
func (s *Sandbox) Start(ctx context.Context, spec ProcessSpec) (*Process, error)

// Attach follows a process from the offsets at, which may be the zero value: all that is kept.
// If bytes before an offset were dropped, the first Event says how many.
func (s *Sandbox) Attach(ctx context.Context, id string, at Offsets) (*Process, error)

// List gives all processes that run, and those that ended and were not forgotten. Ended ones are
// kept until Forget, or until more than 256 are kept and all their output was taken.
func (s *Sandbox) List(ctx context.Context) ([]ProcessInfo, error)

// Result is what Run collected.
type Result struct {
	Exit           Exit
	Stdout, Stderr []byte
	Truncated      bool // more than the limit was written; the rest was read and thrown away
}

// Run starts a process, gives it stdin (which may be nil), collects at most limit bytes of each
// output, waits for its end and forgets it. If ctx ends first the process's tree is killed.
func (s *Sandbox) Run(ctx context.Context, spec ProcessSpec, stdin []byte, limit int) (Result, error)

// KillAll ends every process of the sandbox but weft-init: SIGTERM, and after grace SIGKILL. It
// returns when none is left.
func (s *Sandbox) KillAll(ctx context.Context, grace time.Duration) error

// Dial connects to an address inside the sandbox: network is "tcp" or "unix". The connection has
// CloseWrite. It ends with the channel: connections do not survive a reconnect.
func (s *Sandbox) Dial(ctx context.Context, network, addr string) (net.Conn, error)

// Usage measures the sandbox from inside.
func (s *Sandbox) Usage(ctx context.Context) (Usage, error)

// Files gives the sandbox's files as identity as may see and change them.
func (s *Sandbox) Files(as Identity) *Files
