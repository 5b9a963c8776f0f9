package manager_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

func TestDefinitions(t *testing.T) {
	b := newBed(t)
	put := func(a workspace.Agent, version int) (workspace.Agent, error) {
		return ask[workspace.Agent](b.ctx(), b.user, "acme", "demo", workspace.OpAgentPut, workspace.Put[workspace.Agent]{Value: a, Version: version})
	}
	a := must[workspace.Agent](b, b.user, "acme", "demo", workspace.OpAgentGet, workspace.Name{Name: "worker"})
	require.Equal(t, 1, a.Version)
	same, err := put(a, 0)
	require.NoError(t, err)
	require.Equal(t, a, same, "the same again is no new version")
	a.Entrypoint = []string{"other"}
	next, err := put(a, 1)
	require.NoError(t, err)
	require.Equal(t, 2, next.Version)
	require.Equal(t, a.CreatedAt, next.CreatedAt)
	a.Entrypoint = []string{"third"}
	_, err = put(a, 1)
	require.True(t, fault.Is(err, fault.Conflict), "%v", err)
	a.Template = "nothing"
	_, err = put(a, 0)
	require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	a.Name = "Bad Name"
	_, err = put(a, 0)
	require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	refused[workspace.Agent](b, fault.NotFound, b.user, "acme", "nowhere", workspace.OpAgentPut, workspace.Put[workspace.Agent]{Value: next})

	for i := range 3 {
		b.agent(b.user, "acme", "demo", fmt.Sprint("a", i), nil)
	}
	p := must[workspace.Page[workspace.Agent]](b, b.user, "acme", "demo", workspace.OpAgentList, workspace.List{Limit: 3})
	require.Equal(t, "a0", p.Items[0].Name)
	require.Equal(t, "a2", p.Cursor)
	p = must[workspace.Page[workspace.Agent]](b, b.user, "acme", "demo", workspace.OpAgentList, workspace.List{Cursor: p.Cursor})
	require.Len(t, p.Items, 1)
	require.Empty(t, p.Cursor)

	must[workspace.Empty](b, b.user, "acme", "demo", workspace.OpAgentDelete, workspace.Name{Name: "a1"})
	refused[workspace.Agent](b, fault.NotFound, b.user, "acme", "demo", workspace.OpAgentGet, workspace.Name{Name: "a1"})
	refused[workspace.Empty](b, fault.NotFound, b.user, "acme", "demo", workspace.OpAgentDelete, workspace.Name{Name: "a1"})
	require.Len(t, must[workspace.Page[workspace.Agent]](b, b.user, "acme", "demo", workspace.OpAgentList, workspace.List{}).Items, 3)
	b.agent(b.user, "acme", "demo", "a1", nil)
}

func TestTemplatesOfTheWorkspaceTheTenantAndTheOperator(t *testing.T) {
	b := newBed(t)
	put := func(c *mesh.Conn, tenant, ws, name, image string) {
		must[workspace.Template](b, c, tenant, ws, workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: workspace.Template{Name: name, Image: image}})
	}
	put(b.op, "", "", "python", "all")
	put(b.op, "", "", "node", "all")
	put(b.user, "acme", "-", "python", "tenant")
	put(b.user, "acme", "-", "base", "tenant")
	image := func(name string) string {
		return must[workspace.Template](b, b.user, "acme", "demo", workspace.OpTemplateGet, workspace.Name{Name: name}).Image
	}
	require.Equal(t, []string{"base:1", "tenant", "all"}, []string{image("base"), image("python"), image("node")})
	p := must[workspace.Page[workspace.Template]](b, b.user, "acme", "demo", workspace.OpTemplateList, workspace.List{})
	require.Len(t, p.Items, 3)
	refused[workspace.Template](b, fault.Denied, b.m.Node("n1"), "", "", workspace.OpTemplatePut, workspace.Put[workspace.Template]{Value: workspace.Template{Name: "x", Image: "x"}})
}

