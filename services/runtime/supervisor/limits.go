package supervisor

import (
	"context"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// WaitingPIDs is the limit to be told at the launch of a sandbox that waits for its limits: process 1 can
// only ever lower it.
const WaitingPIDs = 1 << 20

// SetLimits tells process 1 its sandbox's limits after its launch; see Launch.LimitPIDs and LimitMemory.
// Nothing may have run yet. Done again it changes nothing, but pids can only be lowered.
func (s *Sandbox) SetLimits(ctx context.Context, pids, memory int64) error {
	_, err := s.askAgain(ctx, wire.Request{Op: wire.OpLimits, Limits: &wire.Limits{PIDs: pids, Memory: memory}})
	return err
}

// Show has process 1 show what Launch.Late said. Done again it changes nothing.
func (s *Sandbox) Show(ctx context.Context) error {
	_, err := s.askAgain(ctx, wire.Request{Op: wire.OpShow})
	return err
}
