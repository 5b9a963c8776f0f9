package manifest

import (
	"slices"
	"time"

	"github.com/weftmesh/weft/services/filesystem/internal/chunks"
)

const (
	largeNodes = 2                // the two sides of a comparison
	largeFor   = 10 * time.Second // without use
)

// largeNode is a node that alone fills what a Tree keeps. It is kept for a list that goes page by page through it.
type largeNode struct {
	hash chunks.Hash
	node *Node
	last time.Time
	gone *time.Timer
}

// keepLarge is called with mu held.
func (t *Tree) keepLarge(h chunks.Hash, n *Node) {
	if t.keptLarge(h) != nil {
		return
	}
	for len(t.large) >= largeNodes {
		t.dropLarge(slices.MinFunc(t.large, func(a, b *largeNode) int { return a.last.Compare(b.last) }))
	}
	l := &largeNode{hash: h, node: n, last: time.Now()}
	l.gone = time.AfterFunc(largeFor, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.dropLarge(l)
	})
	t.large = append(t.large, l)
}

// keptLarge is called with mu held.
func (t *Tree) keptLarge(h chunks.Hash) *Node {
	for _, l := range t.large {
		if l.hash == h {
			l.last = time.Now()
			l.gone.Reset(largeFor)
			return l.node
		}
	}
	return nil
}

func (t *Tree) dropLarge(l *largeNode) {
	l.gone.Stop()
	t.large = slices.DeleteFunc(t.large, func(x *largeNode) bool { return x == l })
}
