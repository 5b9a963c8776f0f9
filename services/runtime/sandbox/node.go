package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/diskimage"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/internal/cgroup"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Config of a node's sandboxes.
type Config struct {
	// DataDir names the node: sandboxes belong to the node of one data directory. Their writable layers lie below it.
	DataDir string
	// RunDir keeps what does not outlive a boot. It must be in the mount namespace that containerd sees.
	RunDir string
	Init   string // path of weft-init, a static binary
	CLI    string // path of the weft CLI, put into every sandbox; empty: none
	// Forwards are the addresses inside that lead out to the node, see Sandbox.Serve.
	Forwards []supervisor.Forward
	// Answer is how long process 1 of a sandbox that waited has to answer at its claim; 2 s if 0.
	Answer time.Duration
	Log    *slog.Logger
}

// Node holds the sandboxes of one node. Its methods may be called at once from many goroutines.
type Node struct {
	cfg     Config
	owner   string
	engine  *containerd.Engine
	server  *supervisor.Server
	cgroups *cgroup.Tree
	ranges  *ranges
	layers  string            // directory of the writable layers
	disks   *diskimage.Images // nil where there can be none: noDisks says why
	noDisks error
	shims   shims
	opened  time.Time
	log     *slog.Logger

	mu        sync.Mutex
	sandboxes map[string]*Sandbox // by id: running, or on their way up or down
	bodies    map[string]bool     // by the body's id: those of sandboxes
}

// RunDirOf is where the node of a data directory keeps what does not outlive a boot, unless told
// otherwise: short, because sockets lie there.
func RunDirOf(dataDir string) string { return "/run/weft/" + ownerOf(dataDir) }

// ownerOf is the name under which what belongs to a data directory is marked.
func ownerOf(dataDir string) string {
	sum := sha256.Sum256([]byte(filepath.Clean(dataDir)))
	return hex.EncodeToString(sum[:4])
}

// Open prepares the node's directories. Call Adopt next: until then the node knows no sandbox.
func Open(engine *containerd.Engine, cfg Config) (*Node, error) {
	if cfg.Log == nil {
		cfg.Log = slog.Default()
	}
	if st, err := os.Stat(cfg.Init); err != nil || st.Mode()&0o111 == 0 {
		return nil, fault.New(fault.Unavailable, "no weft-init at %q; run `make build`, or name it in the configuration", cfg.Init)
	}
	n := &Node{cfg: cfg, owner: ownerOf(cfg.DataDir), engine: engine, log: cfg.Log, sandboxes: map[string]*Sandbox{}, bodies: map[string]bool{},
		opened: time.Now(), shims: shims{open: map[string]*shimGroup{}}}
	var err error
	if n.cgroups, err = cgroup.Open("/weft/" + n.owner); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "this machine's control groups can't be used")
	}
	if err := os.MkdirAll(n.base(), 0o711); err != nil {
		return nil, err
	}
	if err := shareBase(n.base()); err != nil {
		return nil, fault.Wrap(err, fault.Unavailable, "the node can't mount file systems; it must run as root")
	}
	if n.ranges, err = openRanges(filepath.Join(cfg.RunDir, "ranges")); err != nil {
		return nil, err
	}
	if err := n.openLayers(); err != nil {
		return nil, err
	}
	n.server, err = supervisor.NewServer(filepath.Join(cfg.RunDir, "sup"), supervisor.Options{Logger: cfg.Log})
	return n, err
}

// base is the directory of the sandboxes' directories.
func (n *Node) base() string { return filepath.Join(n.cfg.RunDir, "sb") }

// Close stops following the sandboxes; they go on. Where none is left it also takes away the node's
// own mount.
func (n *Node) Close() error {
	n.mu.Lock()
	held := make([]*Sandbox, 0, len(n.sandboxes))
	for _, s := range n.sandboxes {
		held = append(held, s)
	}
	n.mu.Unlock()
	for _, s := range held {
		s.unwatch()
	}
	err := n.server.Close()
	if entries, rerr := os.ReadDir(n.base()); rerr == nil && len(entries) == 0 {
		err = errors.Join(err, unix.Unmount(n.base(), unix.MNT_DETACH), os.Remove(n.base()))
		n.cgroups.Prune()
	}
	return err
}

// Get gives the sandbox called id, if the node has it.
func (n *Node) Get(id string) (*Sandbox, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s, ok := n.sandboxes[id]
	return s, ok
}

// List gives all sandboxes that the node has, by id.
func (n *Node) List() []*Sandbox {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := make([]*Sandbox, 0, len(n.sandboxes))
	for _, s := range n.sandboxes {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *Sandbox) int { return strings.Compare(a.spec.ID, b.spec.ID) })
	return list
}

// Members gives those that wait to be claimed, and those that are being made for it.
func (n *Node) Members() []*Sandbox {
	return slices.DeleteFunc(n.List(), func(s *Sandbox) bool { return s.blank == nil })
}

// Crowded reports whether the node has so many sandboxes that none should be made ahead.
func (n *Node) Crowded() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.bodies) >= crowd
}

// hold enters s under its id, which must be free.
func (n *Node) hold(s *Sandbox) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, taken := n.sandboxes[s.spec.ID]; taken {
		return fault.New(fault.Conflict, "sandbox %s is on this node already", s.spec.ID)
	}
	n.sandboxes[s.spec.ID] = s
	n.bodies[s.id] = true
	return nil
}

// release takes one of the ids away by which a body is known.
func (n *Node) release(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sandboxes, id)
}

// drop forgets a sandbox of which nothing is left.
func (n *Node) drop(s *Sandbox) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.sandboxes, s.spec.ID)
	delete(n.bodies, s.id)
}

// held reports whether a sandbox that the node has, by whatever id, is this body.
func (n *Node) held(body string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.bodies[body]
}

// FreeDisk is how many bytes are free where images and snapshots lie.
func FreeDisk(dir string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// Image makes sure that an image is on this node, so that a sandbox of it starts quickly.
func (n *Node) Image(ctx context.Context, ref string) error {
	_, err := n.engine.Image(ctx, ref)
	return err
}
