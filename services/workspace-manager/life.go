package manager

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// defaultGrace is from SIGTERM to SIGKILL at the end of a sandbox.
const defaultGrace = 10 * time.Second

// checkLife refuses times that no sandbox may have.
func checkLife(req workspace.SandboxCreate) error {
	switch {
	case req.TTLMS < 0 || req.TTLMS > workspace.MaxTTLMS || req.IdleMS < 0 || req.IdleMS > workspace.MaxTTLMS:
		return fault.New(fault.Invalid, `"ttl_ms" and "idle_ms" must be 0 to %d (24 hours)`, workspace.MaxTTLMS)
	case req.WarnMS < 0 || req.WarnMS > workspace.MaxTTLMS:
		return fault.New(fault.Invalid, `"warn_ms" must be 0 to %d`, workspace.MaxTTLMS)
	case req.GraceMS < 0 || req.GraceMS > workspace.MaxGraceMS:
		return fault.New(fault.Invalid, `"grace_ms" must be 0 to %d (30 seconds)`, workspace.MaxGraceMS)
	}
	return nil
}

// setLife gives a run the times that were asked for, or the defaults.
func setLife(run *workspace.RunSpec, req workspace.SandboxCreate) {
	run.TTLMS, run.IdleMS, run.WarnMS, run.GraceMS = req.TTLMS, req.IdleMS, req.WarnMS, req.GraceMS
	def(&run.TTLMS, defaultTTL.Milliseconds())
	def(&run.IdleMS, defaultIdle.Milliseconds())
	def(&run.GraceMS, defaultGrace.Milliseconds())
}

// expiry is when the time to live of a sandbox is over.
func expiry(b *workspace.Sandbox) time.Time {
	if b.ExpiresAt != nil {
		return *b.ExpiresAt
	}
	return b.CreatedAt.Add(time.Duration(b.Run.TTLMS) * time.Millisecond) // of an earlier release
}

// live reads a sandbox that has not ended.
func (s *Service) live(ctx context.Context, by mesh.Caller, id string) (records.Record[workspace.Sandbox], error) {
	k, err := sandboxKey(by, id)
	if err != nil {
		return records.Record[workspace.Sandbox]{}, err
	}
	r, err := get(ctx, s.stores.sandboxes, k)
	if err != nil {
		return r, err
	}
	switch r.Value.State {
	case workspace.SandboxStopped:
		return r, fault.New(fault.Conflict, "sandbox %s has ended; create another one", id)
	case workspace.SandboxCreating:
		return r, fault.New(fault.Conflict, "sandbox %s is still being made; try again", id)
	}
	return r, nil
}

// change writes a change of a sandbox that its node has made already. One that has ended meanwhile is a conflict.
func (s *Service) change(ctx context.Context, r records.Record[workspace.Sandbox], f func(*workspace.Sandbox) string) (workspace.Sandbox, error) {
	r, err := s.stores.sandboxes.Update(ctx, r.Key, func(b *workspace.Sandbox) (string, error) {
		if b.State == workspace.SandboxStopped {
			return "", fault.New(fault.Conflict, "sandbox %s has ended", b.ID)
		}
		return f(b), nil
	})
	return r.Value, err
}

// SandboxExtend moves the end of a sandbox, and counts as use of it. The node hears of it first: it is the node that ends the
// sandbox. Done again, it counts from then on.
func (s *Service) SandboxExtend(ctx context.Context, by mesh.Caller, req workspace.SandboxExtend) (workspace.Sandbox, error) {
	if err := checkLife(workspace.SandboxCreate{TTLMS: req.TTLMS, IdleMS: req.IdleMS}); err != nil {
		return workspace.Sandbox{}, err
	}
	r, err := s.live(ctx, by, req.ID)
	if err != nil {
		return r.Value, err
	}
	def(&req.TTLMS, r.Value.Run.TTLMS)
	expires := s.cfg.Now().UTC().Add(time.Duration(req.TTLMS) * time.Millisecond)
	if old := expiry(&r.Value); old.After(expires) {
		expires = old
	}
	if err := s.calls.ExtendSandbox(ctx, r.Value.Node, runtime.SandboxExtend{ID: r.ID, ExpiresAt: expires, IdleMS: req.IdleMS}); err != nil {
		return r.Value, err
	}
	return s.change(ctx, r, func(b *workspace.Sandbox) string {
		if expires.After(expiry(b)) {
			b.ExpiresAt = &expires
		}
		if req.IdleMS > 0 {
			b.Run.IdleMS = req.IdleMS
		}
		b.Warning = nil
		return workspace.SandboxExtended
	})
}

