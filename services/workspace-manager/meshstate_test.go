package manager_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

// Who waits for an acknowledgement in vain can ask why, and learns nothing of the node's paths.
func TestMeshState(t *testing.T) {
	var full error
	b := newBed(t, func(c *manager.Config) { c.Storing = func() error { return full } })
	ann := mesh.Caller{Tenant: "acme", Workspace: "demo", Principal: "ann"}
	st, err := b.s.MeshState(b.ctx(), ann, workspace.Empty{})
	require.NoError(t, err)
	require.Equal(t, workspace.MeshState{Storing: true}, st)
	full = errors.New("the disk under /secret/place is full")
	st, err = b.s.MeshState(b.ctx(), ann, workspace.Empty{})
	require.NoError(t, err)
	require.False(t, st.Storing)
	require.Contains(t, st.Reason, "disk")
	require.NotContains(t, st.Reason, "/secret")

	apart := newBed(t)
	_, err = apart.s.MeshState(apart.ctx(), ann, workspace.Empty{})
	require.True(t, fault.Is(err, fault.Unavailable), "what the manager does not know it does not say: %v", err)
}
