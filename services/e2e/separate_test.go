package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/catalog"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// services that run apart from the bus.
var services = []string{schemas.WorkspaceManager, schemas.Filesystem, schemas.Secrets, schemas.Memory, schemas.Runtime}

// bootApart starts the bus and each service as a process of its own. A service's process holds the one
// credentials file that is its own, and none of the keys.
func bootApart(t testing.TB) *world {
	t.Helper()
	w := boot(t, "-target", "bus", "-tenant", "")
	minted := t.TempDir()
	out, err := exec.Command(filepath.Join(binDir, "weftd"), "-data-dir", w.dir, "-node", "n1", "-mint-creds", minted).CombinedOutput()
	require.NoError(t, err, string(out))
	for _, s := range services {
		own := t.TempDir()
		require.NoError(t, os.Rename(filepath.Join(minted, s+".creds"), filepath.Join(own, s+".creds")))
		child := &world{t: t, dir: w.dir, args: []string{"-target", s, "-nats-url", "nats://" + w.listen, "-creds", own}}
		child.launch()
		t.Cleanup(child.stop)
		require.Eventually(t, func() bool {
			select {
			case <-child.done:
				t.Fatalf("%s ended:\n%s", s, tail(child.logs()))
			default:
			}
			return strings.Contains(child.logs(), "weftd is ready")
		}, 60*time.Second, 20*time.Millisecond, "%s", s)
	}
	left, err := os.ReadDir(minted)
	require.NoError(t, err)
	require.Empty(t, left, "a service that nothing started")
	return w
}

// stop ends one process of several.
func (w *world) stop() {
	_ = w.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-w.done:
	case <-time.After(20 * time.Second):
		_ = w.cmd.Process.Kill()
		<-w.done
		w.t.Errorf("weftd %v did not stop within 20 s", w.args)
	}
	w.noRace()
	if w.t.Failed() {
		w.t.Logf("log of weftd %v:\n%s", w.args, tail(w.logs()))
	}
}

// TestSeparateProcesses: nothing that the services do for one another hangs on sharing a process, or on a
// credential that is not their own.
func TestSeparateProcesses(t *testing.T) {
	w := bootApart(t)
	_, stderr, code := w.cli("", "context", "add", "acme", "--data-dir", w.dir, "--tenant", "acme", "--principal", "alice", "--in", "lab")
	require.Zero(t, code, stderr)
	w.must("tenant", "create", "acme")
	w.must("workspace", "create", "lab")
	definitions(t, w)
	c := w.dial("acme", "lab", "alice")

	t.Run("a task with all that it can use", func(t *testing.T) {
		_, err := c.PutFile(ctx(t, 10*time.Second), filesystem.PutRequest{Path: "words.txt"}, strings.NewReader("one\ntwo\n"))
		require.NoError(t, err)
		for i := range 2 {
			sub := workspace.Submission{Agent: "worker", Env: map[string]string{"N": fmt.Sprint(i)}, Group: &workspace.Group{ID: "g1", Size: 2}}
			task := finish(t, c, sub)
			require.Equal(t, workspace.Complete, task.State, "%+v %s", task.Attempt.Outcome, output(t, c, task.ID, "stderr"))
			require.Equal(t, 1, task.Attempt.Outcome.FilesChanged)
			require.NotContains(t, output(t, c, task.ID, "stdout"), "h4rd-t0-guess", "scrubbed")
		}
		told := triggered(t, c, "listener")
		require.Equal(t, "on-message", told.Trigger)
		var in workspace.TriggerInput
		require.NoError(t, json.Unmarshal(told.Submission.Input, &in))
		require.Len(t, in.Messages, 2)
		read := triggered(t, c, "reader")
		require.Equal(t, "result 0\nresult 1\n", output(t, c, read.ID, "stdout"))
		require.Contains(t, output(t, c, read.ID, "stderr"), "fact-1")
		leases, err := c.Leases(ctx(t, 10*time.Second), 0)
		require.NoError(t, err)
		require.Len(t, leases, 2)
		for _, l := range leases {
			require.Equal(t, "revoked", l.State)
		}
	})
	t.Run("a sandbox", func(t *testing.T) {
		id := strings.TrimSpace(w.must("sandbox", "create"))
		require.Equal(t, "hi\n", w.must("sandbox", "exec", id, "--", "echo", "hi"))
		w.must("sandbox", "kill", id)
	})
	t.Run("what is in the catalog is served, and nothing else", func(t *testing.T) { compareCatalog(t, w) })
	t.Run("what is deleted is gone from every service", func(t *testing.T) { testDeletedApart(t, w) })
}

