package sandbox

import (
	"context"
	"errors"
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Adopt finds the sandboxes that run since before this process did, and gives those of which all is
// there, those that wait to be claimed among them. Their supervisors connect by themselves. What is incomplete is left to Reconcile.
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
		s, err := n.found(c)
		if err == nil && !(slices.Contains(known, c.ID) && taken[s.ids] == c.ID) {
			err = errors.New("its socket or its range of ids is missing")
		}
		if err != nil {
			n.log.Warn("a sandbox is not complete and will be removed", "sandbox", c.ID, "error", errors.Join(err, c.Err))
			continue
		}
		if s.channel, err = n.server.Add(c.ID, supervisor.Owner{UID: s.ids.first(), GID: s.ids.first()}); err != nil {
			return nil, fault.Wrap(err, fault.Unavailable, "sandbox %s can't be taken up again", c.ID)
		}
		if err := n.hold(s); err != nil {
			if fault.Is(err, fault.Conflict) {
				continue // it is ours since before
			}
			return nil, err
		}
		if err := n.thawDisk(c.ID); err != nil {
			n.log.Error("the writable root of a sandbox stands still", "sandbox", c.ID, "error", err)
		}
		s.follow()
		adopted = append(adopted, s)
	}
	return adopted, nil
}

// found is the sandbox of a container, as its labels say, or the record of its claim.
func (n *Node) found(c containerd.Listed) (*Sandbox, error) {
	made, r, err := specOf(c.Labels)
	if err != nil {
		return nil, err
	}
	if made.ID != c.ID || c.Process.PID == 0 {
		return nil, errors.New("its process 1 does not run, or it has another's labels")
	}
	s := n.sandbox(made)
	s.ids, s.init = r, c.Process
	if s.blank, err = blankOf(c.Labels, made); err != nil || s.blank == nil {
		return s, err
	}
	rec, err := n.claimed(c.ID)
	if err != nil || rec == nil {
		return s, err
	}
	if rec.Spec == nil {
		return nil, errors.New("it was being destroyed")
	}
	s.spec, s.blank = *rec.Spec, nil
	return s, s.spec.check()
}
