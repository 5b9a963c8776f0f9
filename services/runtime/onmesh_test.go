package runtime

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/mesh/provision"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/nodetest"
	"github.com/weftmesh/weft/services/runtime/internal/spool"
)

// serveWorld has the world answer on a real mesh, with the accounts and permissions of the real services.
func serveWorld(t testing.TB, w *world) *meshtest.Mesh {
	t.Helper()
	m := meshtest.Start(t, "acme")
	w.minter = func(principal, sandbox, key string) string {
		minter, err := accounts.NewMinter(m.Tenants["acme"].Account, m.Tenants["acme"].AgentSeed)
		require.NoError(t, err)
		jwt, err := minter.Agent("demo", principal, sandbox, key, time.Hour)
		require.NoError(t, err)
		return jwt
	}
	manager := m.Service(schemas.WorkspaceManager)
	w.manager = manager
	var none workspace.Empty
	serve := func(c *mesh.Conn, name string, eps ...mesh.Endpoint) {
		s, err := c.ServeInt(name, eps...)
		require.NoError(t, err)
		t.Cleanup(s.Stop)
	}
	const d = 5 * time.Second
	serve(manager, schemas.WorkspaceManager,
		mesh.Op(workspace.OpClaim, d, func(ctx context.Context, _ mesh.Caller, r workspace.Claim) (workspace.ClaimReply, error) {
			return w.Claim(ctx, r)
		}),
		mesh.Op(workspace.OpRenew, d, func(ctx context.Context, _ mesh.Caller, r workspace.Renew) (workspace.Renewed, error) {
			return w.Renew(ctx, r)
		}),
		mesh.Op(workspace.OpProgress, d, func(ctx context.Context, _ mesh.Caller, r workspace.Progress) (workspace.Empty, error) {
			return none, w.Progress(ctx, r)
		}),
		mesh.Op(workspace.OpFinish, d, func(ctx context.Context, _ mesh.Caller, r workspace.Finish) (workspace.Empty, error) {
			return none, w.Finish(ctx, r)
		}),
		mesh.Op(workspace.OpSandboxWarned, d, func(ctx context.Context, _ mesh.Caller, r runtime.SandboxWarned) (workspace.Empty, error) {
			return none, w.SandboxWarned(ctx, r)
		}),
		mesh.Op(workspace.OpNodeCleaned, d, func(ctx context.Context, _ mesh.Caller, r workspace.Cleaned) (workspace.Empty, error) {
			return none, w.NodeCleaned(ctx, r)
		}),
		mesh.Op(workspace.OpSandboxEnded, d, func(ctx context.Context, _ mesh.Caller, r runtime.SandboxEnded) (workspace.Empty, error) {
			return none, w.SandboxEnded(ctx, r)
		}),
		mesh.Op(workspace.OpHeartbeat, d, func(ctx context.Context, by mesh.Caller, r workspace.Heartbeat) (workspace.HeartbeatReply, error) {
			for _, name := range []string{r.Labels["pool"], by.Principal} {
				_, err := manager.JetStream().CreateOrUpdateConsumer(ctx, provision.Queue, jetstream.ConsumerConfig{Durable: name,
					FilterSubject: schemas.Prefix + "queue." + name + ".*", AckPolicy: jetstream.AckExplicitPolicy, AckWait: 2 * time.Second, MaxDeliver: -1})
				if err != nil {
					return workspace.HeartbeatReply{}, err
				}
			}
			return w.Heartbeat(ctx, r)
		}),
	)
	f := files{w}
	serve(m.Service(schemas.Filesystem), schemas.Filesystem,
		mesh.Op(filesystem.OpPrepare, d, func(ctx context.Context, _ mesh.Caller, r filesystem.Prepare) (filesystem.Prepared, error) {
			return f.Prepare(ctx, r)
		}),
		mesh.Op(filesystem.OpMerge, d, func(ctx context.Context, _ mesh.Caller, r filesystem.Merge) (filesystem.Merged, error) {
			return f.Merge(ctx, r)
		}),
		mesh.Op(filesystem.OpDiscard, d, func(ctx context.Context, _ mesh.Caller, r filesystem.Discard) (workspace.Empty, error) {
			return none, f.Discard(ctx, r)
		}),
		mesh.Op(filesystem.OpHeld, d, func(ctx context.Context, _ mesh.Caller, r filesystem.Held) (workspace.Empty, error) {
			return none, f.Held(ctx, r)
		}),
	)
	v := vault{w}
	serve(m.Service(schemas.Secrets), schemas.Secrets,
		mesh.Op(secrets.OpIssue, d, func(ctx context.Context, _ mesh.Caller, r secrets.IssueRequest) (secrets.IssueReply, error) {
			return v.Issue(ctx, r)
		}),
		mesh.Op(secrets.OpRenew, d, func(ctx context.Context, _ mesh.Caller, r secrets.RenewRequest) (secrets.RenewReply, error) {
			return v.Renew(ctx, r)
		}),
		mesh.Op(secrets.OpRevoke, d, func(ctx context.Context, _ mesh.Caller, r secrets.RevokeRequest) (secrets.RevokeReply, error) {
			return v.Revoke(ctx, r)
		}),
	)
	return m
}

