package runtime

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/spool"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// step is how far an attempt has come. What stands in the journal was done; what follows may have been.
type step string

// The steps of an attempt, in their order.
const (
	stepClaiming step = "claiming" // the manager was perhaps asked
	stepClaimed  step = "claimed"  // it is ours; nothing runs yet
	stepStarting step = "starting" // its sandbox is complete; the command may have been started
	stepRunning  step = "running"  // the command was started
	stepExited   step = "exited"   // it has ended, or never ran; Exit or Fault says how
	stepMerged   step = "merged"   // its files are in the head, or thrown away
	stepRevoked  step = "revoked"  // its leases are revoked
	stepFinished step = "finished" // the manager knows the outcome; only the sandbox is left
)

// before reports whether s comes before t.
func (s step) before(t step) bool {
	order := []step{stepClaiming, stepClaimed, stepStarting, stepRunning, stepExited, stepMerged, stepRevoked, stepFinished}
	for _, o := range order {
		if o == t {
			return false
		}
		if o == s {
			return true
		}
	}
	return false
}

// entry is an attempt in the journal. It holds no secret.
type entry struct {
	Item        workspace.QueueItem `json:"item"`
	Sandbox     string              `json:"sandbox"`
	Process     string              `json:"process"` // id of the command in the sandbox
	Step        step                `json:"step"`
	Run         *workspace.RunSpec  `json:"run,omitempty"`
	Input       json.RawMessage     `json:"input,omitempty"`
	Traceparent string              `json:"traceparent,omitempty"`

	ClaimedAt     time.Time  `json:"claimed_at"`
	CommandAt     *time.Time `json:"command_at,omitempty"`
	FirstOutputAt *time.Time `json:"first_output_at,omitempty"`

	Exit   *workspace.Exit    `json:"exit,omitempty"`
	Fault  *workspace.Fault   `json:"fault,omitempty"`
	Retry  bool               `json:"retry,omitempty"`
	Usage  workspace.Usage    `json:"usage"`
	Merged *filesystem.Merged `json:"merged,omitempty"`
	Leases int                `json:"leases,omitempty"`
}

// Why an attempt's context ends.
var (
	errLost    = errors.New("the attempt is no longer this node's")
	errStopped = errors.New("the attempt is to be ended")
)

// attempt is one attempt on its way. Its methods are called by its own goroutine, but where they say so.
type attempt struct {
	s   *Service
	h   *hold
	log *slog.Logger

	e     entry
	box   *sandbox.Sandbox
	gate  *gate
	spool *spool.Spool
	scrub func() Scrubber

	resumed    bool          // an earlier process had it
	exited     <-chan error  // the journal's word that the command's end is written, where this process writes it
	publishing chan struct{} // closed when all output was published, or its publishing was ended
}

func newAttempt(s *Service, h *hold, e entry) *attempt {
	return &attempt{s: s, h: h, e: e, log: s.log.With("task", e.Item.Task, "attempt", e.Item.Attempt, "sandbox", e.Sandbox)}
}

// journal writes where the attempt stands. Up to the command's end a note does: what would go on with
// it after the machine's end is gone with the machine.
func (a *attempt) journal() error {
	if a.e.Step.before(stepExited) {
		return a.s.attempts.Note(a.e.Sandbox, a.e)
	}
	return a.s.attempts.Write(a.e.Sandbox, a.e)
}

// reach is to without waiting for the disk: the channel says when it is written.
func (a *attempt) reach(s step) <-chan error {
	a.e.Step = s
	e, written := a.e, make(chan error, 1)
	go func() { written <- a.s.attempts.Write(e.Sandbox, e) }()
	return written
}

// to goes one step on.
func (a *attempt) to(s step) error {
	a.e.Step = s
	return a.journal()
}

func (a *attempt) forget() {
	if err := a.s.attempts.Remove(a.e.Sandbox); err != nil {
		a.log.Error("the attempt's record can't be removed", "error", err)
	}
}

// resumeAttempt takes up an attempt that an earlier process had.
func (s *Service) resumeAttempt(ctx context.Context, id string, e entry, deadline time.Time) error {
	h, err := newHold(e.Item, id, deadline)
	if err != nil {
		return err
	}
	if err := s.enter(h); err != nil {
		return err
	}
	a := newAttempt(s, h, e)
	a.resumed = true
	a.log.Info("an attempt goes on", "step", e.Step)
	switch e.Step {
	case stepClaiming:
	case stepFinished:
		h.end() // the manager knows its outcome, and so no longer calls it ours
	case stepRevoked:
		h.settle() // perhaps it knows
		fallthrough
	default:
		h.confirm(deadline, "", s.cfg.Clock())
	}
	if b, ok := s.node.Get(id); ok {
		a.box = b
		if err := h.setBox(ctx, b); err != nil {
			return err
		}
	}
	s.work.Go(func() {
		if a.e.Step == stepClaiming && !a.reclaim(ctx) {
			h.end()
			s.leave(h)
			return
		}
		a.run(ctx)
	})
	return nil
}

// reclaim asks again for a claim whose answer was not seen. The queue's message comes again by itself.
func (a *attempt) reclaim(ctx context.Context) bool {
	err := a.insist(ctx, "claim", a.claim)
	if err == nil {
		return true
	}
	if ctx.Err() == nil {
		a.log.Info("the attempt was not ours", "error", err)
		a.forget()
	}
	return false
}

