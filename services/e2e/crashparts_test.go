package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/accounts"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestContainerdKilled: sandboxes don't hang on containerd once they run, and it is started again.
func TestContainerdKilled(t *testing.T) { partKilled(t, "containerd") }

// TestVaultKilled: what was issued stays valid, and OpenBao is started and unsealed again.
func TestVaultKilled(t *testing.T) { partKilled(t, "bao") }

// partKilled kills what runs beside weftd: while a task runs, and then just before another begins.
func partKilled(t *testing.T, program string) {
	w := boot(t)
	c := w.as("alice")
	prepareCrashes(t, w, c)
	for _, when := range []string{"while a task runs", "before a task begins"} {
		t.Run(when, func(t *testing.T) {
			name := strings.ReplaceAll(when, " ", "-")
			if when == "before a task begins" {
				killProgram(t, w, program)
			}
			ids, check := work(t, w, c, name)
			if when == "while a task runs" {
				firstOutput(t, c, ids[0])
				killProgram(t, w, program)
			}
			ended(t, c, ids[0])
			endsOnce(t, c, ids[0], 0)
			check()
			if when == "while a task runs" {
				endsOnce(t, c, ids[0], 1)
			}
			gone(t, w, c, ids)
		})
	}
	allLeasesGone(t, w, c)
}

// killProgram sends SIGKILL to what runs on the mesh's directories under a name, and waits for its end.
func killProgram(t testing.TB, w *world, program string) {
	t.Helper()
	for _, p := range processes(t, w.dir+"/", runDir(w.dir)) {
		f := strings.Fields(p)
		if filepath.Base(f[2]) != program {
			continue
		}
		pid, err := strconv.Atoi(f[1])
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		require.Eventually(t, func() bool {
			b, err := os.ReadFile("/proc/" + f[1] + "/cmdline")
			return err != nil || len(b) == 0
		}, time.Minute, 10*time.Millisecond)
		return
	}
	t.Fatalf("no %s runs", program)
}

// firstOutput waits until a task has printed something.
func firstOutput(t testing.TB, c *client.Client, id string) {
	t.Helper()
	require.Eventually(t, func() bool {
		n := 0
		err := c.Output(ctx(t, 10*time.Second), workspace.OutputRequest{Task: id}, func(o workspace.OutputChunk) error {
			n += len(o.Data)
			return nil
		})
		return err == nil && n > 0
	}, 30*time.Second, 20*time.Millisecond, "task %s printed nothing", id)
}

// TestFrozenNode: a node that was stopped for longer than its claim lasts comes back to find that its attempt
// is another's, and that nothing it says of it counts. The task prints nothing: the filesystem service of this machine
// takes output for artifacts only from the spool of its own data directory, and the second node has another.
func TestFrozenNode(t *testing.T) {
	const lease = "6s"
	w := boot(t, "-target", "bus,workspace-manager,filesystem,secrets,memory", "-claim-lease", lease)
	n1 := startNode(t, w, w.dir, "n1")
	c := w.as("alice")
	prepareCrashes(t, w, c)
	id, err := handIn(c, workspace.Submission{Agent: "quiet"}, "frozen")
	require.NoError(t, err)
	ids := []string{id}
	var first workspace.Task
	require.Eventually(t, func() bool {
		first, err = c.Task(ctx(t, 10*time.Second), id)
		return err == nil && first.Attempt.CommandAt != nil
	}, time.Minute, 20*time.Millisecond, "the command never started")
	require.NoError(t, n1.cmd.Process.Signal(syscall.SIGSTOP))
	t.Cleanup(func() { _ = n1.cmd.Process.Signal(syscall.SIGCONT) })

	dir, err := os.MkdirTemp("", "weft-e2e-n2-")
	require.NoError(t, err)
	n2 := startNode(t, w, dir, "n2")
	task := ended(t, c, id)
	require.Equal(t, 2, task.Attempt.Number)
	require.Equal(t, "n2", task.Attempt.Node)
	require.Len(t, task.Previous, 1)
	once := func() {
		endsOnce(t, c, id, 2)
		require.Equal(t, id+" 2\n", fileOf(t, c, "quiet.txt"))
		require.Equal(t, 1, merges(t, c, task))
	}
	once()

	t.Run("what the frozen node says late is refused", func(t *testing.T) { lateWords(t, w, n1, first, task) })
	t.Run("the frozen node comes back", func(t *testing.T) {
		require.NoError(t, n1.cmd.Process.Signal(syscall.SIGCONT))
		gone(t, w, c, ids)
		gone(t, &world{t: t, dir: dir}, c, ids)
		once()
		allLeasesGone(t, w, c)
		n2.stop() // so that the next task can only be n1's
		require.Eventually(t, func() bool {
			task := finish(t, c, shell("true"))
			return task.State == workspace.Complete && task.Attempt.Node == "n1"
		}, 60*time.Second, 50*time.Millisecond)
	})
}

