package e2e

import (
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/catalog"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/memory"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestTenants: one tenant sees nothing of another by any id or name, and what is deleted is gone.
func TestTenants(t *testing.T) {
	w := boot(t)
	w.must("tenant", "create", "rival")
	_, stderr, code := w.cli("", "context", "add", "rival", "--data-dir", w.dir, "--tenant", "rival", "--principal", "carol", "--in", "default")
	require.Zero(t, code, stderr)
	w.must("--context", "rival", "workspace", "create", "default")
	w.must("workspace", "create", "brief")
	shareTemplate(t, w)

	mine := furnish(t, w.as("alice"))
	brief := furnish(t, w.in("brief", "alice"))
	rival := w.dial("rival", "default", "carol")
	t.Run("nothing by any id or name", func(t *testing.T) { testUnseen(t, w, rival, mine) })
	t.Run("no subject of another tenant", func(t *testing.T) { testNoSubject(t, rival) })
	t.Run("a message id shadows nothing", func(t *testing.T) { testSameID(t, w.as("alice"), rival) })
	t.Run("a deleted workspace", func(t *testing.T) {
		w.must("workspace", "delete", "brief", "--yes")
		requireGone(t, w, "default", "brief", brief)
		w.must("workspace", "create", "brief")
		requireEmpty(t, w.in("brief", "alice"))
		furnish(t, w.in("brief", "alice"))
		_, err := w.as("alice").Task(ctx(t, 10*time.Second), mine.task)
		require.NoError(t, err, "the other workspace is as it was")
	})
	t.Run("a deleted tenant", func(t *testing.T) {
		theirs := furnish(t, rival)
		running, err := rival.Submit(ctx(t, 10*time.Second), shell("sleep 600"), "")
		require.NoError(t, err)
		waitState(t, rival.Task, running.Task, workspace.Running)
		w.must("tenant", "delete", "rival", "--yes")
		requireGone(t, w, "rival", "", theirs)
		_, err = client.Dial(ctx(t, 5*time.Second), client.Context{DataDir: w.dir, Tenant: "rival", Workspace: "default", Principal: "carol"})
		require.Error(t, err)
		w.must("tenant", "create", "rival")
		w.must("--context", "rival", "workspace", "create", "default")
		requireEmpty(t, w.dial("rival", "default", "carol"))
		furnish(t, w.dial("rival", "default", "carol"))
	})
}

// shareTemplate gives every tenant the base template.
func shareTemplate(t *testing.T, w *world) {
	t.Helper()
	base := item[workspace.Template](t, w.must("template", "get", "base", "--json"))
	_, stderr, code := w.cli(`{"kind": "Template", "name": "base", "spec": {"image": "`+base.Image+`", "level": "standard"}}`, "apply", "--shared", "-f", "-")
	require.Zero(t, code, stderr)
}

// things are what a workspace has one of.
type things struct{ task, sandbox, snapshot, artifact, memory, secret, agent, grant string }

const marker = "e1g3n-und-g3h31m"

// furnish gives a workspace one of everything.
func furnish(t testing.TB, c *client.Client) things {
	t.Helper()
	within := ctx(t, 60*time.Second)
	var has things
	_, err := c.PutFile(within, filesystem.PutRequest{Path: "private.txt"}, strings.NewReader(marker))
	require.NoError(t, err)
	snap, err := c.Snapshot(within, "of "+c.Workspace())
	require.NoError(t, err)
	added, err := c.AddMemory(within, memory.AddRequest{Key: "fact", Text: "the word is " + marker})
	require.NoError(t, err)
	_, err = c.PutSecret(within, secrets.PutRequest{Name: "token", Value: marker})
	require.NoError(t, err)
	_, err = c.PutSecret(within, secrets.PutRequest{Name: "seal", Kind: secrets.KindTransit})
	require.NoError(t, err)
	_, err = c.Agents().Put(within, workspace.Agent{Name: "keeper", Template: "base", Entrypoint: []string{"/bin/sh", "-c", "echo x > made.txt; cat private.txt"},
		Secrets: []workspace.SecretUse{{Name: "token", As: "file"}}}, 0)
	require.NoError(t, err)
	grant, err := c.GrantSecret(within, secrets.GrantRequest{Secret: "token", Agent: "keeper", As: []string{"file"}})
	require.NoError(t, err)
	_, err = c.Send(within, "ch-news", []byte(marker), client.SendOptions{})
	require.NoError(t, err)
	task := finish(t, c, workspace.Submission{Agent: "keeper"})
	require.Equal(t, workspace.Complete, task.State, "%+v %s", task, output(t, c, task.ID, "stderr"))
	sandbox, err := c.CreateSandbox(within, workspace.SandboxCreate{Template: "base"})
	require.NoError(t, err)
	has = things{task: task.ID, sandbox: sandbox.ID, snapshot: snap.ID, artifact: task.Attempt.Outcome.Artifact, memory: added.Item.ID, secret: "token", agent: "keeper", grant: grant.ID}
	return has
}

// requireEmpty: lists of a workspace that has nothing yet.
func requireEmpty(t testing.TB, c *client.Client) {
	t.Helper()
	within := ctx(t, 20*time.Second)
	files, err := c.Files(within, filesystem.ListRequest{Recursive: true}, 0)
	require.NoError(t, err)
	require.Empty(t, files)
	snaps, err := c.Snapshots(within, 0)
	require.NoError(t, err)
	require.Empty(t, snaps)
	artifacts, err := c.Artifacts(within, 0)
	require.NoError(t, err)
	require.Empty(t, artifacts)
	memories, err := c.Memories(within, memory.ListRequest{}, 0)
	require.NoError(t, err)
	require.Empty(t, memories)
	found, err := c.SearchMemory(within, memory.SearchRequest{Query: marker})
	require.NoError(t, err)
	require.Empty(t, found.Hits)
	ss, err := c.Secrets(within, 0)
	require.NoError(t, err)
	require.Empty(t, ss)
	grants, err := c.Grants(within, 0)
	require.NoError(t, err)
	require.Empty(t, grants)
	leases, err := c.Leases(within, 0)
	require.NoError(t, err)
	require.Empty(t, leases)
	tasks, err := c.Tasks(within, workspace.TaskList{}, 0)
	require.NoError(t, err)
	require.Empty(t, tasks)
	sandboxes, err := c.Sandboxes(within, 0)
	require.NoError(t, err)
	require.Empty(t, sandboxes)
	agents, err := c.Agents().List(within, 0)
	require.NoError(t, err)
	require.Empty(t, agents)
	msgs, err := c.Messages(within, workspace.MessagesRequest{To: "ch-news"})
	require.NoError(t, err)
	require.Empty(t, msgs)
}

// testUnseen asks, as one tenant, for everything that another has.
func testUnseen(t *testing.T, w *world, rival *client.Client, of things) {
	requireEmpty(t, rival)
	within := ctx(t, 30*time.Second)
	for name, ask := range map[string]func() error{
		"task":         func() error { _, err := rival.Task(within, of.task); return err },
		"task cancel":  func() error { _, err := rival.CancelTask(within, of.task); return err },
		"task retry":   func() error { _, err := rival.RetryTask(within, of.task); return err },
		"task history": func() error { _, err := rival.TaskHistory(within, of.task); return err },
		"output": func() error {
			return rival.Output(within, workspace.OutputRequest{Task: of.task}, func(workspace.OutputChunk) error { return nil })
		},
		"sandbox":      func() error { _, err := rival.Sandbox(within, of.sandbox); return err },
		"sandbox kill": func() error { _, err := rival.KillSandbox(within, of.sandbox); return err },
		"sandbox exec": func() error {
			s, err := rival.Exec(within, of.sandbox, runtime.ExecRequest{Argv: []string{"id"}})
			if err == nil {
				_ = s.Close()
			}
			return err
		},
		"file": func() error { _, err := rival.StatFile(within, filesystem.GetRequest{Path: "private.txt"}); return err },
		"file of a snapshot": func() error {
			_, err := rival.StatFile(within, filesystem.GetRequest{Path: "private.txt", Snapshot: of.snapshot})
			return err
		},
		"restore":  func() error { _, err := rival.RestoreSnapshot(within, of.snapshot); return err },
		"artifact": func() error { _, err := rival.GetArtifact(within, of.artifact, io.Discard); return err },
		"memory":   func() error { _, err := rival.Memory(within, memory.GetRequest{ID: of.memory}); return err },
		"secret":   func() error { return rival.DeleteSecret(within, of.secret) },
		"grant":    func() error { _, err := rival.RevokeGrant(within, of.grant); return err },
		"agent":    func() error { _, err := rival.Agents().Get(within, of.agent); return err },
	} {
		require.Equal(t, fault.NotFound, fault.CodeOf(ask()), "%s: %v", name, ask())
	}
	start := time.Unix(0, 0)
	for _, of := range []workspace.EventsRequest{{FromTime: &start}, {FromTime: &start, IDs: []string{of.task, of.sandbox}}} {
		require.NoError(t, rival.Events(within, of, func(e client.Event) error {
			require.NotContains(t, string(e.Value), "keeper")
			return nil
		}))
	}
	for _, path := range []string{"../../default/default/private.txt", "/../default/private.txt", "..", "default/../../x"} {
		_, err := rival.StatFile(within, filesystem.GetRequest{Path: path})
		require.Contains(t, []fault.Code{fault.Invalid, fault.NotFound}, fault.CodeOf(err), "%s: %v", path, err)
	}
	s, err := w.as("alice").Sandbox(within, of.sandbox)
	require.NoError(t, err)
	require.Equal(t, workspace.SandboxRunning, s.State)
}

// testNoSubject tries every operation there is under the name of the other tenant, and as a service.
func testNoSubject(t *testing.T, rival *client.Client) {
	me := rival.Principal()
	tries := []string{"weft.v1.task.default.default." + me + ".submit", "weft.v1.msg.default.default.alice." + me}
	for _, o := range catalog.Operations() {
		switch o.Plane {
		case schemas.PlaneReq:
			tries = append(tries, "weft.v1.req.default.default."+me+"."+o.Service+"."+o.Name, "weft.v1.req.rival.default.alice."+o.Service+"."+o.Name)
		case schemas.PlaneInt:
			for _, caller := range o.Callers {
				tries = append(tries, "weft.v1.int."+caller+"."+o.Service+"."+o.Name)
			}
		case schemas.PlaneSbx:
			tries = append(tries, "weft.v1.sbx.default.default."+schemas.NewID()+"."+me+"."+o.Name)
		case schemas.PlaneNode:
			tries = append(tries, "weft.v1.node.n1.workspace-manager."+o.Name)
		}
	}
	for _, subject := range tries {
		_, err := mesh.Request[json.RawMessage](ctx(t, 5*time.Second), rival.Conn(), subject, map[string]string{})
		require.Equal(t, fault.Denied, fault.CodeOf(err), "%s: %v", subject, err)
	}
}

// testSameID submits with the same ids in two tenants.
func testSameID(t *testing.T, a, b *client.Client) {
	key := "same-" + schemas.NewID()
	seen := map[string]bool{}
	for _, c := range []*client.Client{a, b} {
		subject, err := schemas.Submit(c.Tenant(), "default", c.Principal())
		require.NoError(t, err)
		body, err := json.Marshal(shell("echo " + c.Tenant()))
		require.NoError(t, err)
		ack, err := c.Conn().PublishMsg(ctx(t, 10*time.Second), &nats.Msg{Subject: subject, Data: body,
			Header: nats.Header{schemas.HeaderID: {key}, jetstream.MsgIDHeader: {key}}})
		require.NoError(t, err)
		require.False(t, ack.Duplicate)
		task := ended(t, c, schemas.TaskID(c.Tenant(), "default", key))
		require.Equal(t, c.Tenant()+"\n", output(t, c, task.ID, "stdout"))
		seen[task.ID] = true
	}
	require.Len(t, seen, 2)
}

// requireGone looks for what is left of a workspace, or of a whole tenant, where each service keeps its own.
func requireGone(t *testing.T, w *world, tenant, ws string, had things) {
	t.Helper()
	within := ctx(t, 30*time.Second)
	admin, keys := w.admin(t, within)
	defer admin.Close()
	requireNoSubjects(t, within, admin.JetStream(), tenant, ws)
	gone := ws
	if ws == "" {
		gone = tenant
		known, err := keys.Tenants()
		require.NoError(t, err)
		require.NotContains(t, known, tenant)
	}
	for _, dir := range []string{"files", "memory", "keys"} {
		require.NoError(t, filepath.WalkDir(filepath.Join(w.dir, dir), func(path string, d fs.DirEntry, err error) error {
			require.NotEqual(t, gone, strings.TrimSuffix(d.Name(), filepath.Ext(d.Name())), path)
			return nil
		}))
	}
	path := "weft-kv/metadata/" + tenant
	if ws != "" {
		path += "/" + ws
	}
	require.Equal(t, http.StatusNotFound, vaultList(t, w, path))
	require.NoFileExists(t, filepath.Join(runDir(w.dir), "runc", "weft", had.sandbox))
}

// admin is the mesh's own user who sees every stream.
func (w *world) admin(t *testing.T, within context.Context) (*mesh.Conn, *accounts.Keyring) {
	t.Helper()
	keys, err := accounts.OpenKeyring(filepath.Join(w.dir, "keys"))
	require.NoError(t, err)
	admin, err := mesh.Connect(within, mesh.Options{URL: "nats://" + w.listen, Name: accounts.RoleAdmin,
		Credentials: func() (accounts.Credentials, error) { return keys.Service(accounts.RoleAdmin) }})
	require.NoError(t, err)
	return admin, keys
}

// requireNoSubjects: no stream of a workspace has a message of it, or none of a tenant's streams is there.
func requireNoSubjects(t *testing.T, within context.Context, js jetstream.JetStream, tenant, ws string) {
	t.Helper()
	for _, of := range []string{"LOG-", "TASKS-", "OUT-", "MSG-"} {
		stream, err := js.Stream(within, of+tenant)
		if ws == "" {
			require.ErrorIs(t, err, jetstream.ErrStreamNotFound, of+tenant)
			continue
		}
		require.NoError(t, err)
		info, err := stream.Info(within, jetstream.WithSubjectFilter(schemas.Prefix+"*."+tenant+"."+ws+".>"))
		require.NoError(t, err)
		require.Empty(t, info.State.Subjects, of+tenant)
	}
}

// vaultList asks the mesh's own OpenBao for a list, as the secrets service may, and gives the status.
func vaultList(t *testing.T, w *world, path string) int {
	t.Helper()
	var keys struct {
		Token string `json:"service_token"`
	}
	b, err := os.ReadFile(filepath.Join(w.dir, "vault", "keys.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &keys))
	c := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(w.dir, "vault", "bao.sock"))
	}}}
	r, err := http.NewRequestWithContext(ctx(t, 10*time.Second), "LIST", "http://bao/v1/"+path, nil)
	require.NoError(t, err)
	r.Header.Set("X-Vault-Token", keys.Token)
	rep, err := c.Do(r)
	require.NoError(t, err)
	defer func() { _ = rep.Body.Close() }()
	return rep.StatusCode
}
