package runtime

import (
	"context"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// cleaned notes what was removed that belonged to nobody. It is told to the manager with the next heartbeat, and
// again until the manager has it; a node that dies before has said it in its own log only.
func (s *Service) cleaned(items []sandbox.Item) {
	if len(items) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, i := range items {
		if len(s.leftovers.Items) < workspace.MaxCleaned {
			s.leftovers.Items = append(s.leftovers.Items, workspace.CleanedItem{Kind: i.Kind, ID: i.ID})
		} else {
			s.leftovers.More++
		}
	}
	// The time names the report: one that arrives twice is told by it.
	s.leftovers.At = s.cfg.Clock().UTC()
}

// tellCleaned sends what was noted.
func (s *Service) tellCleaned(ctx context.Context) {
	s.mu.Lock()
	report := s.leftovers
	report.Items = append([]workspace.CleanedItem(nil), report.Items...)
	s.mu.Unlock()
	if len(report.Items) == 0 {
		return
	}
	ask, cancel := context.WithTimeout(ctx, s.cfg.timing.ask)
	defer cancel()
	if err := s.cfg.Manager.NodeCleaned(ask, report); err != nil {
		if ctx.Err() == nil {
			s.log.Warn("what was removed is not told yet", "items", report.Count(), "error", err)
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leftovers.At.Equal(report.At) {
		s.leftovers = workspace.Cleaned{}
		return
	}
	// More came meanwhile: those that were told go.
	s.leftovers.Items = s.leftovers.Items[len(report.Items):]
	s.leftovers.More -= report.More
}
