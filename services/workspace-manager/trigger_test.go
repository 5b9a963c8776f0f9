package manager_test

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

func (b *bed) send(c *mesh.Conn, to string, body any, headers map[string]string) uint64 {
	b.t.Helper()
	subject, err := schemas.Msg("acme", "demo", to, c.Name())
	require.NoError(b.t, err)
	data, ok := body.([]byte)
	if !ok {
		data, err = json.Marshal(body)
		require.NoError(b.t, err)
	}
	h := nats.Header{}
	for k, v := range headers {
		h.Set(k, v)
	}
	ack, err := c.PublishMsg(b.ctx(), &nats.Msg{Subject: subject, Header: h, Data: data})
	require.NoError(b.t, err)
	return ack.Sequence
}

func (b *bed) trigger(tr workspace.Trigger) {
	b.t.Helper()
	must[workspace.Trigger](b, b.user, "acme", "demo", workspace.OpTriggerPut, workspace.Put[workspace.Trigger]{Value: tr})
}

// ofAgent lists the tasks of an agent, oldest first.
func (b *bed) ofAgent(agent string) []workspace.Task {
	p := must[workspace.Page[workspace.Task]](b, b.user, "acme", "demo", workspace.OpTaskList, workspace.TaskList{Agent: agent})
	for i, j := 0, len(p.Items)-1; i < j; i, j = i+1, j-1 {
		p.Items[i], p.Items[j] = p.Items[j], p.Items[i]
	}
	return p.Items
}

func input(t *testing.T, k workspace.Task) (in workspace.TriggerInput) {
	require.NoError(t, json.Unmarshal(k.Submission.Input, &in))
	return in
}

func TestMessageTrigger(t *testing.T) {
	b := newBed(t)
	b.agent(b.user, "acme", "demo", "reviewer", nil)
	b.trigger(workspace.Trigger{Name: "review", Message: &workspace.MessageTrigger{To: "reviewer", From: []string{"worker"}}, Start: workspace.Submission{Agent: "reviewer"}})
	sb := b.m.Agent("acme", "demo", "worker", schemas.NewID())
	b.send(b.user, "reviewer", "not from an allowed sender", nil)
	b.send(sb, "somebody", "not to the recipient", nil)
	one := b.send(sb, "reviewer", map[string]int{"x": 1}, nil)
	two := b.send(sb, "reviewer", []byte("\xffnot json"), nil)
	require.Eventually(t, func() bool { return len(b.ofAgent("reviewer")) == 2 }, wait, 5*time.Millisecond)
	ks := b.ofAgent("reviewer")
	require.Equal(t, "worker", ks[0].Principal)
	require.Equal(t, "review", ks[0].Trigger)
	require.Equal(t, 1, ks[0].Depth)
	in := input(t, ks[0])
	require.Equal(t, []uint64{one}, in.Sequences)
	require.JSONEq(t, `{"x":1}`, string(in.Messages[0]))
	in = input(t, ks[1])
	require.Equal(t, []uint64{two}, in.Sequences)
	require.Contains(t, string(in.Messages[0]), "not json")
}

func TestTriggersEndAtTheirDepth(t *testing.T) {
	b := newBed(t)
	// It answers every message that starts it with a message to itself.
	b.agent(b.user, "acme", "demo", "echo", nil)
	b.trigger(workspace.Trigger{Name: "again", Message: &workspace.MessageTrigger{To: "echo", From: []string{"echo"}}, Start: workspace.Submission{Agent: "echo"}})
	sb := b.m.Agent("acme", "demo", "echo", schemas.NewID())
	b.node("n1", 16, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
		b.send(sb, "echo", r.Task.Depth, map[string]string{workspace.HeaderDepth: "0"}) // a sender cannot lower it
		return untilStopped(ctx, r)                                                     // so that it runs while its message starts the next
	})
	b.submit(b.user, "acme", "demo", "first", workspace.Submission{Agent: "echo"})
	require.Eventually(t, func() bool {
		ks := b.ofAgent("echo")
		return len(ks) > 0 && ks[len(ks)-1].State == workspace.Rejected
	}, wait, 20*time.Millisecond)
	ks := b.ofAgent("echo")
	require.Len(t, ks, 1+schemas.MaxDepth+1)
	last := ks[len(ks)-1]
	require.Equal(t, schemas.MaxDepth+1, last.Depth)
	require.Equal(t, "exhausted", last.Fault.Code)
}

