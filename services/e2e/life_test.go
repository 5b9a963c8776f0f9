package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestLife: what a person sees of a sandbox's life, over the end of weftd in the middle of it, and its forks.
func TestLife(t *testing.T) {
	w := boot(t, "-slots", "8")
	id := func(args ...string) string {
		return strings.TrimSpace(w.must(append([]string{"sandbox", "create"}, args...)...))
	}
	sandbox := func(id string) workspace.Sandbox {
		return item[workspace.Sandbox](t, w.must("sandbox", "get", id, "--json"))
	}
	// One that is left alone from here on: see below.
	idle := id("--template", "base", "--idle", "16s", "--warn", "8s")
	w.must("sandbox", "exec", idle, "--", "/bin/sh", "-c", "echo what it said last")

	box := id("--template", "base", "--ttl", "30m", "--idle", "20m", "--grace", "1s")
	before := sandbox(box)
	require.Equal(t, before.CreatedAt.Add(30*time.Minute), *before.ExpiresAt)
	w.must("sandbox", "keep-alive", box, "--ttl", "2h", "--idle", "40m")
	kept := sandbox(box)
	require.True(t, kept.ExpiresAt.After(before.ExpiresAt.Add(80*time.Minute)))
	in := item[runtime.Inspect](t, w.must("sandbox", "inspect", box, "--json"))
	require.Equal(t, *kept.ExpiresAt, *in.ExpiresAt)
	require.True(t, in.IdleAt.After(time.Now().Add(30*time.Minute)))

	// Paused, it stays so when weftd is killed.
	w.must("sandbox", "exec", box, "--", "/bin/sh", "-c", "echo kept > /tmp/note")
	w.must("sandbox", "pause", box)
	refused := func() {
		t.Helper()
		_, stderr, code := w.weft("", "sandbox", "exec", box, "--", "true")
		require.Equal(t, 5, code, stderr)
		require.Contains(t, stderr, "weft sandbox resume "+box)
	}
	refused()
	w.kill()
	w.start()
	require.Equal(t, workspace.SandboxPaused, sandbox(box).State)
	require.Eventually(t, func() bool { // it is served again soon after the start
		stdout, _, code := w.weft("", "sandbox", "inspect", box, "--json")
		return code == 0 && item[runtime.Inspect](t, stdout).Paused
	}, 60*time.Second, 50*time.Millisecond)
	refused()
	w.must("sandbox", "resume", box)
	require.Equal(t, "kept\n", w.must("sandbox", "exec", box, "--", "cat", "/tmp/note"))
	require.Equal(t, *kept.ExpiresAt, *sandbox(box).ExpiresAt)

	t.Run("fork", func(t *testing.T) { testFork(t, w) })

	w.must("sandbox", "kill", box)
	require.Equal(t, workspace.Exit{Code: 137, Signal: "SIGKILL", Reason: "killed", By: "alice"}, *sandbox(box).Exit)
	require.Contains(t, w.must("sandbox", "get", box), "killed by alice")

	// The one that was left alone was warned, ended, and its last words are there.
	require.Eventually(t, func() bool { return sandbox(idle).State == workspace.SandboxStopped }, 60*time.Second, 100*time.Millisecond)
	require.Equal(t, workspace.ReasonIdle, sandbox(idle).Exit.Reason)
	log := w.must("events", "--since", "1h", "--entity", "sandbox", "--id", idle)
	require.Regexp(t, `warned +it will be stopped at 20.*: idle`, log)
	require.Regexp(t, `stopped +idle`, log)
}

// writableTemplate makes a template whose sandboxes have a root of their own.
func writableTemplate(t *testing.T, c *client.Client, name string) {
	t.Helper()
	_, err := c.Templates().Put(ctx(t, 10*time.Second), workspace.Template{Name: name, Image: "base",
		Resources: workspace.Resources{DiskBytes: 64 << 20}, Isolation: workspace.Isolation{WritableRoot: true}}, 0)
	require.NoError(t, err)
}