func TestTaskKeepsTheVersionItWasAcceptedWith(t *testing.T) {
	b := newBed(t)
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Pending)
	b.agent(b.user, "acme", "demo", "worker", func(a *workspace.Agent) { a.Entrypoint = []string{"new"} })
	gone := b.submit(b.user, "acme", "demo", "k2", workspace.Submission{Agent: "worker"})
	b.until(gone, workspace.Pending)
	var mu sync.Mutex
	got := map[string]workspace.ClaimReply{}
	b.node("n1", 1, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
		mu.Lock()
		got[r.Task.Key] = r
		mu.Unlock()
		return exit0(ctx, r)
	})
	b.until(id, workspace.Complete)
	b.until(gone, workspace.Complete)
	require.Equal(t, []string{"run", "worker"}, got["k"].Run.Argv)
	require.Equal(t, 1, got["k"].Agent.Version)
	require.Equal(t, []string{"run", "worker"}, got["k"].Agent.Entrypoint)
	require.Equal(t, []string{"new"}, got["k2"].Run.Argv)
	require.Equal(t, 2, got["k2"].Agent.Version)
}

func TestTaskList(t *testing.T) {
	b := newBed(t)
	var ids []string
	for i := range 25 {
		id := b.submit(b.user, "acme", "demo", fmt.Sprint(i), workspace.Submission{Agent: "worker", Labels: map[string]string{"even": fmt.Sprint(i%2 == 0)}})
		ids = append(ids, id)
	}
	b.until(ids[24], workspace.Pending)
	list := func(req workspace.TaskList) workspace.Page[workspace.Task] {
		return must[workspace.Page[workspace.Task]](b, b.user, "acme", "demo", workspace.OpTaskList, req)
	}
	require.Eventually(t, func() bool { return len(list(workspace.TaskList{}).Items) == 25 }, wait, 5*time.Millisecond)
	var got []string
	for cursor := ""; ; {
		p := list(workspace.TaskList{List: workspace.List{Limit: 10, Cursor: cursor}})
		for _, k := range p.Items {
			got = append(got, k.ID)
		}
		if cursor = p.Cursor; cursor == "" {
			break
		}
	}
	require.Len(t, got, 25)
	for i, id := range got {
		require.Equal(t, ids[24-i], id)
	}
	require.Len(t, list(workspace.TaskList{Labels: map[string]string{"even": "true"}}).Items, 13)
	require.Empty(t, list(workspace.TaskList{States: []workspace.State{workspace.Running}}).Items)
	later := time.Now().Add(time.Hour)
	require.Empty(t, list(workspace.TaskList{Since: &later}).Items)
	refused[workspace.Page[workspace.Task]](b, fault.Invalid, b.user, "acme", "demo", workspace.OpTaskList, workspace.TaskList{List: workspace.List{Limit: 5000}})
}

func TestEvents(t *testing.T) {
	b := newBed(t)
	b.node("n1", 1, exit0)
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Complete)
	read := func(ctx context.Context, ws string, req workspace.EventsRequest, each func(workspace.Change[json.RawMessage]) error) error {
		subject, err := schemas.Req("acme", ws, "ann", schemas.WorkspaceManager, workspace.OpEvents)
		require.NoError(t, err)
		return mesh.RequestMany(ctx, b.user, subject, req, 5*time.Second, each)
	}
	var evs []workspace.Change[json.RawMessage]
	collect := func(c workspace.Change[json.RawMessage]) error { evs = append(evs, c); return nil }
	require.NoError(t, read(b.ctx(), "demo", workspace.EventsRequest{Entities: []string{"task"}, IDs: []string{id}}, collect))
	require.Len(t, evs, 4)
	require.Equal(t, "complete", evs[3].Event)
	from := evs[2].Sequence
	evs = nil
	require.NoError(t, read(b.ctx(), "-", workspace.EventsRequest{FromSequence: from, Entities: []string{"task"}}, collect))
	require.Len(t, evs, 2)
	evs = nil
	require.NoError(t, read(b.ctx(), "demo", workspace.EventsRequest{Entities: []string{"nothing"}}, collect))
	require.Empty(t, evs)
	now := time.Now()
	require.Error(t, read(b.ctx(), "demo", workspace.EventsRequest{FromSequence: 1, FromTime: &now}, collect))
	require.Error(t, read(b.ctx(), "demo", workspace.EventsRequest{Entities: []string{"*"}}, collect))

	// Live: what happens after it began comes too.
	done := errors.New("seen")
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	started := make(chan struct{})
	go func() {
		<-started
		b.submit(b.user, "acme", "demo", "k2", workspace.Submission{Agent: "worker"})
	}()
	err := read(ctx, "demo", workspace.EventsRequest{FromSequence: 1, Follow: true}, func(c workspace.Change[json.RawMessage]) error {
		if c.ID == id && c.Event == "complete" {
			close(started)
		}
		if c.ID == schemas.TaskID("acme", "demo", "k2") && c.Event == "complete" {
			return done
		}
		return nil
	})
	require.ErrorIs(t, err, done)
}

