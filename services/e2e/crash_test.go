package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/failpoint"
	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// scenario is something that a client has the mesh do. It gives the ids of the tasks that it submitted; check, if any,
// looks at what has to hold besides when they have ended.
type scenario func(t *testing.T, w *world, c *client.Client, name string) (tasks []string, check func())

// points are where weftd is killed, in the order of a task's way. Each names what makes the mesh pass it.
var points = []struct {
	name string
	do   scenario
}{
	{"manager.after-record", work},
	{"manager.before-ack", work},
	{"manager.after-queued-record", work},
	{"manager.after-queue-publish", work},
	{"manager.after-claim-record", work},
	{"manager.before-claim-reply", work},
	{"runtime.after-claim", work},
	{"runtime.after-ack", work},
	{"filesystem.prepare.after-fence", work},
	{"filesystem.overlay.after-record", work},
	{"filesystem.overlay.after-volume", work},
	{"filesystem.overlay.after-mount", work},
	{"runtime.after-prepare", work},
	{"secrets.issue.after-record", work},
	{"secrets.issue.after-token", work},
	{"secrets.issue.after-active", work},
	{"runtime.after-issue", work},
	{"runtime.after-create", work},
	{"runtime.after-start", work},
	{"runtime.mid-output", work},
	{"runtime.after-exit", work},
	{"filesystem.merge.before-head", work},
	{"filesystem.head.after-head", work},
	{"filesystem.merge.after-head", work},
	{"filesystem.merge.after-artifact", work},
	{"filesystem.merge.after-record", work},
	{"filesystem.overlay.mid-remove", work},
	{"runtime.after-merge", work},
	{"secrets.revoke.before-record", work},
	{"runtime.after-revoke", work},
	{"runtime.before-finish", work},
	{"manager.after-finish-record", work},
	{"runtime.after-finish", work},
	{"runtime.after-destroy", work},
	{"manager.after-retry-record", secondTry},
	{"manager.trigger-before-submit", triggering},
	{"manager.gather-after-record", gathering},
	{"manager.gather-before-fired", gathering},
	{"manager.delete-after-mark", deleting},
	{"manager.delete-after-purge", deleting},
	{"filesystem.delete.after-records", deleting},
	{"sandbox.bind.after-record", claiming},
	{"runtime.after-bind", claiming},
}

// elsewhere are the points that a mesh on embedded defaults never passes, and which test kills there instead.
var elsewhere = map[string]string{
	"memory.supersede.marked":   "services/memory: the MongoDB adapter",
	"memory.supersede.inserted": "services/memory: the MongoDB adapter",
	"memory.supersede.closed":   "services/memory: the MongoDB adapter",
	"memory.forget.marked":      "services/memory: the MongoDB adapter",
}

// TestKilledAtAnyPoint kills weftd at each point of a task's way, starts it again, and holds it to what it
// promised when it took the task.
func TestKilledAtAnyPoint(t *testing.T) {
	everyPoint(t)
	w := boot(t)
	c := w.as("alice")
	prepareCrashes(t, w, c)
	for _, p := range points {
		t.Run(p.name, func(t *testing.T) { killedAt(t, w, c, p.name, p.do) })
	}
	allLeasesGone(t, w, c)
	require.Empty(t, lasting(t, w), "left while the mesh runs")
}

// everyPoint makes sure that the table is whole: a point that somebody adds is tried, or said where it is.
func everyPoint(t *testing.T) {
	t.Helper()
	registered := regexp.MustCompile(`failpoint\.Register\("([^"]+)"\)`)
	var missing []string
	require.NoError(t, filepath.Walk("..", func(path string, info os.FileInfo, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range registered.FindAllStringSubmatch(string(b), -1) {
			tried := elsewhere[m[1]] != ""
			for _, p := range points {
				tried = tried || p.name == m[1]
			}
			if !tried {
				missing = append(missing, m[1])
			}
		}
		return nil
	}))
	require.Empty(t, missing, "points that no test kills at")
}

