package manager_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

func TestTaskRunsToItsEnd(t *testing.T) {
	b := newBed(t)
	n := b.node("n1", 4, exit0)
	id := b.submit(b.user, "acme", "demo", "k1", workspace.Submission{Agent: "worker", Input: []byte(`{"x":1}`)})
	k := b.until(id, workspace.Complete)
	require.Equal(t, "ann", k.Principal)
	require.Equal(t, "n1", k.Attempt.Node)
	require.Equal(t, "XNODE", k.Attempt.NodeKey)
	require.Equal(t, []string{"submitted", "queued", "running", "complete"}, b.history(id))
	again := b.submit(b.user, "acme", "demo", "k1", workspace.Submission{Agent: "worker"})
	require.Equal(t, id, again)
	b.submit(b.user, "acme", "demo", "", workspace.Submission{Agent: "worker"})
	require.Equal(t, []string{"submitted", "queued", "running", "complete"}, b.history(id))
	_ = n
}
