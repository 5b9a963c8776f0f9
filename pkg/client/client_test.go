package client_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContextsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "contexts.json")
	cs, err := client.LoadContexts(path)
	require.NoError(t, err)
	_, err = cs.Get("")
	require.True(t, fault.Is(err, fault.NotFound))
	require.ErrorContains(t, err, "weft up")
	cs.Contexts["a"] = client.Context{URL: "nats://h:4222", Creds: "/c", Tenant: "acme", Workspace: "demo", Principal: "alice"}
	cs.Current = "a"
	require.NoError(t, cs.Save())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	again, err := client.LoadContexts(path)
	require.NoError(t, err)
	got, err := again.Get("")
	require.NoError(t, err)
	require.Equal(t, cs.Contexts["a"], got)

	require.NoError(t, os.WriteFile(path, []byte("{"), 0o600))
	_, err = client.LoadContexts(path)
	require.True(t, fault.Is(err, fault.Invalid))
}

func TestContextsPath(t *testing.T) {
	env := map[string]string{"HOME": "/h"}
	get := func(k string) string { return env[k] }
	require.Equal(t, "/h/.config/weft/contexts.json", client.ContextsPath(get))
	env["XDG_CONFIG_HOME"] = "/x"
	require.Equal(t, "/x/weft/contexts.json", client.ContextsPath(get))
	env["WEFT_CONTEXTS"] = "/y"
	require.Equal(t, "/y", client.ContextsPath(get))
}

func TestSandboxContext(t *testing.T) {
	env := map[string]string{"NATS_URL": "nats://127.0.0.1:4222", "NATS_INBOX_PREFIX": "_INBOX.a.b", "WEFT_TENANT": "acme", "WEFT_WORKSPACE": "demo"}
	_, ok := client.SandboxContext(func(k string) string { return env[k] })
	require.False(t, ok, "a principal is missing")
	env["WEFT_PRINCIPAL"] = "planner"
	c, ok := client.SandboxContext(func(k string) string { return env[k] })
	require.True(t, ok)
	require.NoError(t, c.Check())
	require.Equal(t, "_INBOX.a.b", c.Inbox)
}

func TestCheckContext(t *testing.T) {
	good := client.Context{URL: "nats://h", Tenant: "a", Workspace: "-", Principal: "p"}
	require.NoError(t, good.Check())
	for name, change := range map[string]func(*client.Context){
		"no url":        func(c *client.Context) { c.URL = "" },
		"two ways":      func(c *client.Context) { c.DataDir, c.Creds = "/d", "/c" },
		"bad tenant":    func(c *client.Context) { c.Tenant = "a.b" },
		"bad workspace": func(c *client.Context) { c.Workspace = "*" },
		"bad principal": func(c *client.Context) { c.Principal = ">" },
	} {
		c := good
		change(&c)
		require.True(t, fault.Is(c.Check(), fault.Invalid), name)
	}
}

// TestDialNeverMakesKeys: a wrong data directory is an error, not a new mesh.
func TestDialNeverMakesKeys(t *testing.T) {
	dir := t.TempDir()
	_, err := client.Dial(meshtest.Context(t), client.Context{DataDir: dir, Tenant: "a", Workspace: "w", Principal: "p"})
	require.True(t, fault.Is(err, fault.Denied), "%v", err)
	_, err = client.Dial(meshtest.Context(t), client.Context{DataDir: dir + "/none", Tenant: "a", Workspace: "w", Principal: "p"})
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
	es, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, es)
}

func TestSubmit(t *testing.T) {
	m := meshtest.Start(t, "acme")
	ctx := meshtest.Context(t)
	c, err := client.New(m.User("acme", "alice"), "acme", "demo")
	require.NoError(t, err)
	sub := workspace.Submission{Agent: "a"}
	s, err := c.Submit(ctx, sub, "k1")
	require.NoError(t, err)
	require.Equal(t, schemas.TaskID("acme", "demo", "k1"), s.Task)
	s, err = c.Submit(ctx, sub, "")
	require.NoError(t, err)
	require.Equal(t, schemas.TaskID("acme", "demo", s.Key), s.Task)

	_, err = c.Submit(ctx, sub, "two words")
	require.True(t, fault.Is(err, fault.Invalid))
	_, err = c.Submit(ctx, workspace.Submission{Env: map[string]string{"X": strings.Repeat("x", schemas.MaxSubmission)}}, "")
	require.True(t, fault.Is(err, fault.Invalid))
	require.ErrorContains(t, err, "file of the workspace")

	// What the server does not allow is denied, at once and not by a timeout.
	start := time.Now()
	other, err := client.New(m.User("acme", "alice"), "other", "demo")
	require.NoError(t, err)
	_, err = other.Submit(ctx, sub, "")
	require.True(t, fault.Is(err, fault.Denied), "%v", err)
	_, err = other.Task(ctx, s.Task)
	require.True(t, fault.Is(err, fault.Denied), "%v", err)
	_, err = other.Send(ctx, "bob", []byte("x"), client.SendOptions{})
	require.True(t, fault.Is(err, fault.Denied), "%v", err)
	require.Less(t, time.Since(start), 5*time.Second)

	// Nobody serves here.
	_, err = c.Task(ctx, s.Task)
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
}

// TestFollowBelievesTheRecord: an event can be there before what it tells of; then the record is looked at again at once.
func TestFollowBelievesTheRecord(t *testing.T) {
	t.Cleanup(client.SetLookEvery(time.Hour))
	m := meshtest.Start(t, "acme")
	manager, id := m.Service(schemas.WorkspaceManager), schemas.NewID()
	event, err := schemas.Evt("acme", "demo", workspace.EntityTask, id)
	require.NoError(t, err)
	looks := 0 // asked one after the other
	served, err := manager.ServeReq(schemas.WorkspaceManager, mesh.Op(workspace.OpTaskGet, time.Minute,
		func(context.Context, mesh.Caller, workspace.ID) (workspace.Task, error) {
			switch looks++; looks {
			case 1:
				return workspace.Task{ID: id, State: workspace.Running}, manager.NATS().Publish(event, []byte("{}"))
			case 2, 3, 4, 5: // not yet
				return workspace.Task{ID: id, State: workspace.Running}, nil
			}
			return workspace.Task{ID: id, State: workspace.Complete}, nil
		}))
	require.NoError(t, err)
	defer served.Stop()
	c, err := client.New(m.User("acme", "alice"), "acme", "demo")
	require.NoError(t, err)
	task, err := c.Wait(meshtest.Context(t), id)
	require.NoError(t, err)
	require.Equal(t, workspace.Complete, task.State)
}