func killedAt(t *testing.T, w *world, c *client.Client, name string, do scenario) {
	w.t = t
	handled(t, w)
	w.kill()
	w.start(failpoint.Env + "=" + name)
	since := len(w.logs())
	ids, check := do(t, w, c, label(name))
	w.exited(time.Minute)
	w.start()
	for _, id := range ids {
		_, err := c.Follow(ctx(t, 2*time.Minute), id, client.Following{Submitted: true})
		if err != nil {
			t.Fatalf("%v\n%s", err, tail(w.logs()[since:]))
		}
		endsOnce(t, c, id, 1)
	}
	check()
	gone(t, w, c, ids)
	if t.Failed() {
		t.Logf("weftd's log:\n%s", tail(w.logs()[since:]))
	}
}

// handled waits until nothing is under way in the log: what a killed weftd had taken and not acknowledged is delivered
// again seconds later, and would pass the next point before its scenario has begun.
func handled(t *testing.T, w *world) {
	t.Helper()
	within := ctx(t, 2*time.Minute)
	admin, _ := w.admin(t, within)
	defer admin.Close()
	require.Eventually(t, func() bool {
		open := 0
		for _, of := range []string{"TASKS-", "LOG-", "MSG-"} {
			stream, err := admin.JetStream().Stream(within, of+"default")
			if err != nil {
				return false
			}
			consumers := stream.ListConsumers(within)
			for c := range consumers.Info() {
				if c.Config.Durable != "" {
					open += c.NumAckPending + int(c.NumPending)
				}
			}
			if consumers.Err() != nil {
				return false
			}
		}
		return open == 0
	}, time.Minute, 50*time.Millisecond)
}

// label makes a name for files and workspaces of a point's.
func label(point string) string { return strings.ReplaceAll(point, ".", "-") }

// prepareCrashes makes what the scenarios use.
func prepareCrashes(t *testing.T, w *world, c *client.Client) {
	t.Helper()
	_, stderr, code := w.weft(crashDefinitions, "apply", "-f", "-")
	require.Zero(t, code, stderr)
	_, stderr, code = w.weft("h4rd-t0-guess", "secret", "put", "token")
	require.Zero(t, code, stderr)
	w.must("secret", "grant", "token", "--agent", "worker", "--as", "file")
	w.must("secret", "grant", "token", "--agent", "quiet", "--as", "file")
	w.must("memory", "add", "--key", "colour", "--text", "the colour is blue")
}

// lines is how many lines a worker prints, one every 20 ms; every eighth comes with one on stderr.
const lines = 40

// crashDefinitions: the worker asks memory until it has an answer, as any client of a service that may be away.
const crashDefinitions = `
kind: Agent
name: worker
spec:
  template: base
  secrets: [{name: token, as: file}]
  entrypoint:
  - /bin/sh
  - -ec
  - |
    test "$(cat /run/secrets/token)" = h4rd-t0-guess
    for i in $(seq 40); do
      echo "line $i"
      test $((i % 8)) != 0 || echo "err $i" >&2
      sleep 0.02
    done
    for i in $(seq 100); do
      weft memory list >/tmp/memory 2>/dev/null && break
      sleep 0.1
    done
    grep -q blue /tmp/memory
    echo "$WEFT_TASK" >> "$NAME.txt"
    echo "attempt $WEFT_ATTEMPT"
---
kind: Agent
name: quiet
spec:
  template: base
  secrets: [{name: token, as: file}]
  entrypoint: [/bin/sh, -ec, 'sleep 1.5; test -s /run/secrets/token; echo "$WEFT_TASK $WEFT_ATTEMPT" >> quiet.txt']
---
kind: Agent
name: member
spec: {template: base, files: none, entrypoint: ['true']}
---
kind: Agent
name: alone
spec: {template: base, files: none, entrypoint: ['true']}
---
kind: Agent
name: listener
spec: {template: base, files: none, entrypoint: ['true']}
---
kind: Agent
name: reader
spec: {template: base, files: none, entrypoint: ['true']}
---
kind: Trigger
name: after-one
spec: {event: {events: [complete], agents: [alone]}, start: {agent: listener}}
---
kind: Trigger
name: after-all
spec: {event: {events: [complete], agents: [member]}, gather: true, start: {agent: reader}}
`

