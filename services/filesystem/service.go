package filesystem

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
	"github.com/weftmesh/weft/services/filesystem/internal/tree"
)

// Store is what the service needs of the records of one entity; records.Store is one.
type Store[T any] interface {
	Get(ctx context.Context, k records.Key) (records.Record[T], error)
	Write(ctx context.Context, k records.Key, expected uint64, event string, v T) (records.Record[T], error)
	List(ctx context.Context, tenant, workspace string) ([]records.Record[T], error)
	Delete(ctx context.Context, k records.Key) error
	DeleteAll(ctx context.Context, tenant, workspace string) error
}

// Records are the entities that this service owns.
type Records struct {
	Heads     Store[wire.Head]
	Snapshots Store[wire.Snapshot]
	Overlays  Store[wire.Overlay]
	Artifacts Store[wire.Artifact]
}

// Attempts says who holds a task or an interactive sandbox now.
type Attempts interface {
	Attempt(ctx context.Context, req workspace.AttemptRequest) (workspace.AttemptReply, error)
}

// Workspaces gives the record of a workspace, for its quota and whether it exists.
type Workspaces interface {
	Get(ctx context.Context, k records.Key) (records.Record[workspace.Workspace], error)
}

// Config is what New needs. DataDir, Records, Attempts and Workspaces must be given; the rest has defaults.
type Config struct {
	DataDir    string // absolute; the service is its only user
	Records    Records
	Attempts   Attempts
	Workspaces Workspaces

	// SpoolDirs are the directories from which a merge may take further files into an artifact.
	SpoolDirs []string

	Clock  func() time.Time
	NewID  func() string
	Logger *slog.Logger

	WorkspaceBytes int64 // files of a workspace whose quota says nothing; 10 GiB
	WorkspaceFiles int64 // of any workspace; 1,000,000
	OverlayBytes   int64 // what a sandbox may write where Prepare says nothing; 1 GiB
	ArtifactBytes  int64 // contents in one artifact; 1 GiB

	SnapshotKeep  int           // unnamed ones per workspace; 200
	SnapshotAge   time.Duration // and for how long at least; 24 hours
	ArtifactKeep  int           // per workspace; 500
	ArtifactAge   time.Duration // 7 days
	ChunkGrace    time.Duration // how long a chunk that nobody names stays; 2 hours. Longer than any upload
	SweepInterval time.Duration // 10 minutes
}

func (c Config) withDefaults() (Config, error) {
	if !filepath.IsAbs(c.DataDir) {
		return c, fmt.Errorf("data directory %q must be an absolute path", c.DataDir)
	}
	if c.Records.Heads == nil || c.Records.Snapshots == nil || c.Records.Overlays == nil || c.Records.Artifacts == nil || c.Attempts == nil || c.Workspaces == nil {
		return c, errors.New("filesystem: Records, Attempts and Workspaces must be given")
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.NewID == nil {
		c.NewID = schemas.NewID
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	def(&c.WorkspaceBytes, 10<<30)
	def(&c.WorkspaceFiles, 1_000_000)
	def(&c.OverlayBytes, 1<<30)
	def(&c.ArtifactBytes, 1<<30)
	def(&c.SnapshotKeep, 200)
	def(&c.SnapshotAge, 24*time.Hour)
	def(&c.ArtifactKeep, 500)
	def(&c.ArtifactAge, 7*24*time.Hour)
	def(&c.ChunkGrace, 2*time.Hour)
	def(&c.SweepInterval, 10*time.Minute)
	return c, nil
}

func def[T comparable](v *T, d T) {
	var zero T
	if *v == zero {
		*v = d
	}
}

// Service keeps the files of workspaces. Its methods are its operations; they may be called by many goroutines.
type Service struct {
	cfg   Config
	log   *slog.Logger
	trees *tree.Trees

	mu      sync.Mutex
	tenants map[string]*tenant
	spaces  map[string]*space // by tenant/workspace
}

// tenant is what all workspaces of a tenant share: contents are stored once for the tenant, and never
// shared with another, so that nobody learns what others have from what his own upload costs.
type tenant struct {
	chunks *chunks.Store
	tree   *manifest.Tree
}

// space is one workspace.
type space struct {
	*tenant
	owner, name string
	lock        chan struct{} // holds one token while somebody changes the head or an overlay
	settled     string        // id of the head's snapshot whose record is known to exist; under lock
}

// New takes the data directory into use. Overlays and contents of an earlier process are found again.
func New(cfg Config) (*Service, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.DataDir, 0o711); err != nil {
		return nil, err
	}
	// Mounts are listed under their real path.
	if cfg.DataDir, err = filepath.EvalSymlinks(cfg.DataDir); err != nil {
		return nil, err
	}
	trees, err := tree.Open(cfg.DataDir)
	if err != nil {
		return nil, fmt.Errorf("filesystem: %w", err)
	}
	return &Service{cfg: cfg, log: cfg.Logger, trees: trees, tenants: map[string]*tenant{}, spaces: map[string]*space{}}, nil
}

// Close releases what this process holds. Overlays stay mounted, so that their sandboxes go on.
func (s *Service) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for _, t := range s.tenants {
		err = errors.Join(err, t.chunks.Close())
	}
	s.tenants, s.spaces = map[string]*tenant{}, map[string]*space{}
	s.trees.Close()
	return err
}