// testDeletedApart: nothing of a deleted workspace, and then of the tenant, is left with services that only the mesh joins.
func testDeletedApart(t *testing.T, w *world) {
	shareTemplate(t, w)
	w.must("workspace", "create", "brief")
	had := furnish(t, w.dial("acme", "brief", "alice"))
	w.must("workspace", "delete", "brief", "--yes")
	requireGone(t, w, "acme", "brief", had)
	w.must("workspace", "create", "brief")
	requireEmpty(t, w.dial("acme", "brief", "alice"))
	had = furnish(t, w.dial("acme", "brief", "alice"))
	w.must("tenant", "delete", "acme", "--yes")
	requireGone(t, w, "acme", "", had)
}

// definitions makes what the test's tasks need, as its user would.
func definitions(t *testing.T, w *world) {
	t.Helper()
	image, err := toolchain.Image("base")
	require.NoError(t, err)
	stdout, stderr, code := w.cli(`
kind: Template
name: base
spec: {image: "`+image+`", level: standard, resources: {memory_bytes: 268435456}}
---
kind: Agent
name: worker
spec:
  template: base
  secrets: [{name: token, as: file}, {name: token, as: env, env: TOKEN}]
  entrypoint:
  - /bin/sh
  - -ec
  - |
    test "$(cat words.txt | wc -l)" = 2
    test "$(cat /run/secrets/token)" = h4rd-t0-guess
    test "$TOKEN" = h4rd-t0-guess
    echo "the token is $TOKEN"
    echo "result $N" > "result-$N.txt"
    weft memory add --key "fact-$N" --text "result $N is done"
    echo "done $N" | weft msg send listener --group g1 --group-size 2
---
kind: Agent
name: listener
spec: {template: base, entrypoint: [/bin/sh, -c, 'cat $WEFT_INPUT']}
---
kind: Agent
name: reader
spec: {template: base, entrypoint: [/bin/sh, -c, 'cat result-*.txt; weft memory list >&2']}
---
kind: Trigger
name: on-message
spec: {message: {to: listener, from: [worker]}, gather: true, start: {agent: listener}}
---
kind: Trigger
name: on-complete
spec: {event: {events: [complete], agents: [worker]}, gather: true, start: {agent: reader}}
`, "apply", "-f", "-")
	require.Zero(t, code, stdout+stderr)
	_, stderr, code = w.cli("h4rd-t0-guess", "secret", "put", "token")
	require.Zero(t, code, stderr)
	w.must("secret", "grant", "token", "--agent", "worker", "--as", "file", "--as", "env")
}

// triggered waits for the one task of an agent that a trigger started, and for its end.
func triggered(t testing.TB, c *client.Client, agent string) workspace.Task {
	t.Helper()
	var found workspace.Task
	require.Eventually(t, func() bool {
		ts, err := c.Tasks(ctx(t, 5*time.Second), workspace.TaskList{Agent: agent}, 0)
		if err != nil || len(ts) != 1 || !ts[0].State.Final() {
			return false
		}
		found = ts[0]
		return true
	}, 30*time.Second, 50*time.Millisecond, "no task of %s", agent)
	require.Equal(t, workspace.Complete, found.State, "%+v", found)
	return found
}

// compareCatalog asks every service what it serves.
func compareCatalog(t *testing.T, w *world) {
	t.Helper()
	op, err := client.DialOperator(ctx(t, 10*time.Second), client.Context{DataDir: w.dir})
	require.NoError(t, err)
	defer op.Close()
	served := map[string]bool{}
	nc := op.Conn().NATS()
	inbox := nc.NewRespInbox()
	sub, err := nc.SubscribeSync(inbox)
	require.NoError(t, err)
	require.NoError(t, nc.PublishMsg(&nats.Msg{Subject: "$SRV.INFO", Reply: inbox}))
	for names := map[string]bool{}; len(names) < 2*4; { // req and int of each but the runtime, which is in an account of its own
		m, err := sub.NextMsg(5 * time.Second)
		require.NoError(t, err, "only %v answered", names)
		var info micro.Info
		require.NoError(t, json.NewDecoder(bytes.NewReader(m.Data)).Decode(&info))
		names[info.Name] = true
		for _, e := range info.Endpoints {
			served[e.Subject] = true
		}
	}
	want := map[string]bool{}
	for _, o := range catalog.Operations() {
		switch o.Plane {
		case schemas.PlaneReq:
			want[schemas.Prefix+"req.*.*.*."+o.Service+"."+o.Name] = true
		case schemas.PlaneInt:
			want[schemas.Prefix+"int.*."+o.Service+"."+o.Name] = true
		}
	}
	for s := range want {
		require.True(t, served[s], "in the catalog, and not served: %s", s)
	}
	for s := range served {
		require.True(t, want[s], "served, and not in the catalog: %s", s)
	}
}
