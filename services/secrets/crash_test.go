package secrets_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/secrets"
	"github.com/weftmesh/weft/services/secrets/internal/baotest"
	"github.com/weftmesh/weft/services/secrets/value"
)

// childEnv makes the test binary a secrets service that does one thing and is killed in the middle of it.
const childEnv = "WEFT_SECRETS_TEST_CHILD"

// orders are what the child is told.
type orders struct {
	URL, JWT string
	Seed     []byte
	Vault    string
	Token    string
	TTL      time.Duration
	Issue    *wire.IssueRequest
	Revoke   *wire.RevokeRequest
}

func child() {
	fail := func(err error) {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	var o orders
	fail(json.Unmarshal([]byte(os.Getenv(childEnv)), &o))
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := mesh.Connect(ctx, mesh.Options{URL: o.URL, Name: schemas.Secrets, Credentials: func() (accounts.Credentials, error) {
		return accounts.Credentials{JWT: o.JWT, Seed: o.Seed}, nil
	}})
	fail(err)
	v, err := secrets.Connect(secrets.VaultOptions{Address: o.Vault, Token: value.Of(o.Token)})
	fail(err)
	s, err := secrets.New(secrets.Config{Vault: v, TTL: o.TTL}.OnMesh(conn))
	fail(err)
	if o.Issue != nil {
		_, err = s.Issue(ctx, n1, *o.Issue)
	} else {
		_, err = s.Revoke(ctx, n1, *o.Revoke)
	}
	fail(err)
}

// killAt runs the order in a process that dies at the failpoint.
func (f *fixture) killAt(point string, o orders) {
	f.t.Helper()
	creds, err := f.mesh.Keys.Service(schemas.Secrets)
	require.NoError(f.t, err)
	token, err := f.bao.Login(f.ctx, nil)
	require.NoError(f.t, err)
	o.URL, o.JWT, o.Seed, o.Vault, o.Token = f.mesh.Bus.URL(), creds.JWT, creds.Seed, f.bao.Address(), token.Reveal()
	o.TTL = f.cfg.TTL
	b, err := json.Marshal(o)
	require.NoError(f.t, err)
	cmd := exec.CommandContext(f.ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(b), failpoint.Env+"="+point)
	out, err := cmd.CombinedOutput()
	require.ErrorContains(f.t, err, "killed", "%s: %s", point, out)
}

// serveManager lets the child ask who holds an attempt, over the mesh.
func (f *fixture) serveManager() {
	f.t.Helper()
	served, err := f.mesh.Service(schemas.WorkspaceManager).ServeInt(schemas.WorkspaceManager,
		mesh.Op(workspace.OpAttempt, 5*time.Second, func(ctx context.Context, by mesh.Caller, req workspace.AttemptRequest) (workspace.AttemptReply, error) {
			if by.Principal != schemas.Secrets {
				return workspace.AttemptReply{}, fault.New(fault.Denied, "only secrets asks here")
			}
			return f.manager.Attempt(ctx, req)
		}))
	require.NoError(f.t, err)
	f.t.Cleanup(served.Stop)
}

func TestFailpointsAreRegistered(t *testing.T) {
	require.Subset(t, failpoint.Names(), []string{"secrets.issue.after-record", "secrets.issue.after-token", "secrets.issue.after-active", "secrets.revoke.before-record"})
}

func TestKilledInTheMiddleOfAnIssue(t *testing.T) {
	for _, point := range []string{"secrets.issue.after-record", "secrets.issue.after-token", "secrets.issue.after-active"} {
		t.Run(point, func(t *testing.T) {
			f := start(t, func(c *secrets.Config) { c.TTL = 3 * time.Second })
			f.serveManager()
			f.putKey(alice, "report-key")
			f.grant(alice, "report-key", "reviewer", wire.AsVault)
			crash := func() wire.LeaseRef {
				ref := f.run("reviewer", workspace.SecretUse{Name: "report-key", As: wire.AsVault})
				req := request(ref)
				f.killAt(point, orders{Issue: &req})
				_, policies := f.ours()
				require.Empty(t, policies, "whatever token there is, it may do nothing")
				return ref
			}

			// Nobody comes back: it ends at its TTL by itself.
			ref := crash()
			accessors, _ := f.ours()
			if point == "secrets.issue.after-record" {
				require.Empty(t, accessors)
			} else {
				require.Len(t, accessors, 1)
			}
			require.Eventually(t, func() bool { accessors, _ := f.ours(); return len(accessors) == 0 }, 20*time.Second, 50*time.Millisecond)
			_ = ref

			// The node asks again: it gets a working lease, and what was left is revoked.
			ref = crash()
			issued := f.issue(ref)
			_, err := f.sign(issued.VaultToken)
			require.NoError(t, err)
			require.Equal(t, 2, f.lease(ref).Generation)
			require.NoError(t, f.Reconcile(f.ctx))
			accessors, policies := f.ours()
			require.Equal(t, []string{f.lease(ref).Accessor}, accessors)
			require.Len(t, policies, 1)
			_, err = f.sign(issued.VaultToken)
			require.NoError(t, err)
			_, err = f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: ref})
			require.NoError(t, err)

			// The attempt has gone to another node: the reconciler ends what was left, before its TTL.
			ref = crash()
			f.manager.set(ref, func(a *workspace.AttemptReply) { a.Attempt, a.Node = 2, "n2" })
			f.clock.advance(61 * time.Second)
			require.NoError(t, f.Reconcile(f.ctx))
			f.requireNothingLeft()
			require.Equal(t, wire.LeaseRevoked, f.lease(ref).State)
		})
	}
}

