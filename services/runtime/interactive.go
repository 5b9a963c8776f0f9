package runtime

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// boxEntry is an interactive sandbox in the journal. It holds no secret.
type boxEntry struct {
	Sandbox   workspace.Sandbox `json:"sandbox"`
	Running   bool              `json:"running"` // it was complete
	StartedAt time.Time         `json:"started_at"`
	Exit      *workspace.Exit   `json:"exit,omitempty"` // it has ended
	Fault     *workspace.Fault  `json:"fault,omitempty"`
	Life      lifeEntry         `json:"life"`
	// LastOutput is what its processes wrote last, once it is to end.
	LastOutput []workspace.LastOutput `json:"last_output,omitempty"`
}

// interactive is a sandbox that stands alone: people and programs run commands in it until its time is
// over, it is idle, or somebody ends it.
type interactive struct {
	s    *Service
	h    *hold
	e    boxEntry
	box  *sandbox.Sandbox
	gate *gate
	desk *desk
	life *life
	from *parent // whose files it begins with, if it is a fork
	// words are what it said last; nil before it could be reached.
	words *lastWords
	oom   oomWatch
	kill  chan death
	asks  chan asked
	news  chan struct{} // told when the manager is to hear of a warning
	done  chan struct{} // closed when nothing of it is left, or this process ends
}

// SandboxCreate makes an interactive sandbox and returns when commands can be run in it. Asked again
// for one that is there it changes nothing; for one that is being made it waits for what comes of that. run lasts as long as the service: the sandbox outlives ctx.
func (s *Service) SandboxCreate(ctx, run context.Context, req runtime.SandboxCreate) error {
	b := req.Sandbox
	if err := errors.Join(schemas.CheckID("sandbox", b.ID), schemas.CheckName("tenant", b.Tenant), schemas.CheckName("workspace", b.Workspace)); err != nil {
		return fault.New(fault.Invalid, "%v", err)
	}
	return s.openBox(ctx, run, b, nil)
}

// opening is a sandbox that is being made.
type opening struct {
	done chan struct{}
	err  error
}

// openBox is SandboxCreate after its checks, of a fork too.
func (s *Service) openBox(ctx, run context.Context, b workspace.Sandbox, p *parent) error {
	s.mu.Lock()
	there, o := s.serving[b.ID], s.opening[b.ID]
	first := there == nil && o == nil
	if first {
		o = &opening{done: make(chan struct{}), err: fault.New(fault.Internal, "sandbox %s was not made", b.ID)}
		s.opening[b.ID] = o
	}
	s.mu.Unlock()
	switch {
	case there != nil:
		return nil
	case first:
		defer func() {
			s.mu.Lock()
			delete(s.opening, b.ID)
			s.mu.Unlock()
			close(o.done)
		}()
		o.err = s.makeBox(ctx, run, b, p)
		return o.err
	}
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Service) makeBox(ctx, run context.Context, b workspace.Sandbox, p *parent) error {
	if s.free() <= 0 {
		return fault.New(fault.Exhausted, "node %s has no room for a sandbox now", s.cfg.Node)
	}
	item := workspace.QueueItem{Tenant: b.Tenant, Workspace: b.Workspace, Task: b.ID, Attempt: b.Generation}
	h, err := newHold(item, b.ID, s.cfg.Clock().Add(time.Minute)) // until the first renewal, which comes at once
	if err != nil {
		return err
	}
	if err := s.enter(h); err != nil {
		return err
	}
	now := s.cfg.Clock().UTC()
	i := s.interactive(h, boxEntry{Sandbox: b, StartedAt: now}, newLife(b, h.active, now))
	i.from = p
	if err := i.open(ctx); err != nil {
		s.log.Warn("a sandbox could not be made", "sandbox", b.ID, "error", err)
		i.undo(context.WithoutCancel(ctx))
		return err
	}
	s.work.Go(func() { i.live(run) })
	return nil
}

func (s *Service) interactive(h *hold, e boxEntry, l *life) *interactive {
	h.confirm(h.deadline, "", s.cfg.Clock()) // its record names this node
	return &interactive{s: s, h: h, e: e, life: l, kill: make(chan death, 1), asks: make(chan asked), news: make(chan struct{}, 1), done: make(chan struct{})}
}

// place describes what it runs in.
func (i *interactive) place() *place {
	b := i.e.Sandbox
	resources, _ := sandbox.Resolve(b.Run.Resources) // what is wrong with them, Create says
	pl := &place{
		s: i.s, h: i.h, run: b.Run, ref: i.ref(), from: i.from,
		spec: sandbox.Spec{ID: b.ID, Generation: b.Generation, Tenant: b.Tenant, Workspace: b.Workspace, Principal: b.Principal,
			Level: b.Run.Level, Image: b.Run.Image, Isolation: b.Run.Isolation, Resources: resources, Files: b.Run.Files != filesNone},
	}
	if i.from != nil {
		pl.spec.From, pl.spec.Take = i.from.layer, i.from.only
	}
	return pl
}