// run brings the attempt to its end. It returns early, and leaves everything as it is, when ctx ends:
// the next process goes on.
func (a *attempt) run(ctx context.Context) {
	own, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost, over := make(chan struct{}), own.Done()
	go func() {
		defer close(lost)
		select {
		case <-a.h.lost:
			cancel(errLost)
		case <-over:
		}
	}()
	defer func() { cancel(nil); <-lost }()
	own = mesh.WithTraceparent(own, a.e.Traceparent)
	own, span := mesh.Span(own, "runtime attempt")
	err := a.proceed(own)
	span(err)
	if a.spool != nil {
		if cerr := a.spool.Close(); cerr != nil {
			a.log.Error("the output's files were not closed", "error", cerr)
		}
	}
	switch {
	case err == nil:
	case errors.Is(context.Cause(own), errLost) || errors.Is(err, errLost):
		a.abandon(ctx)
	case ctx.Err() != nil:
		return
	default:
		// The journal or the spool failed: the disk is full or broken. Somebody else has to run it.
		a.log.Error("the attempt can't go on here", "error", err)
		a.once(ctx, "finish", func(ctx context.Context) error {
			code, text := fault.Public(err)
			return a.s.cfg.Manager.Finish(ctx, workspace.Finish{QueueItem: a.e.Item, Retry: true, Fault: &workspace.Fault{Code: string(code), Message: text}})
		})
		a.abandon(ctx)
	}
	if ctx.Err() == nil {
		a.s.leave(a.h)
	}
}

// proceed does what is still to be done.
func (a *attempt) proceed(ctx context.Context) error {
	var err error
	if a.spool, err = spool.Open(a.s.spoolDir(a.e.Item.Task, a.e.Item.Attempt), a.outputLimit()); err != nil {
		return err
	}
	publishing, end := context.WithCancel(ctx)
	a.publishing = make(chan struct{})
	reported := !a.e.Step.before(stepFinished)
	go func() {
		defer close(a.publishing)
		if !reported {
			a.publish(publishing)
		}
	}()
	defer func() { end(); <-a.publishing }()
	if a.e.Step.before(stepExited) {
		if err := a.execute(ctx); err != nil {
			return err
		}
	}
	return a.conclude(ctx)
}

func (a *attempt) outputLimit() int64 {
	if a.e.Run != nil && a.e.Run.Resources.OutputBytes > 0 {
		return a.e.Run.Resources.OutputBytes
	}
	return sandbox.Defaults.OutputBytes
}

// spoolDir is where the output of an attempt is kept.
func (s *Service) spoolDir(task string, attempt int) string {
	return filepath.Join(s.cfg.SpoolDir(), task, fmt.Sprint(attempt))
}

// abandon ends an attempt that is no longer ours: nothing is reported, nothing is merged.
func (a *attempt) abandon(ctx context.Context) {
	a.h.end()
	a.log.Warn("the attempt is lost; its sandbox is destroyed", "reason", a.h.stopReason())
	a.destroy(ctx)
	if a.e.Run != nil && a.e.Run.Files != filesNone {
		a.once(ctx, "discard", func(ctx context.Context) error {
			return a.s.cfg.Files.Discard(ctx, filesystem.Discard{Tenant: a.e.Item.Tenant, Workspace: a.e.Item.Workspace, Owner: a.e.Item.Task,
				Attempt: a.e.Item.Attempt, Sandbox: a.e.Sandbox})
		})
	}
	if a.leased() {
		a.once(ctx, "revoke", func(ctx context.Context) error { return a.revoke(ctx, "lost") })
	}
	if ctx.Err() == nil {
		a.forget()
	}
}

// once tries something whose failure others make good.
func (a *attempt) once(ctx context.Context, what string, f func(context.Context) error) {
	ask, cancel := context.WithTimeout(ctx, a.s.cfg.timing.ask)
	defer cancel()
	if err := f(ask); err != nil && ctx.Err() == nil && !fault.Is(err, fault.Conflict) {
		a.log.Warn("not done", "what", what, "error", err)
	}
}

// insist does something until it is done, with growing pauses, as long as trying again can help and ctx
// lasts. It gives the last error.
func (a *attempt) insist(ctx context.Context, what string, f func(context.Context) error) error {
	pause := a.s.cfg.timing.backoff
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || !passing(err) {
			return err
		}
		a.log.Warn("trying again", "what", what, "error", err, "in", pause)
		a.s.sleep(ctx, pause)
		pause = min(2*pause, a.s.cfg.timing.maxBackoff)
	}
}

// passing reports whether the same request may succeed later.
func passing(err error) bool {
	switch fault.CodeOf(err) {
	case fault.Unavailable, fault.Deadline, fault.Internal:
		return true
	}
	return false
}

// destroy removes the sandbox, however often that takes. What is left when ctx ends is found by the
// next process, and otherwise by the sweep.
func (a *attempt) destroy(ctx context.Context) {
	_ = a.insist(ctx, "destroy", func(ctx context.Context) error { return a.s.node.Destroy(ctx, a.h.sandbox) })
}
