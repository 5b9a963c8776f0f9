package runtime

import (
	"context"
	"time"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Deadlines of the operations on the node plane. The manager waits a little longer for each.
const (
	createTimeout = 55 * time.Second
	killTimeout   = 55 * time.Second // grace, merge and report
	lifeTimeout   = 20 * time.Second
	// snapshotTimeout is for gigabytes that are packed and unpacked again.
	snapshotTimeout = 230 * time.Second
)

// serve answers what services ask of this node, until stop. run lasts as long as the service.
func (s *Service) serve(run context.Context) (stop func(), err error) {
	if s.cfg.Mesh == nil {
		return func() {}, nil
	}
	served, err := s.cfg.Mesh.ServeNode(s.cfg.Node,
		mesh.Op(runtime.OpSandboxCreate, createTimeout, func(ctx context.Context, by mesh.Caller, req runtime.SandboxCreate) (workspace.Empty, error) {
			if err := managerOnly(by); err != nil {
				return workspace.Empty{}, err
			}
			return workspace.Empty{}, s.SandboxCreate(ctx, run, req)
		}),
		mesh.Op(runtime.OpSandboxKill, killTimeout, func(ctx context.Context, by mesh.Caller, req runtime.SandboxKill) (workspace.Empty, error) {
			if err := managerOnly(by); err != nil {
				return workspace.Empty{}, err
			}
			return workspace.Empty{}, s.SandboxKill(ctx, req)
		}),
		mesh.Op(runtime.OpSandboxFork, createTimeout, func(ctx context.Context, by mesh.Caller, req runtime.SandboxFork) (workspace.Empty, error) {
			if err := managerOnly(by); err != nil {
				return workspace.Empty{}, err
			}
			return workspace.Empty{}, s.SandboxFork(ctx, run, req)
		}),
		mesh.Op(runtime.OpSandboxSnapshot, snapshotTimeout, func(ctx context.Context, by mesh.Caller, req runtime.SandboxSnapshot) (runtime.Snapshot, error) {
			if err := managerOnly(by); err != nil {
				return runtime.Snapshot{}, err
			}
			return s.SandboxSnapshot(ctx, req)
		}),
		ofManager(runtime.OpSnapshotRemove, s.SnapshotRemove),
		ofManager(runtime.OpSandboxExtend, s.SandboxExtend),
		ofManager(runtime.OpSandboxPause, s.SandboxPause),
		ofManager(runtime.OpSandboxResume, s.SandboxResume),
		mesh.Op(runtime.OpDrain, operationTimeout, func(ctx context.Context, by mesh.Caller, req runtime.Drain) (workspace.Empty, error) {
			if err := managerOnly(by); err != nil {
				return workspace.Empty{}, err
			}
			s.Drain(ctx, req.Undo)
			return workspace.Empty{}, nil
		}),
		mesh.Many(runtime.OpOutput, func(ctx context.Context, by mesh.Caller, req workspace.OutputRequest, send func(workspace.OutputChunk) error) error {
			if err := managerOnly(by); err != nil {
				return err
			}
			return s.SpooledOutput(ctx, req, send)
		}),
	)
	if err != nil {
		return nil, err
	}
	return served.Stop, nil
}

// ofManager is an operation that only the manager may ask for, and that answers nothing.
func ofManager[Req any](name string, do func(context.Context, Req) error) mesh.Endpoint {
	return mesh.Op(name, lifeTimeout, func(ctx context.Context, by mesh.Caller, req Req) (workspace.Empty, error) {
		if err := managerOnly(by); err != nil {
			return workspace.Empty{}, err
		}
		return workspace.Empty{}, do(ctx, req)
	})
}

// managerOnly refuses every other service: sandboxes and output belong to tenants that only the manager knows.
func managerOnly(by mesh.Caller) error {
	if by.Principal != schemas.WorkspaceManager {
		return fault.New(fault.Denied, "only %s may ask this of a node, not %s", schemas.WorkspaceManager, by.Principal)
	}
	return nil
}