func TestMessages(t *testing.T) {
	b := newBed(t)
	sb := b.m.Agent("acme", "demo", "worker", schemas.NewID())
	for i := range 3 {
		b.send(b.user, "worker", i, map[string]string{workspace.HeaderGroup: "g", workspace.HeaderGroupSize: "3"})
	}
	ch := b.send(b.user, "ch-news", "hello", nil)
	read := func(c *mesh.Conn, req workspace.MessagesRequest) []workspace.Message {
		return must[workspace.Page[workspace.Message]](b, c, "acme", "demo", workspace.OpMessages, req).Items
	}
	ms := read(sb, workspace.MessagesRequest{})
	require.Len(t, ms, 3)
	require.Equal(t, "ann", ms[0].From)
	require.Equal(t, "g", ms[0].Headers[workspace.HeaderGroup])
	require.Equal(t, "2", string(ms[2].Body))
	require.Len(t, read(sb, workspace.MessagesRequest{After: ms[0].Sequence}), 2)
	require.Len(t, read(sb, workspace.MessagesRequest{To: "ch-news"}), 1)
	refused[workspace.Page[workspace.Message]](b, fault.Denied, sb, "acme", "demo", workspace.OpMessages, workspace.MessagesRequest{To: "ann"})
	refused[workspace.Page[workspace.Message]](b, fault.Denied, b.user, "acme", "demo", workspace.OpMessages, workspace.MessagesRequest{To: "worker"})

	// Until a task of it completes, the reader begins where it began; then after what it had read.
	require.Len(t, read(sb, workspace.MessagesRequest{}), 3)
	b.node("n1", 1, exit0)
	b.until(b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"}), workspace.Complete)
	require.Eventually(t, func() bool { return len(read(sb, workspace.MessagesRequest{})) == 0 }, wait, 5*time.Millisecond)
	require.Len(t, read(sb, workspace.MessagesRequest{FromStart: true}), 3)

	// Waiting ends with the first that comes.
	go func() { b.send(b.user, "worker", "late", nil) }()
	require.Len(t, read(sb, workspace.MessagesRequest{WaitMS: 8000}), 1)
	require.Empty(t, read(sb, workspace.MessagesRequest{To: "ch-news", After: ch, WaitMS: 20}))
}

func TestTaskOutput(t *testing.T) {
	b := newBed(t)
	var n *testNode
	out := func(task string, attempt int, stream string, off int, data string) {
		subject, err := schemas.Out("acme", "demo", task, attempt)
		require.NoError(t, err)
		_, err = n.c.PublishMsg(b.ctx(), &nats.Msg{Subject: subject, Data: []byte(data), Header: nats.Header{schemas.HeaderStream: []string{stream}, schemas.HeaderOffset: []string{strconv.Itoa(off)}}})
		require.NoError(t, err)
	}
	goOn := make(chan struct{})
	ready := make(chan struct{})
	n = b.node("n1", 1, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
		<-ready
		out(r.Task.ID, 1, "stdout", 0, "hello ")
		out(r.Task.ID, 1, "stderr", 0, "oops")
		<-goOn
		out(r.Task.ID, 1, "stdout", 3, "lo wor")    // some of it again
		out(r.Task.ID, 1, "stdout", 12, "the end.") // 9 to 12 is lost
		f := exit0(ctx, r)
		f.Outcome.Usage.StdoutBytes = 25
		return f
	})
	close(ready)
	// The node's spool has all of stdout, but not to begin with.
	whole := "hello world, the end. Bye"
	serve := func() *mesh.Served {
		s, err := n.c.ServeNode("n1", mesh.Many(runtime.OpOutput, func(_ context.Context, _ mesh.Caller, req workspace.OutputRequest, send func(workspace.OutputChunk) error) error {
			off := req.Offsets["stdout"]
			return send(workspace.OutputChunk{Stream: "stdout", Offset: off, Attempt: req.Attempt, Data: []byte(whole[off:])})
		}))
		require.NoError(t, err)
		return s
	}
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	read := func(req workspace.OutputRequest, each func(workspace.OutputChunk)) (gaps int64) {
		req.Task = id
		subject, err := schemas.Req("acme", "demo", "ann", schemas.WorkspaceManager, workspace.OpTaskOutput)
		require.NoError(t, err)
		ended := false
		require.NoError(t, mesh.RequestMany(b.ctx(), b.user, subject, req, 5*time.Second, func(c workspace.OutputChunk) error {
			gaps += c.Gap
			ended = ended || c.End
			each(c)
			return nil
		}))
		require.True(t, ended)
		return gaps
	}
	var stdout, stderr bytes.Buffer
	var once sync.Once
	served := serve()
	gaps := read(workspace.OutputRequest{Follow: true}, func(c workspace.OutputChunk) {
		switch c.Stream {
		case "stdout":
			require.EqualValues(t, stdout.Len(), c.Offset)
			stdout.Write(c.Data)
		case "stderr":
			stderr.Write(c.Data)
			once.Do(func() { close(goOn) })
		}
	})
	require.Zero(t, gaps)
	require.Equal(t, whole, stdout.String())
	require.Equal(t, "oops", stderr.String())
	served.Stop()

	// Without the node what is lost is told as a gap; an offset skips what the reader has.
	stdout.Reset()
	gaps = read(workspace.OutputRequest{Attempt: 1, Offsets: map[string]int64{"stdout": 6, "stderr": 4}}, func(c workspace.OutputChunk) {
		require.NotEqual(t, "stderr", c.Stream)
		stdout.Write(c.Data)
	})
	require.EqualValues(t, 3, gaps)
	require.Equal(t, "worthe end.", stdout.String())
}

