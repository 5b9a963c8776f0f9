package runtime

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// enter adds a claim to those that are renewed. It refuses a second hold of the same sandbox.
func (s *Service) enter(h *hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, taken := s.holds[h.sandbox]; taken {
		return fault.New(fault.Conflict, "sandbox %s is on this node already", h.sandbox)
	}
	s.holds[h.sandbox] = h
	return nil
}

// leave frees the slot.
func (s *Service) leave(h *hold) {
	s.mu.Lock()
	delete(s.holds, h.sandbox)
	s.mu.Unlock()
	select {
	case s.room <- struct{}{}:
	default:
	}
}

// held lists the claims.
func (s *Service) held() []*hold {
	s.mu.Lock()
	defer s.mu.Unlock()
	hs := make([]*hold, 0, len(s.holds))
	for _, h := range s.holds {
		hs = append(hs, h)
	}
	return hs
}

// holding finds the claim of an item.
func (s *Service) holding(item workspace.QueueItem) *hold {
	for _, h := range s.held() {
		if h.item == item {
			return h
		}
	}
	return nil
}

// renewLoop renews all claims until ctx ends, in one request each time. Between two times it renews those that are new,
// which have no user yet.
func (s *Service) renewLoop(ctx context.Context) {
	t := time.NewTicker(s.cfg.timing.renew)
	defer t.Stop()
	which := (*hold).renewable
	for {
		s.renewClaims(ctx, which)
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			which = (*hold).renewable
		case <-s.renewNow:
			which = (*hold).fresh
		}
	}
}

func (s *Service) renewClaims(ctx context.Context, which func(*hold) bool) {
	var hs []*hold
	var req workspace.Renew
	now := s.cfg.Clock()
	for _, h := range s.held() {
		if which(h) {
			hs = append(hs, h)
			req.Claims = append(req.Claims, h.request(now))
		}
	}
	if len(hs) == 0 {
		return
	}
	ask, cancel := context.WithTimeout(ctx, max(s.cfg.timing.renew, time.Second))
	rep, err := s.cfg.Manager.Renew(ask, req)
	cancel()
	if err == nil && len(rep.Claims) != len(hs) {
		err = fault.New(fault.Internal, "%d verdicts for %d claims", len(rep.Claims), len(hs))
	}
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("claims were not renewed", "claims", len(hs), "error", err)
		}
		return
	}
	now = s.cfg.Clock()
	for i, h := range hs {
		if err := h.verdict(ctx, rep.Claims[i], now); err != nil {
			s.log.Error("a sandbox can't be thawed", "sandbox", h.sandbox, "error", err)
		}
	}
}

// freezeLoop freezes what could not be renewed in time. It asks nobody, so that nothing delays it.
func (s *Service) freezeLoop(ctx context.Context) {
	t := time.NewTicker(s.cfg.timing.margin / 20)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		for _, h := range s.held() {
			did, err := h.freeze(ctx, s.cfg.Clock(), s.cfg.timing.margin)
			if did {
				s.log.Warn("a claim could not be renewed; its sandbox is frozen", "sandbox", h.sandbox, "task", h.item.Task, "error", err)
			}
		}
	}
}

// leaseLoop renews the leases of all sandboxes that have any.
func (s *Service) leaseLoop(ctx context.Context) {
	t := time.NewTicker(s.cfg.timing.leases)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s.renewLeases(ctx)
	}
}

func (s *Service) renewLeases(ctx context.Context) {
	refs := s.leased()
	if len(refs) == 0 {
		return
	}
	ask, cancel := context.WithTimeout(ctx, s.cfg.timing.ask)
	defer cancel()
	rep, err := s.cfg.Secrets.Renew(ask, secrets.RenewRequest{Leases: refs})
	if err != nil {
		if ctx.Err() == nil {
			s.log.Warn("leases were not renewed; they end by themselves", "sandboxes", len(refs), "error", err)
		}
		return
	}
	for i, r := range rep.Results {
		if r.Code != "" && i < len(refs) {
			s.log.Warn("a lease was not renewed", "sandbox", refs[i].Sandbox, "code", r.Code, "reason", r.Message)
		}
	}
}

// leased lists the sandboxes with leases. Those that stand still are left out: a paused machine holds no leases.
func (s *Service) leased() []secrets.LeaseRef {
	var refs []secrets.LeaseRef
	for _, h := range s.held() {
		h.mu.Lock()
		if h.leases != nil && !h.frozen && !h.paused && !h.over {
			refs = append(refs, *h.leases)
		}
		h.mu.Unlock()
	}
	return refs
}