// queued puts a task's attempt on the real queue, of the pool or of the node.
func (w *world) queued(id, placement string, run workspace.RunSpec) {
	w.t.Helper()
	item := w.submit(id, run, `{"n":1}`)
	subject, err := schemas.Queue(placement, "normal")
	require.NoError(w.t, err)
	_, err = w.manager.Publish(meshtest.Context(w.t), subject, item, nil)
	require.NoError(w.t, err)
}

// stored reads a task's output from the tenant's stream into the world, so that read finds it.
func (w *world) stored(id string) {
	w.t.Helper()
	ctx := meshtest.Context(w.t)
	cons, err := w.manager.JetStream().OrderedConsumer(ctx, "OUT-acme", jetstream.OrderedConsumerConfig{FilterSubjects: []string{schemas.Prefix + "out.acme.demo." + id + ".1"}})
	require.NoError(w.t, err)
	info, err := cons.Info(ctx)
	require.NoError(w.t, err)
	var chunks []Chunk
	for range info.NumPending {
		m, err := cons.Next()
		require.NoError(w.t, err)
		off, err := strconv.ParseInt(m.Headers().Get(schemas.HeaderOffset), 10, 64)
		require.NoError(w.t, err)
		for _, st := range spool.All() {
			if st.String() == m.Headers().Get(schemas.HeaderStream) {
				chunks = append(chunks, Chunk{Stream: st, Offset: off, Data: m.Data(), EOF: m.Headers().Get(schemas.HeaderEOF) == "true"})
			}
		}
	}
	w.with(func() { w.chunks[id] = chunks })
}

// meshConfig is that of a node on the mesh.
func meshConfig(conn *mesh.Conn, dial func(context.Context) (net.Conn, error)) Config {
	cfg := Config{
		Version: "test", DataDir: machine.DataDir, RunDir: machine.RunDir, ImageDirs: machine.Config.ImageDirs, Init: machine.Init, Slots: 4, MinFree: 1,
		DialMesh: dial, Log: nodetest.Log(), timing: quick,
		Scrub: func(values []string) func() Scrubber { return func() Scrubber { return &masker{values: values} } },
		Vault: func(v VaultSession) (http.Handler, error) {
			return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				_ = json.NewEncoder(rw).Encode(map[string]string{"path": r.URL.Path, "principal": v.Principal, "token": v.Issued.VaultToken})
			}), nil
		},
	}
	return cfg.OnMesh(conn)
}

func onMesh(t testing.TB) (*world, *meshtest.Mesh, *node) {
	t.Helper()
	machine.Need(t)
	w := newWorld(t)
	m := serveWorld(t, w)
	n := startNode(t, meshConfig(m.Node("node-1"), func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", m.Bus.NATS().Addr().String())
	}))
	t.Cleanup(func() { n.stop(); requireClean(t, w) })
	return w, m, n
}