func TestNodes(t *testing.T) {
	b := newBed(t, func(c *manager.Config) { c.NodeTimeout = 400 * time.Millisecond })
	n := b.node("n1", 2, exit0)
	node := func() workspace.NodeRecord {
		p := must[workspace.Page[workspace.NodeRecord]](b, b.user, "acme", "-", workspace.OpNodeList, workspace.List{})
		require.Len(t, p.Items, 1)
		return p.Items[0]
	}
	require.Equal(t, workspace.NodeReady, node().State)
	runs := func(key string, want workspace.State) string {
		id := b.submit(b.user, "acme", "demo", key, workspace.Submission{Agent: "worker"})
		b.until(id, want)
		return id
	}
	runs("a", workspace.Complete)

	// Disk nearly full: nothing is admitted, and it says why.
	n.set(func(hb *workspace.Heartbeat) { hb.DiskFree = 1 << 20 })
	require.Eventually(t, func() bool { return node().State == workspace.NodeDraining }, wait, 5*time.Millisecond)
	require.Contains(t, node().Reason, "disk nearly full")
	id := runs("b", workspace.Pending)
	b.never(150*time.Millisecond, func() bool { return b.task(id).State != workspace.Pending })
	n.set(func(hb *workspace.Heartbeat) { hb.DiskFree = 1 << 40 })
	b.until(id, workspace.Complete)

	// Drained by the operator.
	must[workspace.NodeRecord](b, b.op, "", "", workspace.OpNodeDrain, workspace.NodeDrain{Name: "n1"})
	require.Contains(t, node().Reason, "drained")
	id = runs("c", workspace.Pending)
	must[workspace.NodeRecord](b, b.op, "", "", workspace.OpNodeDrain, workspace.NodeDrain{Name: "n1", Undo: true})
	b.until(id, workspace.Complete)
	refused[workspace.NodeRecord](b, fault.NotFound, b.op, "", "", workspace.OpNodeDrain, workspace.NodeDrain{Name: "n9"})
	refused[workspace.NodeRecord](b, fault.Denied, n.c, "", "", workspace.OpNodeDrain, workspace.NodeDrain{Name: "n1"})

	// Silent, and back.
	n.setDeaf(true)
	require.Eventually(t, func() bool { return node().State == workspace.NodeLost }, wait, 5*time.Millisecond)
	require.Contains(t, node().Reason, "no heartbeat")
	n.setDeaf(false)
	require.Eventually(t, func() bool { return node().State == workspace.NodeReady }, wait, 5*time.Millisecond)
	runs("d", workspace.Complete)
}