// SandboxPause freezes a sandbox where it is. One that is paused stays so.
func (s *Service) SandboxPause(ctx context.Context, by mesh.Caller, req workspace.ID) (workspace.Sandbox, error) {
	r, err := s.live(ctx, by, req.ID)
	if err != nil {
		return r.Value, err
	}
	if err := s.calls.PauseSandbox(ctx, r.Value.Node, runtime.SandboxRef{ID: r.ID}); err != nil {
		return r.Value, err
	}
	now := s.cfg.Now().UTC()
	return s.change(ctx, r, func(b *workspace.Sandbox) string {
		if b.State == workspace.SandboxPaused {
			return ""
		}
		b.State, b.PausedAt = workspace.SandboxPaused, &now
		return workspace.SandboxPaused
	})
}

// SandboxResume lets a paused sandbox go on. The node is asked also where the record says that it runs: who paused it may
// have died before writing so.
func (s *Service) SandboxResume(ctx context.Context, by mesh.Caller, req workspace.ID) (workspace.Sandbox, error) {
	r, err := s.live(ctx, by, req.ID)
	if err != nil {
		return r.Value, err
	}
	if err := s.calls.ResumeSandbox(ctx, r.Value.Node, runtime.SandboxRef{ID: r.ID}); err != nil {
		return r.Value, err
	}
	return s.change(ctx, r, func(b *workspace.Sandbox) string {
		if b.State != workspace.SandboxPaused {
			return ""
		}
		b.State, b.PausedAt = workspace.SandboxRunning, nil
		return workspace.SandboxResumed
	})
}

// SandboxWarned takes a node's word that a sandbox is about to be stopped, or is no longer. The record's event tells whoever
// follows the log, what runs in the sandbox among them.
func (s *Service) SandboxWarned(ctx context.Context, by mesh.Caller, req runtime.SandboxWarned) (workspace.Empty, error) {
	var none workspace.Empty
	if err := checkNode(by); err != nil {
		return none, err
	}
	if err := checkItem(workspace.QueueItem{Tenant: req.Tenant, Workspace: req.Workspace, Task: req.ID, Attempt: 1}); err != nil {
		return none, err
	}
	if w := req.Warning; w != nil && w.Reason != workspace.ReasonTimeout && w.Reason != workspace.ReasonIdle {
		return none, fault.New(fault.Invalid, "no sandbox is stopped for %.20q", w.Reason)
	}
	_, err := s.stores.sandboxes.Update(ctx, records.Key{Tenant: req.Tenant, Workspace: req.Workspace, ID: req.ID}, func(b *workspace.Sandbox) (string, error) {
		if b.Node != by.Principal {
			return "", fault.New(fault.Conflict, "sandbox %s is not on node %s", req.ID, by.Principal)
		}
		if b.State == workspace.SandboxStopped || sameWarning(b.Warning, req.Warning) {
			return "", nil
		}
		b.Warning = req.Warning
		if req.Warning == nil {
			return workspace.SandboxKept, nil
		}
		return workspace.SandboxWarned, nil
	})
	return none, err
}

func sameWarning(a, b *workspace.StopWarning) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Reason == b.Reason && a.StopsAt.Equal(b.StopsAt)
}

// maxKeptOutput bounds what a node may put into a record as last output: its own bound, with the fields around it.
const maxKeptOutput = 2 * workspace.MaxLastOutput

// bounded drops last output that is larger than a node that keeps to the contract sends.
func bounded(out []workspace.LastOutput) []workspace.LastOutput {
	size := 0
	for _, o := range out {
		size += len(o.Stdout) + len(o.Stderr)
		for _, a := range o.Argv {
			size += len(a)
		}
	}
	if size > maxKeptOutput || len(out) > 64 {
		return nil
	}
	return out
}

// withoutOutput is a record as views and lists have it: what it said last is read one by one.
func withoutOutput(r records.Record[workspace.Sandbox]) records.Record[workspace.Sandbox] {
	r.Value.LastOutput = nil
	return r
}
