package runtime

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/internal/journal"
	"github.com/weftmesh/weft/services/runtime/sandbox"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Service is one node. Make it with New, run it with Run.
type Service struct {
	cfg         Config
	tools       containerd.Config
	log         *slog.Logger
	key         nkeys.KeyPair
	keyPublic   string
	incarnation string

	attempts *journal.Journal[entry]
	boxes    *journal.Journal[boxEntry]

	engine *containerd.Engine
	node   *sandbox.Node
	warm   *poolkeeper

	mu        sync.Mutex
	holds     map[string]*hold // by sandbox
	serving   map[string]*interactive
	opening   map[string]*opening // interactive sandboxes that are being made
	draining  bool
	leftovers workspace.Cleaned // what was removed and is not told yet
	room      chan struct{}     // told when a slot is freed
	renewNow  chan struct{}     // told when new claims should be renewed at once
	ready     atomic.Bool
	work      sync.WaitGroup // attempts, sandboxes and what they started
}

// New checks everything that can be checked before anything is started or connected.
func New(cfg Config) (*Service, error) {
	cfg = cfg.defaults()
	if err := cfg.check(); err != nil {
		return nil, err
	}
	tools, err := cfg.engine()
	if err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, tools: tools, log: cfg.Log.With("node", cfg.Node), incarnation: cfg.NewID(),
		holds: map[string]*hold{}, serving: map[string]*interactive{}, opening: map[string]*opening{}, room: make(chan struct{}, 1), renewNow: make(chan struct{}, 1),
	}
	if s.attempts, err = journal.Open[entry](filepath.Join(cfg.DataDir, "attempts")); err != nil {
		return nil, err
	}
	if s.boxes, err = journal.Open[boxEntry](filepath.Join(cfg.DataDir, "sandboxes")); err != nil {
		return nil, err
	}
	s.warm = newPoolkeeper(s)
	s.key, s.keyPublic, err = nodeKey(cfg.DataDir)
	return s, err
}

