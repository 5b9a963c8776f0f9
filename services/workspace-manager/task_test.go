package manager_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

func TestTaskRunsToItsEnd(t *testing.T) {
	b := newBed(t)
	var got workspace.ClaimReply
	b.node("n1", 4, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish { got = r; return exit0(ctx, r) })
	id := b.submit(b.user, "acme", "demo", "k1", workspace.Submission{Agent: "worker", Input: []byte(`{"x":1}`), Env: map[string]string{"A": "b"}})
	k := b.until(id, workspace.Complete)
	require.Equal(t, "ann", k.Principal)
	require.Equal(t, "n1", k.Attempt.Node)
	require.Equal(t, "XNODE", k.Attempt.NodeKey)
	require.Equal(t, 1, k.AgentVersion)
	require.Equal(t, []string{"submitted", "queued", "running", "complete"}, b.history(id))

	require.Equal(t, "worker", got.Run.Principal)
	require.Equal(t, []string{"run", "worker"}, got.Run.Argv)
	require.Equal(t, map[string]string{"A": "b"}, got.Run.Env)
	require.Equal(t, "base:1", got.Run.Image)
	require.Equal(t, "worker", got.Agent.Name)
	require.Equal(t, "base", got.Template.Name)
	require.JSONEq(t, `{"x":1}`, string(got.Task.Submission.Input))
	require.NotEmpty(t, got.UserJWT)
}

func TestSameKeyGivesOneTask(t *testing.T) {
	b := newBed(t)
	id := b.submit(b.user, "acme", "demo", "k1", workspace.Submission{Agent: "worker", Labels: map[string]string{"n": "1"}})
	b.until(id, workspace.Pending)
	for range 5 {
		require.Equal(t, id, b.submit(b.user, "acme", "demo", "k1", workspace.Submission{Agent: "worker", Labels: map[string]string{"n": "2"}}))
	}
	last := b.submit(b.user, "acme", "demo", "", workspace.Submission{Agent: "worker"})
	b.until(last, workspace.Pending)
	require.Equal(t, []string{"submitted"}, b.history(id))
	require.Equal(t, "1", b.task(id).Submission.Labels["n"])
	page := must[workspace.Page[workspace.Task]](b, b.user, "acme", "demo", workspace.OpTaskList, workspace.TaskList{})
	require.Len(t, page.Items, 2)

	// Somebody else's use of the key is not taken for a repeat, and is not lost in silence.
	bob := b.m.User("acme", "bob")
	b.submit(bob, "acme", "demo", "k1", workspace.Submission{Agent: "worker"})
	require.Eventually(t, func() bool {
		page := must[workspace.Page[workspace.Task]](b, b.user, "acme", "demo", workspace.OpTaskList, workspace.TaskList{States: []workspace.State{workspace.Rejected}})
		return len(page.Items) == 1 && page.Items[0].Principal == "bob" && page.Items[0].Fault.Code == "conflict"
	}, wait, 5*time.Millisecond)
	require.Equal(t, "ann", b.task(id).Principal)
}