func TestKilledInTheMiddleOfARevocation(t *testing.T) {
	f := start(t)
	f.serveManager()
	ref, issued := f.signing()
	f.killAt("secrets.revoke.before-record", orders{Revoke: &wire.RevokeRequest{LeaseRef: ref, Reason: "finished"}})
	f.requireDead(issued.VaultToken)
	f.requireNothingLeft()
	require.Equal(t, wire.LeaseActive, f.lease(ref).State)
	page, err := f.LeaseList(f.ctx, alice, workspace.List{})
	require.NoError(t, err)
	require.Equal(t, wire.LeaseRevoked, page.Items[0].State, "who asks is told the truth")
	r, err := f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: ref, Reason: "finished"})
	require.NoError(t, err)
	require.Equal(t, 1, r.Leases)
	require.Equal(t, "finished", f.lease(ref).Reason)
}

func TestVaultKilledInTheMiddleOfEverything(t *testing.T) {
	f := start(t)
	ref, issued := f.signing()
	f.putKV(alice, "db", "hunter2")
	f.grant(alice, "db", "writer", wire.AsVault)

	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	var refs []wire.LeaseRef
	var tokens []string
	done, unavailable := 0, 0
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				mu.Lock()
				r := f.run("writer", workspace.SecretUse{Name: "db", As: wire.AsVault})
				refs = append(refs, r)
				mu.Unlock()
				rep, err := f.Issue(f.ctx, n1, request(r))
				if err == nil {
					var issued wire.Issued
					issued, err = unseal(f.node, rep)
					mu.Lock()
					tokens = append(tokens, issued.VaultToken)
					mu.Unlock()
				}
				if err == nil {
					_, err = f.Renew(f.ctx, n1, wire.RenewRequest{Leases: []wire.LeaseRef{r, ref}})
				}
				if err == nil && len(r.Task) > 0 {
					_, err = f.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: r, Reason: "done"})
				}
				mu.Lock()
				if err == nil {
					done++
				} else if code := fault.CodeOf(err); code == fault.Unavailable {
					unavailable++
				} else {
					t.Errorf("%v", err)
				}
				mu.Unlock()
				if err == nil {
					continue
				}
				select { // as a node waits before it tries again
				case <-stop:
				case <-time.After(5 * time.Millisecond):
				}
			}
		})
	}
	for range 3 {
		pid := f.bao.Pid()
		mu.Lock()
		before := done
		mu.Unlock()
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return done > before+5 }, 20*time.Second, 5*time.Millisecond)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		require.Eventually(t, func() bool { return f.bao.Pid() != pid && f.Ready(f.ctx) == nil }, 20*time.Second, 5*time.Millisecond)
	}
	close(stop)
	wg.Wait()
	t.Logf("%d leases came and went, %d times unavailable", done, unavailable)
	require.Positive(t, unavailable)

	_, err := f.sign(issued.VaultToken)
	require.NoError(t, err, "a lease from before goes on")
	require.Empty(t, f.renewOne(n1, ref).Code)
	for _, r := range refs {
		f.manager.set(r, func(a *workspace.AttemptReply) { a.State = workspace.Complete })
	}
	require.NoError(t, f.Reconcile(f.ctx))
	f.clock.advance(61 * time.Second)
	require.NoError(t, f.Reconcile(f.ctx))
	accessors, policies := f.ours()
	require.Equal(t, []string{f.lease(ref).Accessor}, accessors)
	require.Len(t, policies, 1)
	require.NotEmpty(t, tokens)
	for _, token := range tokens {
		_, err := f.as(token).ReadWithContext(f.ctx, "weft-kv/data/acme/demo/db")
		require.Error(t, err, "what was revoked is of no use, whenever Vault was killed")
	}
}

