package manager

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
)

// maxClaims bounds one renewal.
const maxClaims = 4096

// Renew keeps a node's claims. What each is now is read from the log, never from a view, so that a
// claim made a moment ago is not called lost. All replicas learn of the renewal through the heartbeats'
// bucket before the node does.
func (s *Service) Renew(ctx context.Context, by mesh.Caller, req workspace.Renew) (workspace.Renewed, error) {
	if err := checkNode(by); err != nil {
		return workspace.Renewed{}, err
	}
	if len(req.Claims) > maxClaims {
		return workspace.Renewed{}, fault.New(fault.Invalid, "%d claims at once, more than %d", len(req.Claims), maxClaims)
	}
	now := s.cfg.Now().UTC()
	out := workspace.Renewed{Claims: make([]workspace.HeldReply, len(req.Claims))}
	errs := make([]error, len(req.Claims))
	var wg sync.WaitGroup
	slots := make(chan struct{}, 16)
	for i := range req.Claims {
		slots <- struct{}{}
		wg.Add(1)
		go func() {
			defer func() { <-slots; wg.Done() }()
			out.Claims[i], errs[i] = s.renewOne(ctx, by.Principal, req.Claims[i], now)
		}()
	}
	wg.Wait()
	var kept []attemptKey
	for i, c := range req.Claims {
		if errs[i] != nil {
			return workspace.Renewed{}, errs[i]
		}
		if out.Claims[i].Verdict != workspace.VerdictLost {
			kept = append(kept, attemptKey{itemKey(c.QueueItem), c.Attempt})
		}
	}
	if err := s.claims.tell(ctx, s, by.Principal, kept); err != nil {
		return workspace.Renewed{}, err
	}
	return out, nil
}

func (s *Service) renewOne(ctx context.Context, node string, h workspace.Held, now time.Time) (workspace.HeldReply, error) {
	lost := workspace.HeldReply{Verdict: workspace.VerdictLost, Reason: "no such task"}
	if checkItem(h.QueueItem) != nil {
		return lost, nil
	}
	if s.nodes.holds(node, itemKey(h.QueueItem)) {
		return s.renewSandbox(ctx, node, h, now)
	}
	r, err := s.stores.tasks.Get(ctx, itemKey(h.QueueItem))
	if fault.Is(err, fault.NotFound) {
		return s.renewSandbox(ctx, node, h, now)
	}
	if err != nil {
		return lost, err
	}
	rep := workspace.HeldReply{Deadline: now.Add(s.cfg.ClaimLease)}
	rep.Verdict, rep.Reason = lifecycle.Verdict(&r.Value, lifecycle.Holder{Attempt: h.Attempt, Node: node}, now, s.cfg.Overrun)
	if rep.Verdict != workspace.VerdictLost && h.UserKey != "" {
		rep.UserJWT, err = s.signers.mint(h.Tenant, h.Workspace, r.Value.Run.Principal, r.Value.Attempt.Sandbox, h.UserKey)
	}
	return rep, err
}

// renewSandbox is the same for an interactive sandbox, whose id stands in place of the task's.
func (s *Service) renewSandbox(ctx context.Context, node string, h workspace.Held, now time.Time) (workspace.HeldReply, error) {
	b, err := s.sandboxToRenew(ctx, itemKey(h.QueueItem))
	if fault.Is(err, fault.NotFound) {
		return workspace.HeldReply{Verdict: workspace.VerdictLost, Reason: "no such task or sandbox"}, nil
	}
	if err != nil {
		return workspace.HeldReply{}, err
	}
	if b.State == workspace.SandboxStopped || b.Node != node || b.Generation != h.Attempt {
		return workspace.HeldReply{Verdict: workspace.VerdictLost, Reason: "the sandbox is " + b.State}, nil
	}
	rep := workspace.HeldReply{Verdict: workspace.VerdictKeep, Deadline: now.Add(s.cfg.ClaimLease)}
	if h.UserKey != "" {
		rep.UserJWT, err = s.signers.mint(h.Tenant, h.Workspace, b.Principal, b.ID, h.UserKey)
	}
	return rep, err
}

// sandboxToRenew reads a sandbox's record. What this replica has its node make right now it knows without reading.
func (s *Service) sandboxToRenew(ctx context.Context, k records.Key) (workspace.Sandbox, error) {
	if b, ok := s.making.Load(k); ok {
		return b.(workspace.Sandbox), nil
	}
	r, err := get(ctx, s.stores.sandboxes, k)
	return r.Value, err
}

// claimClock knows when each claim was last renewed, by this replica's own clock. It is a memory of
// the present only: who becomes leader counts every claim as just renewed.
type claimClock struct {
	now  func() time.Time
	mu   sync.Mutex
	last map[attemptKey]time.Time
}

func newClaimClock(now func() time.Time) *claimClock {
	return &claimClock{now: now, last: map[attemptKey]time.Time{}}
}

// tell puts a node's renewal where every replica sees it, its own included.
func (c *claimClock) tell(ctx context.Context, s *Service, node string, held []attemptKey) error {
	b, err := json.Marshal(held)
	if err != nil {
		return err
	}
	if err := s.nodes.put(ctx, "claims."+node, b); err != nil {
		return err
	}
	c.renewed(held)
	return nil
}

func (c *claimClock) renewed(held []attemptKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range held {
		c.last[k] = c.now()
	}
}

// since is when k was last renewed, or from if that is later or it never was.
func (c *claimClock) since(k attemptKey, from time.Time) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.last[k]; t.After(from) {
		return t
	}
	return from
}

// prune forgets what was not renewed since t.
func (c *claimClock) prune(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, at := range c.last {
		if at.Before(t) {
			delete(c.last, k)
		}
	}
}
