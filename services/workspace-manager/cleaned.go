package manager

import (
	"context"
	"log/slog"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/workspace"
)

// NodeCleaned takes what a node removed of its own that belonged to no record, and writes it into the node's record,
// so that it is an event of the log of tenant system. A report that comes again changes nothing.
func (s *Service) NodeCleaned(ctx context.Context, by mesh.Caller, c workspace.Cleaned) (workspace.Empty, error) {
	var none workspace.Empty
	if err := checkNode(by); err != nil {
		return none, err
	}
	if err := checkCleaned(c); err != nil {
		return none, err
	}
	r, err := s.stores.nodes.Update(ctx, nodeKey(by.Principal), func(n *workspace.NodeRecord) (string, error) {
		if n.Cleaned != nil && n.Cleaned.At.Equal(c.At) {
			return "", nil
		}
		n.Cleaned, n.CleanedTotal = &c, n.CleanedTotal+c.Count()
		return workspace.NodeCleaned, nil
	})
	if err != nil {
		return none, err
	}
	s.nodes.record(r)
	slog.Warn("a node removed what belonged to no record", "node", by.Principal, "items", c.Count())
	return none, nil
}

func checkCleaned(c workspace.Cleaned) error {
	if len(c.Items) == 0 || len(c.Items) > workspace.MaxCleaned || c.More < 0 || c.At.IsZero() {
		return fault.New(fault.Invalid, "a report has a time and 1 to %d items; it has %d", workspace.MaxCleaned, len(c.Items))
	}
	for _, i := range c.Items {
		if i.Kind == "" || len(i.Kind) > 32 || len(i.ID) > 256 {
			return fault.New(fault.Invalid, "an item has a kind of at most 32 bytes and an id of at most 256")
		}
	}
	return nil
}

// forTenants is what a tenant sees of the nodes: not what was left of other tenants' sandboxes.
func forTenants(ns []workspace.NodeRecord) []workspace.NodeRecord {
	for i := range ns {
		if ns[i].Cleaned != nil {
			c := *ns[i].Cleaned
			c.Items, c.More = nil, c.Count()
			ns[i].Cleaned = &c
		}
	}
	return ns
}
