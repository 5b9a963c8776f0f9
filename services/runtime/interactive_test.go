package runtime

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// createBox asks the node for an interactive sandbox, as the manager does.
func (w *world) createBox(t testing.TB, change ...func(*workspace.Sandbox)) workspace.Sandbox {
	t.Helper()
	run := script("")
	run.Argv, run.Env = nil, map[string]string{"GREETING": "hello"}
	b := workspace.Sandbox{ID: schemas.NewID(), Tenant: "acme", Workspace: "demo", Principal: "alice", Generation: 1, Node: "node-1", Run: run, State: workspace.SandboxCreating}
	b.Run.Principal = "alice"
	for _, c := range change {
		c(&b)
	}
	w.with(func() { w.boxes[b.ID] = b })
	require.NoError(t, w.askNode(t, runtime.OpSandboxCreate, runtime.SandboxCreate{Sandbox: b}))
	return b
}

func (w *world) askNode(t testing.TB, op string, req any) error {
	t.Helper()
	subject, err := schemas.Node("node-1", schemas.WorkspaceManager, op)
	require.NoError(t, err)
	_, err = mesh.Request[workspace.Empty](meshtest.Context(t), w.manager, subject, req)
	return err
}

func sbx(t testing.TB, b workspace.Sandbox, op string) string {
	t.Helper()
	s, err := schemas.Sbx(b.Tenant, b.Workspace, b.ID, "alice", op)
	require.NoError(t, err)
	return s
}

// execute runs a command as a client does, and gives its result and its outputs.
func execute(t testing.TB, c *mesh.Conn, b workspace.Sandbox, req runtime.ExecRequest, stdin string) (runtime.ExecResult, string, string) {
	t.Helper()
	ctx := meshtest.Context(t)
	s, err := stream.Open(ctx, c, sbx(t, b, runtime.OpExec), req)
	require.NoError(t, err)
	defer s.Close()
	if req.Stdin {
		_, err = s.Channel(stream.Stdin).Write([]byte(stdin))
		require.NoError(t, err)
		require.NoError(t, s.Channel(stream.Stdin).CloseWrite())
	}
	var out, errs bytes.Buffer
	_, err = io.Copy(&out, s.Channel(stream.Stdout))
	require.NoError(t, err)
	_, err = io.Copy(&errs, s.Channel(stream.Stderr))
	require.NoError(t, err)
	var res runtime.ExecResult
	require.NoError(t, s.Result(ctx, &res))
	return res, out.String(), errs.String()
}

func shell(script string) runtime.ExecRequest {
	return runtime.ExecRequest{Argv: []string{"/bin/sh", "-c", script}}
}

