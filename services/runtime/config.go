package runtime

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// Config of a node. New fills in what is empty and says so below.
type Config struct {
	Node       string            // its name, a DNS label
	Pool       string            // whose queue it pulls from beside its own; "default" if empty
	Labels     map[string]string // of the node, for placement
	Version    string            // of this program
	DataDir    string            // journal, spool, containerd's images and snapshots; on a disk
	RunDir     string            // sockets and mounts; derived from DataDir, under /run, if empty
	Socket     string            // of a running containerd to use; a private one is started if empty
	ImageDirs  []string          // where templates' archives lie; the tool cache's if empty
	Registries []string          // from which images are pulled, as example.com:5000/team; none if empty
	Init       string            // path of weft-init
	CLI        string            // path of the weft CLI that sandboxes get; none if empty
	Slots      int               // sandboxes at once; 2 for each core if 0
	MinFree    int64             // bytes of free disk below which nothing new is taken; 1 GiB if 0

	Queue   Queue
	Manager Manager
	Files   Files
	Secrets Secrets
	Output  Output
	Mesh    *mesh.Conn // where the node's and the sandboxes' operations are served; none if nil

	// DialMesh connects to the NATS server for a sandbox, which logs in over it by Login.
	DialMesh func(ctx context.Context) (net.Conn, error)
	// Vault makes what a sandbox finds at VAULT_ADDR. Nil: nothing is there.
	Vault func(VaultSession) (http.Handler, error)
	// Scrub compiles values that must not appear in output into a maker of scrubbers, one per stream.
	Scrub func(values []string) func() Scrubber

	Log   *slog.Logger
	Clock func() time.Time
	NewID func() string

	timing timing
}

// VaultSession is for whom a Vault handler works.
type VaultSession struct {
	secrets.LeaseRef
	Principal string
	Issued    secrets.Issued
}

// Scrubber takes secret values out of one stream of output.
type Scrubber interface {
	// Append adds to dst what of the stream so far and src can be shown.
	Append(dst, src []byte) []byte
	// Held is how many bytes are kept back because a value may have begun in them.
	Held() int
	// Flush adds to dst what was held back: the stream is over.
	Flush(dst []byte) []byte
}

// timing is how often things are done, and how long they may take.
type timing struct {
	renew      time.Duration // between two renewals of all claims
	margin     time.Duration // before a claim's deadline at which its sandbox is frozen
	heartbeat  time.Duration
	leases     time.Duration // between two renewals of leases
	sweep      time.Duration // between two looks for what nobody owns, and for old spools
	ask        time.Duration // of one request to another service
	merge      time.Duration // of a merge
	answer     time.Duration // of a warm sandbox's process 1 at the claim
	grace      time.Duration // from SIGTERM to SIGKILL when an attempt is cancelled
	caller     time.Duration // how long a process outlives the loss of the caller that it belongs to, who may come back
	drain      time.Duration // how long the end of an attempt waits for its output to be published
	keepSpool  time.Duration // after the end of an attempt
	backoff    time.Duration // first pause before something is tried again; doubles
	maxBackoff time.Duration
}

var defaultTiming = timing{
	renew: 2 * time.Second, margin: 3 * time.Second, heartbeat: 2 * time.Second, leases: 15 * time.Second, sweep: time.Minute,
	ask: 10 * time.Second, merge: 5 * time.Minute, answer: 2 * time.Second, grace: 5 * time.Second, caller: time.Minute, drain: 10 * time.Second, keepSpool: 24 * time.Hour,
	backoff: 50 * time.Millisecond, maxBackoff: 5 * time.Second,
}

// labelPool is the node's label that names its pool.
const labelPool = "pool"

