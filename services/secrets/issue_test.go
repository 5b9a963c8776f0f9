package secrets_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nkeys"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets"
	"github.com/weftmesh/weft/services/secrets/forward"
	"github.com/weftmesh/weft/services/secrets/internal/vault"
	"github.com/weftmesh/weft/services/secrets/scrub"
)

func TestIssueInEveryWay(t *testing.T) {
	f := start(t)
	f.putKV(alice, "db", "hunter2-db")
	f.putKV(alice, "api", "hunter2-api")
	f.putKey(alice, "report-key")
	f.grant(alice, "db", "reviewer", wire.AsFile, wire.AsEnv, wire.AsVault)
	f.grant(alice, "api", "reviewer", wire.AsEnv)
	f.grant(alice, "report-key", "reviewer", wire.AsVault)
	ref := f.run("reviewer",
		workspace.SecretUse{Name: "db", As: wire.AsFile}, workspace.SecretUse{Name: "db", As: wire.AsVault},
		workspace.SecretUse{Name: "api", As: wire.AsEnv, Env: "API_KEY"}, workspace.SecretUse{Name: "report-key", As: wire.AsVault})

	rep, err := f.Issue(f.ctx, n1, request(ref))
	require.NoError(t, err)
	require.Equal(t, 3, rep.Leases)
	require.WithinDuration(t, f.clock.now().Add(60e9), rep.ExpiresAt, 5e9)
	require.NotContains(t, string(rep.Sealed), "hunter2")
	other, err := nkeys.CreateCurveKeys()
	require.NoError(t, err)
	_, err = unseal(other, rep)
	require.Error(t, err)
	issued, err := unseal(f.node, rep)
	require.NoError(t, err)

	require.Equal(t, []wire.File{{Name: "db", Value: []byte("hunter2-db")}}, issued.Files)
	require.Equal(t, map[string]string{"API_KEY": "hunter2-api"}, issued.Env)
	require.ElementsMatch(t, []string{"hunter2-db", "hunter2-api"}, issued.Scrub)
	require.Equal(t, f.bao.Address(), issued.VaultAddr)
	require.Equal(t, []string{
		"GET /v1/weft-kv/data/acme/demo/db",
		"PUT /v1/weft-transit/sign/acme.demo.report-key", "POST /v1/weft-transit/sign/acme.demo.report-key",
		"PUT /v1/weft-transit/verify/acme.demo.report-key", "POST /v1/weft-transit/verify/acme.demo.report-key",
		"GET /v1/weft-transit/keys/acme.demo.report-key",
	}, issued.VaultPaths)

	h, err := forward.New(forward.Config{Addr: issued.VaultAddr, Token: issued.VaultToken, Paths: issued.VaultPaths})
	require.NoError(t, err)
	defer h.Close()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("POST", "/v1/transit/sign/report-key", strings.NewReader(`{"input":"cmVwb3J0"}`)))
	require.Equal(t, 200, w.Code, w.Body)
	require.Equal(t, "pw=*** key=***", string(scrub.Compile(issued.Scrub).Bytes([]byte("pw=hunter2-db key=hunter2-api"))))

	l := f.lease(ref)
	require.Equal(t, wire.LeaseActive, l.State)
	require.Equal(t, []string{"api", "db", "report-key"}, l.Secrets)
	require.Equal(t, "reviewer", l.Agent)
	require.Equal(t, "n1", l.Node)
	require.Equal(t, 1, l.Generation)
	page, err := f.LeaseList(f.ctx, alice, workspace.List{})
	require.NoError(t, err)
	require.Len(t, page.Items, 1)
	require.WithinDuration(t, rep.ExpiresAt, page.Items[0].ExpiresAt, 5e9)
}