func TestEventTrigger(t *testing.T) {
	b := newBed(t)
	b.agent(b.user, "acme", "demo", "cleaner", nil)
	b.trigger(workspace.Trigger{Name: "clean", Event: &workspace.EventTrigger{Events: []string{"error"}, Agents: []string{"worker"}, Labels: map[string]string{"run": "1"}}, Start: workspace.Submission{Agent: "cleaner"}})
	b.node("n1", 4, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
		if r.Run.Principal == "worker" && r.Task.Key != "good" {
			return exit1(ctx, r)
		}
		return exit0(ctx, r)
	})
	b.submit(b.user, "acme", "demo", "good", workspace.Submission{Agent: "worker", Labels: map[string]string{"run": "1"}})
	b.submit(b.user, "acme", "demo", "other", workspace.Submission{Agent: "worker", Labels: map[string]string{"run": "2"}})
	bad := b.submit(b.user, "acme", "demo", "bad", workspace.Submission{Agent: "worker", Labels: map[string]string{"run": "1"}})
	require.Eventually(t, func() bool {
		ks := b.ofAgent("cleaner")
		return len(ks) == 1 && ks[0].State == workspace.Complete
	}, wait, 5*time.Millisecond)
	require.Equal(t, []string{bad}, input(t, b.ofAgent("cleaner")[0]).Tasks)
}

func TestGatherStartsOnceWhenAllHaveCome(t *testing.T) {
	b := newBed(t)
	b.agent(b.user, "acme", "demo", "reviewer", nil)
	b.trigger(workspace.Trigger{Name: "all", Gather: true, Message: &workspace.MessageTrigger{To: "reviewer", From: []string{"worker"}}, Start: workspace.Submission{Agent: "reviewer"}})
	b.run("m2") // two replicas take the messages between them
	b.node("n1", 8, untilStopped)
	sb := b.m.Agent("acme", "demo", "worker", schemas.NewID())
	const n = 5
	group := &workspace.Group{ID: "run/1", Size: n}
	var ids []string
	for i := range n {
		id := b.submit(b.user, "acme", "demo", fmt.Sprint(i), workspace.Submission{Agent: "worker", Group: group})
		b.until(id, workspace.Running)
		ids = append(ids, id)
	}
	hdr := func(task string) map[string]string {
		return map[string]string{workspace.HeaderGroup: group.ID, workspace.HeaderGroupSize: fmt.Sprint(n), workspace.HeaderTask: task}
	}
	for i, id := range ids[:n-1] {
		b.send(sb, "reviewer", i, hdr(id))
		b.send(sb, "reviewer", i+100, hdr(id)) // its second attempt says it again
	}
	b.send(sb, "reviewer", "of no group", nil)
	b.never(200*time.Millisecond, func() bool { return len(b.ofAgent("reviewer")) > 0 })
	b.send(sb, "reviewer", n-1, hdr(ids[n-1]))
	b.send(sb, "reviewer", n+99, hdr(ids[n-1]))
	require.Eventually(t, func() bool { return len(b.ofAgent("reviewer")) == 1 }, wait, 5*time.Millisecond)
	in := input(t, b.ofAgent("reviewer")[0])
	require.ElementsMatch(t, ids, in.Tasks)
	require.Len(t, in.Messages, n)
	require.Equal(t, group, in.Group)
	b.never(200*time.Millisecond, func() bool { return len(b.ofAgent("reviewer")) > 1 })
}

func TestGatherOfEvents(t *testing.T) {
	b := newBed(t)
	b.agent(b.user, "acme", "demo", "reviewer", nil)
	b.trigger(workspace.Trigger{Name: "all", Gather: true, Event: &workspace.EventTrigger{Events: []string{"complete", "error"}, Agents: []string{"worker"}}, Start: workspace.Submission{Agent: "reviewer"}})
	b.node("n1", 4, exit0)
	for i := range 12 {
		b.submit(b.user, "acme", "demo", fmt.Sprint(i), workspace.Submission{Agent: "worker", Group: &workspace.Group{ID: fmt.Sprint("g", i%2), Size: 6}})
	}
	require.Eventually(t, func() bool { return len(b.ofAgent("reviewer")) == 2 }, wait, 5*time.Millisecond)
	for _, k := range b.ofAgent("reviewer") {
		require.Len(t, input(t, k).Tasks, 6)
	}
}
