package e2e

import (
	"bytes"
	"crypto/rand"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestInteractive: a sandbox that a person works in, from its creation to each way in which it can end.
func TestInteractive(t *testing.T) {
	w := boot(t)
	c := w.as("alice")
	_, err := c.PutFile(ctx(t, 10*time.Second), filesystem.PutRequest{Path: "readme.txt"}, strings.NewReader("read me\n"))
	require.NoError(t, err)
	s, err := c.CreateSandbox(ctx(t, 60*time.Second), workspace.SandboxCreate{Template: "base", Env: map[string]string{"MOOD": "calm"}})
	require.NoError(t, err)
	require.Equal(t, workspace.SandboxRunning, s.State)

	t.Run("streams and codes", func(t *testing.T) {
		r := execute(t, c, s.ID, "", "/bin/sh", "-c", "cat readme.txt; echo $MOOD; echo bad >&2; id -u; exit 9")
		require.Equal(t, "read me\ncalm\n1000\n", r.out)
		require.Equal(t, "bad\n", r.err)
		require.Equal(t, 9, r.Exit.Code)
		require.Equal(t, "exited", r.Exit.Reason)
	})
	t.Run("much through stdin", func(t *testing.T) {
		big := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
		r := execute(t, c, s.ID, big, "cat")
		require.Equal(t, 0, r.Exit.Code)
		require.True(t, r.out == big, "what went in came out: %d of %d bytes", len(r.out), len(big))
	})
	t.Run("no such command", func(t *testing.T) {
		r := execute(t, c, s.ID, "", "/no/such/command")
		require.Equal(t, 127, r.Exit.Code)
		require.NotEmpty(t, r.Message)
		require.Equal(t, 126, execute(t, c, s.ID, "", "/etc/passwd").Exit.Code)
	})
	t.Run("signal", func(t *testing.T) { testSignal(t, c, s.ID) })
	t.Run("timeout", func(t *testing.T) {
		ses, err := c.Exec(ctx(t, 30*time.Second), s.ID, runtime.ExecRequest{Argv: []string{"sleep", "600"}, TimeoutMS: 300})
		require.NoError(t, err)
		require.Equal(t, "timeout", collect(t, ses, "").Exit.Reason)
	})
	t.Run("a stream that is closed ends its process", func(t *testing.T) {
		ses, err := c.Exec(ctx(t, 30*time.Second), s.ID, runtime.ExecRequest{Argv: []string{"sleep", "611"}})
		require.NoError(t, err)
		require.NoError(t, ses.Close())
		require.Eventually(t, func() bool {
			return !strings.Contains(execute(t, c, s.ID, "", "/bin/sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").out, "sleep 611")
		}, time.Minute, 100*time.Millisecond)
	})
	t.Run("files", func(t *testing.T) {
		blob := make([]byte, 3<<20)
		_, _ = rand.Read(blob)
		_, err := c.WriteFile(ctx(t, 20*time.Second), s.ID, "/workspace/blob", 0o640, bytes.NewReader(blob))
		require.NoError(t, err)
		var back bytes.Buffer
		_, err = c.ReadFile(ctx(t, 20*time.Second), s.ID, "/workspace/blob", &back)
		require.NoError(t, err)
		require.True(t, bytes.Equal(blob, back.Bytes()))
		_, err = c.ReadFile(ctx(t, 10*time.Second), s.ID, "/workspace/none", io.Discard)
		require.Equal(t, fault.NotFound, fault.CodeOf(err))
		_, err = c.ReadFile(ctx(t, 10*time.Second), s.ID, "/proc/1/environ", io.Discard)
		require.Equal(t, fault.Denied, fault.CodeOf(err), "%v", err)
		execute(t, c, s.ID, "", "ln", "-s", "/proc/1/environ", "/workspace/link")
		_, err = c.ReadFile(ctx(t, 10*time.Second), s.ID, "/workspace/link", io.Discard)
		require.Equal(t, fault.Denied, fault.CodeOf(err), "%v", err)
	})
	t.Run("inspect", func(t *testing.T) {
		i, err := c.InspectSandbox(ctx(t, 10*time.Second), s.ID)
		require.NoError(t, err)
		require.Equal(t, s.ID, i.ID)
		require.Equal(t, "standard", i.Level)
		require.Positive(t, i.PIDs)
		require.Positive(t, i.Memory)
	})
	t.Run("on a terminal", func(t *testing.T) { testShell(t, w, s.ID) })
	t.Run("through the command line", func(t *testing.T) { testSandboxCLI(t, w) })
	t.Run("ends", func(t *testing.T) { testSandboxEnds(t, c, s.ID) })
}

// executed is what a command did.
type executed struct {
	runtime.ExecResult
	out, err string
}

func execute(t testing.TB, c *client.Client, sandbox, stdin string, argv ...string) executed {
	t.Helper()
	ses, err := c.Exec(ctx(t, 30*time.Second), sandbox, runtime.ExecRequest{Argv: argv, Stdin: stdin != ""})
	require.NoError(t, err)
	return collect(t, ses, stdin)
}

func collect(t testing.TB, s *stream.Session, stdin string) executed {
	t.Helper()
	defer func() { _ = s.Close() }()
	var wg sync.WaitGroup
	var out, errs bytes.Buffer
	wg.Go(func() { _, _ = io.Copy(&out, s.Channel(stream.Stdout)) })
	wg.Go(func() { _, _ = io.Copy(&errs, s.Channel(stream.Stderr)) })
	wg.Go(func() {
		_, _ = io.Copy(s.Channel(stream.Stdin), strings.NewReader(stdin))
		_ = s.Channel(stream.Stdin).CloseWrite()
	})
	var res runtime.ExecResult
	wg.Wait()
	require.NoError(t, s.Result(ctx(t, 30*time.Second), &res))
	return executed{res, out.String(), errs.String()}
}

func testSignal(t *testing.T, c *client.Client, sandbox string) {
	ses, err := c.Exec(ctx(t, 30*time.Second), sandbox, runtime.ExecRequest{Argv: []string{"/bin/sh", "-c", "trap 'echo caught; exit 3' USR1; echo up; while :; do sleep 0.05; done"}})
	require.NoError(t, err)
	up := make([]byte, 3)
	_, err = io.ReadFull(ses.Channel(stream.Stdout), up)
	require.NoError(t, err)
	require.Equal(t, "up\n", string(up))
	require.NoError(t, c.Signal(ctx(t, 10*time.Second), sandbox, runningProcess(t, c, sandbox), "SIGUSR1"))
	r := collect(t, ses, "")
	require.Equal(t, "caught\n", r.out)
	require.Equal(t, 3, r.Exit.Code)
	r = execute(t, c, sandbox, "", "/bin/sh", "-c", "kill -KILL $$")
	require.Equal(t, "signal", r.Exit.Reason)
	require.Equal(t, "SIGKILL", r.Exit.Signal)
	require.Equal(t, 137, r.Exit.Code)
}

func runningProcess(t *testing.T, c *client.Client, sandbox string) string {
	t.Helper()
	i, err := c.InspectSandbox(ctx(t, 10*time.Second), sandbox)
	require.NoError(t, err)
	for _, p := range i.Processes {
		if p.Running && len(p.Argv) > 2 {
			return p.ID
		}
	}
	t.Fatalf("no process runs: %+v", i.Processes)
	return ""
}

// testShell works in `weft sandbox shell` as a person does.
func testShell(t *testing.T, w *world, id string) {
	w.must("context", "show")
	cmd := exec.Command(filepath.Join(binDir, "weft"), "sandbox", "shell", id)
	cmd.Env = append(os.Environ(), "WEFT_CONTEXTS="+filepath.Join(w.dir, "contexts.json"), "TERM=xterm")
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 33, Cols: 111})
	require.NoError(t, err)
	defer func() { _ = tty.Close() }()
	var mu sync.Mutex
	var seen bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := tty.Read(b)
			mu.Lock()
			seen.Write(b[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	sees := func(what string) {
		t.Helper()
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return strings.Contains(seen.String(), what) }, time.Minute, 20*time.Millisecond, "%q", what)
	}
	for _, step := range []struct{ types, sees string }{
		{"echo $((6*7)) is it\n", "42 is it"},
		{"stty size\n", "33 111"},
		{"sleep 600\n", "sleep 600"},
		{"\x03", "^C"},
		{"echo alive $?\n", "alive 130"},
	} {
		_, err := tty.WriteString(step.types)
		require.NoError(t, err)
		sees(step.sees)
	}
	require.NoError(t, pty.Setsize(tty, &pty.Winsize{Rows: 40, Cols: 99}))
	require.Eventually(t, func() bool {
		_, _ = tty.WriteString("stty size\n")
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(seen.String(), "40 99")
	}, time.Minute, 200*time.Millisecond)
	_, err = tty.WriteString("exit 5\n")
	require.NoError(t, err)
	<-done
	_ = cmd.Wait()
	require.Equal(t, 5, cmd.ProcessState.ExitCode())
}