// work is a task that uses everything: a secret, memory, files, both streams.
func work(t *testing.T, w *world, c *client.Client, name string) ([]string, func()) {
	s := workspace.Submission{Agent: "worker", Env: map[string]string{"NAME": name}}
	key := "key-" + name
	sub, err := c.Submit(ctx(t, 20*time.Second), s, key)
	require.NoError(t, err)
	return []string{sub.Task}, func() {
		again, err := c.Submit(ctx(t, 20*time.Second), s, key)
		require.NoError(t, err)
		require.Equal(t, sub.Task, again.Task, "the same key is the same task")
		worked(t, c, sub.Task, name)
	}
}

// claiming is work in a warm sandbox. The pool goes when it is done.
func claiming(t *testing.T, w *world, c *client.Client, name string) ([]string, func()) {
	w.must("pool", "set", "base", "--min", "1", "--max", "1", "--shared", "--wait")
	ids, check := work(t, w, c, name)
	return ids, func() {
		check()
		w.must("pool", "delete", "base", "--shared")
	}
}

// worked checks what a worker has left behind.
func worked(t testing.TB, c *client.Client, id, name string) {
	t.Helper()
	task, err := c.Task(ctx(t, 10*time.Second), id)
	require.NoError(t, err)
	require.Equal(t, workspace.Complete, task.State, "%+v", task.Fault)
	require.NotNil(t, task.Attempt.Outcome)
	require.Equal(t, 1, task.Attempt.Outcome.FilesChanged)
	require.NotEmpty(t, task.Attempt.Outcome.Artifact)
	var stdout, stderr strings.Builder
	for i := 1; i <= lines; i++ {
		fmt.Fprintf(&stdout, "line %d\n", i)
		if i%8 == 0 {
			fmt.Fprintf(&stderr, "err %d\n", i)
		}
	}
	fmt.Fprintf(&stdout, "attempt %d\n", task.Attempt.Number)
	require.Equal(t, stdout.String(), output(t, c, id, "stdout"))
	require.Equal(t, stderr.String(), output(t, c, id, "stderr"))
	require.Equal(t, id+"\n", fileOf(t, c, name+".txt"))
	require.Equal(t, 1, merges(t, c, task), "its files are in the head once")
}

// merges counts how often a task changed the head; each must be the one that the task's record names.
func merges(t testing.TB, c *client.Client, task workspace.Task) int {
	t.Helper()
	n := 0
	snapshots, err := c.Snapshots(ctx(t, 10*time.Second), 0)
	require.NoError(t, err)
	for _, s := range snapshots {
		if s.Task == task.ID {
			n++
			require.Equal(t, task.Attempt.Number, s.Attempt)
			require.Equal(t, task.Attempt.Outcome.Snapshot, s.ID)
		}
	}
	return n
}

// secondTry is a task whose first attempt fails.
func secondTry(t *testing.T, w *world, c *client.Client, name string) ([]string, func()) {
	s := shell(`test "$WEFT_ATTEMPT" = 2`)
	s.MaxAttempts = 2
	sub, err := c.Submit(ctx(t, 20*time.Second), s, "key-"+name)
	require.NoError(t, err)
	return []string{sub.Task}, func() {
		task, err := c.Task(ctx(t, 10*time.Second), sub.Task)
		require.NoError(t, err)
		require.Equal(t, workspace.Complete, task.State, "%+v", task.Fault)
		require.Equal(t, 2, task.Attempt.Number)
		require.Len(t, task.Previous, 1)
	}
}

// triggering is a task whose end starts another.
func triggering(t *testing.T, w *world, c *client.Client, name string) ([]string, func()) {
	return started(t, c, "listener", workspace.Submission{Agent: "alone"})
}

// gathering is two tasks whose ends together start another.
func gathering(t *testing.T, w *world, c *client.Client, name string) ([]string, func()) {
	s := workspace.Submission{Agent: "member", Group: &workspace.Group{ID: name, Size: 2}}
	return started(t, c, "reader", s, s)
}

