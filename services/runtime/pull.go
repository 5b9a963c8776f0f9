package runtime

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// The points at which a test kills this process.
var (
	fpAfterClaim   = failpoint.Register("runtime.after-claim")
	fpAfterAck     = failpoint.Register("runtime.after-ack")
	fpAfterCreate  = failpoint.Register("runtime.after-create")
	fpAfterPrepare = failpoint.Register("runtime.after-prepare")
	fpAfterIssue   = failpoint.Register("runtime.after-issue")
	fpAfterStart   = failpoint.Register("runtime.after-start")
	fpMidOutput    = failpoint.Register("runtime.mid-output")
	fpAfterExit    = failpoint.Register("runtime.after-exit")
	fpAfterMerge   = failpoint.Register("runtime.after-merge")
	fpAfterRevoke  = failpoint.Register("runtime.after-revoke")
	fpBeforeFinish = failpoint.Register("runtime.before-finish")
	fpAfterFinish  = failpoint.Register("runtime.after-finish")
	fpAfterDestroy = failpoint.Register("runtime.after-destroy")
)

// again is how long an attempt that this node may not have now waits before a node sees it again.
const again = 2 * time.Second

// pull takes attempts from the queue as long as there is room, until ctx ends.
func (s *Service) pull(ctx context.Context) {
	pause := s.cfg.timing.backoff
	for ctx.Err() == nil {
		free := s.free()
		if free <= 0 {
			s.waitForRoom(ctx)
			continue
		}
		ds, err := s.cfg.Queue.Pull(ctx, free)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Warn("the queue does not answer", "error", err)
				s.sleep(ctx, pause)
				pause = min(2*pause, s.cfg.timing.maxBackoff)
			}
			continue
		}
		pause = s.cfg.timing.backoff
		for _, d := range ds {
			s.take(ctx, d)
		}
	}
}

// free is how many sandboxes the node could hold now.
func (s *Service) free() int {
	s.mu.Lock()
	used, draining := len(s.holds), s.draining
	s.mu.Unlock()
	if draining {
		return 0
	}
	if s.diskLeft() != nil {
		return 0
	}
	return s.cfg.Slots - used
}

// waitForRoom returns when a slot is freed, or after a moment: room can also come from the disk.
func (s *Service) waitForRoom(ctx context.Context) {
	t := time.NewTimer(time.Second)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-s.room:
	case <-t.C:
	}
}

func (s *Service) sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// take enters an attempt and claims it in a goroutine of its own.
func (s *Service) take(ctx context.Context, d Delivery) {
	item, err := d.Item()
	if err != nil {
		s.log.Error("a message of the queue can't be read; it is dropped", "error", err)
		s.settle(ctx, d.Ack)
		return
	}
	if s.holding(item) != nil {
		s.settle(ctx, d.Ack) // it is here already: the acknowledgement was lost
		return
	}
	id := s.cfg.NewID()
	h, err := newHold(item, id, s.cfg.Clock().Add(s.cfg.timing.ask+s.cfg.timing.margin))
	if err == nil {
		err = s.enter(h)
	}
	if err != nil {
		s.log.Error("an attempt can't be entered", "task", item.Task, "error", err)
		s.settle(ctx, func(ctx context.Context) error { return d.Again(ctx, again) })
		return
	}
	a := newAttempt(s, h, entry{Item: item, Sandbox: id, Process: s.cfg.NewID(), Step: stepClaiming})
	s.work.Go(func() {
		if !a.claimed(ctx, d) {
			h.end()
			s.leave(h)
			return
		}
		a.run(ctx)
	})
}

// settle gives a message its end. When that fails it comes again, and is known then.
func (s *Service) settle(ctx context.Context, how func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.timing.ask)
	defer cancel()
	if err := how(ctx); err != nil && ctx.Err() == nil {
		s.log.Warn("a message of the queue was not settled", "error", err)
	}
}

// claimed claims the attempt, and says whether it is this node's now.
func (a *attempt) claimed(ctx context.Context, d Delivery) bool {
	// Written first: a claim whose answer we do not live to see is asked for again with the same sandbox.
	if err := a.journal(); err != nil {
		a.log.Error("the journal can't be written; the attempt is left to other nodes", "error", err)
		a.s.settle(ctx, func(ctx context.Context) error { return d.Again(ctx, again) })
		return false
	}
	err := a.claim(ctx)
	if err == nil {
		failpoint.Hit(fpAfterClaim)
		a.s.settle(ctx, d.Ack)
		failpoint.Hit(fpAfterAck)
		return true
	}
	if ctx.Err() != nil {
		return false // the journal has it
	}
	switch fault.CodeOf(err) {
	case fault.Conflict, fault.NotFound, fault.Invalid:
		a.log.Debug("the attempt is no longer to be had", "error", err)
		a.s.settle(ctx, d.Ack)
	default:
		a.log.Warn("the attempt could not be claimed", "error", err)
		a.s.settle(ctx, func(ctx context.Context) error { return d.Again(ctx, again) })
	}
	a.forget()
	return false
}

// claim asks the manager for the attempt, and takes over what is to be run.
func (a *attempt) claim(ctx context.Context) error {
	ask, cancel := context.WithTimeout(ctx, a.s.cfg.timing.ask)
	defer cancel()
	rep, err := a.s.cfg.Manager.Claim(ask, workspace.Claim{QueueItem: a.e.Item, Sandbox: a.e.Sandbox, UserKey: a.h.userKey, NodeKey: a.s.keyPublic})
	if err != nil {
		return err
	}
	now := a.s.cfg.Clock()
	a.h.confirm(rep.Deadline, rep.UserJWT, now)
	a.e.Run, a.e.Input, a.e.Traceparent, a.e.ClaimedAt = &rep.Run, rep.Task.Submission.Input, rep.Task.Traceparent, now.UTC()
	a.e.Step = stepClaimed
	return a.journal()
}