func TestATokenIsOnlySentWhereItIsNeeded(t *testing.T) {
	f := start(t)
	f.putKV(alice, "db", "hunter2-db")
	f.grant(alice, "db", "reviewer", wire.AsFile)
	issued := f.issue(f.run("reviewer", workspace.SecretUse{Name: "db", As: wire.AsFile}))
	require.Empty(t, issued.VaultToken)
	require.Empty(t, issued.VaultPaths)

	rep, err := f.Issue(f.ctx, n1, request(f.run("planner")))
	require.NoError(t, err)
	require.Zero(t, rep.Leases)
	issued, err = unseal(f.node, rep)
	require.NoError(t, err)
	require.Equal(t, wire.Issued{}, issued)
	page, err := f.LeaseList(f.ctx, alice, workspace.List{})
	require.NoError(t, err)
	require.Len(t, page.Items, 1, "no secrets, no lease")
}

func TestWhatIsNotGrantedIsDenied(t *testing.T) {
	f := start(t)
	f.putKV(alice, "db", "hunter2-db")
	f.putKey(alice, "report-key")
	f.grant(alice, "db", "reviewer", wire.AsFile)
	f.grant(alice, "report-key", "reviewer", wire.AsVault)
	f.putKV(bob, "theirs", "hunter2-theirs")
	f.grant(bob, "theirs", "analyst", wire.AsFile)
	for what, c := range map[string]struct {
		agent string
		use   workspace.SecretUse
		code  fault.Code
		say   string
	}{
		"another agent's":  {"analyst", workspace.SecretUse{Name: "db", As: wire.AsFile}, fault.Denied, "weft secret grant db --agent analyst --as file"},
		"another way":      {"reviewer", workspace.SecretUse{Name: "db", As: wire.AsEnv, Env: "DB"}, fault.Denied, "weft secret grant db --agent reviewer --as file,env"},
		"another tenant's": {"analyst", workspace.SecretUse{Name: "theirs", As: wire.AsFile}, fault.Denied, "no grant"},
		"unknown":          {"reviewer", workspace.SecretUse{Name: "nope", As: wire.AsFile}, fault.Denied, "no grant"},
		"a path":           {"reviewer", workspace.SecretUse{Name: "../globex/demo/theirs", As: wire.AsFile}, fault.Invalid, "DNS label"},
		"a variable":       {"reviewer", workspace.SecretUse{Name: "db", As: wire.AsEnv, Env: "A=B"}, fault.Invalid, "variable"},
	} {
		ref := f.run(c.agent, workspace.SecretUse{Name: "report-key", As: wire.AsVault}, c.use)
		if c.agent != "reviewer" {
			ref = f.run(c.agent, c.use)
		}
		_, err := f.Issue(f.ctx, n1, request(ref))
		requireCode(t, c.code, err)
		require.ErrorContains(t, err, c.say, what)
	}
	f.requireNothingLeft()

	// Granted, and gone since: by hand in Vault, as Delete would take the grant along.
	require.NoError(t, f.vault.Remove(f.ctx, secretName("acme", "demo", "db")))
	_, err := f.Issue(f.ctx, n1, request(f.run("reviewer", workspace.SecretUse{Name: "db", As: wire.AsFile})))
	requireCode(t, fault.NotFound, err)
	require.ErrorContains(t, err, "weft secret put db")
	f.putKey(alice, "db") // and now it is a key
	_, err = f.Issue(f.ctx, n1, request(f.run("reviewer", workspace.SecretUse{Name: "db", As: wire.AsFile})))
	requireCode(t, fault.Invalid, err)

	denied := 0
	for _, e := range f.audited("acme") {
		if e.Action == wire.AuditIssue && e.Code == string(fault.Denied) {
			denied++
		}
	}
	require.Equal(t, 4, denied)
}

