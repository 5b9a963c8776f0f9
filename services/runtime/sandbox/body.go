package sandbox

import (
	"context"
	"path/filepath"
	"sync"

	"github.com/weftmesh/weft/services/runtime/internal/cgroup"
	"github.com/weftmesh/weft/services/runtime/internal/proc"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// body is what a sandbox consists of on the node: everything that hangs on the container's id. A sandbox that
// was made for somebody has a body of its own id; one that waited for its claim keeps the id under which it
// was made, whatever it is called then.
type body struct {
	node    *Node
	id      string
	tenant  string // for which it was made
	shim    string // the lane of those who may share its shim: one tenant's; empty: not known, since an earlier process made it
	dir     string
	ids     idRange
	group   cgroup.Group
	channel *supervisor.Sandbox

	init   proc.Process  // process 1
	gone   chan struct{} // closed when process 1 has ended
	stop   context.CancelFunc
	watch  sync.WaitGroup
	owners owners

	destroy sync.Mutex // one Destroy at a time
}

func (b *body) path(elem ...string) string {
	return filepath.Join(append([]string{b.dir}, elem...)...)
}

// follow closes gone when process 1 ends.
func (b *body) follow() {
	ctx, cancel := context.WithCancel(context.Background())
	b.stop = cancel
	b.watch.Go(func() {
		if err := b.init.Wait(ctx); err == nil {
			close(b.gone)
		} else if ctx.Err() == nil {
			b.node.log.Error("process 1 can't be watched", "sandbox", b.id, "error", err)
		}
	})
}

// unwatch ends follow.
func (b *body) unwatch() {
	if b.stop != nil {
		b.stop()
	}
	b.watch.Wait()
	b.owners.close()
}