func TestAnInteractiveSandbox(t *testing.T) {
	w, m, n := onMesh(t)
	alice := m.User("acme", "alice")
	b := w.createBox(t)
	require.NoError(t, w.askNode(t, runtime.OpSandboxCreate, runtime.SandboxCreate{Sandbox: b}), "asked again it changes nothing")

	t.Run("exec", func(t *testing.T) {
		res, out, errs := execute(t, alice, b, shell("echo $GREETING from $WEFT_PRINCIPAL in $(pwd); cat head.txt; echo oops >&2; exit 3"), "")
		require.Equal(t, "hello from alice in /workspace\nfrom the head\n", out)
		require.Equal(t, "oops\n", errs)
		require.Equal(t, workspace.Exit{Code: 3, Reason: "exited"}, res.Exit)
		require.NotEmpty(t, res.Process)
		req := shell("cat; echo $X; pwd")
		req.Stdin, req.Env, req.Workdir = true, map[string]string{"X": "y"}, "/tmp"
		_, out, _ = execute(t, alice, b, req, strings.Repeat("0123456789", 100_000))
		require.Equal(t, strings.Repeat("0123456789", 100_000)+"y\n/tmp\n", out)
		res, _, _ = execute(t, alice, b, runtime.ExecRequest{Argv: []string{"no-such-command"}}, "")
		require.Equal(t, 127, res.Exit.Code)
		require.NotEmpty(t, res.Message)
		req = shell("sleep 100")
		req.TimeoutMS = 50
		res, _, _ = execute(t, alice, b, req, "")
		require.Equal(t, "timeout", res.Exit.Reason)
		s, err := stream.Open(meshtest.Context(t), alice, sbx(t, b, runtime.OpExec), runtime.ExecRequest{})
		if err == nil {
			err = s.Result(meshtest.Context(t), nil)
			_ = s.Close()
		}
		require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	})

	t.Run("terminal, resize and signal", func(t *testing.T) {
		ctx := meshtest.Context(t)
		req := shell("stty size; trap 'stty size; exit 7' USR1; echo ready; while :; do sleep 0.02; done")
		req.PTY, req.Rows, req.Cols = true, 24, 80
		s, err := stream.Open(ctx, alice, sbx(t, b, runtime.OpExec), req)
		require.NoError(t, err)
		defer s.Close()
		msg, err := s.Receive(ctx)
		require.NoError(t, err)
		require.Equal(t, stream.Started, msg.Type)
		p, err := mesh.Decode[runtime.Process](msg.Value)
		require.NoError(t, err)
		out := make([]byte, 0, 100)
		for !strings.Contains(string(out), "ready") {
			k, err := s.Channel(stream.Stdout).Read(out[len(out):cap(out)])
			require.NoError(t, err)
			out = out[:len(out)+k]
		}
		require.Contains(t, string(out), "24 80")
		require.NoError(t, s.Send(stream.Resize, runtime.ResizeRequest{Rows: 50, Cols: 132}))
		_, err = mesh.Request[workspace.Empty](ctx, alice, sbx(t, b, runtime.OpResize), runtime.ResizeRequest{Process: p.ID, Rows: 51, Cols: 133})
		require.NoError(t, err)
		_, err = mesh.Request[workspace.Empty](ctx, alice, sbx(t, b, runtime.OpSignal), runtime.SignalRequest{Process: p.ID, Signal: "SIGUSR1"})
		require.NoError(t, err)
		rest, err := io.ReadAll(s.Channel(stream.Stdout))
		require.NoError(t, err)
		require.Regexp(t, "5[01] 13[23]", string(rest))
		var res runtime.ExecResult
		require.NoError(t, s.Result(ctx, &res))
		require.Equal(t, 7, res.Exit.Code)
		_, err = mesh.Request[workspace.Empty](ctx, alice, sbx(t, b, runtime.OpSignal), runtime.SignalRequest{Process: p.ID, Signal: "SIGUSR1"})
		require.True(t, fault.Is(err, fault.NotFound), "%v", err)
		_, err = mesh.Request[workspace.Empty](ctx, alice, sbx(t, b, runtime.OpSignal), runtime.SignalRequest{Process: p.ID, Signal: "SIGNONSENSE"})
		require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	})

	t.Run("a caller that goes away takes its command along", func(t *testing.T) {
		ctx, cancel := context.WithCancel(meshtest.Context(t))
		s, err := stream.Open(ctx, alice, sbx(t, b, runtime.OpExec), shell("echo x; sleep 4321"))
		require.NoError(t, err)
		_, err = s.Receive(ctx)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		cancel()
		require.Eventually(t, func() bool {
			_, out, _ := execute(t, alice, b, shell("pgrep -f 'sleep 432[1]' | wc -l"), "")
			return strings.TrimSpace(out) == "0"
		}, time.Minute, 20*time.Millisecond)
	})

	t.Run("files", func(t *testing.T) {
		ctx := meshtest.Context(t)
		content := strings.Repeat("content\n", 50_000)
		s, err := stream.Open(ctx, alice, sbx(t, b, runtime.OpWrite), runtime.FileRequest{Path: "/workspace/up.txt", Mode: 0o600})
		require.NoError(t, err)
		_, err = io.Copy(s.Channel(stream.Data), strings.NewReader(content))
		require.NoError(t, err)
		require.NoError(t, s.Channel(stream.Data).CloseWrite())
		var info runtime.FileInfo
		require.NoError(t, s.Result(ctx, &info))
		require.EqualValues(t, len(content), info.Size)
		_, out, _ := execute(t, alice, b, shell("stat -c '%a %u' up.txt; ln -s /etc/shadow link"), "")
		require.Equal(t, "600 1000\n", out)
		s, err = stream.Open(ctx, alice, sbx(t, b, runtime.OpRead), runtime.FileRequest{Path: "/workspace/up.txt"})
		require.NoError(t, err)
		got, err := io.ReadAll(s.Channel(stream.Data))
		require.NoError(t, err)
		require.Equal(t, content, string(got))
		require.NoError(t, s.Result(ctx, nil))
		for path, code := range map[string]fault.Code{"relative": fault.Invalid, "/no/such/file": fault.NotFound, "/workspace/link": fault.NotFound, "/proc/1/environ": fault.Denied} {
			s, err := stream.Open(ctx, alice, sbx(t, b, runtime.OpRead), runtime.FileRequest{Path: path})
			if err == nil {
				err = s.Result(ctx, nil)
				_ = s.Close()
			}
			require.True(t, fault.Is(err, code), "%s: %v", path, err)
		}
	})

	t.Run("inspect", func(t *testing.T) {
		in, err := mesh.Request[runtime.Inspect](meshtest.Context(t), alice, sbx(t, b, runtime.OpInspect), workspace.Empty{})
		require.NoError(t, err)
		require.Equal(t, b.ID, in.ID)
		require.Equal(t, "standard", in.Level)
		require.Equal(t, "acme", in.Labels["dev.weft/tenant"])
		require.Positive(t, in.Memory)
	})

	t.Run("another tenant reaches nothing", func(t *testing.T) {
		mallory := m.User("acme", "mallory") // same tenant, but as another principal
		subject := sbx(t, b, runtime.OpInspect)
		_, err := mesh.Request[runtime.Inspect](meshtest.Context(t), mallory, subject, workspace.Empty{})
		require.True(t, fault.Is(err, fault.Denied), "%v", err)
	})

	require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: b.ID, Reason: "cancelled"}))
	require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: b.ID, Reason: "cancelled"}), "twice is no error")
	w.with(func() {
		require.Len(t, w.ended, 1)
		require.Equal(t, "cancelled", w.ended[0].Exit.Reason)
		require.True(t, w.overlays[b.ID].merged.Keep, "what was written is kept")
	})
	require.Equal(t, 0, n.s.status().Used)
	_, err := mesh.Request[runtime.Inspect](meshtest.Context(t), alice, sbx(t, b, runtime.OpInspect), workspace.Empty{})
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
}