func testSandboxCLI(t *testing.T, w *world) {
	id := item[workspace.Sandbox](t, w.must("sandbox", "create", "--template", "python", "--ttl", "10m", "--json")).ID
	stdout, stderr, code := w.weft("typed\n", "sandbox", "exec", "-i", id, "--", "/bin/sh", "-c", "cat; echo oops >&2; exit 4")
	require.Equal(t, []any{"typed\n", "oops\n", 4}, []any{stdout, stderr, code})
	_, stderr, code = w.weft("", "sandbox", "exec", id, "--", "no-such-command")
	require.Equal(t, 127, code)
	require.Contains(t, stderr, "no such command")
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.py"), []byte("print('from a file')\n"), 0o644))
	w.must("sandbox", "cp", filepath.Join(dir, "a.py"), id+":/workspace/a.py")
	require.Equal(t, "from a file\n", w.must("sandbox", "exec", id, "--", "python3", "a.py"))
	w.must("sandbox", "exec", id, "--", "/bin/sh", "-c", "mkdir -p tree/d && echo 1 > tree/one && echo 2 > tree/d/two")
	w.must("sandbox", "cp", "-r", id+":/workspace/tree", filepath.Join(dir, "out"))
	two, err := os.ReadFile(filepath.Join(dir, "out", "d", "two"))
	require.NoError(t, err)
	require.Equal(t, "2\n", string(two))
	w.must("sandbox", "cp", "-r", filepath.Join(dir, "out"), id+":/workspace/back")
	require.Equal(t, "2\n", w.must("sandbox", "exec", id, "--", "cat", "back/d/two"))
	require.Equal(t, id, item[runtime.Inspect](t, w.must("sandbox", "inspect", id, "--json")).ID)
	var ids []string
	for _, s := range items[workspace.Sandbox](t, w.must("sandbox", "list", "--json")) {
		ids = append(ids, s.ID)
	}
	require.Contains(t, ids, id)
	w.must("sandbox", "kill", id)
	_, stderr, code = w.weft("", "sandbox", "exec", id, "--", "true")
	require.Equal(t, 7, code)
	require.Contains(t, stderr, "has ended")
	_, _, code = w.weft("", "sandbox", "get", schemas.NewID())
	require.Equal(t, 3, code)
}

