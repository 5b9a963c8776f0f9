package manager

import (
	"context"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/workspace"
)

const diskFull = "the disk of the mesh is full, and nothing is accepted until its operator frees some space; submit again then"

// MeshState says whether the mesh stores what is published. A server whose disk is full says nothing at all to who publishes,
// so whoever waits for an acknowledgement in vain asks here. Error: unavailable, where the server runs in another process,
// whose disk nobody tells the manager of.
func (s *Service) MeshState(_ context.Context, _ mesh.Caller, _ workspace.Empty) (workspace.MeshState, error) {
	if s.cfg.Storing == nil {
		return workspace.MeshState{}, fault.New(fault.Unavailable, "the NATS server runs apart from the workspace-manager; ask its operator, or /readyz of the process that runs it")
	}
	if s.cfg.Storing() != nil { // with its path, which is the operator's to know: /readyz says it
		return workspace.MeshState{Reason: diskFull}, nil
	}
	return workspace.MeshState{Storing: true}, nil
}
