package runtime

import (
	"context"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// inspectOperations tell about the sandbox itself.
func (d *desk) inspectOperations() []mesh.Endpoint {
	return []mesh.Endpoint{
		mesh.Op(runtime.OpInspect, operationTimeout, d.Inspect),
	}
}

// Inspect tells what the sandbox is and uses.
func (d *desk) Inspect(ctx context.Context, _ mesh.Caller, _ workspace.Empty) (runtime.Inspect, error) {
	spec := d.box.Spec()
	out := runtime.Inspect{ID: spec.ID, Level: spec.Level, Image: spec.Image, Labels: d.box.Labels()}
	isolation, err := d.box.Isolation()
	if err != nil {
		return out, err
	}
	out.Isolation = &isolation
	u, err := d.box.Stats()
	if err != nil {
		return out, err
	}
	out.PIDs, out.Memory, out.CPUMS = u.PIDs, u.Memory, u.CPU.Milliseconds()
	if d.life.show(&out, d.s.cfg.Clock()); out.Paused {
		return out, nil // nobody in it would answer
	}
	list, err := d.box.Supervisor().List(ctx)
	if err != nil {
		return out, err
	}
	for _, p := range list {
		out.Processes = append(out.Processes, d.describe(p))
	}
	return out, nil
}