// endOf waits until the manager was told how a sandbox ended.
func (w *world) endOf(t testing.TB, id string) runtime.SandboxEnded {
	t.Helper()
	var end *runtime.SandboxEnded
	require.Eventually(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range w.ended {
			if w.ended[i].ID == id {
				end = &w.ended[i]
			}
		}
		return end != nil
	}, time.Minute, 5*time.Millisecond)
	return *end
}

func TestInteractiveSandboxesEndByThemselves(t *testing.T) {
	w, m, n := onMesh(t)
	alice := m.User("acme", "alice")
	ttl := w.createBox(t, func(b *workspace.Sandbox) { b.Run.TTLMS = 600 })
	idle := w.createBox(t, func(b *workspace.Sandbox) { b.Run.IdleMS = 500 })
	used := time.Now()
	for time.Since(used) < time.Second { // longer than the limit, and never idle for that long
		_, _, _ = execute(t, alice, idle, shell("sleep 0.1"), "")
	}
	w.with(func() {
		for _, e := range w.ended {
			require.NotEqual(t, idle.ID, e.ID, "it was in use")
		}
	})
	require.Equal(t, "timeout", w.endOf(t, ttl.ID).Exit.Reason)
	require.Equal(t, "idle", w.endOf(t, idle.ID).Exit.Reason)

	dying := w.createBox(t)
	b, ok := n.s.node.Get(dying.ID)
	require.True(t, ok)
	require.NoError(t, b.Stop(t.Context()))
	require.Equal(t, "unavailable", w.endOf(t, dying.ID).Fault.Code)

	hungry := w.createBox(t)
	res, _, _ := execute(t, alice, hungry, shell("tail /dev/zero"), "")
	require.Equal(t, 137, res.Exit.Code)
	require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: hungry.ID}))

	lost := w.createBox(t)
	w.with(func() { delete(w.boxes, lost.ID) })
	require.Eventually(t, func() bool { _, ok := n.s.node.Get(lost.ID); return !ok }, time.Minute, 5*time.Millisecond)
	w.with(func() { require.Nil(t, w.overlays[lost.ID].merged) })

	broken := workspace.Sandbox{ID: schemas.NewID(), Tenant: "acme", Workspace: "demo", Principal: "alice", Generation: 1, Run: script("")}
	broken.Run.Image = "/etc/passwd"
	w.with(func() { w.boxes[broken.ID] = broken })
	err := w.askNode(t, runtime.OpSandboxCreate, runtime.SandboxCreate{Sandbox: broken})
	require.True(t, fault.Is(err, fault.Denied), "%v", err)
	require.Eventually(t, func() bool { return n.s.status().Used == 0 }, 10*time.Second, time.Millisecond)
}

