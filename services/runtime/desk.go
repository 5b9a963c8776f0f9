package runtime

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// desk serves the operations on one sandbox, of an attempt or standing alone, on the sbx plane.
type desk struct {
	s      *Service
	box    *sandbox.Sandbox
	run    *workspace.RunSpec
	env    []string
	served *mesh.Served

	mu     sync.Mutex
	procs  map[string]*supervisor.Process // those of Exec that run
	active int                            // operations under way
	last   time.Time                      // when the last one ended
}

// operationTimeout bounds the operations that are no streams.
const operationTimeout = 10 * time.Second

// openDesk begins to serve.
func (s *Service) openDesk(box *sandbox.Sandbox, run *workspace.RunSpec, env []string) (*desk, error) {
	d := &desk{s: s, box: box, run: run, env: env, procs: map[string]*supervisor.Process{}, last: s.cfg.Clock()}
	if s.cfg.Mesh == nil {
		return d, nil
	}
	c, spec := s.cfg.Mesh, box.Spec()
	var err error
	d.served, err = c.ServeSandbox(spec.Tenant, spec.Workspace, spec.ID,
		slices.Concat(d.processOperations(c), d.fileOperations(c), d.inspectOperations())...)
	return d, err
}

func (d *desk) close() {
	if d != nil && d.served != nil {
		d.served.Stop()
	}
}

// use counts an operation as activity until it ends.
func (d *desk) use() func() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.active++
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.active--
		d.last = d.s.cfg.Clock()
	}
}

// idleFor is how long nobody has used the sandbox.
func (d *desk) idleFor(now time.Time) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.active > 0 {
		return 0
	}
	return now.Sub(d.last)
}

// failed says why an operation could not go on.
func (d *desk) failed(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errGone) {
		return fault.Wrap(err, fault.Unavailable, "the sandbox has ended")
	}
	return err
}
