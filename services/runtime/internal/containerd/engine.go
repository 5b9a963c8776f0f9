package containerd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/weftmesh/weft/pkg/fault"
)

// Namespace is the containerd namespace in which everything of ours is kept.
const Namespace = "weft"

// Snapshotter keeps root file systems. It maps their owners into a sandbox's id range without copying.
const Snapshotter = "overlayfs"

// Deadlines of calls to containerd. Creating a task includes all of runc create.
const (
	callTimeout   = 10 * time.Second
	taskTimeout   = 30 * time.Second
	imageTimeout  = 10 * time.Minute
	serveTimeout  = 20 * time.Second // from the start of a daemon to its first answer
	minimumMajor  = 2
	minimumMinor  = 1
	remapSupports = "remap-ids"
)

// Config says which containerd an Engine uses.
type Config struct {
	// Dir keeps a private daemon's configuration, root and log. It must be on a disk that overlayfs takes.
	Dir string
	// RunDir keeps sockets and what does not outlive a boot. Short: a unix socket's path has at most 107 bytes.
	RunDir string
	// Socket of a running containerd to use instead of a private one. Empty: private.
	Socket string
	// Paths of the programs. Containerd is not needed with a Socket; Runc is always ours.
	Containerd, Shim, Runc string
	// Runsc and RunscShim are gVisor's; empty: there is none, and Runsc the runtime is refused.
	Runsc, RunscShim string
	// ImageDirs are where a template's archive may lie; nothing outside them is read.
	ImageDirs []string
	// Registries from which images may be pulled, see CheckRegistry; none if empty.
	Registries []string
	Log        *slog.Logger
}

// patience lets a call wait while containerd is being started again, as long as its own deadline
// allows, and connects soon after it is there. Dialling ends with its context.
var patience = []grpc.DialOption{
	grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimPrefix(addr, "unix://"))
	}),
	grpc.WithDefaultCallOptions(grpc.WaitForReady(true)),
	grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		MinConnectTimeout: callTimeout,
	}),
}

// Engine is one containerd in use. Its methods may be called at once from many goroutines.
type Engine struct {
	cfg    Config
	socket string
	client *client.Client
	daemon *daemon // nil where a running containerd was adopted

	closed   atomic.Bool
	creating sync.RWMutex // read-locked while a container is being made

	shims    shims
	endpoint bool           // containerd takes the address of a shim
	flights  sync.WaitGroup // the goroutines of images
	mu       sync.Mutex
	images   map[string]*imageFlight
}

// Open connects to the containerd that cfg names, or finds or starts a private one. An error says
// what is missing and how to get it.
func Open(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	e := &Engine{cfg: cfg, socket: cfg.Socket, images: map[string]*imageFlight{}, shims: newShims()}
	if err := e.check(); err != nil {
		return nil, err
	}
	if cfg.Socket == "" {
		d, err := openDaemon(ctx, cfg)
		if err != nil {
			return nil, err
		}
		e.daemon, e.socket = d, d.socket()
	}
	if err := e.writeRunscConfig(); err != nil {
		e.closeDaemon()
		return nil, fault.Wrap(err, fault.Unavailable, "the options of gVisor can't be written to %s", cfg.RunDir)
	}
	c, err := client.New(e.socket, client.WithDefaultNamespace(Namespace), client.WithTimeout(callTimeout), client.WithExtraDialOpts(patience))
	if err != nil {
		e.closeDaemon()
		return nil, fault.Wrap(err, fault.Unavailable, "containerd at %s does not answer", e.socket)
	}
	e.client = c
	if err := e.suitable(ctx); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	if e.Private() {
		e.clearSpares()
		e.endpoint = e.shareSandbox(ctx)
		e.flights.Go(e.keepSpares)
	}
	return e, nil
}

