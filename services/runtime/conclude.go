package runtime

import (
	"context"
	"errors"
	"time"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/spool"
)

// conclude does what follows the end of the command: files, leases, the report, and the sandbox's end
// beside them. Each step is insisted on until it is done or the claim is lost.
func (a *attempt) conclude(ctx context.Context) error {
	patience := a.s.cfg.Clock().Add(a.s.cfg.timing.drain)
	if a.box == nil {
		a.box, _ = a.s.node.Get(a.e.Sandbox)
	}
	if err := a.still(ctx); err != nil {
		return err
	}
	failpoint.Hit(fpAfterExit)
	a.gate.close()
	reported := make(chan struct{})
	gone := a.remove(ctx, reported)
	defer func() { <-gone }()
	var noted <-chan error
	defer func() { _ = await(noted) }()
	for _, s := range []struct {
		done step
		need bool // whether there is anything to do, and so to write down
		do   func(context.Context) error
		hit  string
	}{
		{stepMerged, a.hasFiles(), a.merge, fpAfterMerge},
		{stepRevoked, a.leased(), a.revokeAll, fpAfterRevoke},
		{stepFinished, true, func(ctx context.Context) error { a.drain(ctx, patience); return a.finish(ctx) }, fpAfterFinish},
	} {
		if !s.need || !a.e.Step.before(s.done) {
			continue
		}
		if err := s.do(ctx); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		// What was done before can be done again with the same outcome, so the next step need not wait for this one's note.
		err := await(noted)
		if noted = a.reach(s.done); err != nil {
			return err
		}
		failpoint.Hit(s.hit)
	}
	err := await(noted)
	if noted = nil; err != nil {
		return err
	}
	a.h.end()
	close(reported)
	<-gone
	if err := ctx.Err(); err != nil {
		return err
	}
	failpoint.Hit(fpAfterDestroy)
	a.forget()
	return nil
}

// still makes sure that nothing of the attempt writes any more, and that its output and how it ended are on the disk.
func (a *attempt) still(ctx context.Context) (err error) {
	ctx, span := mesh.Span(ctx, "runtime stop")
	defer func() { span(err) }()
	synced := make(chan error, 1)
	go func() { synced <- errors.Join(a.spool.Sync(), await(a.exited)) }()
	if a.box != nil {
		// Nothing of it may write any more when its files are merged.
		err = a.insist(ctx, "stop", a.box.Stop)
	}
	if serr := <-synced; serr != nil {
		return errors.Join(errDisk, serr)
	}
	if err != nil {
		return errors.Join(context.Cause(ctx), err)
	}
	return nil
}

// await gives what comes on c; nothing is to come on a nil one.
func await(c <-chan error) error {
	if c == nil {
		return nil
	}
	return <-c
}

// drain waits until all output was published, or until patience ends: the spool has it.
func (a *attempt) drain(ctx context.Context, patience time.Time) {
	t := time.NewTimer(patience.Sub(a.s.cfg.Clock()))
	defer t.Stop()
	select {
	case <-a.publishing:
	case <-ctx.Done():
	case <-t.C:
		a.log.Warn("the end of the output was not published in time; it is in the spool")
	}
}

// remove destroys the sandbox, in which nothing runs any more, when the outcome was reported, so that
// nobody waits for it; or soon, if the report takes its time. It gives a channel that is closed when it has.
func (a *attempt) remove(ctx context.Context, reported <-chan struct{}) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		t := time.NewTimer(removeAfter)
		defer t.Stop()
		select {
		case <-reported:
		case <-t.C:
		case <-ctx.Done():
		}
		a.destroy(ctx)
	}()
	return gone
}

// removeAfter is how long a dead sandbox is left for the sake of a quick report.
const removeAfter = time.Second

// hasFiles reports whether the attempt has an overlay to be ended.
func (a *attempt) hasFiles() bool { return a.e.Run != nil && a.e.Run.Files != filesNone }

