package weftinit

import (
	"fmt"

	"github.com/weftmesh/weft/pkg/fault"
)

// limits takes what the node says when it gives a sandbox that waited to somebody.
func (c *call) limits() error {
	l := c.req.Limits
	if l == nil || l.PIDs < 1 || l.Memory < 1 {
		return errIncomplete
	}
	if err := reservePIDs(l.PIDs); err != nil {
		return fault.Wrap(fmt.Errorf("RLIMIT_NPROC: %w", err), fault.Internal, "the sandbox's limit of processes can't be set")
	}
	c.s.budget.limit.Store(l.RingBytes())
	return c.done(nil)
}