func testSandboxEnds(t *testing.T, c *client.Client, id string) {
	within := ctx(t, 60*time.Second)
	short, err := c.CreateSandbox(within, workspace.SandboxCreate{Template: "base", TTLMS: 1500})
	require.NoError(t, err)
	idle, err := c.CreateSandbox(within, workspace.SandboxCreate{Template: "base", IdleMS: 1000})
	require.NoError(t, err)
	for _, s := range []struct{ id, reason string }{{short.ID, "timeout"}, {idle.ID, "idle"}} {
		require.Eventually(t, func() bool {
			now, err := c.Sandbox(within, s.id)
			return err == nil && now.State == workspace.SandboxStopped && now.Exit != nil && now.Exit.Reason == s.reason
		}, time.Minute, 100*time.Millisecond, "%s: %+v", s.reason, s.id)
	}
	ses, err := c.Exec(within, id, runtime.ExecRequest{Argv: []string{"sleep", "600"}})
	require.NoError(t, err)
	_, err = c.KillSandbox(within, id)
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, ses.Channel(stream.Stdout)) // ends, whatever it says
	_, err = c.KillSandbox(within, id)
	require.NoError(t, err, "again")
	_, err = c.Exec(within, id, runtime.ExecRequest{Argv: []string{"true"}})
	require.Equal(t, fault.Unavailable, fault.CodeOf(err))
}