// check refuses a configuration with which no sandbox could be made.
func (e *Engine) check() error {
	missing := func(what string) error {
		return fault.New(fault.Unavailable, "no %s on this machine; run `make setup`, or name one in $WEFT_%s_BIN", what,
			strings.ToUpper(strings.ReplaceAll(what, "-", "_")))
	}
	for what, path := range map[string]string{"runc": e.cfg.Runc, "containerd-shim-runc-v2": e.cfg.Shim, "containerd": e.cfg.Containerd} {
		if e.cfg.Socket != "" && what != "runc" {
			continue
		}
		if path == "" {
			return missing(what)
		}
		if st, err := os.Stat(path); err != nil || st.IsDir() || st.Mode()&0o111 == 0 {
			return missing(what)
		}
	}
	if !filepath.IsAbs(e.cfg.Dir) || !filepath.IsAbs(e.cfg.RunDir) {
		return fault.New(fault.Invalid, "the engine's directories must be absolute, not %q and %q", e.cfg.Dir, e.cfg.RunDir)
	}
	return nil
}

// suitable checks the version and that owners of files can be mapped without copying.
func (e *Engine) suitable(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, serveTimeout)
	defer cancel()
	if ok, err := e.client.IsServing(ctx); err != nil || !ok {
		return fault.Wrap(errors.Join(err, errors.New("not serving")), fault.Unavailable, "containerd at %s does not answer", e.socket)
	}
	v, err := e.client.Version(ctx)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "containerd at %s does not tell its version", e.socket)
	}
	if !versionServes(v.Version) {
		return fault.New(fault.Unavailable, "containerd at %s is version %s; %d.%d or newer is needed, or leave the socket out to use a private one",
			e.socket, v.Version, minimumMajor, minimumMinor)
	}
	caps, err := e.client.GetSnapshotterCapabilities(ctx, Snapshotter)
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "containerd at %s has no snapshotter %s", e.socket, Snapshotter)
	}
	if !slices.Contains(caps, remapSupports) {
		return fault.New(fault.Unavailable, "this kernel or file system has no id-mapped overlay mounts; Linux 5.19 or newer on ext4, xfs or btrfs has")
	}
	return nil
}

// versionServes reports whether v, as 2.4.2 or v2.4.2+unknown, is new enough.
func versionServes(v string) bool {
	parts := strings.SplitN(strings.TrimPrefix(v, "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && (major > minimumMajor || major == minimumMajor && minor >= minimumMinor)
}

// Client is the client, for what the Engine has no method for. Its calls need InNamespace.
func (e *Engine) Client() *client.Client { return e.client }

// Socket is the address at which containerd listens.
func (e *Engine) Socket() string { return e.socket }

// Private reports whether the daemon is the Engine's own.
func (e *Engine) Private() bool { return e.daemon != nil }

// InNamespace adds the containerd namespace to ctx.
func InNamespace(ctx context.Context) context.Context {
	return namespaces.WithNamespace(ctx, Namespace)
}

// call bounds one call to containerd.
func call(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(InNamespace(ctx), d)
}

// Close ends the connection and the watch over a private daemon. The daemon and all containers go on.
// Again it does nothing.
func (e *Engine) Close() error {
	if e.closed.Swap(true) {
		return nil
	}
	e.mu.Lock()
	for _, f := range e.images {
		f.cancel()
	}
	e.mu.Unlock()
	close(e.shims.quit)
	e.flights.Wait()
	var err error
	if e.client != nil {
		err = e.client.Close()
	}
	e.closeDaemon()
	return err
}

func (e *Engine) closeDaemon() {
	if e.daemon != nil {
		e.daemon.close()
	}
}

// Stop closes the Engine and ends a private daemon. Containers go on without it until the next one.
func (e *Engine) Stop(ctx context.Context) error {
	err := e.Close()
	if e.daemon != nil {
		err = errors.Join(err, e.daemon.stop(ctx))
	}
	return err
}

// Ready waits until containerd answers, which it does not while it is being started again.
func (e *Engine) Ready(ctx context.Context) error {
	if ok, err := e.client.IsServing(ctx); err != nil || !ok {
		return fmt.Errorf("containerd at %s: %w", e.socket, errors.Join(err, errors.New("not serving")))
	}
	return nil
}