func TestHeartbeatsAreTakenWhenTheirBucketIsLost(t *testing.T) {
	b := newBed(t, func(c *manager.Config) { c.NodeTimeout = 500 * time.Millisecond })
	b.node("n1", 2, exit0)
	require.NoError(t, b.m.Service(accounts.RoleAdmin).JetStream().DeleteStream(b.ctx(), "KV_heartbeats"))
	require.Eventually(t, func() bool {
		k, err := b.m.Service(accounts.RoleAdmin).JetStream().KeyValue(b.ctx(), "heartbeats")
		if err != nil {
			return false
		}
		_, err = k.Get(b.ctx(), "node.n1")
		return err == nil
	}, wait, 100*time.Millisecond)
	b.until(b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"}), workspace.Complete)
}

// Every operation is a plain method; these are called without a subject in between.
func TestOperationsAreMethods(t *testing.T) {
	b := newBed(t)
	ctx, s := b.ctx(), b.s
	ann := mesh.Caller{Tenant: "acme", Workspace: "demo", Principal: "ann"}
	node, op := mesh.Caller{Principal: "n1"}, mesh.Caller{Principal: schemas.Operator}
	_, err := s.WorkspacePut(ctx, ann, workspace.Put[workspace.Workspace]{Value: workspace.Workspace{Name: "w2"}})
	require.NoError(t, err)
	ws, err := s.WorkspaceList(ctx, ann, workspace.List{})
	require.NoError(t, err)
	require.Len(t, ws.Items, 2)
	_, err = s.TemplatePut(ctx, ann, workspace.Put[workspace.Template]{Value: workspace.Template{Name: "t", Image: "i"}})
	require.NoError(t, err)
	_, err = s.TemplateDelete(ctx, ann, workspace.Name{Name: "t"})
	require.NoError(t, err)
	tr := workspace.Trigger{Name: "t", Message: &workspace.MessageTrigger{To: "worker", From: []string{"bob"}}, Start: workspace.Submission{Agent: "worker"}}
	_, err = s.TriggerPut(ctx, ann, workspace.Put[workspace.Trigger]{Value: tr})
	require.NoError(t, err)
	got, err := s.TriggerGet(ctx, ann, workspace.Name{Name: "t"})
	require.NoError(t, err)
	require.Equal(t, 1, got.Version)
	trs, err := s.TriggerList(ctx, ann, workspace.List{})
	require.NoError(t, err)
	require.Len(t, trs.Items, 1)
	_, err = s.TriggerDelete(ctx, ann, workspace.Name{Name: "t"})
	require.NoError(t, err)

	_, err = s.Heartbeat(ctx, node, workspace.Heartbeat{Node: "somebody-else", Slots: 1, DiskFree: 1 << 40})
	require.NoError(t, err)
	nodes, err := s.NodeList(ctx, ann, workspace.List{})
	require.NoError(t, err)
	require.Equal(t, "n1", nodes.Items[0].Node, "the name is the caller's, whatever the body says")
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Queued)
	it := workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: id, Attempt: 1}
	c, err := s.Claim(ctx, node, workspace.Claim{QueueItem: it, Sandbox: schemas.NewID(), UserKey: userKey(t)})
	require.NoError(t, err)
	require.Equal(t, workspace.Running, c.Task.State)
	r, err := s.Renew(ctx, node, workspace.Renew{Claims: []workspace.Held{{QueueItem: it, UserKey: userKey(t)}, {QueueItem: workspace.QueueItem{Task: "nonsense"}}}})
	require.NoError(t, err)
	require.Equal(t, workspace.VerdictKeep, r.Claims[0].Verdict)
	require.NotEmpty(t, r.Claims[0].UserJWT)
	require.Equal(t, workspace.VerdictLost, r.Claims[1].Verdict)
	a, err := s.Attempt(ctx, mesh.Caller{Principal: schemas.Filesystem}, workspace.AttemptRequest{Tenant: "acme", Workspace: "demo", Task: id})
	require.NoError(t, err)
	require.Equal(t, "n1", a.Node)
	now := time.Now()
	_, err = s.Progress(ctx, node, workspace.Progress{QueueItem: it, CommandAt: &now})
	require.NoError(t, err)
	_, err = s.Finish(ctx, node, workspace.Finish{QueueItem: it, Outcome: workspace.Outcome{Exit: &workspace.Exit{Reason: "exited"}}})
	require.NoError(t, err)
	k, err := s.TaskGet(ctx, ann, workspace.ID{ID: id})
	require.NoError(t, err)
	require.Equal(t, workspace.Complete, k.State)
	require.NotNil(t, k.Attempt.CommandAt)
	h, err := s.TaskHistory(ctx, ann, workspace.ID{ID: id})
	require.NoError(t, err)
	require.Len(t, h.Items, 4)
	_, err = s.TaskCancel(ctx, ann, workspace.ID{ID: id})
	require.True(t, fault.Is(err, fault.Conflict))
	again, err := s.TaskRetry(ctx, ann, workspace.ID{ID: id})
	require.NoError(t, err)
	_, err = s.TaskCancel(ctx, ann, workspace.ID{ID: again.ID})
	require.NoError(t, err)
	for _, by := range []mesh.Caller{ann, node} {
		_, err = s.TenantList(ctx, by, workspace.List{})
		require.True(t, fault.Is(err, fault.Denied))
		_, err = s.DLQDrop(ctx, by, workspace.DLQRef{Sequences: []uint64{1}})
		require.True(t, fault.Is(err, fault.Denied))
	}
	ts, err := s.TenantList(ctx, op, workspace.List{})
	require.NoError(t, err)
	require.Len(t, ts.Items, 1)
	var last workspace.OutputChunk
	require.NoError(t, s.TaskOutput(ctx, ann, workspace.OutputRequest{Task: id}, func(c workspace.OutputChunk) error { last = c; return nil }))
	require.True(t, last.End)
}

