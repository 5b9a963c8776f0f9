package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/catalog"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestTask goes a task's whole way on one mesh: what it prints, leaves and remembers, and each way to end.
func TestTask(t *testing.T) {
	w := boot(t)
	c := w.as("alice")

	t.Run("prints, writes files, ends", func(t *testing.T) {
		task := finish(t, c, shell("echo out; echo err >&2; echo content > /workspace/a.txt; mkdir -p /workspace/d && echo x > /workspace/d/b.txt"))
		require.Equal(t, workspace.Complete, task.State, "%+v", task.Fault)
		require.Equal(t, "out\n", output(t, c, task.ID, "stdout"))
		require.Equal(t, "err\n", output(t, c, task.ID, "stderr"))
		require.Equal(t, 0, task.Attempt.Outcome.Exit.Code)
		require.Equal(t, 2, task.Attempt.Outcome.FilesChanged, "a.txt, d/b.txt; a directory is no file")
		var b bytes.Buffer
		_, err := c.GetFile(ctx(t, 10*time.Second), filesystem.GetRequest{Path: "d/b.txt"}, &b)
		require.NoError(t, err)
		require.Equal(t, "x\n", b.String())
		require.NotNil(t, task.Attempt.FirstOutputAt)
		require.NotEmpty(t, task.Attempt.Outcome.Artifact)
		var zip bytes.Buffer
		a, err := c.GetArtifact(ctx(t, 10*time.Second), task.Attempt.Outcome.Artifact, &zip)
		require.NoError(t, err)
		require.EqualValues(t, a.Bytes, zip.Len())
		require.True(t, bytes.HasPrefix(zip.Bytes(), []byte("PK")))
	})

	t.Run("a failed command's files stay out of the head", func(t *testing.T) {
		task := finish(t, c, shell("echo no > /workspace/failed.txt; exit 3"))
		require.Equal(t, workspace.Error, task.State)
		require.Equal(t, 3, task.Attempt.Outcome.Exit.Code)
		_, err := c.StatFile(ctx(t, 10*time.Second), filesystem.GetRequest{Path: "failed.txt"})
		require.Equal(t, fault.NotFound, fault.CodeOf(err))
	})

	t.Run("no such command", func(t *testing.T) {
		task := finish(t, c, command("/no/such/command"))
		require.Equal(t, workspace.Error, task.State)
		require.Equal(t, 127, task.Attempt.Outcome.Exit.Code)
	})

	t.Run("timeout kills the tree", func(t *testing.T) {
		s := shell("trap '' TERM; (trap '' TERM; sleep 600) & sleep 600")
		s.TimeoutMS = 700
		task := finish(t, c, s)
		require.Equal(t, workspace.Error, task.State)
		require.Equal(t, "timeout", task.Attempt.Outcome.Exit.Reason)
	})

	t.Run("cancel", func(t *testing.T) {
		sub, err := c.Submit(ctx(t, 10*time.Second), shell("echo started; sleep 600"), "")
		require.NoError(t, err)
		waitState(t, c.Task, sub.Task, workspace.Running)
		_, err = c.CancelTask(ctx(t, 10*time.Second), sub.Task)
		require.NoError(t, err)
		task, err := c.Wait(ctx(t, 30*time.Second), sub.Task)
		require.NoError(t, err)
		require.Equal(t, workspace.Cancelled, task.State)
	})

	t.Run("the same key is one task", func(t *testing.T) {
		key := "once-" + schemas.NewID()
		a, err := c.Submit(ctx(t, 10*time.Second), shell("echo once"), key)
		require.NoError(t, err)
		// Of two that wait at the same time either may become the task, so the first is let become it.
		require.Equal(t, workspace.Complete, ended(t, c, a.Task).State)
		b, err := c.Submit(ctx(t, 10*time.Second), shell("echo twice"), key)
		require.NoError(t, err)
		require.Equal(t, a.Task, b.Task)
		require.Equal(t, workspace.Complete, finish(t, c, shell("true")).State, "by then the repeat was taken up, too")
		task, err := c.Task(ctx(t, 10*time.Second), a.Task)
		require.NoError(t, err)
		require.Equal(t, 1, task.Attempt.Number)
		require.Equal(t, "once\n", output(t, c, a.Task, "stdout"))
	})

	t.Run("input and environment", func(t *testing.T) {
		s := shell(`cat "$WEFT_INPUT"; echo; echo "$MODE $WEFT_TENANT $WEFT_WORKSPACE $WEFT_TASK $WEFT_ATTEMPT"; id -u`)
		s.Input = json.RawMessage(`{"n":1}`)
		s.Env = map[string]string{"MODE": "fast"}
		task := finish(t, c, s)
		require.Equal(t, workspace.Complete, task.State, "%+v", task.Fault)
		lines := strings.Split(strings.TrimSpace(output(t, c, task.ID, "stdout")), "\n")
		require.JSONEq(t, `{"n":1}`, lines[0])
		require.Equal(t, fmt.Sprintf("fast default default %s 1", task.ID), lines[1])
		require.Equal(t, "1000", lines[2])
	})

	t.Run("output that is no UTF-8 comes as it is", func(t *testing.T) {
		task := finish(t, c, shell(`printf '\377\376\000x'`))
		require.Equal(t, "\xff\xfe\x00x", output(t, c, task.ID, "stdout"))
	})

	t.Run("a retry succeeds", func(t *testing.T) {
		s := shell(`test "$WEFT_ATTEMPT" = 2`)
		s.MaxAttempts = 2
		task := finish(t, c, s)
		require.Equal(t, workspace.Complete, task.State, "%+v", task.Fault)
		require.Equal(t, 2, task.Attempt.Number)
		require.Len(t, task.Previous, 1)
	})
}