func TestRejectedWithTheReason(t *testing.T) {
	b := newBed(t)
	b.define(b.user, "acme", "other")
	for name, c := range map[string]struct{ body, code, text string }{
		"wrong type":        {`{"agent":"worker","timeout_ms":"5s"}`, "invalid", `"timeout_ms" must be a whole number, not a string`},
		"wrong nested type": {`{"agent":"worker","group":{"id":1,"size":2}}`, "invalid", `"group.id" must be a string`},
		"no agent":          {`{}`, "invalid", "name an"},
		"unknown agent":     {`{"agent":"nobody"}`, "not_found", `no agent "nobody"`},
		"unknown template":  {`{"template":"nothing","command":["x"]}`, "not_found", `no template "nothing"`},
		"depth":             {`{"agent":"worker","depth":9}`, "invalid", "depth"},
		"bad name":          {`{"agent":"a.*"}`, "invalid", "DNS label"},
		"invalid UTF-8":     {"{\"agent\":\"worker\",\"labels\":{\"a\":\"\xff\"}}", "invalid", "UTF-8"},
		"NUL":               {`{"agent":"worker","command":["a\u0000"]}`, "invalid", "NUL"},
		"unknown field":     {`{"agent":"worker","frobnicate":true}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			id := b.submitRaw(b.user, "acme", "demo", "", []byte(c.body))
			if c.code == "" {
				b.until(id, workspace.Pending)
				return
			}
			k := b.until(id, workspace.Rejected)
			require.Equal(t, c.code, k.Fault.Code)
			require.Contains(t, k.Fault.Message, c.text)
			require.NotNil(t, k.FinishedAt)
		})
	}
	t.Run("key of the manager's own", func(t *testing.T) {
		subject, err := schemas.Submit("acme", "demo", "ann")
		require.NoError(t, err)
		ack, err := b.user.PublishMsg(b.ctx(), &nats.Msg{Subject: subject, Header: nats.Header{"ce-id": []string{"seq-4711"}}, Data: []byte(`{"agent":"worker"}`)})
		require.NoError(t, err)
		k := b.until(schemas.TaskID("acme", "demo", fmt.Sprintf("seq-%d", ack.Sequence)), workspace.Rejected)
		require.Contains(t, k.Fault.Message, "reserved")
	})
	t.Run("over 1 MiB", func(t *testing.T) {
		body := `{"agent":"worker","input":"` + strings.Repeat("x", schemas.MaxSubmission) + `"}`
		k := b.until(b.submitRaw(b.user, "acme", "demo", "", []byte(body)), workspace.Rejected)
		require.Contains(t, k.Fault.Message, "file of the workspace")
		subject, _ := schemas.Submit("acme", "demo", "ann")
		_, err := b.user.PublishMsg(b.ctx(), &nats.Msg{Subject: subject, Data: make([]byte, 2<<20)})
		require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	})
	t.Run("unknown workspace", func(t *testing.T) {
		id := b.submit(b.user, "acme", "nowhere", "", workspace.Submission{Agent: "worker"})
		require.Eventually(t, func() bool {
			k, err := ask[workspace.Task](b.ctx(), b.user, "acme", "nowhere", workspace.OpTaskGet, workspace.ID{ID: id})
			return err == nil && k.State == workspace.Rejected && k.Fault.Code == "not_found"
		}, wait, 5*time.Millisecond)
	})
}

func TestUndecodableGoesToTheDeadLetters(t *testing.T) {
	b := newBed(t)
	b.submitRaw(b.user, "acme", "demo", "", []byte(`{"agent":`))
	b.submitRaw(b.user, "acme", "demo", "", []byte("\x00\xff"))
	list := func() []workspace.DeadLetter {
		return must[workspace.Page[workspace.DeadLetter]](b, b.op, "", "", workspace.OpDLQList, workspace.DLQList{Tenant: "acme"}).Items
	}
	require.Eventually(t, func() bool { return len(list()) == 2 }, wait, 5*time.Millisecond)
	d := list()
	require.Equal(t, "weft.v1.task.acme.demo.ann.submit", d[0].Subject)
	require.Equal(t, "TASKS-acme", d[0].Stream)
	require.Contains(t, d[0].Reason, "can't be read")
	require.NotEmpty(t, d[0].Body)
	st, err := b.m.Service(accounts.RoleAdmin).JetStream().Stream(b.ctx(), "TASKS-acme")
	require.NoError(t, err)
	require.Zero(t, st.CachedInfo().State.Msgs, "acknowledged only after it was stored as a dead letter")

	// Sent again it lies there again, under a new number; dropped it is gone.
	done := must[workspace.DLQDone](b, b.op, "", "", workspace.OpDLQRedrive, workspace.DLQRef{Sequences: []uint64{d[0].Sequence, 999}})
	require.Equal(t, 1, done.Done)
	require.Eventually(t, func() bool { l := list(); return len(l) == 2 && l[1].Sequence > d[1].Sequence }, wait, 5*time.Millisecond)
	page := must[workspace.Page[workspace.DeadLetter]](b, b.op, "", "", workspace.OpDLQList, workspace.DLQList{List: workspace.List{Limit: 1}})
	require.NotEmpty(t, page.Cursor)
	page = must[workspace.Page[workspace.DeadLetter]](b, b.op, "", "", workspace.OpDLQList, workspace.DLQList{List: workspace.List{Limit: 1, Cursor: page.Cursor}})
	require.Empty(t, page.Cursor)
	var all []uint64
	for _, l := range list() {
		all = append(all, l.Sequence)
	}
	require.Equal(t, 2, must[workspace.DLQDone](b, b.op, "", "", workspace.OpDLQDrop, workspace.DLQRef{Sequences: all}).Done)
	require.Empty(t, list())
}

func TestAgentMayNotChangeAnothersCode(t *testing.T) {
	b := newBed(t)
	b.agent(b.user, "acme", "demo", "reviewer", nil)
	sb := b.m.Agent("acme", "demo", "worker", schemas.NewID())
	for name, c := range map[string]struct {
		sub  workspace.Submission
		want workspace.State
	}{
		"another's command":     {workspace.Submission{Agent: "reviewer", Command: []string{"cat", "/run/secrets/key"}}, workspace.Rejected},
		"another's environment": {workspace.Submission{Agent: "reviewer", Env: map[string]string{"LD_PRELOAD": "/workspace/x.so"}}, workspace.Rejected},
		"another with input":    {workspace.Submission{Agent: "reviewer", Input: []byte(`"hello"`)}, workspace.Pending},
		"its own command":       {workspace.Submission{Agent: "worker", Command: []string{"ls"}}, workspace.Pending},
	} {
		t.Run(name, func(t *testing.T) {
			k := b.until(b.submit(sb, "acme", "demo", "", c.sub), c.want)
			if c.want == workspace.Rejected {
				require.Equal(t, "denied", k.Fault.Code)
			}
		})
	}
	// A person may.
	b.until(b.submit(b.user, "acme", "demo", "", workspace.Submission{Agent: "reviewer", Command: []string{"ls"}}), workspace.Pending)
	// What only a template names runs as who submits it, with nobody's secrets.
	id := b.submit(sb, "acme", "demo", "", workspace.Submission{Template: "base", Command: []string{"ls"}})
	require.Equal(t, "worker", b.until(id, workspace.Pending).Run.Principal)
}

func TestPendingQuota(t *testing.T) {
	b := newBed(t)
	b.tenant("acme", workspace.Quota{MaxPending: 3})
	var ids []string
	for i := range 5 {
		id := b.submit(b.user, "acme", "demo", fmt.Sprint(i), workspace.Submission{Agent: "worker"})
		b.until(id, workspace.Pending, workspace.Rejected)
		ids = append(ids, id)
	}
	require.Equal(t, workspace.Pending, b.task(ids[2]).State)
	k := b.task(ids[4])
	require.Equal(t, workspace.Rejected, k.State)
	require.Equal(t, "exhausted", k.Fault.Code)
	b.node("n1", 4, exit0)
	b.until(ids[2], workspace.Complete)
	b.until(b.submit(b.user, "acme", "demo", "later", workspace.Submission{Agent: "worker"}), workspace.Complete)
}

func TestRetriesWithBackoff(t *testing.T) {
	b := newBed(t)
	b.agent(b.user, "acme", "demo", "flaky", func(a *workspace.Agent) { a.MaxAttempts, a.BackoffMS = 3, 20 })
	b.node("n1", 4, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
		if r.Task.Attempt.Number < 3 {
			return exit1(ctx, r)
		}
		return exit0(ctx, r)
	})
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "flaky"})
	k := b.until(id, workspace.Complete)
	require.Equal(t, 3, k.Attempt.Number)
	require.Len(t, k.Previous, 2)
	require.GreaterOrEqual(t, k.Attempt.QueuedAt.Sub(*k.Previous[1].EndedAt), 40*time.Millisecond)

	one := b.until(b.submit(b.user, "acme", "demo", "k2", workspace.Submission{Agent: "flaky", MaxAttempts: 1}), workspace.Error)
	require.Equal(t, 1, one.Attempt.Number)
	require.Equal(t, 1, one.Attempt.Outcome.Exit.Code)

	// By hand: a new task of the same submission, one until that has ended too.
	again := must[workspace.Task](b, b.user, "acme", "demo", workspace.OpTaskRetry, workspace.ID{ID: one.ID})
	require.Equal(t, one.ID, again.RetryOf)
	b.until(again.ID, workspace.Error)
	err := refused[workspace.Task](b, fault.Conflict, b.user, "acme", "demo", workspace.OpTaskRetry, workspace.ID{ID: one.ID})
	require.ErrorContains(t, err, again.ID)
}

func TestCancelInEveryState(t *testing.T) {
	b := newBed(t)
	pending := b.submit(b.user, "acme", "demo", "p", workspace.Submission{Agent: "worker"})
	b.until(pending, workspace.Pending)
	cancel := func(id string) workspace.Task {
		return must[workspace.Task](b, b.user, "acme", "demo", workspace.OpTaskCancel, workspace.ID{ID: id})
	}
	require.Equal(t, workspace.Cancelled, cancel(pending).State)
	require.Equal(t, workspace.Cancelled, cancel(pending).State)

	// Queued: a node that pulls nothing.
	idle := b.m.Node("idle")
	_, err := ask[workspace.Empty](b.ctx(), idle, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40})
	require.NoError(t, err)
	queued := b.submit(b.user, "acme", "demo", "q", workspace.Submission{Agent: "worker"})
	b.until(queued, workspace.Queued)
	require.Equal(t, workspace.Cancelled, cancel(queued).State)

	n := b.node("n1", 4, untilStopped)
	n.serveKills()
	running := b.submit(b.user, "acme", "demo", "r", workspace.Submission{Agent: "worker"})
	b.until(running, workspace.Running)
	require.Equal(t, "ann", cancel(running).Cancel)
	k := b.until(running, workspace.Cancelled)
	require.Equal(t, "cancelled", k.Attempt.Outcome.Exit.Reason)
	require.Equal(t, []string{"submitted", "queued", "running", "cancelling", "cancelled"}, b.history(running))
	require.Zero(t, b.task(queued).Attempt.Node, "the cancelled attempt was not to be had")

	refused[workspace.Task](b, fault.NotFound, b.user, "acme", "demo", workspace.OpTaskCancel, workspace.ID{ID: schemas.NewID()})
	refused[workspace.Task](b, fault.Invalid, b.user, "acme", "demo", workspace.OpTaskCancel, workspace.ID{ID: "x"})
}

func TestCancelReachesANodeThatHearsOnlyRenewals(t *testing.T) {
	b := newBed(t)
	b.node("n1", 4, untilStopped)
	id := b.submit(b.user, "acme", "demo", "r", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Running)
	must[workspace.Task](b, b.user, "acme", "demo", workspace.OpTaskCancel, workspace.ID{ID: id})
	b.until(id, workspace.Cancelled)
}

func TestLostNode(t *testing.T) {
	b := newBed(t)
	n1 := b.node("n1", 1, untilStopped)
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Running)
	b.node("n2", 1, exit0)
	n1.setDeaf(true)
	k := b.until(id, workspace.Complete)
	require.Equal(t, 2, k.Attempt.Number)
	require.Equal(t, "n2", k.Attempt.Node)
	require.Equal(t, "node-lost", k.Previous[0].Outcome.Exit.Reason)
	require.Equal(t, []string{"submitted", "queued", "running", "retrying", "queued", "running", "complete"}, b.history(id))

	// It comes back: its late finish is refused, and it is told that the attempt is lost.
	late := workspace.Finish{QueueItem: workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: id, Attempt: 1}, Outcome: workspace.Outcome{Exit: &workspace.Exit{Reason: "exited"}}}
	refused[workspace.Empty](b, fault.Conflict, n1.c, "", "", workspace.OpFinish, late)
	rep := must[workspace.Renewed](b, n1.c, "", "", workspace.OpRenew, workspace.Renew{Claims: []workspace.Held{{QueueItem: late.QueueItem}}})
	require.Equal(t, workspace.VerdictLost, rep.Claims[0].Verdict)
}

func TestClaimIsForTheCurrentAttemptAndOneNode(t *testing.T) {
	b := newBed(t)
	n := b.m.Node("n1")
	must[workspace.Empty](b, n, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40})
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Queued)
	it := workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: id, Attempt: 1}
	c := workspace.Claim{QueueItem: it, Sandbox: schemas.NewID(), UserKey: userKey(t)}
	wrong := c
	wrong.Attempt = 2
	refused[workspace.ClaimReply](b, fault.Conflict, n, "", "", workspace.OpClaim, wrong)
	wrong = c
	wrong.Task = schemas.NewID()
	refused[workspace.ClaimReply](b, fault.Conflict, n, "", "", workspace.OpClaim, wrong)
	refused[workspace.ClaimReply](b, fault.Denied, b.op, "", "", workspace.OpClaim, c)
	first := must[workspace.ClaimReply](b, n, "", "", workspace.OpClaim, c)
	again := must[workspace.ClaimReply](b, n, "", "", workspace.OpClaim, c)
	require.Equal(t, first.Task, again.Task)
	refused[workspace.ClaimReply](b, fault.Conflict, b.m.Node("n2"), "", "", workspace.OpClaim, c)

	a := must[workspace.AttemptReply](b, b.m.Service(schemas.Secrets), "", "", workspace.OpAttempt, workspace.AttemptRequest{Tenant: "acme", Workspace: "demo", Task: id})
	require.Equal(t, workspace.AttemptReply{State: workspace.Running, Attempt: 1, Node: "n1", Sandbox: c.Sandbox, Principal: "worker"}, a)
	refused[workspace.AttemptReply](b, fault.Denied, n, "", "", workspace.OpAttempt, workspace.AttemptRequest{Tenant: "acme", Workspace: "demo", Task: id})

	// Milestones are written within a second, and with the finish at the latest.
	now := time.Now().UTC()
	must[workspace.Empty](b, n, "", "", workspace.OpProgress, workspace.Progress{QueueItem: it, CommandAt: &now})
	require.Eventually(t, func() bool {
		must[workspace.Renewed](b, n, "", "", workspace.OpRenew, workspace.Renew{Claims: []workspace.Held{{QueueItem: it}}})
		return b.task(id).Attempt.CommandAt != nil
	}, wait, 50*time.Millisecond)
	out := now.Add(time.Millisecond)
	must[workspace.Empty](b, n, "", "", workspace.OpProgress, workspace.Progress{QueueItem: it, FirstOutputAt: &out})
	fin := workspace.Finish{QueueItem: it, Outcome: workspace.Outcome{Exit: &workspace.Exit{Reason: "exited"}}}
	must[workspace.Empty](b, n, "", "", workspace.OpFinish, fin)
	must[workspace.Empty](b, n, "", "", workspace.OpFinish, fin)
	k := b.task(id)
	require.Equal(t, workspace.Complete, k.State)
	require.Equal(t, out, *k.Attempt.FirstOutputAt)
	fin.Outcome.Exit.Code = 3
	refused[workspace.Empty](b, fault.Conflict, n, "", "", workspace.OpFinish, fin)
}

func TestBadUserKeyGivesTheAttemptBack(t *testing.T) {
	b := newBed(t)
	n := b.m.Node("n1")
	must[workspace.Empty](b, n, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40})
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Queued)
	c := workspace.Claim{QueueItem: workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: id, Attempt: 1}, Sandbox: schemas.NewID(), UserKey: "nonsense"}
	refused[workspace.ClaimReply](b, fault.Invalid, n, "", "", workspace.OpClaim, c)
	require.Equal(t, "invalid", b.until(id, workspace.Error).Fault.Code)
}

// order notes in which order tasks run.
type order struct {
	mu  sync.Mutex
	ids []string
}

func (o *order) run(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
	o.mu.Lock()
	o.ids = append(o.ids, r.Task.Submission.Labels["n"])
	o.mu.Unlock()
	return exit0(ctx, r)
}

func (o *order) all() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.ids...)
}

func TestPriorityWithinATenant(t *testing.T) {
	b := newBed(t, func(c *manager.Config) { c.QueueMargin = -1; c.Concurrency = 1 })
	var last string
	for i, p := range []workspace.Priority{workspace.Low, workspace.Normal, workspace.High, workspace.Low, "", workspace.High} {
		last = b.submit(b.user, "acme", "demo", "", workspace.Submission{Agent: "worker", Priority: p, Labels: map[string]string{"n": fmt.Sprint(i)}})
		b.until(last, workspace.Pending)
	}
	var o order
	b.node("n1", 2, o.run) // two slots, less one: one at a time
	require.Eventually(t, func() bool { return len(o.all()) == 6 }, wait, 5*time.Millisecond)
	require.Equal(t, []string{"2", "5", "1", "4", "0", "3"}, o.all())
}

func TestFairTurnsBetweenFloodingTenants(t *testing.T) {
	b := newBed(t)
	bob := b.m.User("umbrella", "bob")
	b.tenant("umbrella", workspace.Quota{})
	b.define(bob, "umbrella", "demo")
	const n = 60
	for i := range n {
		b.submit(b.user, "acme", "demo", fmt.Sprint(i), workspace.Submission{Agent: "worker", Labels: map[string]string{"n": "acme"}})
	}
	for i := range n / 3 {
		b.submit(bob, "umbrella", "demo", fmt.Sprint(i), workspace.Submission{Agent: "worker", Labels: map[string]string{"n": "umbrella"}})
	}
	require.Eventually(t, func() bool {
		p := must[workspace.Page[workspace.Task]](b, bob, "umbrella", "demo", workspace.OpTaskList, workspace.TaskList{})
		q := must[workspace.Page[workspace.Task]](b, b.user, "acme", "demo", workspace.OpTaskList, workspace.TaskList{})
		return len(p.Items) == n/3 && len(q.Items) == n
	}, wait, 10*time.Millisecond)
	var o order
	b.node("n1", 4, o.run)
	require.Eventually(t, func() bool { return len(o.all()) == n+n/3 }, wait, 10*time.Millisecond)
	count := 0
	for _, id := range o.all()[:n/3] {
		if id == "umbrella" {
			count++
		}
	}
	require.InDelta(t, n/6, count, 4, "of the first %d turns about half were the smaller tenant's", n/3)
}

func TestConcurrencyLimits(t *testing.T) {
	b := newBed(t)
	b.agent(b.user, "acme", "demo", "single", func(a *workspace.Agent) { a.MaxRunning = 1 })
	var mu sync.Mutex
	now, most := 0, 0
	b.node("n1", 8, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
		mu.Lock()
		now++
		most = max(most, now)
		mu.Unlock()
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
		mu.Lock()
		now--
		mu.Unlock()
		return exit0(ctx, r)
	})
	var ids []string
	for i := range 6 {
		ids = append(ids, b.submit(b.user, "acme", "demo", fmt.Sprint(i), workspace.Submission{Agent: "single"}))
	}
	for _, id := range ids {
		b.until(id, workspace.Complete)
	}
	require.Equal(t, 1, most)
}
