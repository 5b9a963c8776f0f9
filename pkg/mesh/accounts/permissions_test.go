package accounts_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
)

// TestNegativePermissions is the table of what each role must not do, every cell tried against the real
// server: a publish must bring a permissions violation, a subscription too, and nothing may be stored.
func TestNegativePermissions(t *testing.T) {
	m := meshtest.Start(t, "acme", "globex")
	sandbox, other := schemas.NewID(), schemas.NewID()
	task := schemas.NewID()
	roles := map[string]*mesh.Conn{
		"user":                   m.User("acme", "alice"),
		"agent":                  m.Agent("acme", "demo", "bob", sandbox),
		"node":                   m.Node("n1"),
		schemas.WorkspaceManager: m.Service(schemas.WorkspaceManager),
		schemas.Filesystem:       m.Service(schemas.Filesystem),
		schemas.Secrets:          m.Service(schemas.Secrets),
		schemas.Memory:           m.Service(schemas.Memory),
		schemas.Operator:         m.Service(schemas.Operator),
	}
	tenants, services := []string{"user", "agent"}, []string{schemas.Filesystem, schemas.Secrets, schemas.Memory}
	all := append(append([]string{"node", schemas.WorkspaceManager, schemas.Operator}, tenants...), services...)
	both := append([]string{"node"}, tenants...)
	cells := []struct {
		what, subject string
		sub           bool
		who           []string
	}{
		// records and queue
		{"write a task's record", "weft.v1.evt.acme.demo.task." + task, false, append(append([]string{schemas.Operator}, both...), services...)},
		{"write a lease's record", "weft.v1.evt.acme.demo.lease." + sandbox, false, append([]string{schemas.WorkspaceManager, schemas.Filesystem, schemas.Memory, schemas.Operator}, both...)},
		{"write a head's record", "weft.v1.evt.acme.demo.head.head", false, append([]string{schemas.WorkspaceManager, schemas.Secrets, schemas.Memory, schemas.Operator}, both...)},
		{"write a pool's record", "weft.v1.evt.acme.demo.pool.base", false, append(append([]string{schemas.Operator}, both...), services...)},
		{"write a claim's record", "weft.v1.evt.acme.demo.claim.c1", false, append(append([]string{schemas.Operator}, both...), services...)},
		{"put on the queue", "weft.v1.queue.default.normal", false, append(append([]string{schemas.Operator}, both...), services...)},
		{"write a dead letter", "weft.v1.dlq.acme.x", false, append(append([]string{schemas.Operator}, both...), services...)},
		// other tenants and principals
		{"another tenant's service", "weft.v1.req.globex.demo.alice.memory.get", false, tenants},
		{"another tenant's submission", "weft.v1.task.globex.demo.alice.submit", false, tenants},
		{"another tenant's messages", "weft.v1.msg.globex.demo.bob.alice", false, tenants},
		{"another tenant's sandbox", "weft.v1.sbx.globex.demo." + other + ".alice.exec", false, tenants},
		{"another principal's request", "weft.v1.req.acme.demo.eve.memory.get", false, tenants},
		{"another principal's submission", "weft.v1.task.acme.demo.eve.submit", false, tenants},
		{"a forged sender", "weft.v1.msg.acme.demo.reviewer.eve", false, tenants},
		{"another workspace's request", "weft.v1.req.acme.prod.bob.memory.get", false, []string{"agent"}},
		{"another workspace's submission", "weft.v1.task.acme.prod.bob.submit", false, []string{"agent"}},
		{"another workspace's messages", "weft.v1.msg.acme.prod.reviewer.bob", false, []string{"agent"}},
		{"a sandbox's subject", "weft.v1.sbx.acme.demo." + other + ".bob.exec", false, []string{"agent"}},
		// what an agent may not ask
		{"change a definition", "weft.v1.req.acme.demo.bob.workspace-manager.agent-put", false, []string{"agent"}},
		{"change a trigger", "weft.v1.req.acme.demo.bob.workspace-manager.trigger-put", false, []string{"agent"}},
		{"change a pool", "weft.v1.req.acme.demo.bob.workspace-manager.pool-put", false, []string{"agent"}},
		{"see the pools", "weft.v1.req.acme.demo.bob.workspace-manager.pool-list", false, []string{"agent"}},
		{"change a shared pool", "weft.v1.int.operator.workspace-manager.pool-put", false, append(append([]string{schemas.WorkspaceManager}, both...), services...)},
		{"delete the workspace", "weft.v1.req.acme.demo.bob.workspace-manager.workspace-delete", false, []string{"agent"}},
		{"put a secret", "weft.v1.req.acme.demo.bob.secrets.put", false, []string{"agent"}},
		{"grant itself a secret", "weft.v1.req.acme.demo.bob.secrets.grant", false, []string{"agent"}},
		{"restore a snapshot", "weft.v1.req.acme.demo.bob.filesystem.snapshot-restore", false, []string{"agent"}},
		// service subjects
		{"claim", "weft.v1.int.n1.workspace-manager.claim", false, tenants},
		{"issue leases", "weft.v1.int.n1.secrets.issue", false, tenants},
		{"speak as another node", "weft.v1.int.n2.workspace-manager.claim", false, append([]string{"node"}, tenants...)},
		{"speak as the manager", "weft.v1.int.workspace-manager.secrets.delete-workspace", false, append([]string{"node", schemas.Filesystem, schemas.Memory, schemas.Operator}, tenants...)},
		{"speak as the operator", "weft.v1.int.operator.workspace-manager.tenant-put", false, append(append([]string{schemas.WorkspaceManager}, both...), services...)},
		{"command a node", "weft.v1.node.n1.workspace-manager.sandbox-kill", false, append(append([]string{schemas.Operator}, both...), services...)},
		{"answer as the memory service", "weft.v1.req.*.*.*.memory.>", true, append([]string{"node", schemas.WorkspaceManager, schemas.Filesystem, schemas.Secrets, schemas.Operator}, tenants...)},
		{"listen to secrets' requests", "weft.v1.int.*.secrets.>", true, append([]string{"node", schemas.WorkspaceManager, schemas.Filesystem, schemas.Memory, schemas.Operator}, tenants...)},
		{"serve another node's subjects", "weft.v1.node.n2.>", true, append(append([]string{schemas.WorkspaceManager}, both...), services...)},
		{"serve a sandbox", "weft.v1.sbx.acme.demo." + other + ".>", true, append([]string{schemas.WorkspaceManager}, tenants...)},
		// wildcards
		{"everything", ">", true, all},
		{"every weft subject", "weft.v1.>", true, all},
		{"every inbox", "_INBOX.>", true, all},
		{"another principal's inbox", "_INBOX.eve.>", true, all},
		{"a sibling sandbox's inbox", "_INBOX.bob." + other + ".>", true, []string{"agent"}},
		{"another tenant's events", "weft.v1.evt.globex.>", true, append([]string{"node"}, tenants...)},
		{"another workspace's events", "weft.v1.evt.acme.prod.>", true, []string{"agent", "node"}},
		{"another workspace's output", "weft.v1.out.acme.prod.>", true, []string{"agent"}},
		{"all tenants' submissions", "weft.v1.task.>", true, append(both, services...)},
		// JetStream beyond its own
		{"make a consumer", "$JS.API.CONSUMER.CREATE.LOG-acme.x", false, append(append([]string{schemas.Operator}, both...), services...)},
		{"make a consumer of another's records", "$JS.API.CONSUMER.CREATE.LOG-acme.x.weft.v1.evt.acme.*.task.*", false, append([]string{schemas.Operator, schemas.Secrets, schemas.Memory, schemas.Filesystem}, both...)},
		{"make a durable the old way", "$JS.API.CONSUMER.DURABLE.CREATE.QUEUE.default", false, append(append([]string{schemas.Operator}, both...), services...)},
		{"delete a consumer", "$JS.API.CONSUMER.DELETE.QUEUE.default", false, append([]string{schemas.Operator}, both...)},
		{"delete a stream", "$JS.API.STREAM.DELETE.LOG-acme", false, append(append([]string{schemas.Operator}, both...), services...)},
		{"change a stream", "$JS.API.STREAM.UPDATE.LOG-acme", false, append(append([]string{schemas.Operator}, both...), services...)},
		{"purge the log", "$JS.API.STREAM.PURGE.LOG-acme", false, append([]string{schemas.Operator}, both...)},
		{"read the log raw", "$JS.API.STREAM.MSG.GET.LOG-acme", false, append([]string{schemas.Operator}, both...)},
		{"pull another pool's queue", "$JS.API.CONSUMER.MSG.NEXT.QUEUE.gpu", false, both},
		{"pull another pool's queue by the node's prefix", accounts.NodeAPI + ".CONSUMER.MSG.NEXT.QUEUE.gpu", false, both},
		{"make a consumer by the node's prefix", accounts.NodeAPI + ".CONSUMER.CREATE.QUEUE.n1", false, both},
		{"pull a service's consumer", "$JS.API.CONSUMER.MSG.NEXT.TASKS-acme.manager", false, both},
		{"acknowledge for another", "$JS.ACK.TASKS-acme.manager.1.1.1.1.1", false, both},
		{"write a bucket", "$KV.leases.manager", false, append(append([]string{schemas.Operator}, both...), services...)},
		{"the system account", "$SYS.REQ.ACCOUNT.PING.CONNZ", false, tenants[:0]},
	}
	for _, c := range cells {
		for _, who := range c.who {
			t.Run(fmt.Sprintf("%s/%s", who, c.what), func(t *testing.T) {
				t.Parallel()
				if c.sub {
					requireDeniedSub(t, roles[who], c.subject)
				} else {
					requireDeniedPub(t, roles[who], c.subject)
				}
			})
		}
	}
}