func TestPinnedWorkspaceRunsOnItsNode(t *testing.T) {
	b := newBed(t)
	must[workspace.Workspace](b, b.user, "acme", "-", workspace.OpWorkspacePut, workspace.Put[workspace.Workspace]{Value: workspace.Workspace{Name: "demo", Labels: map[string]string{workspace.LabelNode: "n2"}}})
	b.node("n1", 4, exit0)
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Pending)
	b.never(200*time.Millisecond, func() bool { return b.task(id).State == workspace.Complete })
	n2 := b.m.Node("n2")
	must[workspace.Empty](b, n2, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40})
	require.Contains(t, string(pull(b, n2, "n2").Data), id)
}

func TestQueueMessageThatIsGoneIsQueuedAgain(t *testing.T) {
	b := newBed(t)
	n := b.m.Node("n1")
	must[workspace.Empty](b, n, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40})
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	for range 3 { // the node takes it off the queue and dies before it claims
		must[workspace.Empty](b, n, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40})
		m := pull(b, n, "default")
		require.Contains(t, string(m.Data), id)
		_, err := n.NATS().RequestWithContext(b.ctx(), m.Reply, []byte("+ACK"))
		require.NoError(t, err)
	}
	require.Equal(t, 1, b.task(id).Attempt.Number)
}