func (s *Service) path(elem ...string) string {
	return filepath.Join(append([]string{s.cfg.DataDir}, elem...)...)
}

// tenant opens a tenant's contents. The caller holds s.mu.
func (s *Service) tenant(name string) (*tenant, error) {
	if t := s.tenants[name]; t != nil {
		return t, nil
	}
	c, err := chunks.Open(s.path("chunks", name))
	if err != nil {
		return nil, err
	}
	t := &tenant{chunks: c, tree: manifest.NewTree(c)}
	s.tenants[name] = t
	return t, nil
}

// space gives a workspace by names that come from outside. It does not check that the workspace exists.
func (s *Service) space(owner, name string) (*space, error) {
	if err := errors.Join(schemas.CheckName("tenant", owner), schemas.CheckName("workspace", name)); err != nil {
		return nil, fault.New(fault.Invalid, "%v", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := owner + "/" + name
	if sp := s.spaces[key]; sp != nil {
		return sp, nil
	}
	t, err := s.tenant(owner)
	if err != nil {
		return nil, err
	}
	sp := &space{tenant: t, owner: owner, name: name, lock: make(chan struct{}, 1)}
	s.spaces[key] = sp
	return sp, nil
}

// hold waits for the workspace's lock. The caller must release it.
func (sp *space) hold(ctx context.Context) error {
	select {
	case sp.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fault.Wrap(ctx.Err(), fault.Deadline, "workspace %q is busy; try again", sp.name)
	}
}

func (sp *space) release() { <-sp.lock }

func (sp *space) key(id string) records.Key {
	return records.Key{Tenant: sp.owner, Workspace: sp.name, ID: id}
}

func (sp *space) trees() tree.Space {
	return tree.Space{Tenant: sp.owner, Workspace: sp.name, Tree: sp.tree, Source: sp.chunks}
}

// quota gives the bytes that the files of a workspace may have; not_found if there is no such workspace.
func (s *Service) quota(ctx context.Context, sp *space) (int64, error) {
	r, err := s.cfg.Workspaces.Get(ctx, records.Key{Tenant: sp.owner, Workspace: schemas.NoWorkspace, ID: sp.name})
	if err != nil {
		return 0, err
	}
	if r.Value.State == workspace.Deleting {
		return 0, fault.New(fault.Conflict, "workspace %q is being deleted", sp.name)
	}
	if r.Value.Quota.DiskBytes > 0 {
		return r.Value.Quota.DiskBytes, nil
	}
	return s.cfg.WorkspaceBytes, nil
}
