package manager_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// patient is how long the tests here wait on a busy machine.
const patient = 40 * time.Second

// boxNode is a node that says yes to whatever is asked of its sandboxes, until it is told what to refuse.
type boxNode struct {
	*testNode
	mu      sync.Mutex
	refuses map[string]error
	asked   []string
	extends []runtime.SandboxExtend
	kills   []runtime.SandboxKill
}

func newBoxNode(b *bed) *boxNode {
	n := &boxNode{testNode: b.node("n1", 8, exit0), refuses: map[string]error{}}
	s, err := n.c.ServeNode("n1",
		answers(n, runtime.OpSandboxCreate, func(r runtime.SandboxCreate) { n.has(r.Sandbox) }),
		answers(n, runtime.OpSandboxFork, func(r runtime.SandboxFork) { n.has(r.Sandboxes...) }),
		answers(n, runtime.OpSandboxExtend, func(r runtime.SandboxExtend) { n.extends = append(n.extends, r) }),
		answers(n, runtime.OpSandboxKill, func(r runtime.SandboxKill) { n.kills = append(n.kills, r) }),
		answers(n, runtime.OpSandboxPause, func(runtime.SandboxRef) {}),
		answers(n, runtime.OpSandboxResume, func(runtime.SandboxRef) {}),
	)
	require.NoError(b.t, err)
	b.t.Cleanup(s.Stop)
	return n
}

func answers[Req any](n *boxNode, op string, note func(Req)) mesh.Endpoint {
	return mesh.Op(op, wait, func(_ context.Context, _ mesh.Caller, r Req) (workspace.Empty, error) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.asked = append(n.asked, op)
		if err := n.refuses[op]; err != nil {
			return workspace.Empty{}, err
		}
		note(r)
		return workspace.Empty{}, nil
	})
}

// has puts sandboxes into the node's heartbeats.
func (n *boxNode) has(boxes ...workspace.Sandbox) {
	n.testNode.mu.Lock()
	defer n.testNode.mu.Unlock()
	for _, x := range boxes {
		n.hb.Sandboxes = append(n.hb.Sandboxes, x.ID)
	}
}

func (n *boxNode) refuse(op string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.refuses[op] = err
}

// events of a record, in order.
func (b *bed) events(entity, id string) (out []string) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	subject, err := schemas.Req("acme", "demo", "ann", schemas.WorkspaceManager, workspace.OpEvents)
	require.NoError(b.t, err)
	err = mesh.RequestMany(ctx, b.user, subject, workspace.EventsRequest{FromSequence: 1, Entities: []string{entity}, IDs: []string{id}}, wait,
		func(c workspace.Change[workspace.Sandbox]) error { out = append(out, c.Event); return nil })
	require.NoError(b.t, err)
	return out
}

