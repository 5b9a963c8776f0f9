package secrets_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/vault/api"
	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/records"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets"
	"github.com/weftmesh/weft/services/secrets/bao"
	"github.com/weftmesh/weft/services/secrets/internal/baotest"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/value"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		child()
		os.Exit(3) // it was to be killed before
	}
	baotest.Main(m)
}

var (
	alice = mesh.Caller{Tenant: "acme", Workspace: "demo", Principal: "alice"}
	bob   = mesh.Caller{Tenant: "globex", Workspace: "demo", Principal: "bob"}
	n1    = mesh.Caller{Principal: "n1"}
	mgr   = mesh.Caller{Principal: schemas.WorkspaceManager}
)

// manager stands for the workspace-manager: who holds what.
type manager struct {
	mu      sync.Mutex
	holds   map[string]workspace.AttemptReply // by tenant/workspace/task
	failing error
}

func (m *manager) Attempt(_ context.Context, req workspace.AttemptRequest) (workspace.AttemptReply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failing != nil {
		return workspace.AttemptReply{}, m.failing
	}
	a, ok := m.holds[req.Tenant+"/"+req.Workspace+"/"+req.Task]
	if !ok {
		return a, fault.New(fault.NotFound, "no task")
	}
	return a, nil
}

func (m *manager) set(ref wire.LeaseRef, change func(*workspace.AttemptReply)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := ref.Tenant + "/" + ref.Workspace + "/" + ref.Task
	if ref.Task == "" {
		k += ref.Sandbox
	}
	a := m.holds[k]
	change(&a)
	m.holds[k] = a
}

func (m *manager) fail(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.failing = err
}

// fixture is a service on a real bus and a real OpenBao.
type fixture struct {
	*secrets.Service
	t       testing.TB
	ctx     context.Context
	mesh    *meshtest.Mesh
	conn    *mesh.Conn
	bao     *bao.Server
	vault   *vault.Client
	manager *manager
	leases  *records.Store[wire.Lease]
	node    nkeys.KeyPair
	cfg     secrets.Config
	clock   *clock
	logs    *syncBuffer
}

type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start makes a fixture. change may alter the configuration, wrap Vault for instance.
func start(t testing.TB, change ...func(*secrets.Config)) *fixture {
	t.Helper()
	f := &fixture{t: t, mesh: meshtest.Start(t, "acme", "globex"), bao: baotest.Start(t), manager: &manager{holds: map[string]workspace.AttemptReply{}}, clock: &clock{}, logs: &syncBuffer{}}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	f.ctx = ctx
	f.conn = f.mesh.Service(schemas.Secrets)
	f.vault = baotest.Client(t, f.bao)
	f.leases = records.New[wire.Lease](f.conn, "lease", 1)
	log := slog.New(slog.NewTextHandler(io.MultiWriter(f.logs, testWriter{t}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	f.cfg = secrets.Config{Vault: f.vault, Clock: f.clock.now, Logger: log}.OnMesh(f.conn)
	f.cfg.Attempts = f.manager
	for _, c := range change {
		c(&f.cfg)
	}
	var err error
	f.Service, err = secrets.New(f.cfg)
	require.NoError(t, err)
	f.node, err = nkeys.CreateCurveKeys()
	require.NoError(t, err)
	return f
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSuffix(string(b), "\n"))
	return len(b), nil
}

func (f *fixture) nodeKey() string {
	k, err := f.node.PublicKey()
	require.NoError(f.t, err)
	return k
}

// run gives alice's agent an attempt on n1 that wants uses.
func (f *fixture) run(agent string, uses ...workspace.SecretUse) wire.LeaseRef {
	return f.runIn("acme", agent, uses...)
}

func (f *fixture) runIn(tenant, agent string, uses ...workspace.SecretUse) wire.LeaseRef {
	ref := wire.LeaseRef{Tenant: tenant, Workspace: "demo", Task: schemas.NewID(), Attempt: 1, Sandbox: schemas.NewID()}
	f.manager.set(ref, func(a *workspace.AttemptReply) {
		*a = workspace.AttemptReply{State: workspace.Running, Attempt: 1, Node: "n1", Sandbox: ref.Sandbox, NodeKey: f.nodeKey(), Principal: agent, Secrets: uses}
	})
	return ref
}

func request(ref wire.LeaseRef) wire.IssueRequest {
	return wire.IssueRequest(ref)
}

// unseal reads what was sealed to a node, as the node does.
func unseal(node nkeys.KeyPair, r wire.IssueReply) (out wire.Issued, err error) {
	b, err := node.Open(r.Sealed, r.SealedBy)
	if err != nil {
		return out, err
	}
	return out, json.Unmarshal(b, &out)
}

// issue gives what is in the seal.
func (f *fixture) issue(ref wire.LeaseRef) wire.Issued {
	f.t.Helper()
	rep, err := f.Issue(f.ctx, n1, request(ref))
	require.NoError(f.t, err)
	issued, err := unseal(f.node, rep)
	require.NoError(f.t, err)
	return issued
}

func (f *fixture) putKV(by mesh.Caller, name, v string) {
	f.t.Helper()
	_, err := f.Put(f.ctx, by, wire.PutRequest{Name: name, Value: v})
	require.NoError(f.t, err)
}

func (f *fixture) putKey(by mesh.Caller, name string) {
	f.t.Helper()
	_, err := f.Put(f.ctx, by, wire.PutRequest{Name: name, Kind: wire.KindTransit})
	require.NoError(f.t, err)
}

func (f *fixture) grant(by mesh.Caller, secret, agent string, as ...string) wire.Grant {
	f.t.Helper()
	g, err := f.Grant(f.ctx, by, wire.GrantRequest{Secret: secret, Agent: agent, As: as})
	require.NoError(f.t, err)
	return g
}

// signing is a sandbox of the reviewer with a signing key, and the token of its lease.
func (f *fixture) signing() (wire.LeaseRef, wire.Issued) {
	f.t.Helper()
	f.putKey(alice, "report-key")
	f.grant(alice, "report-key", "reviewer", wire.AsVault)
	ref := f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})
	return ref, f.issue(ref)
}