// ref names its leases. It is no attempt: its fencing number goes with the files only.
func (i *interactive) ref() secrets.LeaseRef {
	b := i.e.Sandbox
	return secrets.LeaseRef{Tenant: b.Tenant, Workspace: b.Workspace, Sandbox: b.ID, Attempt: b.Generation}
}

// open makes the sandbox and serves it.
func (i *interactive) open(ctx context.Context) error {
	noted := i.begin()
	if len(i.e.Sandbox.Run.Secrets) > 0 { // what is issued must be found again, and taken back
		if err := noted(); err != nil {
			return err
		}
	}
	err := i.make(ctx)
	if nerr := noted(); err == nil {
		err = nerr
	}
	if err != nil {
		return err
	}
	i.e.Running = true // live notes it
	i.h.active.touch() // nobody could use it before
	return nil
}

func (i *interactive) make(ctx context.Context) error {
	// The user's JWT comes with the first renewal.
	select {
	case i.s.renewNow <- struct{}{}:
	default:
	}
	pl := i.place()
	box, k, err := pl.make(ctx)
	i.box = box
	if err != nil {
		return err
	}
	return i.reach(ctx, pl, k)
}

// begin notes the sandbox, meanwhile. Killed before that, what was made of it is found to be nobody's, and the manager learns
// from the heartbeats that it is not there. noted waits for it.
func (i *interactive) begin() (noted func() error) {
	done := make(chan error, 1)
	go func() { done <- i.note() }()
	return sync.OnceValue(func() error { return <-done })
}

// reach opens the ways out of the sandbox and into it.
func (i *interactive) reach(ctx context.Context, pl *place, k kept) (err error) {
	if len(i.e.Sandbox.Run.Secrets) > 0 {
		ref := i.ref()
		i.h.setLeases(&ref)
	}
	if i.gate, err = i.s.openGate(i.box, i.h, &VaultSession{LeaseRef: i.ref(), Principal: i.e.Sandbox.Principal, Issued: k.Issued}); err != nil {
		return err
	}
	env, err := pl.environment(ctx, k, i.box)
	if err != nil {
		return err
	}
	i.words = newLastWords(i.s.cfg.Scrub, k.Issued.Scrub)
	if i.desk, err = i.s.openDesk(i.box, &i.e.Sandbox.Run, env, i.life, i.words); err != nil {
		return err
	}
	i.s.mu.Lock()
	i.s.serving[i.e.Sandbox.ID] = i
	i.s.mu.Unlock()
	return nil
}

func (i *interactive) journal() error {
	i.e.Life = i.life.entry(i.s.cfg.Clock())
	return i.s.boxes.Write(i.e.Sandbox.ID, i.e)
}

// note is enough until it runs: what would go on with it after the machine's end is gone with the machine, and
// the manager sees by the heartbeats that it is.
func (i *interactive) note() error {
	i.e.Life = i.life.entry(i.s.cfg.Clock())
	return i.s.boxes.Note(i.e.Sandbox.ID, i.e)
}

// resumeBox takes up a sandbox that an earlier process had.
func (s *Service) resumeBox(ctx context.Context, id string, e boxEntry, deadline time.Time) error {
	b := e.Sandbox
	h, err := newHold(workspace.QueueItem{Tenant: b.Tenant, Workspace: b.Workspace, Task: b.ID, Attempt: b.Generation}, id, deadline)
	if err != nil {
		return err
	}
	h.paused = e.Life.PausedAt != nil
	if err := s.enter(h); err != nil {
		return err
	}
	i := s.interactive(h, e, lifeOf(e, h.active, s.cfg.Clock()))
	box, found := s.node.Get(id)
	if found {
		i.box = box
		if err := h.setBox(ctx, box); err != nil {
			return err
		}
	}
	if e.Exit == nil && e.Fault == nil {
		if found && !e.Running { // nothing more than the note was missing, if what is remembered is there
			_, err := box.Kept()
			i.e.Running = err == nil
		}
		if found && i.e.Running {
			if err = i.takeUp(ctx); err == nil {
				s.work.Go(func() { i.live(ctx) })
				return nil
			}
			s.log.Warn("a sandbox can't be taken up again", "sandbox", id, "error", err)
		}
		i.e.Exit = &workspace.Exit{Code: -1, Reason: workspace.ReasonNodeLost}
		i.e.Fault = &workspace.Fault{Code: string(fault.Unavailable), Message: "the sandbox ended while its node was away"}
	}
	s.work.Go(func() { i.end(ctx); close(i.done) })
	return nil
}

