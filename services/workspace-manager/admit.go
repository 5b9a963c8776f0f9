package manager

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/workspace-manager/internal/lifecycle"
	"github.com/weftmesh/weft/services/workspace-manager/internal/turns"
)

// admission is leader's work: whenever something changed it gives out all turns there are. Which one is
// decided one by one; the records are written side by side.
func (s *Service) admission(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, s.cfg.Concurrency)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		for ctx.Err() == nil {
			g, ok := s.turns.Next(s.cfg.Now())
			if !ok {
				break
			}
			slots <- struct{}{}
			wg.Add(1)
			go func() {
				defer func() { <-slots; wg.Done() }()
				s.admitOne(ctx, g)
			}()
		}
		timer.Reset(s.untilDue())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.admit:
		case <-timer.C:
		}
	}
}

// untilDue is how long until a task that waits for its time may go on.
func (s *Service) untilDue() time.Duration {
	due := s.turns.Due()
	if due.IsZero() {
		return time.Minute
	}
	return min(max(due.Sub(s.cfg.Now()), time.Millisecond), time.Minute)
}

// admitOne writes a task as queued under its next attempt. The log's follow-up puts it on the queue. If
// another was quicker, nothing happens.
func (s *Service) admitOne(ctx context.Context, g turns.Grant) {
	v := s.tenants.view(ctx, g.Tenant)
	if v == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), handleTimeout)
	defer cancel()
	k := records.Key(g.Key)
	r, err := s.stores.tasks.Update(ctx, k, func(t *workspace.Task) (string, error) {
		return lifecycle.Admit(t, s.cfg.Now().UTC())
	})
	switch {
	case err == nil:
	case fault.Is(err, fault.Conflict): // it is pending no more; r is what it is
		v.task(r)
		s.turns.Release(g.Key, s.cfg.Now())
		return
	case fault.Is(err, fault.NotFound):
		v.forgetTask(k)
		return
	default:
		s.log.Warn("task not admitted; trying again", "task", g.ID, "err", err)
		s.turns.Release(g.Key, s.cfg.Now().Add(time.Second))
		s.wakeAdmission()
		return
	}
	failpoint.Hit(fpAfterQueuedRecord)
	v.task(r)
}

// enqueue puts a queued attempt on the queue under the message id <task>/<attempt>, so that doing it
// twice stores it once. again makes another id, for a message that is known to be gone.
func (s *Service) enqueue(ctx context.Context, k records.Key, t *workspace.Task, again string) error {
	pin := s.pin(k)
	if t.Run != nil {
		pin = pinOf(t.Run.Image, pin)
	}
	placement := s.nodes.placement(pin)
	prio := t.Submission.Priority
	if prio == "" {
		prio = workspace.Normal
	}
	subject, err := schemas.Queue(placement, string(prio))
	if err != nil {
		return err
	}
	h := nats.Header{}
	h.Set(jetstream.MsgIDHeader, fmt.Sprintf("%s/%d%s", k.ID, t.Attempt.Number, again))
	_, err = s.conn.Publish(mesh.WithTraceparent(ctx, t.Traceparent), subject,
		workspace.QueueItem{Tenant: k.Tenant, Workspace: k.Workspace, Task: k.ID, Attempt: t.Attempt.Number}, h)
	if err != nil {
		return err
	}
	failpoint.Hit(fpAfterQueuePublish)
	return nil
}

// pin is the only node on which the task may run, empty for any.
func (s *Service) pin(k records.Key) string {
	s.tenants.mu.Lock()
	r := s.tenants.runs[k.Tenant]
	s.tenants.mu.Unlock()
	if r == nil {
		return ""
	}
	ws, _ := r.view.workspaces.get(workspaceKey(k.Tenant, k.Workspace))
	return ws.Value.Labels[workspace.LabelNode]
}

// attemptKey names one attempt.
type attemptKey struct {
	records.Key
	Attempt int
}