func TestWithoutVault(t *testing.T) {
	f := start(t)
	ref, _ := f.signing()
	v, err := secrets.Connect(secrets.VaultOptions{Address: "unix:///nonexistent/bao.sock", Token: value.Of("s.x")})
	require.NoError(t, err)
	cfg := f.cfg
	cfg.Vault = v
	s, err := secrets.New(cfg)
	require.NoError(t, err)
	_, err = s.Put(f.ctx, alice, wire.PutRequest{Name: "x", Value: "yyyy"})
	requireCode(t, fault.Unavailable, err)
	_, err = s.List(f.ctx, alice, workspace.List{})
	requireCode(t, fault.Unavailable, err)
	_, err = s.Issue(f.ctx, n1, request(ref))
	requireCode(t, fault.Unavailable, err)
	_, err = s.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: ref})
	requireCode(t, fault.Unavailable, err)
	r, err := s.Renew(f.ctx, n1, wire.RenewRequest{Leases: []wire.LeaseRef{ref}})
	require.NoError(t, err)
	require.Equal(t, string(fault.Unavailable), r.Results[0].Code)
	requireCode(t, fault.Unavailable, s.Ready(f.ctx))
	require.Error(t, s.Reconcile(f.ctx))
	require.Equal(t, wire.LeaseActive, f.lease(ref).State)

	ctx, cancel := context.WithCancel(f.ctx)
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	cancel()
	require.NoError(t, <-done)
}

func TestVaultFromEnv(t *testing.T) {
	env := map[string]string{}
	get := func(k string) string { return env[k] }
	_, ok, err := secrets.VaultFromEnv(get)
	require.NoError(t, err)
	require.False(t, ok)
	env["VAULT_ADDR"] = "https://vault.example.org"
	_, ok, err = secrets.VaultFromEnv(get)
	require.True(t, ok)
	requireCode(t, fault.Invalid, err)
	env["VAULT_ROLE_ID"], env["VAULT_SECRET_ID_FILE"] = "r", "/nonexistent"
	_, _, err = secrets.VaultFromEnv(get)
	requireCode(t, fault.Invalid, err)
	f := t.TempDir() + "/id"
	require.NoError(t, os.WriteFile(f, []byte("sesame\n"), 0o600))
	env["VAULT_SECRET_ID_FILE"], env["VAULT_NAMESPACE"] = f, "weft"
	o, ok, err := secrets.VaultFromEnv(get)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "sesame", o.SecretID.Reveal())
	require.Equal(t, "weft", o.Namespace)
	v, err := secrets.Connect(o)
	require.NoError(t, err)
	require.Equal(t, "weft", v.Namespace())
	_, err = secrets.Connect(secrets.VaultOptions{})
	requireCode(t, fault.Invalid, err)
	_, err = secrets.New(secrets.Config{})
	require.Error(t, err)
}

func TestOnAnExternalVaultInANamespace(t *testing.T) {
	f := start(t)
	admin := baotest.Root(t, f.bao)
	_, err := admin.Logical().WriteWithContext(f.ctx, "sys/namespaces/weft", nil)
	require.NoError(t, err)
	root, err := admin.Auth().Token().CreateWithContext(f.ctx, nil)
	require.NoError(t, err)
	o := secrets.VaultOptions{Address: f.bao.Address(), Namespace: "weft", Token: value.Of(root.Auth.ClientToken)}
	v, err := secrets.Connect(o)
	require.NoError(t, err)
	defer v.Close()
	require.NoError(t, v.Ensure(f.ctx))
	cfg := f.cfg
	cfg.Vault = v
	s, err := secrets.New(cfg)
	require.NoError(t, err)
	_, err = s.Put(f.ctx, alice, wire.PutRequest{Name: "inside", Value: "hunter2"})
	require.NoError(t, err)
	list, err := f.List(f.ctx, alice, workspace.List{})
	require.NoError(t, err)
	require.Empty(t, list.Items, "the root namespace has none")
	_, err = s.Grant(f.ctx, alice, wire.GrantRequest{Secret: "inside", Agent: "reader", As: []string{wire.AsFile, wire.AsVault}})
	require.NoError(t, err)
	ref := f.run("reader", workspace.SecretUse{Name: "inside", As: wire.AsFile}, workspace.SecretUse{Name: "inside", As: wire.AsVault})
	rep, err := s.Issue(f.ctx, n1, request(ref))
	require.NoError(t, err)
	issued, err := unseal(f.node, rep)
	require.NoError(t, err)
	require.Equal(t, "hunter2", string(issued.Files[0].Value))
	require.Equal(t, "weft", issued.VaultNamespace)
	_, err = s.Revoke(f.ctx, n1, wire.RevokeRequest{LeaseRef: ref})
	require.NoError(t, err)
	require.NoError(t, s.Reconcile(f.ctx))
}
