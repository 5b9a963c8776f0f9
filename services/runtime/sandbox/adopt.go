package sandbox

import (
	"context"
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Adopt finds the sandboxes that run since before this process did, and gives those of which all is
// there. Their supervisors connect by themselves. What is incomplete is left to Reconcile.
func (n *Node) Adopt(ctx context.Context) ([]*Sandbox, error) {
	found, err := n.engine.List(ctx, labelOwner, n.owner)
	if err != nil {
		return nil, err
	}
	known, err := n.server.Known()
	if err != nil {
		return nil, err
	}
	taken, err := n.ranges.taken()
	if err != nil {
		return nil, err
	}
	var adopted []*Sandbox
	for _, c := range found {
		spec, r, err := specOf(c.Labels)
		complete := err == nil && spec.ID == c.ID && c.Process.PID != 0 && slices.Contains(known, c.ID) && taken[r] == c.ID
		if !complete {
			n.log.Warn("a sandbox is not complete and will be removed", "sandbox", c.ID, "error", err)
			continue
		}
		s := n.sandbox(spec)
		s.ids, s.init = r, c.Process
		if s.channel, err = n.server.Add(c.ID, supervisor.Owner{UID: r.first(), GID: r.first()}); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "sandbox %s can't be taken up again", c.ID)
		}
		if err := n.hold(s); err != nil {
			if fault.Is(err, fault.Conflict) {
				continue // it is ours since before
			}
			return nil, err
		}
		s.follow()
		adopted = append(adopted, s)
	}
	return adopted, nil
}
