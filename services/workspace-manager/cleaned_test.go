package manager_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// What a node removed of nobody's is an event of its record, once however often it is told, and its items are the
// operator's to see.
func TestLeftoversThatANodeRemovedAreAnEvent(t *testing.T) {
	b := newBed(t)
	n := b.node("n1", 2, exit0)
	report := workspace.Cleaned{At: time.Now().UTC(), Items: []workspace.CleanedItem{{Kind: "mount", ID: "a"}, {Kind: "loop", ID: "b"}}, More: 3}
	for range 2 {
		must[workspace.Empty](b, n.c, "", "", workspace.OpNodeCleaned, report)
	}
	list := must[workspace.Page[workspace.NodeRecord]](b, b.op, "", "", workspace.OpNodeList, workspace.List{})
	require.Equal(t, report.Items, list.Items[0].Cleaned.Items)
	require.Equal(t, 5, list.Items[0].CleanedTotal)
	list = must[workspace.Page[workspace.NodeRecord]](b, b.user, "acme", "-", workspace.OpNodeList, workspace.List{})
	require.Empty(t, list.Items[0].Cleaned.Items, "what was left of whom is no tenant's business")
	require.Equal(t, 5, list.Items[0].Cleaned.More)

	report.At, report.Items = report.At.Add(time.Second), report.Items[:1]
	must[workspace.Empty](b, n.c, "", "", workspace.OpNodeCleaned, report)
	msg, err := b.m.Service(schemas.WorkspaceManager).JetStream().Stream(b.ctx(), "LOG-system")
	require.NoError(t, err)
	last, err := msg.GetLastMsgForSubject(b.ctx(), "weft.v1.evt.system.-.node.n1")
	require.NoError(t, err)
	require.Equal(t, "dev.weft.node.cleaned.v1", last.Header.Get("ce-type"))

	refused[workspace.Empty](b, fault.Denied, b.op, "", "", workspace.OpNodeCleaned, report)
	report.Items = nil
	refused[workspace.Empty](b, fault.Invalid, n.c, "", "", workspace.OpNodeCleaned, report)
}
