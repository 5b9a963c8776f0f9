package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/keyring"
	"github.com/weftmesh/weft/services/workspace-manager/internal/turns"
)

// Minter mints the mesh users of one tenant's sandboxes. pkg/mesh/accounts has the real one.
type Minter interface {
	Agent(workspace, principal, sandbox, userKey string, life time.Duration) (string, error)
}

// nodeCalls is what the manager asks of nodes.
type nodeCalls interface {
	CreateSandbox(ctx context.Context, node string, req runtime.SandboxCreate) error
	KillSandbox(ctx context.Context, node string, req runtime.SandboxKill) error
	ExtendSandbox(ctx context.Context, node string, req runtime.SandboxExtend) error
	PauseSandbox(ctx context.Context, node string, req runtime.SandboxRef) error
	ResumeSandbox(ctx context.Context, node string, req runtime.SandboxRef) error
	ForkSandbox(ctx context.Context, node string, req runtime.SandboxFork) error
	SnapshotSandbox(ctx context.Context, node string, req runtime.SandboxSnapshot) (runtime.Snapshot, error)
	RemoveSnapshot(ctx context.Context, node string, req runtime.SnapshotRef) error
	Output(ctx context.Context, node string, req workspace.OutputRequest, each func(workspace.OutputChunk) error) error
}

// Service is one replica of the workspace-manager.
type Service struct {
	cfg     Config
	conn    *mesh.Conn
	js      jetstream.JetStream
	log     *slog.Logger
	stores  stores
	turns   *turns.Index
	nodes   *nodeSet
	calls   nodeCalls
	signers *signers
	tenants *tenantSet
	claims  *claimClock
	lead    *leader
	waiting *progressBuffer
	admit   chan struct{} // a signal that admission may find something
	cursors cachedBucket
	purge   chan struct{} // a signal that something is to be deleted

	poolMu sync.Mutex // held from the look at a pool quota to the write under it
	naming claimLocks
	making sync.Map // what this replica is making: records.Key to workspace.Sandbox
}

// New makes a replica. Nothing is served before Run.
func New(cfg Config) (*Service, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	key, err := keyring.Open(cfg.KeyFile)
	if err != nil {
		return nil, err
	}
	s := &Service{cfg: cfg, conn: cfg.Conn, js: cfg.Conn.JetStream(), log: cfg.Conn.Logger().With("service", schemas.WorkspaceManager),
		stores: newStores(cfg.Conn), turns: turns.New(cfg.QueueMargin), calls: &meshNodes{c: cfg.Conn},
		claims: newClaimClock(cfg.Now), waiting: newProgressBuffer(),
		admit: make(chan struct{}, 1), purge: make(chan struct{}, 1)}
	if s.cfg.Purgers == nil {
		s.cfg.Purgers = meshPurgers(cfg.Conn)
	}
	s.signers = &signers{s: s, key: key, minters: map[string]Minter{}, ending: map[string]bool{}}
	s.nodes = newNodeSet(s)
	s.tenants = newTenantSet(s)
	s.lead = &leader{s: s}
	return s, nil
}

// Run serves until ctx ends, then lets what is under way end, gives its lease away, and returns.
// It returns an error if it could not start.
func (s *Service) Run(ctx context.Context) error {
	if err := s.prepare(ctx); err != nil {
		return err
	}
	run, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	loop := func(name string, f func(context.Context) error) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s.again(run, name, f)
		}()
	}
	loop("tenants", s.tenants.follow)
	loop("heartbeats", s.nodes.follow)
	loop("progress", s.flushProgress)
	loop("leader", s.lead.run)
	err := s.tenants.ready(ctx) // so that the first request finds what is in the log
	if err == nil {
		var stop func()
		if stop, err = s.serve(); err == nil {
			s.log.Info("workspace-manager is serving", "instance", s.cfg.Instance)
			<-ctx.Done()
			stop()
		}
	}
	cancel()
	wg.Wait()
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// prepare makes what the manager needs on the mesh beside what the provisioner made.
func (s *Service) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := s.nodes.makeBucket(ctx); err != nil {
		return err
	}
	if _, err := s.js.Stream(ctx, provision.Queue); err != nil {
		return fmt.Errorf("stream %s: %w", provision.Queue, err)
	}
	return nil
}

// again runs f until ctx ends, with a growing pause after each time it failed.
func (s *Service) again(ctx context.Context, name string, f func(context.Context) error) {
	for wait := 100 * time.Millisecond; ctx.Err() == nil; wait = min(2*wait, 5*time.Second) {
		start := time.Now()
		err := f(ctx)
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("part of the manager starts again", "part", name, "err", err)
		if time.Since(start) > time.Minute {
			wait = 100 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// wakeAdmission tells the leader's admission that something changed. It never blocks.
func (s *Service) wakeAdmission() { signal(s.admit) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// quotaOf notes a tenant's weight and limit.
func (s *Service) quotaOf(t workspace.Tenant) {
	def(&t.Quota.MaxRunning, s.cfg.Quota.MaxRunning)
	s.turns.SetTenant(t.Name, turns.Limits{Weight: t.Quota.Weight, MaxRunning: t.Quota.MaxRunning})
}