func TestTheLifeOfASandbox(t *testing.T) {
	b := newBed(t)
	n := newBoxNode(b)
	do := func(op string, req any) workspace.Sandbox {
		return must[workspace.Sandbox](b, b.user, "acme", "demo", op, req)
	}
	no := func(code fault.Code, op string, req any) error {
		return refused[workspace.Sandbox](b, code, b.user, "acme", "demo", op, req)
	}
	for _, bad := range []workspace.SandboxCreate{{TTLMS: -1}, {TTLMS: workspace.MaxTTLMS + 1}, {IdleMS: -1}, {IdleMS: workspace.MaxTTLMS + 1}, {WarnMS: -1}, {GraceMS: workspace.MaxGraceMS + 1}} {
		bad.Template = "base"
		no(fault.Invalid, workspace.OpSandboxCreate, bad)
	}
	box := do(workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base", TTLMS: 600_000})
	require.Equal(t, box.CreatedAt.Add(10*time.Minute), *box.ExpiresAt)
	require.EqualValues(t, []int64{600_000, 900_000, 10_000}, []int64{box.Run.TTLMS, box.Run.IdleMS, box.Run.GraceMS})
	id := workspace.ID{ID: box.ID}

	// A warning, withdrawn, and another one that an extension makes void.
	warn := func(c *mesh.Conn, w *workspace.StopWarning) (workspace.Empty, error) {
		return ask[workspace.Empty](b.ctx(), c, "", "", workspace.OpSandboxWarned, runtime.SandboxWarned{Tenant: "acme", Workspace: "demo", ID: box.ID, Warning: w})
	}
	w := &workspace.StopWarning{Reason: workspace.ReasonIdle, At: time.Now().UTC(), StopsAt: time.Now().UTC().Add(time.Minute)}
	_, err := warn(b.m.Node("n2"), w)
	require.True(t, fault.Is(err, fault.Conflict), "another node's: %v", err)
	_, err = warn(n.c, &workspace.StopWarning{Reason: "whim"})
	require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	for _, w := range []*workspace.StopWarning{w, w, nil, nil, w} {
		_, err = warn(n.c, w)
		require.NoError(t, err)
	}
	require.Equal(t, workspace.ReasonIdle, do(workspace.OpSandboxGet, id).Warning.Reason)
	no(fault.Invalid, workspace.OpSandboxExtend, workspace.SandboxExtend{ID: box.ID, TTLMS: workspace.MaxTTLMS + 1})
	kept := do(workspace.OpSandboxExtend, workspace.SandboxExtend{ID: box.ID, TTLMS: 3_600_000, IdleMS: 60_000})
	require.Nil(t, kept.Warning)
	require.True(t, kept.ExpiresAt.After(box.ExpiresAt.Add(30*time.Minute)))
	require.EqualValues(t, 60_000, kept.Run.IdleMS)
	require.Equal(t, *kept.ExpiresAt, do(workspace.OpSandboxExtend, workspace.SandboxExtend{ID: box.ID, TTLMS: 1}).ExpiresAt.UTC(), "never nearer")
	n.mu.Lock()
	require.Len(t, n.extends, 2)
	require.Equal(t, *kept.ExpiresAt, n.extends[0].ExpiresAt)
	n.mu.Unlock()

	// The node is asked each time: it may not know what the record says.
	n.refuse(runtime.OpSandboxPause, fault.New(fault.Unavailable, "not now"))
	no(fault.Unavailable, workspace.OpSandboxPause, id)
	require.Equal(t, workspace.SandboxRunning, do(workspace.OpSandboxGet, id).State)
	n.refuse(runtime.OpSandboxPause, nil)
	require.NotNil(t, do(workspace.OpSandboxPause, id).PausedAt)
	require.Equal(t, workspace.SandboxPaused, do(workspace.OpSandboxPause, id).State)
	require.Equal(t, workspace.SandboxRunning, do(workspace.OpSandboxResume, id).State)
	require.Nil(t, do(workspace.OpSandboxResume, id).PausedAt)
	do(workspace.OpSandboxPause, id)

	// Its end, with what it said last, which lists leave out.
	said := []workspace.LastOutput{{Process: "p", Stdout: "bye\n"}}
	n.refuse(runtime.OpSandboxKill, nil)
	_, err = ask[workspace.Empty](b.ctx(), n.c, "", "", workspace.OpSandboxEnded, runtime.SandboxEnded{Tenant: "acme", Workspace: "demo", ID: box.ID,
		Exit: workspace.Exit{Code: 137, Reason: workspace.ReasonIdle}, LastOutput: said})
	require.NoError(t, err)
	end := do(workspace.OpSandboxGet, id)
	require.Equal(t, workspace.ReasonIdle, end.Exit.Reason)
	require.Equal(t, said, end.LastOutput)
	require.Nil(t, end.PausedAt)
	require.Eventually(t, func() bool {
		l := must[workspace.Page[workspace.Sandbox]](b, b.user, "acme", "demo", workspace.OpSandboxList, workspace.List{}).Items
		return len(l) == 1 && l[0].State == workspace.SandboxStopped && l[0].LastOutput == nil
	}, patient, 10*time.Millisecond)
	require.Equal(t, []string{"creating", "running", "warned", "kept", "warned", "extended", "extended", "paused", "resumed", "paused", "stopped"}, b.events(workspace.EntitySandbox, box.ID))
	for _, op := range []string{workspace.OpSandboxPause, workspace.OpSandboxResume, workspace.OpSandboxFork} {
		no(fault.Conflict, op, id)
		no(fault.NotFound, op, workspace.ID{ID: schemas.NewID()})
		refused[workspace.Sandbox](b, fault.NotFound, b.user, "acme", "prod", op, id)
	}
	no(fault.Conflict, workspace.OpSandboxExtend, workspace.SandboxExtend{ID: box.ID})

	// A node that floods a record.
	big := do(workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base"})
	_, err = ask[workspace.Empty](b.ctx(), n.c, "", "", workspace.OpSandboxEnded, runtime.SandboxEnded{Tenant: "acme", Workspace: "demo", ID: big.ID,
		Exit: workspace.Exit{Reason: workspace.ReasonIdle}, LastOutput: []workspace.LastOutput{{Stdout: strings.Repeat("x", 300_000)}}})
	require.NoError(t, err)
	require.Empty(t, do(workspace.OpSandboxGet, workspace.ID{ID: big.ID}).LastOutput)
}

func TestForksAreAllOrNone(t *testing.T) {
	b := newBed(t)
	n := newBoxNode(b)
	must[workspace.Template](b, b.user, "acme", "demo", workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: workspace.Template{
		Name: "roomy", Image: "base", Isolation: workspace.Isolation{WritableRoot: true}}})
	plain := must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base"})
	err := refused[workspace.Sandbox](b, fault.Invalid, b.user, "acme", "demo", workspace.OpSandboxFork, workspace.SandboxFork{ID: plain.ID})
	require.ErrorContains(t, err, "writable_root")
	source := must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "roomy", Env: map[string]string{"A": "b"}, TTLMS: 60_000})
	fork := func(count int) workspace.SandboxFork { return workspace.SandboxFork{ID: source.ID, Count: count} }
	forks := must[workspace.Page[workspace.Sandbox]](b, b.user, "acme", "demo", workspace.OpSandboxFork, fork(3)).Items
	require.Len(t, forks, 3)
	seen := map[string]bool{source.ID: true}
	for _, f := range forks {
		require.False(t, seen[f.ID])
		seen[f.ID] = true
		require.Equal(t, []string{workspace.SandboxRunning, source.ID, "n1", "roomy", "ann"}, []string{f.State, f.ForkedFrom, f.Node, f.Template, f.Principal})
		require.Equal(t, source.Run, f.Run)
		require.True(t, f.ExpiresAt.After(*source.ExpiresAt))
	}
	refused[workspace.Sandbox](b, fault.Invalid, b.user, "acme", "demo", workspace.OpSandboxFork, fork(workspace.MaxForks+1))
	refused[workspace.Sandbox](b, fault.Invalid, b.user, "acme", "demo", workspace.OpSandboxFork, fork(-1))

	// The node can't: none of them is there, and each record says why.
	n.refuse(runtime.OpSandboxFork, fault.New(fault.Exhausted, "the node's disk is full"))
	err = refused[workspace.Sandbox](b, fault.Exhausted, b.user, "acme", "demo", workspace.OpSandboxFork, fork(2))
	require.ErrorContains(t, err, "disk is full")
	states := func() (out []string) {
		for _, x := range must[workspace.Page[workspace.Sandbox]](b, b.user, "acme", "demo", workspace.OpSandboxList, workspace.List{}).Items {
			if x.ForkedFrom != "" && !seen[x.ID] && x.Exit != nil { // the list follows a moment later
				out = append(out, x.State+" "+x.Exit.Reason)
			}
		}
		return out
	}
	require.Eventually(t, func() bool { s := states(); return len(s) == 2 && s[0] == "stopped start-failed" && s[1] == s[0] }, patient, 10*time.Millisecond)

	// The quota counts each.
	must[workspace.Tenant](b, b.op, "", "", workspace.OpTenantPut, workspace.TenantPut{Tenant: workspace.Tenant{Name: "acme", Quota: workspace.Quota{Sandboxes: 6}}})
	n.refuse(runtime.OpSandboxFork, nil)
	err = refused[workspace.Sandbox](b, fault.Exhausted, b.user, "acme", "demo", workspace.OpSandboxFork, fork(2))
	require.ErrorContains(t, err, "quota")
	require.Len(t, must[workspace.Page[workspace.Sandbox]](b, b.user, "acme", "demo", workspace.OpSandboxFork, fork(1)).Items, 1)

	// What the tenant may no longer have is not made again of what it has.
	no := false
	must[workspace.Tenant](b, b.op, "", "", workspace.OpTenantPut, workspace.TenantPut{Tenant: workspace.Tenant{Name: "acme", Policy: &workspace.Policy{WritableRoot: &no}}})
	refused[workspace.Sandbox](b, fault.Denied, b.user, "acme", "demo", workspace.OpSandboxFork, fork(1))
}