// Run works until ctx ends. Sandboxes go on without it, and are taken up again by the next Run on the
// same directories.
func (s *Service) Run(ctx context.Context) error {
	if err := s.open(ctx); err != nil {
		return err
	}
	defer func() {
		if err := errors.Join(s.node.Close(), s.engine.Close()); err != nil {
			s.log.Error("the node did not close cleanly", "error", err)
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	defer func() { cancel(); loops.Wait(); s.work.Wait(); s.cfg.Queue.Close() }()
	if err := errors.Join(s.clearForks(), s.resume(ctx)); err != nil {
		return err
	}
	stop, err := s.serve(ctx)
	if err != nil {
		return err
	}
	defer stop()
	s.beat(ctx) // the queue's consumers are made with the first one
	for _, loop := range []func(context.Context){s.renewLoop, s.freezeLoop, s.leaseLoop, s.heartbeatLoop, s.sweepLoop, s.warm.loop} {
		loops.Go(func() { loop(ctx) })
	}
	s.ready.Store(true)
	defer s.ready.Store(false)
	s.log.Info("the node is ready", "slots", s.cfg.Slots, "pool", s.cfg.Pool, "containerd", s.engine.Socket(), "private", s.engine.Private())
	s.pull(ctx)
	return nil
}

// Ready reports whether the node takes work, and why not.
func (s *Service) Ready() error {
	if !s.ready.Load() {
		return fault.New(fault.Unavailable, "the node is not running yet")
	}
	return nil
}

// open starts or finds containerd, and opens the node's sandboxes.
func (s *Service) open(ctx context.Context) error {
	engine, err := containerd.Open(ctx, s.tools)
	if err != nil {
		return err
	}
	s.node, err = sandbox.Open(engine, sandbox.Config{
		DataDir: s.cfg.DataDir, RunDir: s.cfg.RunDir, Init: s.cfg.Init, CLI: s.cfg.CLI, Forwards: supervisor.DefaultForwards(), Answer: s.cfg.timing.answer, Log: s.log,
	})
	if err != nil {
		return errors.Join(err, engine.Close())
	}
	s.engine = engine
	if err := engine.HasRuntime(containerd.Runsc); err != nil {
		s.log.Warn("sandboxes of level high will be refused", "error", err)
	}
	return nil
}

// resume takes up what the journal knows, and removes everything else.
func (s *Service) resume(ctx context.Context) error {
	entries, bad, err := s.attempts.All()
	if err != nil {
		return err
	}
	boxes, badBoxes, err := s.boxes.All()
	if err != nil {
		return err
	}
	for id, err := range bad {
		s.log.Error("an attempt's record can't be read; its sandbox will be removed", "sandbox", id, "error", err)
		_ = s.attempts.Remove(id)
	}
	for id, err := range badBoxes {
		s.log.Error("a sandbox's record can't be read; it will be removed", "sandbox", id, "error", err)
		_ = s.boxes.Remove(id)
	}
	if _, err := s.node.Adopt(ctx); err != nil {
		return fmt.Errorf("find running sandboxes: %w", err)
	}
	s.warm.adopt(s.node.Members())
	for _, b := range s.node.List() {
		if _, _, waits := b.Blank(); waits {
			continue
		}
		_, attempt := entries[b.ID()]
		_, box := boxes[b.ID()]
		if !attempt && !box {
			s.log.Warn("a sandbox that nobody knows is removed", "sandbox", b.ID())
			if err := b.Destroy(ctx); err != nil {
				s.log.Error("it can't be removed now", "sandbox", b.ID(), "error", err)
			} else {
				s.cleaned([]sandbox.Item{{Kind: "sandbox", ID: b.ID()}})
			}
		}
	}
	known := func(id string) bool {
		_, attempt := entries[id]
		_, box := boxes[id]
		return attempt || box
	}
	s.reconcile(ctx, known)
	// Nothing is known of the claims' deadlines: they must be renewed soon or freeze.
	deadline := s.cfg.Clock().Add(s.cfg.timing.margin + s.cfg.timing.renew)
	for id, e := range entries {
		if err := s.resumeAttempt(ctx, id, e, deadline); err != nil {
			return err
		}
	}
	for id, e := range boxes {
		if err := s.resumeBox(ctx, id, e, deadline); err != nil {
			return err
		}
	}
	s.tellHeld(ctx)
	return nil
}

// reconcile removes what belongs to no sandbox that is known.
func (s *Service) reconcile(ctx context.Context, known func(id string) bool) {
	removed, err := s.node.Reconcile(ctx, known)
	s.cleaned(removed.Items())
	for id, where := range removed.Sandboxes {
		s.log.Warn("removed what was left of a sandbox", "sandbox", id, "found", where)
	}
	for _, other := range removed.Others {
		s.log.Warn("removed what was left of nobody", "kind", other.Kind, "name", other.ID)
	}
	if len(removed.Shims) > 0 {
		s.log.Warn("ended shims that served nothing", "pids", removed.Shims)
	}
	if err != nil && ctx.Err() == nil {
		s.log.Error("something that nobody owns can't be removed now", "error", err)
	}
}

// sweepLoop looks from time to time for what nobody owns, and removes old spools. Soon after the start
// it looks more often: what containerd was doing for a process that died may still come to an end.
func (s *Service) sweepLoop(ctx context.Context) {
	pause := min(s.cfg.timing.sweep, firstSweep)
	for {
		s.sleep(ctx, pause)
		if ctx.Err() != nil {
			return
		}
		pause = min(2*pause, s.cfg.timing.sweep)
		s.reconcile(ctx, func(id string) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.holds[id] != nil
		})
		s.tellHeld(ctx)
		s.sweepSpools()
	}
}

// firstSweep is how long after the start the first sweep comes; the pause doubles.
const firstSweep = 2 * time.Second

// tellHeld lets the filesystem service remove what it prepared for sandboxes that are gone.
func (s *Service) tellHeld(ctx context.Context) {
	at := s.cfg.Clock().UTC()
	req := filesystem.Held{Node: s.cfg.Node, AsOf: at}
	for _, h := range s.held() {
		req.Sandboxes = append(req.Sandboxes, h.sandbox)
	}
	ask, cancel := context.WithTimeout(ctx, s.cfg.timing.ask)
	defer cancel()
	if err := s.cfg.Files.Held(ask, req); err != nil && ctx.Err() == nil {
		s.log.Warn("the filesystem service was not told which sandboxes there are", "error", err)
	}
}