func TestOnlyTheNodeThatHoldsTheAttemptIsServed(t *testing.T) {
	f := start(t)
	f.putKey(alice, "report-key")
	f.grant(alice, "report-key", "reviewer", wire.AsVault)
	use := workspace.SecretUse{Name: "report-key", As: wire.AsVault}
	for what, change := range map[string]func(*workspace.AttemptReply){
		"other node":    func(a *workspace.AttemptReply) { a.Node = "n2" },
		"no node":       func(a *workspace.AttemptReply) { a.Node = "" },
		"later attempt": func(a *workspace.AttemptReply) { a.Attempt = 2 },
		"other sandbox": func(a *workspace.AttemptReply) { a.Sandbox = schemas.NewID() },
		"finished":      func(a *workspace.AttemptReply) { a.State = workspace.Complete },
		"queued again":  func(a *workspace.AttemptReply) { a.State = workspace.Queued },
	} {
		ref := f.run("reviewer", use)
		f.manager.set(ref, change)
		_, err := f.Issue(f.ctx, n1, request(ref))
		requireCode(t, fault.Conflict, err)
		require.ErrorContains(t, err, "does not hold", what)
	}
	_, err := f.Issue(f.ctx, n1, request(wire.LeaseRef{Tenant: "acme", Workspace: "demo", Task: schemas.NewID(), Attempt: 1, Sandbox: schemas.NewID()}))
	requireCode(t, fault.Conflict, err)
	ref := f.run("reviewer", use)
	f.manager.set(ref, func(a *workspace.AttemptReply) { a.NodeKey = "UABC" })
	_, err = f.Issue(f.ctx, n1, request(ref))
	requireCode(t, fault.Internal, err)
	f.manager.fail(fault.New(fault.Unavailable, "nobody answers"))
	_, err = f.Issue(f.ctx, n1, request(f.run("reviewer", use)))
	requireCode(t, fault.Unavailable, err)
	f.manager.fail(nil)
	for _, bad := range []wire.IssueRequest{{}, {Tenant: "acme", Workspace: "-", Sandbox: schemas.NewID()}, {Tenant: "acme", Workspace: "demo", Sandbox: "x"}, {Tenant: "acme", Workspace: "demo", Sandbox: schemas.NewID(), Task: ">"}} {
		_, err = f.Issue(f.ctx, n1, bad)
		requireCode(t, fault.Invalid, err)
	}

	// An interactive sandbox has no task.
	ref = wire.LeaseRef{Tenant: "acme", Workspace: "demo", Sandbox: schemas.NewID()}
	f.manager.set(ref, func(a *workspace.AttemptReply) {
		*a = workspace.AttemptReply{State: workspace.Running, Attempt: 7, Node: "n1", Sandbox: ref.Sandbox, NodeKey: f.nodeKey(), Principal: "reviewer", Secrets: []workspace.SecretUse{use}}
	})
	issued := f.issue(ref)
	_, err = f.sign(issued.VaultToken)
	require.NoError(t, err)
	r, err := f.Renew(f.ctx, n1, wire.RenewRequest{Leases: []wire.LeaseRef{ref}})
	require.NoError(t, err)
	require.Empty(t, r.Results[0].Code)
}

func TestIssuedAgainTheFirstTokenIsDead(t *testing.T) {
	f := start(t)
	ref, first := f.signing()
	second := f.issue(ref)
	f.requireDead(first.VaultToken)
	_, err := f.sign(second.VaultToken)
	require.NoError(t, err)
	l := f.lease(ref)
	require.Equal(t, 2, l.Generation)
	accessors, policies := f.ours()
	require.Equal(t, []string{l.Accessor}, accessors)
	require.Len(t, policies, 1)

	// The sandbox is of that attempt for ever.
	stolen := ref
	stolen.Task = schemas.NewID()
	f.manager.set(stolen, func(a *workspace.AttemptReply) {
		*a = workspace.AttemptReply{State: workspace.Running, Attempt: 1, Node: "n1", Sandbox: ref.Sandbox, NodeKey: f.nodeKey(), Principal: "reviewer",
			Secrets: []workspace.SecretUse{{Name: "report-key", As: wire.AsVault}}}
	})
	_, err = f.Issue(f.ctx, n1, request(stolen))
	requireCode(t, fault.Conflict, err)
}