// started submits, and checks later that one more task of agent has come of it.
func started(t *testing.T, c *client.Client, agent string, subs ...workspace.Submission) (ids []string, check func()) {
	count := func() (n int, last workspace.Task) {
		ts, err := c.Tasks(ctx(t, 10*time.Second), workspace.TaskList{Agent: agent}, 0)
		require.NoError(t, err)
		if len(ts) > 0 {
			last = ts[0]
		}
		return len(ts), last
	}
	before, _ := count()
	for _, s := range subs {
		sub, err := c.Submit(ctx(t, 20*time.Second), s, "")
		require.NoError(t, err)
		ids = append(ids, sub.Task)
	}
	return ids, func() {
		require.Eventually(t, func() bool { n, _ := count(); return n > before }, time.Minute, 50*time.Millisecond, "no task of %s was started", agent)
		n, task := count()
		require.Equal(t, before+1, n)
		require.Equal(t, workspace.Complete, ended(t, c, task.ID).State)
		endsOnce(t, c, task.ID, 1)
	}
}

// deleting removes a workspace with something in it.
func deleting(t *testing.T, w *world, c *client.Client, name string) ([]string, func()) {
	_, err := c.Workspaces().Put(ctx(t, 20*time.Second), workspace.Workspace{Name: name}, 0)
	require.NoError(t, err)
	in, err := c.In(name)
	require.NoError(t, err)
	task := finish(t, in, shell("echo x > x"))
	require.Equal(t, workspace.Complete, task.State)
	// The answer is lost where weftd dies before it gives one.
	_ = c.Workspaces().Delete(ctx(t, 3*time.Second), name)
	return nil, func() {
		require.Eventually(t, func() bool {
			all, err := c.Workspaces().List(ctx(t, 10*time.Second), 0)
			for _, ws := range all {
				if ws.Name == name {
					return false
				}
			}
			return err == nil
		}, time.Minute, 50*time.Millisecond, "the workspace is still there")
		files, err := filepath.Glob(filepath.Join(w.dir, "files", "*", "default", name))
		require.NoError(t, err)
		require.Empty(t, files)
	}
}

// endsOnce checks a task's whole history: one end, with nothing after it, and attempts whose numbers only
// grow. attempts is how many tries of a command that succeeds it may have taken.
func endsOnce(t testing.TB, c *client.Client, id string, attempts int) {
	t.Helper()
	changes, err := c.TaskHistory(ctx(t, 10*time.Second), id)
	require.NoError(t, err)
	require.NotEmpty(t, changes)
	ends, attempt := 0, 0
	var way []string
	for _, ch := range changes {
		way = append(way, fmt.Sprintf("%s/%d", ch.Event, ch.Value.Attempt.Number))
		require.GreaterOrEqual(t, ch.Value.Attempt.Number, attempt, "%v", way)
		attempt = ch.Value.Attempt.Number
		if ch.Value.State.Final() {
			ends++
		}
	}
	last := changes[len(changes)-1].Value
	require.Equal(t, workspace.Complete, last.State, "%v %+v", way, last.Fault)
	require.Equal(t, 1, ends, "%v", way)
	if last.MaxAttempts < 2 && attempts > 0 {
		require.Equal(t, attempts, last.Attempt.Number, "%v", way)
	}
}

// gone checks that nothing is left of the tasks' sandboxes and leases, while the mesh runs.
func gone(t testing.TB, w *world, c *client.Client, ids []string) {
	t.Helper()
	var left []string
	ok := func() bool {
		left = lasting(t, w)
		leases, err := c.Leases(ctx(t, 10*time.Second), 0)
		if err != nil {
			left = append(left, err.Error())
		}
		for _, l := range leases {
			if l.State != "revoked" {
				left = append(left, fmt.Sprintf("lease %+v", l))
			}
		}
		return len(left) == 0
	}
	for limit := time.Now().Add(time.Minute); !ok() && time.Now().Before(limit); {
		time.Sleep(50 * time.Millisecond)
	}
	sort.Strings(left)
	require.Empty(t, left, "left of %v", ids)
}

// fileOf reads a file of the head.
func fileOf(t testing.TB, c *client.Client, path string) string {
	t.Helper()
	var b strings.Builder
	_, err := c.GetFile(ctx(t, 10*time.Second), filesystem.GetRequest{Path: path}, &b)
	require.NoError(t, err)
	return b.String()
}
