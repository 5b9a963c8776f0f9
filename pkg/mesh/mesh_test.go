package mesh_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
)

type ping struct {
	Text string `json:"text"`
	N    int    `json:"n"`
}

func TestRequestAcrossAccounts(t *testing.T) {
	m := meshtest.Start(t, "acme")
	svc := m.Service(schemas.Memory)
	served, err := svc.ServeReq(schemas.Memory,
		mesh.Op("get", time.Second, func(_ context.Context, by mesh.Caller, r ping) (ping, error) {
			if r.Text == "fail" {
				return ping{}, fault.Wrap(errors.New("secret cause"), fault.Conflict, "no luck")
			}
			return ping{Text: by.Tenant + "/" + by.Workspace + "/" + by.Principal + " " + r.Text}, nil
		}),
		mesh.Many("list", func(_ context.Context, _ mesh.Caller, r ping, send func(ping) error) error {
			for i := range r.N {
				if err := send(ping{N: i}); err != nil {
					return err
				}
			}
			return nil
		}))
	require.NoError(t, err)
	defer served.Stop()
	user := m.User("acme", "alice")
	ctx := meshtest.Context(t)
	ask := func(op string, v any) (ping, error) {
		s, err := schemas.Req("acme", "demo", "alice", schemas.Memory, op)
		require.NoError(t, err)
		return mesh.Request[ping](ctx, user, s, v)
	}

	r, err := ask("get", ping{Text: "hello"})
	require.NoError(t, err)
	require.Equal(t, "acme/demo/alice hello", r.Text)

	_, err = ask("get", ping{Text: "fail"})
	require.Equal(t, fault.Conflict, fault.CodeOf(err))
	require.Equal(t, "no luck", err.Error(), "the cause stays with the service")

	_, err = ask("get", map[string]any{"n": "seven"})
	require.Equal(t, fault.Invalid, fault.CodeOf(err))
	require.Contains(t, err.Error(), `"n"`)

	s, _ := schemas.Req("acme", "demo", "alice", schemas.Memory, "list")
	n := 0
	require.NoError(t, mesh.RequestMany(ctx, user, s, ping{N: 500}, 5*time.Second, func(p ping) error {
		require.Equal(t, n, p.N)
		n++
		return nil
	}))
	require.Equal(t, 500, n)

	// A slow reader loses none of many.
	n = 0
	require.NoError(t, mesh.RequestMany(ctx, user, s, ping{N: 20_000}, 5*time.Second, func(p ping) error {
		if n == 0 {
			time.Sleep(300 * time.Millisecond)
		}
		require.Equal(t, n, p.N)
		n++
		return nil
	}))
	require.Equal(t, 20_000, n)

	s, _ = schemas.Req("acme", "demo", "bob", schemas.Memory, "get")
	_, err = mesh.Request[ping](ctx, user, s, ping{})
	require.Equal(t, fault.Denied, fault.CodeOf(err), "another principal's subject: %v", err)
	s, _ = schemas.Req("acme", "demo", "alice", schemas.Secrets, "list")
	_, err = mesh.Request[ping](ctx, user, s, ping{})
	require.Equal(t, fault.Unavailable, fault.CodeOf(err), "nobody serves it: %v", err)
}

func TestSubmitIsAcknowledgedWithoutJetStreamPermission(t *testing.T) {
	m := meshtest.Start(t, "acme", "globex")
	for _, c := range []*mesh.Conn{m.User("acme", "alice"), m.Agent("acme", "demo", "alice", schemas.NewID())} {
		s, _ := schemas.Submit("acme", "demo", "alice")
		ack, err := c.Publish(meshtest.Context(t), s, ping{Text: "x"}, nats.Header{schemas.HeaderID: {"k1"}})
		require.NoError(t, err)
		require.Equal(t, "TASKS-acme", ack.Stream)
		s, _ = schemas.Submit("globex", "demo", "alice")
		_, err = c.Publish(meshtest.Context(t), s, ping{}, nil)
		require.Equal(t, fault.Denied, fault.CodeOf(err))
	}
}