// TestRefusals: bad submissions are refused with a code and a sentence, and nothing is lost.
func TestRefusals(t *testing.T) {
	w := boot(t)
	c := w.as("alice")
	rejected := func(t *testing.T, s workspace.Submission, code, says string) {
		t.Helper()
		task := finish(t, c, s)
		require.Equal(t, workspace.Rejected, task.State)
		require.NotNil(t, task.Fault)
		require.Equal(t, code, task.Fault.Code)
		require.Contains(t, task.Fault.Message, says)
	}
	t.Run("unknown agent", func(t *testing.T) { rejected(t, workspace.Submission{Agent: "nobody"}, "not_found", "nobody") })
	t.Run("unknown template", func(t *testing.T) {
		rejected(t, workspace.Submission{Template: "nothing", Command: []string{"x"}}, "not_found", "nothing")
	})
	t.Run("nothing to run", func(t *testing.T) { rejected(t, workspace.Submission{}, "invalid", "agent") })
	t.Run("unknown workspace", func(t *testing.T) {
		other := w.in("nowhere", "alice")
		task := finish(t, other, shell("true"))
		require.Equal(t, workspace.Rejected, task.State)
		require.Equal(t, "not_found", task.Fault.Code)
	})
	t.Run("wrong type is named", func(t *testing.T) {
		id := publishRaw(t, c.Conn(), "default", `{"template":"base","command":"echo hi"}`)
		task := ended(t, c, id)
		require.Equal(t, workspace.Rejected, task.State)
		require.Contains(t, task.Fault.Message, "command")
	})
	t.Run("malformed JSON is kept as a dead letter", func(t *testing.T) {
		key := publishRaw(t, c.Conn(), "default", `{"template":`)
		var got []workspace.DeadLetter
		require.Eventually(t, func() bool {
			got = deadLetters(t, w)
			return len(got) > 0
		}, time.Minute, 50*time.Millisecond)
		require.Len(t, got, 1)
		require.Equal(t, `{"template":`, string(got[0].Body))
		require.Contains(t, got[0].Reason, "not a JSON object")
		require.Equal(t, key, schemas.TaskID("default", "default", got[0].Headers[schemas.HeaderID]))
		_, stderr, code := w.weft("", "dlq", "drop", fmt.Sprint(got[0].Sequence))
		require.Zero(t, code, stderr)
		require.Empty(t, deadLetters(t, w))
	})
	t.Run("unknown fields are tolerated", func(t *testing.T) {
		id := publishRaw(t, c.Conn(), "default", `{"template":"base","command":["true"],"from_the_future":{"a":1}}`)
		task := ended(t, c, id)
		require.Equal(t, workspace.Complete, task.State)
	})
	t.Run("garbage to every operation", func(t *testing.T) { testGarbage(t, c) })
	t.Run("over 1 MiB", func(t *testing.T) {
		s := shell("true")
		s.Input = json.RawMessage(`"` + strings.Repeat("x", 1<<20+1<<16) + `"`)
		_, err := c.Submit(ctx(t, 10*time.Second), s, "")
		require.Equal(t, fault.Invalid, fault.CodeOf(err))
	})
	t.Run("a second weftd", func(t *testing.T) {
		second := &world{t: t, dir: w.dir}
		second.launch()
		second.exited(20 * time.Second)
		require.Contains(t, second.logs(), "another weftd")
		require.NotZero(t, second.cmd.ProcessState.ExitCode())
		require.Equal(t, workspace.Complete, finish(t, c, shell("true")).State, "the first goes on")
	})
}

// testGarbage asks every operation with bodies that are none: each is refused as what it is, or read as nothing.
func testGarbage(t *testing.T, c *client.Client) {
	for _, o := range catalog.Operations() {
		if o.Plane != schemas.PlaneReq {
			continue
		}
		subject := "weft.v1.req.default.default.alice." + o.Service + "." + o.Name
		for _, body := range []string{`{`, `[]`, `"x"`, "\xff\xfe", `{"id":"../../etc"}`, `{"name":"a.*"}`, `{"path":"/../.."}`, `{"value":{"name":">"}}`, `{"id":7,"name":7,"value":7}`, strings.Repeat("[", 100_000)} {
			m, err := c.Conn().NATS().RequestMsgWithContext(ctx(t, 10*time.Second), &nats.Msg{Subject: subject, Data: []byte(body)})
			require.NoError(t, err, "%s %.40s", subject, body)
			code := m.Header.Get(micro.ErrorCodeHeader)
			require.NotContains(t, []string{"internal", "unavailable", "deadline"}, code, "%s %.40s: %s", subject, body, m.Header.Get(micro.ErrorHeader))
			if body == `{` || body == "\xff\xfe" {
				require.Equal(t, "invalid", code, "%s %.40s", subject, body)
				require.NotEmpty(t, m.Header.Get(micro.ErrorHeader))
			}
		}
	}
}

func deadLetters(t testing.TB, w *world) []workspace.DeadLetter {
	t.Helper()
	return items[workspace.DeadLetter](t, w.must("dlq", "list", "--json"))
}

func waitState(t testing.TB, get func(context.Context, string) (workspace.Task, error), id string, want workspace.State) {
	t.Helper()
	require.Eventually(t, func() bool {
		task, err := get(ctx(t, 10*time.Second), id)
		return err == nil && task.State == want
	}, 60*time.Second, 50*time.Millisecond, "task %s never got to %s", id, want)
}