func TestManyIssuesAtOnceLeaveOneLease(t *testing.T) {
	f := start(t)
	ref, _ := f.signing()
	var wg sync.WaitGroup
	tokens := make([]string, 8)
	for i := range tokens {
		wg.Go(func() {
			rep, err := f.Issue(f.ctx, n1, request(ref))
			if err != nil {
				if fault.CodeOf(err) != fault.Conflict && fault.CodeOf(err) != fault.Unavailable {
					t.Errorf("%v", err)
				}
				return
			}
			if issued, err := unseal(f.node, rep); err == nil {
				tokens[i] = issued.VaultToken
			}
		})
	}
	wg.Wait()
	last := f.issue(ref)
	for _, token := range tokens {
		if token != "" {
			f.requireDead(token)
		}
	}
	_, err := f.sign(last.VaultToken)
	require.NoError(t, err)
	accessors, policies := f.ours()
	require.Equal(t, []string{f.lease(ref).Accessor}, accessors)
	require.Len(t, policies, 1)
}

// between calls hooks in the middle of an issue.
type between struct {
	secrets.Vault
	mu                      sync.Mutex
	beforeCreate            func()
	beforeEmpower           func()
	afterEmpower            func()
	failCreate, failEmpower error
}

func (b *between) take(hook *func()) {
	b.mu.Lock()
	h := *hook
	*hook = nil
	b.mu.Unlock()
	if h != nil {
		h()
	}
}

func (b *between) Create(ctx context.Context, s vault.TokenSpec) (vault.Token, error) {
	b.take(&b.beforeCreate)
	if b.failCreate != nil {
		return vault.Token{}, b.failCreate
	}
	return b.Vault.Create(ctx, s)
}

func (b *between) Empower(ctx context.Context, policy string, a []vault.Access) error {
	b.take(&b.beforeEmpower)
	if b.failEmpower != nil {
		return b.failEmpower
	}
	err := b.Vault.Empower(ctx, policy, a)
	b.take(&b.afterEmpower)
	return err
}

func TestARevocationInTheMiddleOfAnIssueWins(t *testing.T) {
	b := &between{}
	f := start(t, func(c *secrets.Config) { b.Vault = c.Vault; c.Vault = b })
	f.putKey(alice, "report-key")
	use := workspace.SecretUse{Name: "report-key", As: wire.AsVault}
	for what, hook := range map[string]*func(){"before the token": &b.beforeCreate, "before its power": &b.beforeEmpower, "after its power": &b.afterEmpower} {
		for how, revoke := range map[string]func(ref wire.LeaseRef, g wire.Grant) error{
			"grant": func(_ wire.LeaseRef, g wire.Grant) error {
				_, err := f.GrantRevoke(f.ctx, alice, workspace.ID{ID: g.ID})
				return err
			},
			"lease": func(ref wire.LeaseRef, _ wire.Grant) error {
				_, err := f.LeaseRevoke(f.ctx, alice, workspace.ID{ID: ref.Sandbox})
				return err
			},
			"delete": func(wire.LeaseRef, wire.Grant) error {
				_, err := f.DeleteWorkspace(f.ctx, mgr, wire.DeleteWorkspace{Tenant: "acme", Workspace: "demo"})
				return err
			},
		} {
			f.putKey(alice, "report-key")
			g := f.grant(alice, "report-key", "reviewer", wire.AsVault)
			ref := f.run("reviewer", use)
			*hook = func() { require.NoError(t, revoke(ref, g)) }
			_, err := f.Issue(f.ctx, n1, request(ref))
			require.Error(t, err, "%s revoked %s", how, what)
			require.Contains(t, []fault.Code{fault.Conflict, fault.NotFound, fault.Unavailable}, fault.CodeOf(err), "%s revoked %s: %v", how, what, err)
			f.requireNothingLeft()
		}
	}
}