func TestNodeReachesWhatItMay(t *testing.T) {
	m := meshtest.Start(t, "acme")
	svc, node, user := m.Service(schemas.WorkspaceManager), m.Node("n1"), m.User("acme", "alice")
	ctx := meshtest.Context(t)
	served, err := svc.ServeInt(schemas.WorkspaceManager, mesh.Op("claim", time.Second, func(_ context.Context, by mesh.Caller, r ping) (ping, error) {
		return ping{Text: by.Principal}, nil
	}))
	require.NoError(t, err)
	defer served.Stop()
	s, _ := schemas.Int("n1", schemas.WorkspaceManager, "claim")
	r, err := mesh.Request[ping](ctx, node, s, ping{})
	require.NoError(t, err)
	require.Equal(t, "n1", r.Text)

	// A sandbox is a subject: the node serves it, a tenant's user finds it.
	id := schemas.NewID()
	sb, err := node.ServeSandbox("acme", "demo", id, mesh.Op("inspect", time.Second, func(_ context.Context, by mesh.Caller, r ping) (ping, error) {
		return ping{Text: by.Principal}, nil
	}))
	require.NoError(t, err)
	defer sb.Stop()
	s, _ = schemas.Sbx("acme", "demo", id, "alice", "inspect")
	r, err = mesh.Request[ping](ctx, user, s, ping{})
	require.NoError(t, err)
	require.Equal(t, "alice", r.Text)
	s, _ = schemas.Sbx("acme", "demo", id, "alice", "nothing")
	_, err = mesh.Request[ping](ctx, user, s, ping{})
	require.Equal(t, fault.NotFound, fault.CodeOf(err), "%v", err)

	// The manager asks the node.
	ns, err := node.ServeNode("n1", mesh.Op("drain", time.Second, func(_ context.Context, by mesh.Caller, r ping) (ping, error) {
		return ping{Text: by.Principal}, nil
	}))
	require.NoError(t, err)
	defer ns.Stop()
	s, _ = schemas.Node("n1", schemas.WorkspaceManager, "drain")
	r, err = mesh.Request[ping](ctx, svc, s, ping{})
	require.NoError(t, err)
	require.Equal(t, schemas.WorkspaceManager, r.Text)

	// Output published by a node is stored, and reaches a tenant's live subscription.
	task := schemas.NewID()
	s, _ = schemas.Out("acme", "demo", task, 1)
	live, err := user.NATS().SubscribeSync(s)
	require.NoError(t, err)
	require.NoError(t, user.NATS().Flush())
	ack, err := node.PublishMsg(ctx, &nats.Msg{Subject: s, Data: []byte("line\n")})
	require.NoError(t, err)
	require.Equal(t, "OUT-acme", ack.Stream)
	got, err := live.NextMsgWithContext(ctx)
	require.NoError(t, err)
	require.Equal(t, "line\n", string(got.Data))

	// It pulls from its pool's queue, and acknowledges.
	_, err = svc.JetStream().CreateConsumer(ctx, "QUEUE", jetstream.ConsumerConfig{Durable: "default", FilterSubject: "weft.v1.queue.default.*", AckPolicy: jetstream.AckExplicitPolicy})
	require.NoError(t, err)
	_, err = svc.Publish(ctx, "weft.v1.queue.default.normal", ping{N: 7}, nil)
	require.NoError(t, err)
	cons, err := node.JetStream().Consumer(ctx, "QUEUE", "default")
	require.NoError(t, err)
	msg, err := cons.Next(jetstream.FetchMaxWait(5 * time.Second))
	require.NoError(t, err)
	require.JSONEq(t, `{"text":"","n":7}`, string(msg.Data()))
	require.NoError(t, msg.DoubleAck(ctx))
	q, err := svc.JetStream().Stream(ctx, "QUEUE")
	require.NoError(t, err)
	require.Zero(t, q.CachedInfo().State.Msgs, "acknowledged, so it is gone from the work queue")

	// It can write no record.
	s, _ = schemas.Evt("acme", "demo", "task", task)
	_, err = node.PublishMsg(ctx, &nats.Msg{Subject: s})
	require.Equal(t, fault.Denied, fault.CodeOf(err))
}

