package manager

import (
	"slices"

	"github.com/weftmesh/weft/pkg/fault"
)

// Which security levels nodes have: a level that a node lacks is not given to it while another has it.

// offers says whether a node has a level, by its own word. One that says nothing may have any.
func (n *node) offers(level string) bool {
	return level == "" || len(n.beat.Levels) == 0 || slices.Contains(n.beat.Levels, level)
}

// offered refuses a level that no ready node has. Where no node is ready at all, that is for others to say.
func (ns *nodeSet) offered(level string) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	any := false
	for _, n := range ns.m {
		if ns.why(n) != "" {
			continue
		}
		if n.offers(level) {
			return nil
		}
		any = true
	}
	if !any {
		return nil
	}
	return fault.New(fault.Unavailable, "no node has security level %q now; `make setup` on a node gives it every level", level)
}

// mayRun refuses a node's claim of what is of a level that it lacks, as long as another ready node has it: the
// attempt goes back to the queue. Where none has, the node says itself what is missing.
func (ns *nodeSet) mayRun(name, level string) error {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	if n := ns.m[name]; n == nil || n.offers(level) {
		return nil
	}
	for other, n := range ns.m {
		if other != name && ns.why(n) == "" && n.offers(level) {
			return fault.New(fault.Unavailable, "node %s has no security level %q; another node has", name, level)
		}
	}
	return nil
}
