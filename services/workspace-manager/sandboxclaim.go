package manager

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// A sandbox may be asked for under a claim's name. Which sandbox that name has is a record of its own, written by
// compare-and-set after the sandbox's record and before any node is asked: of two who ask at once, on whatever
// replica, one writes it; the other takes its own sandbox record back and finds the first one's. Killed between the
// two writes, a sandbox record stays in "creating", which the reconciler ends. Killed after them, whoever asks under the name
// again has the node make the sandbox, or say that it is there.

// claimed gives the sandbox that lives under a claim's name, nil if none does, and the sequence of the name's
// record, which the next writer must expect.
func (v *view) claimed(ctx context.Context, by mesh.Caller, name, template string) (*records.Record[workspace.Sandbox], uint64, error) {
	if name == "" {
		return nil, 0, nil
	}
	if err := invalid(schemas.CheckName("claim", name)); err != nil {
		return nil, 0, err
	}
	r, err := v.s.stores.claims.Get(ctx, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: name})
	if fault.Is(err, fault.NotFound) {
		return nil, 0, nil
	}
	if err != nil || r.Event == deleted {
		return nil, r.Sequence, err
	}
	b, err := get(ctx, v.s.stores.sandboxes, records.Key{Tenant: by.Tenant, Workspace: by.Workspace, ID: r.Value.Sandbox})
	if fault.Is(err, fault.NotFound) || err == nil && b.Value.State == workspace.SandboxStopped {
		return nil, r.Sequence, nil
	}
	if err != nil {
		return nil, 0, err
	}
	if b.Value.Template != template {
		return nil, 0, fault.New(fault.Conflict, "claim %q has the sandbox %s of the template %q; end that first, or use another name", name, b.ID, b.Value.Template)
	}
	return &b, r.Sequence, nil
}

// takeClaim writes that r's sandbox has the name it was asked for under. False without an error means that
// another request has it; r's record is gone then.
func (s *Service) takeClaim(ctx context.Context, r records.Record[workspace.Sandbox], held uint64) (won bool, err error) {
	b := &r.Value
	if b.Claim == "" {
		return true, nil
	}
	k := records.Key{Tenant: r.Tenant, Workspace: r.Workspace, ID: b.Claim}
	_, err = s.stores.claims.Write(ctx, k, held, "held", workspace.HeldClaim{Name: b.Claim, Template: b.Template, Sandbox: b.ID, At: s.cfg.Now().UTC()})
	if err == nil {
		return true, nil
	}
	ctx = context.WithoutCancel(ctx)
	if !fault.Is(err, fault.Conflict) {
		// It may be written all the same; the record says why nothing came of it.
		_, _ = s.stopped(ctx, r.Key, workspace.Exit{Code: -1, Reason: "start-failed"}, publicFault(err))
		return false, err
	}
	return false, notGone(remove(ctx, s, s.stores.sandboxes, r.Key))
}

// awaitSandbox gives a sandbox that another request makes, once it runs, or why it does not.
func (v *view) awaitSandbox(ctx context.Context, r *records.Record[workspace.Sandbox], err error) (workspace.Sandbox, error) {
	for err == nil {
		b := &r.Value
		switch {
		case b.State == workspace.SandboxRunning, b.State == workspace.SandboxPaused:
			return *b, nil
		case b.State == workspace.SandboxStopped && b.Fault != nil:
			return *b, fault.New(fault.Code(b.Fault.Code), "%s", b.Fault.Message)
		case b.State == workspace.SandboxStopped:
			return *b, fault.New(fault.Unavailable, "sandbox %s of claim %q has ended; ask again for another", b.ID, b.Claim)
		case v.s.abandoned(r.Key, b):
			return v.resumeMaking(ctx, *r)
		}
		changed := v.next()
		select {
		case <-ctx.Done():
			return *b, fault.Wrap(ctx.Err(), fault.Deadline, "sandbox %s of claim %q is still being made; ask again", b.ID, b.Claim)
		case <-changed:
		case <-time.After(100 * time.Millisecond):
		}
		var now records.Record[workspace.Sandbox]
		now, err = get(ctx, v.s.stores.sandboxes, r.Key)
		r = &now
	}
	return workspace.Sandbox{}, err
}

// abandoned reports whether nobody may be making a sandbox any more whose record says "creating". Another replica
// may be at it all the same.
func (s *Service) abandoned(k records.Key, b *workspace.Sandbox) bool {
	_, mine := s.making.Load(k)
	return !mine && s.cfg.Now().Sub(b.CreatedAt) > resumeAfter
}

// resumeMaking has the node make a sandbox that somebody else began with. Several may do so at once: a node makes a sandbox
// once, and tells all who ask how it went.
func (v *view) resumeMaking(ctx context.Context, r records.Record[workspace.Sandbox]) (workspace.Sandbox, error) {
	err := v.s.calls.CreateSandbox(ctx, r.Value.Node, runtime.SandboxCreate{Sandbox: r.Value})
	if err != nil {
		if ctx.Err() == nil { // who is out of patience says nothing of the sandbox
			_, _ = v.s.stopped(ctx, r.Key, workspace.Exit{Code: -1, Reason: workspace.ReasonStartFailed}, publicFault(err))
		}
		return r.Value, err
	}
	if r, err = v.s.started(ctx, r); err == nil {
		v.sandbox(r)
	}
	return r.Value, err
}

// forgetClaim removes the name's record of a sandbox that is about to be forgotten, if the name is still its.
// Only what is there up to then is purged, so a claim that comes between is kept.
func (v *view) forgetClaim(ctx context.Context, r records.Record[workspace.Sandbox]) error {
	if r.Value.Claim == "" {
		return nil
	}
	mine := false
	k := records.Key{Tenant: r.Tenant, Workspace: r.Workspace, ID: r.Value.Claim}
	last, err := v.s.stores.claims.Update(ctx, k, func(c *workspace.HeldClaim) (string, error) {
		if mine = c.Sandbox == r.ID; !mine {
			return "", nil
		}
		return deleted, nil
	})
	if err != nil || !mine {
		return notGone(err)
	}
	subject, err := schemas.Evt(k.Tenant, k.Workspace, workspace.EntityClaim, k.ID)
	if err != nil {
		return err
	}
	st, err := v.s.js.Stream(ctx, records.Stream(k.Tenant))
	if err == nil {
		err = st.Purge(ctx, jetstream.WithPurgeSubject(subject), jetstream.WithPurgeSequence(last.Sequence+1))
	}
	return err
}