// as is Vault with a token.
func (f *fixture) as(token string) *api.Logical {
	v, err := vault.Dial(f.bao.Address(), "")
	require.NoError(f.t, err)
	f.t.Cleanup(func() { vault.Hang(v) })
	return vault.As(v, value.Of(token)).Logical()
}

// sign tries to sign as a sandbox would.
func (f *fixture) sign(token string) (signature string, err error) {
	s, err := f.as(token).WriteWithContext(f.ctx, "weft-transit/sign/acme.demo.report-key", map[string]any{"input": base64.StdEncoding.EncodeToString([]byte("report"))})
	if err != nil {
		return "", err
	}
	return s.Data["signature"].(string), nil
}

func (f *fixture) requireDead(token string) {
	f.t.Helper()
	_, err := f.sign(token)
	var re *api.ResponseError
	require.ErrorAs(f.t, err, &re)
	require.Equal(f.t, http.StatusForbidden, re.StatusCode)
	_, err = f.as(token).ReadWithContext(f.ctx, "auth/token/lookup-self")
	require.Error(f.t, err)
}

func (f *fixture) lease(ref wire.LeaseRef) wire.Lease {
	f.t.Helper()
	r, err := f.leases.Get(f.ctx, records.Key{Tenant: ref.Tenant, Workspace: ref.Workspace, ID: ref.Sandbox})
	require.NoError(f.t, err)
	return r.Value
}

// ours lists the accessors of our role's tokens that are alive, and the policies of leases.
func (f *fixture) ours() (accessors, policies []string) {
	f.t.Helper()
	all, err := f.vault.Accessors(f.ctx)
	require.NoError(f.t, err)
	for _, a := range all {
		h, err := f.vault.Lookup(f.ctx, a)
		if fault.Is(err, fault.NotFound) {
			continue
		}
		require.NoError(f.t, err)
		if h.Ours {
			accessors = append(accessors, a)
		}
	}
	policies, err = f.vault.Policies(f.ctx)
	require.NoError(f.t, err)
	return accessors, policies
}

// requireNothingLeft checks that Vault has no token and no policy of any sandbox.
func (f *fixture) requireNothingLeft() {
	f.t.Helper()
	accessors, policies := f.ours()
	require.Empty(f.t, accessors)
	require.Empty(f.t, policies)
}

// audited gives the audit entries of a tenant so far.
func (f *fixture) audited(tenant string) []wire.Audit {
	f.t.Helper()
	js := f.mesh.Service("provisioner").JetStream()
	st, err := js.Stream(f.ctx, "AUDIT-"+tenant)
	require.NoError(f.t, err)
	info, err := st.Info(f.ctx)
	require.NoError(f.t, err)
	var out []wire.Audit
	for seq := max(info.State.FirstSeq, 1); seq <= info.State.LastSeq; seq++ {
		m, err := st.GetMsg(f.ctx, seq)
		require.NoError(f.t, err)
		require.Equal(f.t, "weft.v1.audit."+tenant+".secret", m.Subject)
		var e wire.Audit
		require.NoError(f.t, json.Unmarshal(m.Data, &e))
		out = append(out, e)
	}
	return out
}

func requireCode(t testing.TB, code fault.Code, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, code, fault.CodeOf(err), "%v", err)
}
