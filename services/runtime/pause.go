package runtime

import (
	"context"
	"fmt"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
)

// SandboxExtend moves the end of an interactive sandbox, which counts as use. Doing it again changes nothing.
func (s *Service) SandboxExtend(ctx context.Context, req runtime.SandboxExtend) error {
	if req.ExpiresAt.IsZero() || req.IdleMS < 0 {
		return fault.New(fault.Invalid, `"expires_at" must be given, and "idle_ms" not be negative`)
	}
	return s.change(ctx, req.ID, func(i *interactive) func(context.Context) error {
		return func(context.Context) error {
			i.life.extend(req.ExpiresAt, req.IdleMS)
			return i.journal()
		}
	})
}

// SandboxPause freezes an interactive sandbox where it is: nothing in it runs, its credentials are no longer renewed, nobody
// may use it, and its idleness does not count. Its time to live goes on. It lasts over restarts of the node's process.
func (s *Service) SandboxPause(ctx context.Context, req runtime.SandboxRef) error {
	return s.change(ctx, req.ID, func(i *interactive) func(context.Context) error { return i.pause })
}

// SandboxResume lets it go on, with credentials that hold.
func (s *Service) SandboxResume(ctx context.Context, req runtime.SandboxRef) error {
	return s.change(ctx, req.ID, func(i *interactive) func(context.Context) error { return i.resume })
}

func (s *Service) change(ctx context.Context, id string, f func(*interactive) func(context.Context) error) error {
	s.mu.Lock()
	i := s.serving[id]
	s.mu.Unlock()
	if i == nil {
		return notHere(id)
	}
	return i.do(ctx, f(i))
}

// pause is journaled first: whoever finds the sandbox frozen after a restart must know that it is to stay so.
func (i *interactive) pause(ctx context.Context) error {
	if i.life.paused() {
		return nil
	}
	now := i.s.cfg.Clock().UTC()
	i.life.setPaused(&now)
	err := i.journal()
	if err == nil {
		err = i.h.pause(ctx)
	}
	if err != nil {
		i.life.setPaused(nil)
		if jerr := i.journal(); jerr != nil {
			i.s.log.Error("a pause that failed can't be taken out of the journal", "sandbox", i.h.sandbox, "error", jerr)
		}
		return fault.Wrap(err, fault.Unavailable, "sandbox %s can't be paused now; try again", i.h.sandbox)
	}
	return nil
}

// resume has the credentials in order before anything runs again.
func (i *interactive) resume(ctx context.Context) error {
	if !i.life.paused() {
		return nil
	}
	if err := i.reissue(ctx); err != nil {
		return err
	}
	if err := i.h.resume(ctx); err != nil {
		return fault.Wrap(err, fault.Unavailable, "sandbox %s can't be resumed now; try again", i.h.sandbox)
	}
	i.life.setPaused(nil)
	return i.journal()
}

// reissue renews the leases after a pause, and gets new ones where they have ended meanwhile. Files and what lies behind
// VAULT_ADDR are replaced; the environment of processes that run can't be, that of new ones is. Leases that somebody has
// revoked stay so: the sandbox goes on without.
func (i *interactive) reissue(ctx context.Context) error {
	if len(i.e.Sandbox.Run.Secrets) == 0 {
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, i.s.cfg.timing.ask)
	defer cancel()
	rep, err := i.s.cfg.Secrets.Renew(ask, secrets.RenewRequest{Leases: []secrets.LeaseRef{i.ref()}})
	if err == nil && len(rep.Results) != 1 {
		err = fmt.Errorf("%d results for one lease", len(rep.Results))
	}
	if err != nil {
		return fault.Wrap(err, fault.Unavailable, "the credentials of sandbox %s can't be renewed now; try again", i.h.sandbox)
	}
	switch r := rep.Results[0]; fault.Code(r.Code) {
	case "", fault.Denied:
		return nil
	case fault.NotFound:
		return i.issueAgain(ctx)
	default:
		return fault.New(fault.Code(r.Code), "the credentials of sandbox %s can't be renewed: %s", i.h.sandbox, r.Message)
	}
}

func (i *interactive) issueAgain(ctx context.Context) error {
	pl := i.place()
	pl.box = i.box
	k, err := recall(i.box, i.h)
	if err != nil {
		return err
	}
	if k.Issued, k.Leases, err = pl.issue(ctx); err != nil {
		return err
	}
	i.words.hide(k.Issued.Scrub)
	if err := i.box.WriteSecrets(k.Issued.Files); err != nil {
		return err
	}
	if err := pl.remember(k); err != nil {
		return err
	}
	if err := i.gate.admit(VaultSession{LeaseRef: i.ref(), Principal: i.e.Sandbox.Principal, Issued: k.Issued}); err != nil {
		return err
	}
	env, err := pl.environment(ctx, k, i.box)
	if err == nil {
		i.desk.setEnviron(env)
	}
	return err
}
