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
)

// desk serves the operations on one sandbox, of an attempt or standing alone, on the sbx plane.
type desk struct {
	s      *Service
	box    *sandbox.Sandbox
	run    *workspace.RunSpec
	life   *life
	words  *lastWords
	served *mesh.Served

	seats  *seats
	naming sync.Mutex // held while a name is given to a process
	ended  sync.Once

	mu  sync.Mutex
	env []string // of what is started; see environ
}

// operationTimeout bounds the operations that are no streams.
const operationTimeout = 10 * time.Second

// openDesk begins to serve.
func (s *Service) openDesk(box *sandbox.Sandbox, run *workspace.RunSpec, env []string, life *life, words *lastWords) (*desk, error) {
	d := &desk{s: s, box: box, run: run, env: env, life: life, words: words, seats: newSeats()}
	if s.cfg.Mesh == nil {
		return d, nil
	}
	c, spec := s.cfg.Mesh, box.Spec()
	var err error
	d.served, err = c.ServeSandbox(spec.Tenant, spec.Workspace, spec.ID, slices.Concat(d.inspectOperations(),
		mesh.Guarded(life.mayUse, slices.Concat(d.processOperations(c), d.portOperations(c), d.fileOperations(c))...))...)
	return d, err
}

func (d *desk) close() {
	if d == nil {
		return
	}
	d.ended.Do(func() { close(d.seats.closed) })
	if d.served != nil {
		d.served.Stop()
	}
}

// use counts an operation as activity until it ends.
func (d *desk) use() func() { return d.life.active.use() }

// environ is the environment of what is started.
func (d *desk) environ() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.env
}

func (d *desk) setEnviron(env []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.env = env
}

// failed says why an operation could not go on.
func (d *desk) failed(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errGone) {
		return fault.Wrap(err, fault.Unavailable, "the sandbox has ended")
	}
	return err
}