// The node's process starts anew: its interactive sandboxes are there as before.
func TestAnInteractiveSandboxSurvivesARestart(t *testing.T) {
	w, m, n := onMesh(t)
	alice := m.User("acme", "alice")
	b := w.createBox(t)
	_, _, _ = execute(t, alice, b, shell("echo kept > /tmp/note; (sleep 1000 &)"), "")
	n.stop()
	n = startNode(t, meshConfig(m.Node("node-1"), nil))
	_, out, _ := execute(t, alice, b, shell("cat /tmp/note head.txt; echo $GREETING"), "")
	require.Equal(t, "kept\nfrom the head\nhello\n", out)
	require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: b.ID}))
	require.Equal(t, "cancelled", w.endOf(t, b.ID).Exit.Reason)
	n.stop()
}

func TestOnlyTheManagerAsksANode(t *testing.T) {
	_, m, _ := onMesh(t)
	for _, op := range []string{runtime.OpSandboxCreate, runtime.OpSandboxKill, runtime.OpOutput, runtime.OpDrain} {
		subject, err := schemas.Node("node-1", schemas.Secrets, op)
		require.NoError(t, err)
		_, err = mesh.Request[workspace.Empty](meshtest.Context(t), m.Service(schemas.Secrets), subject, workspace.Empty{})
		require.True(t, fault.Is(err, fault.Denied), "%s: %v", op, err)
	}
}

// TestASandboxIsMadeOnce: who asks for one that is being made, as a manager does that goes on for another, waits for
// it, and it is made once.
func TestASandboxIsMadeOnce(t *testing.T) {
	w, m, n := onMesh(t)
	ctx := meshtest.Context(t)
	run := script("")
	run.Argv = nil
	b := workspace.Sandbox{ID: schemas.NewID(), Tenant: "acme", Workspace: "demo", Principal: "alice", Generation: 1, Node: "node-1", Run: run, State: workspace.SandboxCreating}
	w.with(func() { w.boxes[b.ID] = b })
	subject, err := schemas.Node("node-1", schemas.WorkspaceManager, runtime.OpSandboxCreate)
	require.NoError(t, err)
	errs := make(chan error, 6)
	for range cap(errs) {
		go func() {
			_, err := mesh.Request[workspace.Empty](ctx, w.manager, subject, runtime.SandboxCreate{Sandbox: b})
			errs <- err
		}()
	}
	for range cap(errs) {
		require.NoError(t, <-errs)
	}
	_, out, _ := execute(t, m.User("acme", "alice"), b, shell("echo once"), "")
	require.Equal(t, "once\n", out)
	require.Len(t, n.s.node.List(), 1)
	require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: b.ID}))
	// One that can't be made: all are told so.
	bad := b
	bad.ID, bad.Run.Image = schemas.NewID(), "nothing-like-it"
	w.with(func() { w.boxes[bad.ID] = bad })
	for range cap(errs) {
		go func() {
			_, err := mesh.Request[workspace.Empty](ctx, w.manager, subject, runtime.SandboxCreate{Sandbox: bad})
			errs <- err
		}()
	}
	for range cap(errs) {
		require.Error(t, <-errs)
	}
}