// defaults fills in what is empty.
func (c Config) defaults() Config {
	if c.Pool == "" {
		c.Pool = "default"
	}
	labels := map[string]string{labelPool: c.Pool}
	for k, v := range c.Labels {
		labels[k] = v
	}
	c.Labels = labels
	if c.RunDir == "" && c.DataDir != "" {
		c.RunDir = sandbox.RunDirOf(c.DataDir)
	}
	if len(c.ImageDirs) == 0 {
		c.ImageDirs = []string{filepath.Join(toolchain.Cache(), "images")}
	}
	if c.Slots == 0 {
		c.Slots = 2 * goruntime.NumCPU()
	}
	if c.MinFree == 0 {
		c.MinFree = 1 << 30
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.NewID == nil {
		c.NewID = schemas.NewID
	}
	if c.Scrub == nil {
		c.Scrub = func([]string) func() Scrubber { return func() Scrubber { return &plain{} } }
	}
	if c.timing == (timing{}) {
		c.timing = defaultTiming
	}
	return c
}

func (c Config) check() error {
	if err := schemas.CheckName("node", c.Node); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	if schemas.Reserved(c.Node) {
		return fault.New(fault.Invalid, "node %q: the name is reserved; choose another", c.Node)
	}
	if !filepath.IsAbs(c.DataDir) || !filepath.IsAbs(c.RunDir) {
		return fault.New(fault.Invalid, "the node's directories must be absolute, not %q and %q", c.DataDir, c.RunDir)
	}
	if c.Slots < 1 {
		return fault.New(fault.Invalid, "a node needs at least one slot, not %d", c.Slots)
	}
	for _, r := range c.Registries {
		if err := containerd.CheckRegistry(r); err != nil {
			return err
		}
	}
	if c.Queue == nil || c.Manager == nil || c.Files == nil || c.Secrets == nil || c.Output == nil {
		return fault.New(fault.Internal, "the node is not connected to the mesh")
	}
	if os.Geteuid() != 0 {
		return fault.New(fault.Denied, "the runtime needs root on this machine, to make namespaces and mounts; or run weftd without the target runtime")
	}
	return nil
}

// engine finds the programs that sandboxes need.
func (c Config) engine() (containerd.Config, error) {
	e := containerd.Config{Dir: filepath.Join(c.DataDir, "containerd"), RunDir: c.RunDir, Socket: c.Socket, ImageDirs: c.ImageDirs, Registries: c.Registries, Log: c.Log}
	for name, path := range map[string]*string{"runc": &e.Runc, "containerd": &e.Containerd, "containerd-shim-runc-v2": &e.Shim} {
		if c.Socket != "" && name != "runc" {
			continue
		}
		found, err := toolchain.Find(name)
		if err != nil {
			return e, fault.Wrap(err, fault.Unavailable, "no usable %s on this machine; run `make setup`, or name one in $%s", name, toolchain.Variable(name))
		}
		*path = found
	}
	// Level high is refused without them, and all else goes on.
	if runsc, err := toolchain.Find("runsc"); err == nil {
		if shim, err := toolchain.Find("containerd-shim-runsc-v1"); err == nil {
			e.Runsc, e.RunscShim = runsc, shim
		}
	}
	return e, nil
}

// SpoolDir is where the output of attempts is kept, below which artifacts may be taken from.
func (c Config) SpoolDir() string { return filepath.Join(c.DataDir, "spool") }

// nodeKey reads the node's curve key, to which leases are sealed, or makes it. It lasts: what was
// sealed before a restart can be opened after it.
func nodeKey(dir string) (nkeys.KeyPair, string, error) {
	path := filepath.Join(dir, "node.xk")
	seed, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		kp, err := nkeys.CreateCurveKeys()
		if err != nil {
			return nil, "", err
		}
		if seed, err = kp.Seed(); err != nil {
			return nil, "", err
		}
		if err := os.WriteFile(path, seed, 0o600); err != nil {
			return nil, "", err
		}
	} else if err != nil {
		return nil, "", err
	}
	kp, err := nkeys.FromCurveSeed(seed)
	if err != nil {
		return nil, "", fault.Wrap(err, fault.Internal, "the node's key in %s is damaged; remove it, and attempts that run will be tried again", path)
	}
	pub, err := kp.PublicKey()
	return kp, pub, err
}

// plain lets everything through.
type plain struct{}

func (*plain) Append(dst, src []byte) []byte { return append(dst, src...) }
func (*plain) Held() int                     { return 0 }
func (*plain) Flush(dst []byte) []byte       { return dst }

// leaseRef of an attempt.
func leaseRef(i workspace.QueueItem, box string) secrets.LeaseRef {
	return secrets.LeaseRef{Tenant: i.Tenant, Workspace: i.Workspace, Task: i.Task, Attempt: i.Attempt, Sandbox: box}
}