func TestInteractiveSandbox(t *testing.T) {
	b := newBed(t)
	n := b.node("n1", 2, exit0)
	var mu sync.Mutex
	created := map[string]workspace.Sandbox{}
	fails := false
	s, err := n.c.ServeNode("n1",
		mesh.Op(runtime.OpSandboxCreate, time.Second, func(_ context.Context, _ mesh.Caller, req runtime.SandboxCreate) (workspace.Empty, error) {
			mu.Lock()
			defer mu.Unlock()
			if fails {
				return workspace.Empty{}, fault.New(fault.Unavailable, "no image")
			}
			created[req.Sandbox.ID] = req.Sandbox
			return workspace.Empty{}, nil
		}),
		mesh.Op(runtime.OpSandboxKill, time.Second, func(_ context.Context, _ mesh.Caller, req runtime.SandboxKill) (workspace.Empty, error) {
			mu.Lock()
			defer mu.Unlock()
			delete(created, req.ID)
			return workspace.Empty{}, nil
		}))
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	create := func(req workspace.SandboxCreate) workspace.Sandbox {
		box := must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxCreate, req)
		n.set(func(hb *workspace.Heartbeat) { hb.Sandboxes = append(hb.Sandboxes, box.ID) })
		return box
	}
	one := create(workspace.SandboxCreate{Template: "base"})
	require.Equal(t, workspace.SandboxRunning, one.State)
	require.Equal(t, "ann", one.Principal)
	require.Equal(t, "XNODE", one.NodeKey)
	require.EqualValues(t, 3600_000, one.Run.TTLMS)
	mu.Lock()
	require.Contains(t, created, one.ID)
	mu.Unlock()

	// Fenced and renewed like an attempt, under its own id.
	a := must[workspace.AttemptReply](b, b.m.Service(schemas.Secrets), "", "", workspace.OpAttempt, workspace.AttemptRequest{Tenant: "acme", Workspace: "demo", Task: one.ID})
	require.Equal(t, workspace.AttemptReply{State: workspace.Running, Attempt: 1, Node: "n1", Sandbox: one.ID, NodeKey: "XNODE", Principal: "ann"}, a)
	rep := must[workspace.Renewed](b, n.c, "", "", workspace.OpRenew, workspace.Renew{Claims: []workspace.Held{{QueueItem: workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: one.ID, Attempt: 1}, UserKey: userKey(t)}}})
	require.Equal(t, workspace.VerdictKeep, rep.Claims[0].Verdict)
	require.NotEmpty(t, rep.Claims[0].UserJWT)

	create(workspace.SandboxCreate{Agent: "worker"})
	err = refused[workspace.Sandbox](b, fault.Exhausted, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base"})
	require.ErrorContains(t, err, "no node has room")
	killed := must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxKill, workspace.ID{ID: one.ID})
	require.Equal(t, workspace.SandboxStopped, killed.State)
	require.Equal(t, workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: workspace.ReasonKilled, By: "ann"}, *killed.Exit)
	must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxKill, workspace.ID{ID: one.ID})

	mu.Lock()
	fails = true
	mu.Unlock()
	refused[workspace.Sandbox](b, fault.Unavailable, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base"})
	list := must[workspace.Page[workspace.Sandbox]](b, b.user, "acme", "demo", workspace.OpSandboxList, workspace.List{}).Items
	require.Len(t, list, 3)

	// The node reports an end; another node may not.
	var two workspace.Sandbox
	for _, x := range list {
		if x.State == workspace.SandboxRunning {
			two = x
		}
	}
	end := runtime.SandboxEnded{Tenant: "acme", Workspace: "demo", ID: two.ID, Exit: workspace.Exit{Reason: "idle"}}
	refused[workspace.Empty](b, fault.Conflict, b.m.Node("n2"), "", "", workspace.OpSandboxEnded, end)
	must[workspace.Empty](b, n.c, "", "", workspace.OpSandboxEnded, end)
	require.Equal(t, "idle", must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxGet, workspace.ID{ID: two.ID}).Exit.Reason)
	refused[workspace.Sandbox](b, fault.Invalid, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{})
}