// speak is what a program without any NATS library does: the protocol by hand.
const speak = `
import json, os, socket, urllib.request
def dial():
    s = socket.create_connection(("127.0.0.1", 4222)); f = s.makefile("rwb", buffering=0)
    info = json.loads(f.readline()[5:])
    return s, f, info
s, f, info = dial()
def line():
    while True:
        l = f.readline()
        if not l.startswith(b"INFO"): return l
        hidden(json.loads(l[5:]))
def hidden(info):
    for k in ("nonce", "auth_required", "connect_urls", "client_ip", "host", "ip", "port", "cluster"):
        if k in info: print("told", k)
hidden(info)
f.write(b'CONNECT {"verbose":false,"protocol":1,"headers":true,"no_responders":true,"user":"admin","jwt":"x","sig":"y"}\r\nPING\r\n')
print(line().decode().strip())
inbox = os.environ["NATS_INBOX_PREFIX"] + ".1"
f.write(b"SUB " + inbox.encode() + b" 1\r\n")
body = b'{"hello":1}'
subject = "weft.v1.msg.acme.demo.reviewer.planner".encode()
f.write(b"PUB " + subject + b" " + inbox.encode() + b" %d\r\n" % len(body) + body + b"\r\n")
head = line().decode().split()
ack = json.loads(f.read(int(head[-1]) + 2)[:int(head[-1])])
print(head[0], ack.get("stream"))
for forged in ("weft.v1.msg.acme.demo.reviewer.boss", "weft.v1.evt.acme.demo.task.x", "weft.v1.msg.acme.other.reviewer.planner", "$JS.API.INFO", "weft.v1.sbx.acme.demo.x.planner.exec"):
    f.write(b"PUB " + forged.encode() + b" 0\r\n\r\n")
    print(forged, "denied" if b"Permissions Violation" in line() else "ALLOWED")
f.write(b"SUB weft.v1.> 2\r\n"); print("wildcard", "denied" if b"Permissions Violation" in line() else "ALLOWED")
f.write(b'CONNECT {"user":"admin"}\r\n'); print("second connect", line() or "closed")
r = json.loads(urllib.request.urlopen(os.environ["VAULT_ADDR"] + "/v1/transit/sign/key").read())
print(r)
`

func TestAnAttemptOnTheMesh(t *testing.T) {
	w, _, n := onMesh(t)
	w.values = secrets.Issued{VaultToken: "tok-12345"}
	for i, placement := range []string{"default", "node-1"} {
		run := script("true")
		run.Image, run.Argv = "python", []string{"python3", "-c", speak}
		run.Resources.MemoryBytes = 128 << 20
		run.Secrets = []workspace.SecretUse{{Name: "key", As: "vault"}}
		id := newTask()
		w.queued(id, placement, run)
		f := w.finished(id)
		w.stored(id)
		out, eof := w.read(id, "stdout")
		errs, _ := w.read(id, "stderr")
		require.Equal(t, 0, f.Outcome.Exit.Code, "%d: %s %s", i, out, errs)
		require.True(t, eof)
		require.Equal(t, `PONG
MSG MSG-acme
weft.v1.msg.acme.demo.reviewer.boss denied
weft.v1.evt.acme.demo.task.x denied
weft.v1.msg.acme.other.reviewer.planner denied
$JS.API.INFO denied
weft.v1.sbx.acme.demo.x.planner.exec denied
wildcard denied
second connect closed
{'path': '/v1/transit/sign/key', 'principal': 'planner', 'token': 'tok-12345'}
`, out)
	}
	require.NotEmpty(t, w.beats)
	hb := w.beats[len(w.beats)-1]
	require.Equal(t, "node-1", hb.Node)
	require.Equal(t, 4, hb.Slots)
	require.Contains(t, hb.Images, "python")
	require.Positive(t, hb.DiskFree)
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}