// requireDeniedPub wants the server's own denial: no answer at all would also come from a silent service.
func requireDeniedPub(t *testing.T, c *mesh.Conn, subject string) {
	t.Helper()
	_, err := mesh.Request[map[string]any](meshtest.Context(t), c, subject, map[string]any{})
	require.ErrorContains(t, err, "may not publish", "%s", subject)
}

func requireDeniedSub(t *testing.T, c *mesh.Conn, subject string) {
	t.Helper()
	sub, err := c.NATS().SubscribeSync(subject)
	if err == nil {
		_, err = sub.NextMsg(5 * time.Second)
	}
	require.ErrorIs(t, err, nats.ErrPermissionViolation, "%s", subject)
}

// TestForgedReplySubjectWritesNothing: a caller names a record, the queue or another tenant as its reply
// subject. The service must not be made to write there.
func TestForgedReplySubjectWritesNothing(t *testing.T) {
	m := meshtest.Start(t, "acme", "globex")
	mgr := m.Service(schemas.WorkspaceManager)
	svc := m.Service(schemas.Memory)
	called := make(chan string, 64)
	op := mesh.Raw("get", func(_ context.Context, _ mesh.Caller, msg *nats.Msg) error {
		called <- msg.Reply
		return svc.NATS().Publish(msg.Reply, []byte(`{"forged":true}`))
	})
	req, err := svc.ServeReq(schemas.Memory, op)
	require.NoError(t, err)
	defer req.Stop()
	in, err := svc.ServeInt(schemas.Memory, op)
	require.NoError(t, err)
	defer in.Stop()
	forged := []string{"weft.v1.evt.acme.demo.task." + schemas.NewID(), "weft.v1.queue.default.normal",
		"weft.v1.task.globex.demo.eve.submit", "weft.v1.evt.globex.demo.agent.x", "weft.v1.msg.globex.demo.a.b", "$JS.API.STREAM.DELETE.LOG-globex"}
	for _, reply := range forged {
		for _, from := range []struct {
			c       *mesh.Conn
			subject string
		}{
			{m.User("acme", "alice"), "weft.v1.req.acme.demo.alice.memory.get"},
			{m.Agent("acme", "demo", "bob", schemas.NewID()), "weft.v1.req.acme.demo.bob.memory.get"},
			{mgr, "weft.v1.int.workspace-manager.memory.get"},
			{m.Node("n1"), "weft.v1.int.n1.memory.get"},
		} {
			require.NoError(t, from.c.NATS().PublishRequest(from.subject, reply, []byte(`{}`)))
			require.NoError(t, from.c.NATS().Flush())
		}
	}
	require.NoError(t, svc.NATS().Flush())
	js := m.Service(accounts.RoleAdmin).JetStream()
	for _, name := range []string{"LOG-acme", "LOG-globex", "TASKS-globex", "MSG-globex", "QUEUE"} {
		s, err := js.Stream(meshtest.Context(t), name)
		require.NoError(t, err, "%s must be there still", name)
		require.Zero(t, s.CachedInfo().State.Msgs, "%s", name)
	}
}

// TestForeignMessageIDShadowsNothing: another principal's message with the same id must not make a
// submission count as a duplicate.
func TestForeignMessageIDShadowsNothing(t *testing.T) {
	m := meshtest.Start(t, "acme", "globex")
	send := func(c *mesh.Conn, tenant, who string) mesh.Ack {
		s, err := schemas.Submit(tenant, "demo", who)
		require.NoError(t, err)
		a, err := c.Publish(meshtest.Context(t), s, map[string]any{}, nats.Header{"Nats-Msg-Id": {"same"}})
		require.NoError(t, err)
		return a
	}
	require.False(t, send(m.User("globex", "eve"), "globex", "eve").Duplicate)
	require.False(t, send(m.User("acme", "alice"), "acme", "alice").Duplicate, "another tenant's id")
	require.Eventually(t, func() bool { return !send(m.User("acme", "carol"), "acme", "carol").Duplicate }, time.Minute, 120*time.Millisecond,
		"the window is 100 ms: an id of another principal is soon forgotten, and until then the acknowledgement says so")
}
