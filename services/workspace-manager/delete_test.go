package manager_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

// purger is another service, down until it is up.
type purger struct {
	mu   sync.Mutex
	up   bool
	done []string
}

func (p *purger) Name() string { return "files" }

func (p *purger) DeleteWorkspace(_ context.Context, tenant, ws string) error {
	return p.note(tenant + "/" + ws)
}

func (p *purger) DeleteTenant(_ context.Context, tenant string) error { return p.note(tenant) }

func (p *purger) note(what string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.up {
		return fault.New(fault.Unavailable, "down")
	}
	p.done = append(p.done, what)
	return nil
}

func (p *purger) set(up bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.up = up
}

// gone waits until a workspace is not there any more.
func (b *bed) gone(tenant, ws string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		_, err := ask[workspace.Workspace](b.ctx(), b.user, tenant, "-", workspace.OpWorkspaceGet, workspace.Name{Name: ws})
		return fault.Is(err, fault.NotFound)
	}, 30*time.Second, 20*time.Millisecond, "workspace %s is still there", ws)
}

// empty checks that no stream has anything on a workspace's subjects.
func (b *bed) empty(tenant, ws string) {
	b.t.Helper()
	js := b.m.Service(accounts.RoleAdmin).JetStream()
	for stream, plane := range map[string]string{"TASKS-": "task", "LOG-": "evt", "MSG-": "msg", "OUT-": "out"} {
		st, err := js.Stream(b.ctx(), stream+tenant)
		require.NoError(b.t, err)
		info, err := st.Info(b.ctx(), subjectsOf(schemas.Prefix+plane+"."+tenant+"."+ws+".>"))
		require.NoError(b.t, err)
		require.Empty(b.t, info.State.Subjects, stream)
		info, err = st.Info(b.ctx(), subjectsOf(schemas.Prefix+plane+"."+tenant+".-.workspace."+ws))
		require.NoError(b.t, err)
		require.Empty(b.t, info.State.Subjects, stream)
	}
}

func TestWorkspaceDeletion(t *testing.T) {
	p := &purger{}
	b := newBed(t, func(c *manager.Config) { c.Purgers = []manager.Purger{p} })
	n := b.node("n1", 1, untilStopped)
	n.serveKills()
	running := b.submit(b.user, "acme", "demo", "r", workspace.Submission{Agent: "worker"})
	b.until(running, workspace.Running)
	pending := b.submit(b.user, "acme", "demo", "p", workspace.Submission{Agent: "worker"})
	b.until(pending, workspace.Pending, workspace.Queued)
	b.send(b.user, "worker", "hello", nil)
	b.define(b.user, "acme", "other")

	w := must[workspace.Workspace](b, b.user, "acme", "-", workspace.OpWorkspaceDelete, workspace.Name{Name: "demo"})
	require.Equal(t, workspace.Deleting, w.State)
	b.until(running, workspace.Cancelled)
	b.until(pending, workspace.Cancelled)
	// Nothing new is taken, and it is not gone before every service has removed its part.
	refused[workspace.Agent](b, fault.Conflict, b.user, "acme", "demo", workspace.OpAgentPut, workspace.Put[workspace.Agent]{Value: workspace.Agent{Name: "x", Template: "base", Entrypoint: []string{"x"}}})
	refused[workspace.Workspace](b, fault.Conflict, b.user, "acme", "-", workspace.OpWorkspacePut, workspace.Put[workspace.Workspace]{Value: workspace.Workspace{Name: "demo"}})
	late := b.submit(b.user, "acme", "demo", "late", workspace.Submission{Agent: "worker"})
	require.Equal(t, "conflict", b.until(late, workspace.Rejected).Fault.Code)
	p.set(true)
	b.gone("acme", "demo")
	b.empty("acme", "demo")
	require.Contains(t, p.done, "acme/demo")
	must[workspace.Agent](b, b.user, "acme", "other", workspace.OpAgentGet, workspace.Name{Name: "worker"})

	// The name may be used again, and nothing of before is in it.
	b.define(b.user, "acme", "demo")
	require.Empty(t, must[workspace.Page[workspace.Task]](b, b.user, "acme", "demo", workspace.OpTaskList, workspace.TaskList{}).Items)
	id := b.submit(b.user, "acme", "demo", "r", workspace.Submission{Agent: "worker"})
	require.Equal(t, running, id, "the same key is the same id")
	b.until(id, workspace.Running)
}

func TestTenantDeletion(t *testing.T) {
	p := &purger{up: true}
	b := newBed(t, func(c *manager.Config) { c.Purgers = []manager.Purger{p} })
	bob := b.m.User("umbrella", "bob")
	b.tenant("umbrella", workspace.Quota{})
	b.define(bob, "umbrella", "demo")
	b.submit(bob, "umbrella", "demo", "k", workspace.Submission{Agent: "worker"})
	must[workspace.Empty](b, b.op, "", "", workspace.OpTenantDelete, workspace.Name{Name: "umbrella"})
	names := func() (out []string) {
		for _, t := range must[workspace.Page[workspace.Tenant]](b, b.op, "", "", workspace.OpTenantList, workspace.List{}).Items {
			out = append(out, t.Name)
		}
		return out
	}
	require.Eventually(t, func() bool { return len(names()) == 1 }, wait, 10*time.Millisecond)
	require.Equal(t, []string{"acme"}, names())
	require.Equal(t, []string{"umbrella/demo", "umbrella"}, p.done)
	js := b.m.Service(accounts.RoleAdmin).JetStream()
	for _, s := range []string{"TASKS-umbrella", "LOG-umbrella", "MSG-umbrella", "OUT-umbrella", "AUDIT-umbrella"} {
		_, err := js.Stream(b.ctx(), s)
		require.Error(t, err, s)
	}
	refused[workspace.Empty](b, fault.NotFound, b.op, "", "", workspace.OpTenantDelete, workspace.Name{Name: "umbrella"})

	b.tenant("umbrella", workspace.Quota{})
	b.define(bob, "umbrella", "demo")
	require.Empty(t, must[workspace.Page[workspace.Task]](b, bob, "umbrella", "demo", workspace.OpTaskList, workspace.TaskList{}).Items)
}

func TestEndedTasksExpire(t *testing.T) {
	b := newBed(t, func(c *manager.Config) { c.Retention, c.RetentionEvery = 300*time.Millisecond, 50*time.Millisecond })
	b.node("n1", 4, exit0)
	ended := watchFinals(b, b.user)
	for i := range 5 {
		b.submit(b.user, "acme", "demo", fmt.Sprint(i), workspace.Submission{Agent: "worker"})
	}
	for range 5 {
		id := <-ended
		require.Eventually(t, func() bool {
			_, err := ask[workspace.Task](b.ctx(), b.user, "acme", "demo", workspace.OpTaskGet, workspace.ID{ID: id})
			return fault.Is(err, fault.NotFound)
		}, wait, 10*time.Millisecond)
	}
	require.Empty(t, must[workspace.Page[workspace.Task]](b, b.user, "acme", "demo", workspace.OpTaskList, workspace.TaskList{}).Items)
	must[workspace.Agent](b, b.user, "acme", "demo", workspace.OpAgentGet, workspace.Name{Name: "worker"})
}