// merge ends the attempt's overlay: a good end's changes go into the head, a bad end's only into the artifact.
func (a *attempt) merge(ctx context.Context) error {
	if a.e.CommandAt == nil && !a.mayHaveRun() {
		// Nothing ran, so there is nothing to keep; and perhaps there never was an overlay.
		return a.mayFail(ctx, "discard", func(ctx context.Context) error {
			return a.s.cfg.Files.Discard(ctx, filesystem.Discard{Tenant: a.e.Item.Tenant, Workspace: a.e.Item.Workspace, Owner: a.e.Item.Task,
				Attempt: a.e.Item.Attempt, Sandbox: a.e.Sandbox})
		})
	}
	req := filesystem.Merge{
		Tenant: a.e.Item.Tenant, Workspace: a.e.Item.Workspace, Owner: a.e.Item.Task, Attempt: a.e.Item.Attempt, Sandbox: a.e.Sandbox,
		Principal: a.e.Run.Principal, Keep: a.e.Fault == nil && a.e.Exit != nil && a.e.Exit.Code == 0 && a.e.Run.Files != filesReadOnly,
	}
	for _, st := range spool.All() {
		if a.spool.Position(st).Size > 0 {
			req.Artifacts = append(req.Artifacts, filesystem.Source{Name: st.String() + ".log", Path: a.spool.Path(st)})
		}
	}
	err := a.insist(ctx, "merge", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, a.s.cfg.timing.merge)
		defer cancel()
		m, err := a.s.cfg.Files.Merge(ctx, req)
		if err == nil {
			a.e.Merged = &m
		}
		return err
	})
	return a.ended(ctx, "the files could not be merged", err)
}

// mayHaveRun reports whether the command may have been started, also where nobody saw it.
func (a *attempt) mayHaveRun() bool { return a.e.Exit != nil && a.e.Exit.Code >= 0 }

// ended turns what stands in the way for good into the attempt's fault. A conflict says that the attempt is not ours.
func (a *attempt) ended(ctx context.Context, what string, err error) error {
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case fault.Is(err, fault.Conflict):
		return errors.Join(errLost, err)
	}
	a.log.Error(what, "error", err)
	if a.e.Fault == nil {
		a.e.Fault, a.e.Retry = wire(err)
		a.e.Exit = nil
	}
	return nil
}

// mayFail insists on something, and goes on without it where that is of no use.
func (a *attempt) mayFail(ctx context.Context, what string, f func(context.Context) error) error {
	err := a.insist(ctx, what, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, a.s.cfg.timing.ask)
		defer cancel()
		return f(ctx)
	})
	if err != nil && ctx.Err() == nil {
		a.log.Warn("not done", "what", what, "error", err)
		return nil
	}
	return err
}

// revokeAll ends the attempt's leases.
func (a *attempt) revokeAll(ctx context.Context) error {
	a.h.setLeases(nil)
	reason := "finished"
	if a.e.Exit != nil && a.e.Exit.Reason != reasonExited {
		reason = a.e.Exit.Reason
	}
	return a.mayFail(ctx, "revoke", func(ctx context.Context) error { return a.revoke(ctx, reason) })
}

func (a *attempt) revoke(ctx context.Context, reason string) error {
	rep, err := a.s.cfg.Secrets.Revoke(ctx, secrets.RevokeRequest{LeaseRef: leaseRef(a.e.Item, a.e.Sandbox), Reason: reason})
	if err == nil {
		a.e.Leases = max(a.e.Leases, rep.Leases)
	}
	return err
}

// finish tells the manager the outcome.
func (a *attempt) finish(ctx context.Context) error {
	failpoint.Hit(fpBeforeFinish)
	req := workspace.Finish{
		QueueItem: a.e.Item, Fault: a.e.Fault, Retry: a.e.Retry, CommandAt: a.e.CommandAt, FirstOutputAt: a.e.FirstOutputAt,
		Outcome: workspace.Outcome{Exit: a.e.Exit, Usage: a.e.Usage, Leases: a.e.Leases},
	}
	if m := a.e.Merged; m != nil {
		req.Outcome.Snapshot, req.Outcome.FilesChanged, req.Outcome.Conflicts, req.Outcome.Artifact = m.Snapshot, m.FilesChanged, m.Conflicts, m.Artifact
	}
	a.h.settle()
	err := a.insist(ctx, "finish", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, a.s.cfg.timing.ask)
		defer cancel()
		return a.s.cfg.Manager.Finish(ctx, req)
	})
	if err != nil && ctx.Err() == nil {
		// Whatever the manager's reason is, the outcome is not wanted.
		return errors.Join(errLost, err)
	}
	return err
}
