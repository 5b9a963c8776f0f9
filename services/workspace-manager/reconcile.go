package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
)

// reconciler compares what is with what should be, every ReconcileEvery, for as long as this replica
// leads. It looks at states and not at events, so it makes good whatever was missed.
func (s *Service) reconciler(ctx context.Context) error {
	since := s.cfg.Now() // claims made or renewed before count from here
	t := time.NewTicker(s.cfg.ReconcileEvery)
	defer t.Stop()
	for {
		if err := s.reconcile(ctx, since); err != nil && ctx.Err() == nil {
			s.log.Warn("reconciliation not complete", "err", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
	}
}

// reconcile makes one pass. since is when this replica began to lead.
func (s *Service) reconcile(ctx context.Context, since time.Time) error {
	var errs []error
	for _, name := range s.nodes.refresh() {
		errs = append(errs, s.nodeLost(ctx, name))
	}
	now := s.cfg.Now()
	s.claims.prune(now.Add(-10 * (s.cfg.ClaimLease + s.cfg.ClaimGrace)))
	var stuck []summary
	for _, v := range s.tenants.views() {
		for _, t := range v.tasks.unfinished() {
			switch t.State {
			case workspace.Running:
				errs = append(errs, s.reconcileRunning(ctx, v, t, since, now))
			case workspace.Queued:
				if now.Sub(t.Seen) > s.cfg.QueueCheck {
					stuck = append(stuck, t)
				}
			}
		}
		for _, b := range v.sandboxes.inLife() {
			errs = append(errs, s.reconcileSandbox(ctx, b, since, now))
		}
	}
	if now.Sub(since) > s.cfg.KeepSnapshot { // by then every tenant's view is complete
		errs = append(errs, s.reconcileSnapshots(ctx, now))
	}
	if len(stuck) > 0 {
		errs = append(errs, s.requeue(ctx, stuck))
	}
	s.wakeAdmission()
	return errors.Join(errs...)
}

// reconcileRunning ends an attempt whose claim ran out, or that its node does not end at its time limit.
func (s *Service) reconcileRunning(ctx context.Context, v *view, t summary, since, now time.Time) error {
	from := since
	if t.Seen.After(from) {
		from = t.Seen
	}
	held := s.claims.since(attemptKey{t.Key, t.Attempt}, from)
	reason := ""
	if now.Sub(held) > s.cfg.ClaimLease+s.cfg.ClaimGrace {
		reason = lifecycle.ReasonNodeLost
	} else if t.Limit > 0 && now.Sub(t.Seen) > t.Limit+s.cfg.Overrun {
		// The node is told to stop by its renewals from here on; if it doesn't, it is not waited for.
		if now.Sub(t.Seen) > t.Limit+2*s.cfg.Overrun+s.cfg.ClaimLease {
			reason = lifecycle.ReasonTimeout
		}
	}
	if reason == "" {
		return nil
	}
	r, err := s.stores.tasks.Update(ctx, t.Key, func(k *workspace.Task) (string, error) {
		return lifecycle.Lost(k, t.Attempt, reason, now.UTC())
	})
	if fault.Is(err, fault.NotFound) {
		v.forgetTask(t.Key)
		return nil
	}
	if err != nil {
		return err
	}
	failpoint.Hit(fpAfterRetryRecord)
	s.log.Warn("attempt lost", "task", t.ID, "attempt", t.Attempt, "node", t.Node, "reason", reason, "now", r.Value.State)
	v.task(r)
	return nil
}

// reconcileSandbox ends the record of an interactive sandbox that is not there any more: its node is
// lost, or names it no more, or it never started.
func (s *Service) reconcileSandbox(ctx context.Context, r records.Record[workspace.Sandbox], since, now time.Time) error {
	b := &r.Value
	grace := s.cfg.ClaimLease + s.cfg.ClaimGrace
	has, heard := s.nodes.has(b.Node, b.ID)
	var exit workspace.Exit
	switch {
	case b.State == workspace.SandboxCreating:
		// A node names what it was asked for from the start; forks only when their files are there.
		unknown := !has && b.ForkedFrom == "" && heard.Sub(b.CreatedAt) > startGrace && s.abandoned(r.Key, b)
		if !unknown && now.Sub(b.CreatedAt) < startTimeout {
			return nil
		}
		exit = workspace.Exit{Code: -1, Reason: "start-failed"}
		_ = s.killSandbox(ctx, r, exit.Reason, "")
	case now.Sub(since) < grace || (b.RunningAt != nil && now.Sub(*b.RunningAt) < grace):
		return nil
	case now.Sub(heard) > s.cfg.NodeTimeout+s.cfg.ClaimLease, !has && now.Sub(heard) < s.cfg.NodeTimeout:
		exit = workspace.Exit{Code: -1, Reason: lifecycle.ReasonNodeLost}
	case now.Sub(expiry(b)) > time.Duration(b.Run.GraceMS)*time.Millisecond+s.cfg.Overrun:
		exit = workspace.Exit{Code: 137, Reason: lifecycle.ReasonTimeout}
		_ = s.killSandbox(ctx, r, exit.Reason, "")
	default:
		return nil
	}
	_, err := s.stopped(ctx, r.Key, exit, &workspace.Fault{Code: string(schemas.Unavailable),
		Message: fmt.Sprintf("%s: ended by the reconciler", exit.Reason)})
	return err
}

// requeue puts attempts that are not claimed and not in the queue back on it. The queue is kept
// shallow, so reading all of it is cheap; and it is done only when something waits for too long.
func (s *Service) requeue(ctx context.Context, stuck []summary) error {
	there, err := s.inQueue(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range stuck {
		k := attemptKey{t.Key, t.Attempt}
		if there[k] {
			continue
		}
		r, err := get(ctx, s.stores.tasks, t.Key)
		if err != nil || r.Value.State != workspace.Queued || r.Value.Attempt.Number != t.Attempt {
			if err == nil && s.viewByName(t.Tenant) != nil {
				s.viewByName(t.Tenant).task(r)
			}
			continue
		}
		// A new message id: under the old one the server would take it for the copy of one that is gone.
		again := fmt.Sprintf("/%d", s.cfg.Now().UnixMilli()/s.cfg.QueueCheck.Milliseconds())
		s.log.Warn("attempt was in no queue; queued again", "task", t.ID, "attempt", t.Attempt)
		errs = append(errs, s.enqueue(ctx, t.Key, &r.Value, again))
	}
	return errors.Join(errs...)
}

// viewByName gives a tenant's view if it is whole.
func (s *Service) viewByName(tenant string) *view {
	s.tenants.mu.Lock()
	r := s.tenants.runs[tenant]
	s.tenants.mu.Unlock()
	if r == nil {
		return nil
	}
	select {
	case <-r.ready:
		return r.view
	default:
		return nil
	}
}

// inQueue reads which attempts are in the queue, claimed by nobody yet.
func (s *Service) inQueue(ctx context.Context) (map[attemptKey]bool, error) {
	q, err := s.js.Stream(ctx, provision.Queue)
	if err != nil {
		return nil, err
	}
	out := map[attemptKey]bool{}
	st := q.CachedInfo().State
	if st.Msgs == 0 {
		return out, nil
	}
	for seq := st.FirstSeq; seq <= st.LastSeq; {
		m, err := q.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(schemas.Prefix+"queue.>"))
		if errors.Is(err, jetstream.ErrMsgNotFound) || (err == nil && m.Sequence < seq) {
			break
		}
		if err != nil {
			return nil, err
		}
		if it, ok := readQueueItem(m.Data); ok {
			out[attemptKey{itemKey(it), it.Attempt}] = true
		}
		seq = m.Sequence + 1
	}
	return out, nil
}

func readQueueItem(b []byte) (workspace.QueueItem, bool) {
	var it workspace.QueueItem
	return it, json.Unmarshal(b, &it) == nil && checkItem(it) == nil
}
