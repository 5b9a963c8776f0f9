package manager_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

// childEnv carries a childConfig to a child of the test binary, which then is a manager and nothing else.
const childEnv = "WEFT_TEST_MANAGER_CHILD"

type childConfig struct{ URL, Creds, Key string }

// child runs a manager until it is interrupted or killed.
func child() int {
	err := func() error {
		var c childConfig
		if err := json.Unmarshal([]byte(os.Getenv(childEnv)), &c); err != nil {
			return err
		}
		b, err := os.ReadFile(c.Creds)
		if err != nil {
			return err
		}
		creds, err := accounts.ParseFile(b)
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		defer stop()
		conn, err := mesh.Connect(ctx, mesh.Options{URL: c.URL, Name: schemas.WorkspaceManager,
			Logger:      slog.New(slog.NewTextHandler(os.Stderr, nil)),
			Credentials: func() (accounts.Credentials, error) { return creds, nil }})
		if err != nil {
			return err
		}
		defer conn.Close()
		cfg := manager.Config{Conn: conn, KeyFile: c.Key, Instance: "child"}
		quick(&cfg)
		s, err := manager.New(cfg)
		if err != nil {
			return err
		}
		return s.Run(ctx)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// startChild starts a manager in a process of its own. died is closed when it has ended.
func (b *bed) startChild(point string) (died <-chan struct{}, kill func()) {
	b.t.Helper()
	creds, err := b.m.Keys.Service(schemas.WorkspaceManager)
	require.NoError(b.t, err)
	file, err := creds.File()
	require.NoError(b.t, err)
	c := childConfig{URL: b.m.Bus.URL(), Creds: filepath.Join(b.dir, "creds"), Key: filepath.Join(b.dir, "key")}
	require.NoError(b.t, os.WriteFile(c.Creds, file, 0o600))
	env, err := json.Marshal(c)
	require.NoError(b.t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+string(env), failpoint.Env+"="+point)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	pipe, err := cmd.StderrPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, cmd.Start())
	done := make(chan struct{})
	go func() {
		defer close(done)
		sc := bufio.NewScanner(pipe)
		for sc.Scan() {
			if testing.Verbose() {
				fmt.Println("    child:", sc.Text())
			}
		}
		_ = cmd.Wait()
	}()
	kill = sync.OnceFunc(func() { _ = cmd.Process.Kill(); <-done })
	b.t.Cleanup(kill)
	return done, kill
}

// crashBed is a mesh without a manager: the child is the only one.
func crashBed(t *testing.T) *bed {
	b := &bed{t: t, m: meshtest.Start(t, "acme"), dir: t.TempDir()}
	b.op, b.user = b.m.Service(schemas.Operator), b.m.User("acme", "ann")
	_, kill := b.startChild("")
	b.ready()
	b.tenant("acme", workspace.Quota{})
	b.define(b.user, "acme", "demo")
	b.agent(b.user, "acme", "demo", "flaky", func(a *workspace.Agent) { a.MaxAttempts, a.BackoffMS = 3, 10 })
	b.agent(b.user, "acme", "demo", "reviewer", nil)
	b.trigger(workspace.Trigger{Name: "all", Gather: true, Event: &workspace.EventTrigger{Events: []string{"complete"}, Agents: []string{"worker", "flaky"}}, Start: workspace.Submission{Agent: "reviewer"}})
	b.trigger(workspace.Trigger{Name: "each", Message: &workspace.MessageTrigger{To: "reviewer", From: []string{"ann"}}, Start: workspace.Submission{Agent: "reviewer"}})
	kill()
	return b
}

// TestKilledAtAnyPoint kills the manager with SIGKILL at each of its failpoints, starts it again, and
// checks that every task ended once, in one state, by a way that the state machine allows, and that the
// group's and the message's tasks were started once.
func TestKilledAtAnyPoint(t *testing.T) {
	for _, point := range []string{
		"manager.after-record", "manager.before-ack", "manager.after-queued-record", "manager.after-queue-publish",
		"manager.after-claim-record", "manager.before-claim-reply", "manager.after-finish-record", "manager.after-retry-record",
		"manager.gather-after-record", "manager.gather-before-fired", "manager.trigger-before-submit",
	} {
		for _, nth := range []int{1, 3} {
			if nth > 1 && (point == "manager.gather-before-fired") {
				continue // it fires once
			}
			t.Run(fmt.Sprintf("%s:%d", point, nth), func(t *testing.T) {
				b := crashBed(t)
				died, _ := b.startChild(fmt.Sprintf("%s:%d", point, nth))
				n := b.nodeLater(4, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
					if r.Run.Principal == "flaky" && r.Task.Attempt.Number == 1 {
						return exit1(ctx, r)
					}
					return exit0(ctx, r)
				})
				const size = 6
				var ids []string
				for i := range size {
					agent := []string{"worker", "flaky"}[i%2]
					ids = append(ids, b.submit(b.user, "acme", "demo", fmt.Sprint(i), workspace.Submission{Agent: agent, Group: &workspace.Group{ID: "g", Size: size}}))
				}
				for i := range 3 {
					b.send(b.user, "reviewer", i, nil)
				}
				select {
				case <-died:
				case <-time.After(20 * time.Second):
					t.Fatalf("%s was not reached", point)
				}
				b.startChild("")
				b.ready()
				for _, id := range ids {
					b.untilLong(id, workspace.Complete)
					b.checkHistory(id)
				}
				require.Eventually(t, func() bool {
					ks := b.ofAgent("reviewer")
					for _, k := range ks {
						if k.State != workspace.Complete {
							return false
						}
					}
					return len(ks) == 4 // one of the group, one of each message
				}, 30*time.Second, 20*time.Millisecond)
				for _, k := range b.ofAgent("reviewer") {
					b.checkHistory(k.ID)
					if k.Trigger == "all" {
						require.ElementsMatch(t, ids, input(t, k).Tasks)
					}
				}
				n.stop()
			})
		}
	}
}