func TestAnIssueThatFailsHalfWayLeavesNothingAndMayBeRepeated(t *testing.T) {
	b := &between{}
	f := start(t, func(c *secrets.Config) { b.Vault = c.Vault; c.Vault = b })
	f.putKey(alice, "report-key")
	f.grant(alice, "report-key", "reviewer", wire.AsVault)
	ref := f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})
	down := fault.New(fault.Unavailable, "down")
	for _, fail := range []*error{&b.failCreate, &b.failEmpower} {
		*fail = down
		_, err := f.Issue(f.ctx, n1, request(ref))
		requireCode(t, fault.Unavailable, err)
		*fail = nil
		f.requireNothingLeft()
		require.Equal(t, wire.LeaseRevoked, f.lease(ref).State)
		_, err = f.sign(f.issue(ref).VaultToken)
		require.NoError(t, err)
	}
}

func TestNoValueIsInLogsRecordsAuditOrErrors(t *testing.T) {
	const plain = "correct-horse-battery-staple"
	f := start(t)
	var errs []error
	_, err := f.Put(f.ctx, alice, wire.PutRequest{Name: "../" + "x", Value: plain})
	errs = append(errs, err)
	_, err = f.Put(f.ctx, alice, wire.PutRequest{Name: "k", Kind: wire.KindTransit, Value: plain})
	errs = append(errs, err)
	_, err = f.Put(f.ctx, alice, wire.PutRequest{Name: "k", Kind: "x", Value: plain})
	errs = append(errs, err)
	f.putKV(alice, "db", plain)
	f.grant(alice, "db", "reviewer", wire.AsFile, wire.AsEnv, wire.AsVault)
	ref := f.run("reviewer", workspace.SecretUse{Name: "db", As: wire.AsFile}, workspace.SecretUse{Name: "db", As: wire.AsEnv, Env: "DB"}, workspace.SecretUse{Name: "db", As: wire.AsVault})
	issued := f.issue(ref)
	second := f.issue(ref)
	_, err = f.Renew(f.ctx, n1, wire.RenewRequest{Leases: []wire.LeaseRef{ref}})
	require.NoError(t, err)
	f.putKV(alice, "zero", plain+"\x00")
	f.grant(alice, "zero", "reviewer", wire.AsEnv)
	_, err = f.Issue(f.ctx, n1, request(f.run("reviewer", workspace.SecretUse{Name: "zero", As: wire.AsEnv, Env: "Z"})))
	requireCode(t, fault.Invalid, err)
	errs = append(errs, err)
	_, err = f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: ref, Reason: "done"})
	require.NoError(t, err)
	require.NoError(t, f.Reconcile(f.ctx))

	var seen strings.Builder
	seen.WriteString(f.logs.String())
	for _, err := range errs {
		require.Error(t, err)
		seen.WriteString(err.Error())
	}
	audit, err := json.Marshal(f.audited("acme"))
	require.NoError(t, err)
	seen.Write(audit)
	js := f.mesh.Service("provisioner").JetStream()
	st, err := js.Stream(f.ctx, "LOG-acme")
	require.NoError(t, err)
	info, err := st.Info(f.ctx)
	require.NoError(t, err)
	require.Positive(t, info.State.Msgs)
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq; seq++ {
		if m, err := st.GetMsg(f.ctx, seq); err == nil {
			seen.Write(m.Data)
			for k, v := range m.Header {
				seen.WriteString(k + strings.Join(v, ","))
			}
		}
	}
	require.Contains(t, seen.String(), "reviewer")
	for _, hidden := range []string{plain, "correct-horse", issued.VaultToken, second.VaultToken} {
		require.NotEmpty(t, hidden)
		require.NotContains(t, seen.String(), hidden)
	}
}