// TestClaimLeaseTooShort: with it every node would freeze all that it holds between two renewals.
func TestClaimLeaseTooShort(t *testing.T) {
	out, err := exec.Command(filepath.Join(binDir, "weftd"), "-data-dir", t.TempDir(), "-claim-lease", "3s").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "-claim-lease 3s must be 6s or more")
}

// startNode runs the runtime service by itself, as on a machine of its own, with the credentials of one node.
func startNode(t testing.TB, w *world, dir, name string) *world {
	t.Helper()
	creds := t.TempDir()
	out, err := exec.Command(filepath.Join(binDir, "weftd"), "-data-dir", w.dir, "-node", name, "-mint-creds", creds).CombinedOutput()
	require.NoError(t, err, string(out))
	n := &world{t: t, dir: dir, args: []string{"-target", schemas.Runtime, "-nats-url", "nats://" + w.listen, "-creds", creds, "-node", name}}
	n.launch()
	if dir == w.dir {
		t.Cleanup(n.stop)
	} else {
		t.Cleanup(n.end)
	}
	require.Eventually(t, func() bool { return strings.Contains(n.logs(), "weftd is ready") }, 60*time.Second, 20*time.Millisecond, "node %s", name)
	return n
}

// lateWords says what a node could say of an attempt that it has lost, with the node's own credentials.
func lateWords(t *testing.T, w *world, n *world, lost, now workspace.Task) {
	b, err := os.ReadFile(filepath.Join(n.args[5], schemas.Runtime+".creds"))
	require.NoError(t, err)
	creds, err := accounts.ParseFile(b)
	require.NoError(t, err)
	conn, err := mesh.Connect(ctx(t, 10*time.Second), mesh.Options{URL: "nats://" + w.listen, Name: "n1",
		Credentials: func() (accounts.Credentials, error) { return creds, nil }})
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, "n1", lost.Attempt.Node)
	item := workspace.QueueItem{Tenant: lost.Tenant, Workspace: lost.Workspace, Task: lost.ID, Attempt: lost.Attempt.Number}
	ref := secrets.LeaseRef{Tenant: lost.Tenant, Workspace: lost.Workspace, Task: lost.ID, Attempt: lost.Attempt.Number, Sandbox: lost.Attempt.Sandbox}
	for _, late := range []struct {
		service, op string
		req         any
	}{
		{schemas.WorkspaceManager, workspace.OpClaim, workspace.Claim{QueueItem: item, Sandbox: lost.Attempt.Sandbox}},
		{schemas.WorkspaceManager, workspace.OpFinish, workspace.Finish{QueueItem: item, Outcome: workspace.Outcome{Exit: &workspace.Exit{Reason: "exited"}}}},
		{schemas.Filesystem, filesystem.OpPrepare, filesystem.Prepare{Tenant: lost.Tenant, Workspace: lost.Workspace, Owner: lost.ID, Attempt: 1, Sandbox: lost.Attempt.Sandbox}},
		{schemas.Filesystem, filesystem.OpMerge, filesystem.Merge{Tenant: lost.Tenant, Workspace: lost.Workspace, Owner: lost.ID, Attempt: 1, Sandbox: lost.Attempt.Sandbox,
			Principal: "worker", Keep: true}},
		{schemas.Secrets, secrets.OpIssue, secrets.IssueRequest(ref)},
	} {
		subject, err := schemas.Int("n1", late.service, late.op)
		require.NoError(t, err)
		_, err = mesh.Request[map[string]any](ctx(t, 10*time.Second), conn, subject, late.req)
		require.Equal(t, fault.Conflict, fault.CodeOf(err), "%s %s: %v", late.service, late.op, err)
	}
	subject, err := schemas.Int("n1", schemas.Secrets, secrets.OpRenew)
	require.NoError(t, err)
	renewed, err := mesh.Request[secrets.RenewReply](ctx(t, 10*time.Second), conn, subject, secrets.RenewRequest{Leases: []secrets.LeaseRef{ref}})
	require.NoError(t, err)
	require.Len(t, renewed.Results, 1)
	require.NotEmpty(t, renewed.Results[0].Code, "its lease is not renewed")
	after, err := w.as("alice").Task(ctx(t, 10*time.Second), lost.ID)
	require.NoError(t, err)
	require.Equal(t, now, after)
}