func (i *interactive) takeUp(ctx context.Context) error {
	k, err := recall(i.box, i.h)
	if err != nil {
		return err
	}
	if err := i.reach(ctx, i.place(), k); err != nil {
		return err
	}
	i.desk.recover()
	return nil
}

// close ends what is served of it.
func (i *interactive) close() {
	i.s.mu.Lock()
	delete(i.s.serving, i.e.Sandbox.ID)
	i.s.mu.Unlock()
	i.desk.close()
	i.gate.close()
}

// end saves its files, revokes its leases, reports and destroys it. Each step is insisted on.
func (i *interactive) end(ctx context.Context) {
	i.close()
	a := i.steps()
	if err := i.journal(); err != nil {
		a.log.Error("the sandbox's end can't be journaled", "error", err)
	}
	if i.box != nil {
		_ = a.insist(ctx, "stop", i.box.Stop)
	}
	if run := i.e.Sandbox.Run; run.Files != filesNone && i.e.Running {
		_ = a.mayFail(ctx, "merge", func(ctx context.Context) error {
			_, err := i.s.cfg.Files.Merge(ctx, filesystem.Merge{Tenant: i.h.item.Tenant, Workspace: i.h.item.Workspace, Owner: i.h.item.Task,
				Attempt: i.h.item.Attempt, Sandbox: i.h.sandbox, Principal: i.e.Sandbox.Principal, Keep: run.Files != filesReadOnly})
			return err
		})
	}
	i.revoke(ctx, a)
	i.h.end()
	_ = a.mayFail(ctx, "report", func(ctx context.Context) error {
		exit := workspace.Exit{Code: -1, Reason: reasonStartFailed}
		if i.e.Exit != nil {
			exit = *i.e.Exit
		}
		return i.s.cfg.Manager.SandboxEnded(ctx, runtime.SandboxEnded{Tenant: i.h.item.Tenant, Workspace: i.h.item.Workspace, ID: i.h.sandbox, Exit: exit, Fault: i.e.Fault,
			LastOutput: i.e.LastOutput})
	})
	i.remove(ctx, a)
}

// abandon ends a sandbox that is no longer ours: nothing is saved, nothing is reported.
func (i *interactive) abandon(ctx context.Context) {
	a := i.steps()
	a.log.Warn("the sandbox is lost; it is destroyed", "reason", i.h.stopReason())
	i.close()
	i.throwAway(ctx, a)
}

// undo removes what a create that failed has left.
func (i *interactive) undo(ctx context.Context) {
	i.close()
	i.h.end()
	i.throwAway(ctx, i.steps())
}

func (i *interactive) throwAway(ctx context.Context, a *attempt) {
	if i.box == nil {
		i.box, _ = i.s.node.Get(i.h.sandbox)
	}
	if i.e.Sandbox.Run.Files != filesNone {
		a.once(ctx, "discard", func(ctx context.Context) error {
			return i.s.cfg.Files.Discard(ctx, filesystem.Discard{Tenant: i.h.item.Tenant, Workspace: i.h.item.Workspace, Owner: i.h.item.Task,
				Attempt: i.h.item.Attempt, Sandbox: i.h.sandbox})
		})
	}
	i.revoke(ctx, a)
	i.remove(ctx, a)
}

func (i *interactive) revoke(ctx context.Context, a *attempt) {
	i.h.setLeases(nil)
	if len(i.e.Sandbox.Run.Secrets) == 0 {
		return
	}
	reason := "ended"
	if i.e.Exit != nil {
		reason = i.e.Exit.Reason
	}
	_ = a.mayFail(ctx, "revoke", func(ctx context.Context) error {
		_, err := i.s.cfg.Secrets.Revoke(ctx, secrets.RevokeRequest{LeaseRef: i.ref(), Reason: reason})
		return err
	})
}

func (i *interactive) remove(ctx context.Context, a *attempt) {
	a.destroy(ctx)
	if ctx.Err() != nil {
		return // the next process goes on
	}
	if err := i.s.boxes.Remove(i.h.sandbox); err != nil {
		a.log.Error("the sandbox's record can't be removed", "error", err)
	}
	i.s.leave(i.h)
}

// steps lends the ways in which an attempt tries again.
func (i *interactive) steps() *attempt {
	return &attempt{s: i.s, h: i.h, log: i.s.log.With("sandbox", i.h.sandbox)}
}

// SandboxKill ends an interactive sandbox, or the sandbox of an attempt, and returns when it has ended. One that is not here is no error.
func (s *Service) SandboxKill(ctx context.Context, req runtime.SandboxKill) error {
	s.mu.Lock()
	i := s.serving[req.ID]
	s.mu.Unlock()
	if i == nil {
		return nil
	}
	if req.Reason == "" {
		req.Reason = reasonCancelled
	}
	select {
	case i.kill <- death{reason: req.Reason, by: req.By}:
	default: // it is being ended
	}
	select {
	case <-i.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