// nodeLater is node for a mesh whose manager may be away: it does not wait for the first heartbeat.
func (b *bed) nodeLater(slots int, work func(context.Context, workspace.ClaimReply) workspace.Finish) *testNode {
	return b.startNode("n1", slots, work)
}

func (b *bed) untilLong(id string, s workspace.State) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		k, err := ask[workspace.Task](b.ctx(), b.user, "acme", "demo", workspace.OpTaskGet, workspace.ID{ID: id})
		return err == nil && k.State == s
	}, 30*time.Second, 20*time.Millisecond, "task %s is not %s", id, s)
}

// next says which events may follow which.
var next = map[string][]string{
	"":          {"submitted"},
	"submitted": {"queued"},
	"queued":    {"running"},
	"running":   {"progress", "retrying", "complete"},
	"progress":  {"progress", "retrying", "complete"},
	"retrying":  {"queued"},
	"complete":  {},
}

func (b *bed) checkHistory(id string) {
	b.t.Helper()
	last, attempt := "", 0
	for _, c := range must[workspace.Page[workspace.Change[workspace.Task]]](b, b.user, "acme", "demo", workspace.OpTaskHistory, workspace.ID{ID: id}).Items {
		require.Contains(b.t, next[last], c.Event, "task %s after %q", id, last)
		require.GreaterOrEqual(b.t, c.Value.Attempt.Number, attempt)
		if c.Event == "queued" {
			require.Equal(b.t, attempt+1, c.Value.Attempt.Number)
		}
		last, attempt = c.Event, c.Value.Attempt.Number
	}
	require.Equal(b.t, "complete", last)
}

func TestDeletionKilledInTheMiddle(t *testing.T) {
	for _, point := range []string{"manager.delete-after-mark", "manager.delete-after-purge"} {
		t.Run(point, func(t *testing.T) {
			b := crashBed(t)
			died, _ := b.startChild(point)
			b.ready()
			id := b.submit(b.user, "acme", "demo", "k", workspace.Submission{Agent: "worker"})
			b.untilLong(id, workspace.Pending)
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, _ = ask[workspace.Workspace](ctx, b.user, "acme", "-", workspace.OpWorkspaceDelete, workspace.Name{Name: "demo"})
			cancel()
			select {
			case <-died:
			case <-time.After(20 * time.Second):
				t.Fatalf("%s was not reached", point)
			}
			b.startChild("")
			b.ready()
			b.gone("acme", "demo")
			b.empty("acme", "demo")
		})
	}
}

func TestEveryFailpointIsTested(t *testing.T) {
	want := []string{"manager.after-claim-record", "manager.after-finish-record", "manager.after-queue-publish", "manager.after-queued-record",
		"manager.after-record", "manager.after-retry-record", "manager.before-ack", "manager.before-claim-reply", "manager.delete-after-mark",
		"manager.delete-after-purge", "manager.gather-after-record", "manager.gather-before-fired", "manager.trigger-before-submit"}
	require.Equal(t, want, failpoint.Names())
}