// TestTwoTenantsCantReachEachOther tries every operation with names made to lead elsewhere. Whatever the
// name, what the other tenant has is neither seen nor changed.
func TestTwoTenantsCantReachEachOther(t *testing.T) {
	f := start(t)
	f.putKV(bob, "db", "globex-value")
	f.putKey(bob, "key")
	g := f.grant(bob, "db", "reader", wire.AsFile)
	theirs := f.runIn("globex", "reader", workspace.SecretUse{Name: "db", As: wire.AsFile})
	f.issue(theirs)
	names := []string{"db", "key", "../globex/demo/db", "../../globex/demo/db", "globex.demo.key", "demo/../../globex/demo/db", "..", ".", "*", "+", "%2e%2e/globex", "db\x00", "db ", "DB", "globex/demo/db",
		"acme.demo.key/../globex.demo.key", strings.Repeat("a", 300), "", "-", "{{identity.entity.id}}", "\u2024\u2024/db"}
	callers := []mesh.Caller{alice}
	for _, w := range []string{"-", "../globex", "demo.x", "*", ">", "", "globex/demo"} {
		callers = append(callers, mesh.Caller{Tenant: "acme", Workspace: w, Principal: "alice"})
	}
	for _, by := range callers {
		for _, n := range names {
			_, err := f.Put(f.ctx, by, wire.PutRequest{Name: n, Value: "acme-value"})
			ok := err == nil
			_, _ = f.Put(f.ctx, by, wire.PutRequest{Name: n, Kind: wire.KindTransit})
			_, _ = f.Grant(f.ctx, by, wire.GrantRequest{Secret: n, Agent: "reader", As: []string{"file"}})
			_, _ = f.Verify(f.ctx, by, wire.VerifyRequest{Name: n})
			if by == alice {
				ref := f.run("reader", workspace.SecretUse{Name: n, As: wire.AsFile})
				rep, err := f.Issue(f.ctx, n1, request(ref))
				if ok && err == nil {
					issued, err := unseal(f.node, rep)
					require.NoError(t, err)
					require.Equal(t, "acme-value", string(issued.Files[0].Value))
				}
			}
			_, _ = f.Delete(f.ctx, by, workspace.Name{Name: n})
		}
		_, _ = f.GrantRevoke(f.ctx, by, workspace.ID{ID: g.ID})
		_, _ = f.LeaseRevoke(f.ctx, by, workspace.ID{ID: theirs.Sandbox})
	}
	_, _ = f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: wire.LeaseRef{Tenant: "acme", Workspace: "demo", Sandbox: theirs.Sandbox}})
	_, err := f.DeleteWorkspace(f.ctx, mgr, wire.DeleteWorkspace{Tenant: "acme"})
	require.NoError(t, err)
	require.NoError(t, f.Reconcile(f.ctx))

	require.Equal(t, wire.LeaseActive, f.lease(theirs).State)
	again := f.runIn("globex", "reader", workspace.SecretUse{Name: "db", As: wire.AsFile})
	require.Equal(t, "globex-value", string(f.issue(again).Files[0].Value))
	list, err := f.List(f.ctx, bob, workspace.List{})
	require.NoError(t, err)
	require.Len(t, list.Items, 2)
	require.Equal(t, 1, list.Items[0].Version)

	// A node can't use one tenant's sandbox id to spoil another's lease.
	f.putKV(alice, "db", "acme-value")
	f.grant(alice, "db", "reader", wire.AsFile)
	clash := wire.LeaseRef{Tenant: "acme", Workspace: "demo", Task: schemas.NewID(), Attempt: 1, Sandbox: theirs.Sandbox}
	f.manager.set(clash, func(a *workspace.AttemptReply) {
		*a = workspace.AttemptReply{State: workspace.Running, Attempt: 1, Node: "n1", Sandbox: clash.Sandbox, NodeKey: f.nodeKey(), Principal: "reader", Secrets: []workspace.SecretUse{{Name: "db", As: wire.AsFile}}}
	})
	f.issue(clash)
	_, err = f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: clash})
	require.NoError(t, err)
	r, err := f.Renew(f.ctx, n1, wire.RenewRequest{Leases: []wire.LeaseRef{theirs}})
	require.NoError(t, err)
	require.Empty(t, r.Results[0].Code, r.Results[0].Message)
	require.False(t, errors.Is(err, context.Canceled))
}