func TestSandboxThatItsNodeNoLongerHasIsEnded(t *testing.T) {
	b := newBed(t)
	n := b.node("n1", 2, exit0)
	s, err := n.c.ServeNode("n1", mesh.Op(runtime.OpSandboxCreate, time.Second, func(context.Context, mesh.Caller, runtime.SandboxCreate) (workspace.Empty, error) {
		return workspace.Empty{}, nil
	}))
	require.NoError(t, err)
	t.Cleanup(s.Stop)
	box := must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxCreate, workspace.SandboxCreate{Template: "base"})
	require.Eventually(t, func() bool {
		r := must[workspace.Sandbox](b, b.user, "acme", "demo", workspace.OpSandboxGet, workspace.ID{ID: box.ID})
		return r.State == workspace.SandboxStopped && r.Exit.Reason == "node-lost"
	}, wait, 10*time.Millisecond)
}

func TestSigningKeysAreSealedAndWork(t *testing.T) {
	b := newBed(t)
	kv, err := b.m.Service(accounts.RoleAdmin).JetStream().KeyValue(b.ctx(), "tenant-keys")
	require.NoError(t, err)
	e, err := kv.Get(b.ctx(), "acme")
	require.NoError(t, err)
	require.NotContains(t, string(e.Value()), b.m.Tenants["acme"].AgentSeed)

	// What a claim gives logs in as the agent, for the key that the node made, and may do what an agent may.
	kp, err := nkeys.CreateUser()
	require.NoError(t, err)
	pub, _ := kp.PublicKey()
	seed, _ := kp.Seed()
	n := b.m.Node("n1")
	must[workspace.Empty](b, n, "", "", workspace.OpHeartbeat, workspace.Heartbeat{Slots: 1, DiskFree: 1 << 40})
	id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Queued)
	box := schemas.NewID()
	rep := must[workspace.ClaimReply](b, n, "", "", workspace.OpClaim, workspace.Claim{QueueItem: workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: id, Attempt: 1}, Sandbox: box, UserKey: pub})
	sb, err := mesh.Connect(b.ctx(), mesh.Options{URL: b.m.Bus.URL(), Name: "worker", InboxPrefix: accounts.SandboxInboxPrefix("worker", box),
		Credentials: func() (accounts.Credentials, error) {
			return accounts.Credentials{Name: "worker", JWT: rep.UserJWT, Seed: seed}, nil
		}})
	require.NoError(t, err)
	t.Cleanup(sb.Close)
	require.Equal(t, id, must[workspace.Task](b, sb, "acme", "demo", workspace.OpTaskGet, workspace.ID{ID: id}).ID)
	refused[workspace.Empty](b, fault.Denied, sb, "acme", "demo", workspace.OpAgentDelete, workspace.Name{Name: "worker"})
	refused[workspace.Task](b, fault.Denied, sb, "acme", "other", workspace.OpTaskGet, workspace.ID{ID: id})

	for name, req := range map[string]workspace.TenantPut{
		"seed":     {Tenant: workspace.Tenant{Name: "acme"}, Account: b.m.Tenants["acme"].Account, AgentSeed: "SANONSENSE"},
		"account":  {Tenant: workspace.Tenant{Name: "acme"}, Account: "x", AgentSeed: b.m.Tenants["acme"].AgentSeed},
		"reserved": {Tenant: workspace.Tenant{Name: "system"}, Account: b.m.Tenants["acme"].Account, AgentSeed: b.m.Tenants["acme"].AgentSeed},
	} {
		err := refused[workspace.Tenant](b, fault.Invalid, b.op, "", "", workspace.OpTenantPut, req)
		require.NotContains(t, err.Error(), "NONSENSE", name)
	}
	refused[workspace.Tenant](b, fault.Denied, n, "", "", workspace.OpTenantPut, workspace.TenantPut{})
}

// pull asks for one message of a consumer of the queue, as a node does, and gives it.
func pull(b *bed, c *mesh.Conn, name string) *nats.Msg {
	b.t.Helper()
	m, err := c.NATS().RequestWithContext(b.ctx(), accounts.NodeAPI+".CONSUMER.MSG.NEXT.QUEUE."+name, []byte(`{"batch":1,"expires":8000000000}`))
	require.NoError(b.t, err)
	require.Empty(b.t, m.Header.Get("Status"), "%v", m.Header)
	return m
}
