package runtime

import (
	"context"
	"slices"
	"time"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// heartbeatLoop tells the manager every few seconds what this node is and has.
func (s *Service) heartbeatLoop(ctx context.Context) {
	t := time.NewTicker(s.cfg.timing.heartbeat)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		s.beat(ctx)
	}
}

func (s *Service) beat(ctx context.Context) {
	ask, cancel := context.WithTimeout(ctx, s.cfg.timing.ask)
	defer cancel()
	hb := s.status()
	hb.Snapshots = s.snapshots(ask)
	rep, err := s.cfg.Manager.Heartbeat(ask, hb)
	if err == nil {
		s.warm.want(rep.Pools)
	} else if ctx.Err() == nil {
		s.log.Warn("no heartbeat", "error", err)
	}
	if err == nil {
		s.tellCleaned(ctx)
	}
}

// status is what the node says of itself.
func (s *Service) status() workspace.Heartbeat {
	hb := workspace.Heartbeat{
		Node: s.cfg.Node, Incarnation: s.incarnation, NodeKey: s.keyPublic, Slots: s.cfg.Slots, Labels: s.cfg.Labels,
		Images: s.engine.Archives(), Levels: s.node.Levels(), Version: s.cfg.Version,
	}
	hb.Pools = s.warm.states()
	hb.DiskFree, _ = sandbox.FreeDisk(s.cfg.DataDir)
	s.mu.Lock()
	defer s.mu.Unlock()
	hb.Used, hb.Draining = len(s.holds), s.draining
	for id := range s.holds {
		hb.Sandboxes = append(hb.Sandboxes, id)
	}
	slices.Sort(hb.Sandboxes)
	return hb
}

// Drain has the node take nothing new, or take work again. What it runs goes on.
func (s *Service) Drain(ctx context.Context, undo bool) {
	s.mu.Lock()
	s.draining = !undo
	s.mu.Unlock()
	s.beat(ctx)
}