type thing struct {
	N int `json:"n"`
}

func TestRecords(t *testing.T) {
	m := meshtest.Start(t, "acme")
	ctx := meshtest.Context(t)
	st := records.New[thing](m.Service(schemas.WorkspaceManager), "workspace", 1)
	k := records.Key{Tenant: "acme", Workspace: "demo", ID: "demo"}
	_, err := st.Get(ctx, k)
	require.Equal(t, fault.NotFound, fault.CodeOf(err))
	_, err = st.Create(ctx, k, "created", thing{1})
	require.NoError(t, err)
	_, err = st.Create(ctx, k, "created", thing{9})
	require.Equal(t, fault.Conflict, fault.CodeOf(err))

	vctx, cancel := context.WithCancel(ctx)
	view := st.NewView("acme", nil)
	ready, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- view.Run(vctx, ready) }()
	<-ready
	errs := make(chan error, 8)
	for range 8 {
		go func() {
			_, err := st.Update(ctx, k, func(v *thing) (string, error) { v.N++; return "changed", nil })
			errs <- err
		}()
	}
	for range 8 {
		require.NoError(t, <-errs)
	}
	r, err := st.Get(ctx, k)
	require.NoError(t, err)
	require.Equal(t, 9, r.Value.N)
	h, err := st.History(ctx, k)
	require.NoError(t, err)
	require.Len(t, h, 9)
	l, err := st.List(ctx, "acme", "*")
	require.NoError(t, err)
	require.Len(t, l, 1)
	require.NoError(t, view.WaitFor(ctx, k, r.Sequence))
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)

	_, err = st.Write(ctx, k, h[2].Sequence, "late", thing{})
	require.Equal(t, fault.Conflict, fault.CodeOf(err))
	require.NoError(t, st.Delete(ctx, k))
	_, err = st.Create(ctx, k, "created", thing{1})
	require.NoError(t, err)

	// Who knows a state begins with it; one that is too old, or that is refused, is read again.
	known, err := st.Get(ctx, k)
	require.NoError(t, err)
	more := func(v *thing) (string, error) { v.N++; return "changed", nil }
	next, err := st.UpdateFrom(ctx, known, more)
	require.NoError(t, err)
	require.Equal(t, 2, next.Value.N)
	next, err = st.UpdateFrom(ctx, known, more)
	require.NoError(t, err)
	require.Equal(t, 3, next.Value.N)
	next, err = st.UpdateFrom(ctx, known, func(v *thing) (string, error) {
		if v.N == known.Value.N {
			return "", errors.New("no")
		}
		return more(v)
	})
	require.NoError(t, err)
	require.Equal(t, 4, next.Value.N)
	next, err = st.UpdateFrom(ctx, records.Record[thing]{Key: k}, more)
	require.NoError(t, err)
	require.Equal(t, 5, next.Value.N)

	// A service writes the records of no other's entity.
	_, err = records.New[thing](m.Service(schemas.Memory), "workspace", 1).Write(ctx, k, 0, "x", thing{})
	require.Equal(t, fault.Denied, fault.CodeOf(err))
}

// FuzzDecode: whatever body comes, there is a value or an invalid fault, and no panic.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "{}", "[]", `{"n":"x"}`, `{"n":1}{}`, "{\"text\":\"\xff\"}", `{"n":1e999}`, "null"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := mesh.Decode[ping](b); err != nil {
			require.Equal(t, fault.Invalid, fault.CodeOf(err))
		}
	})
}
