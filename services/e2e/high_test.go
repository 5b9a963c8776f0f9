package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

// TestHigh: a task and a sandbox of level high, as a person asks for them. Both run in gVisor's kernel, with the
// workspace's files, and are as gone as others when they end.
func TestHigh(t *testing.T) {
	w := boot(t)
	const look = "grep -o gvisor /proc/version; id -u; cat /workspace/in.txt; echo made > /workspace/out.txt"
	stdout, stderr, code := w.weft("from outside\n", "files", "put", "-", "in.txt")
	require.Zero(t, code, stdout+stderr)
	require.Equal(t, "gvisor\n1000\nfrom outside\n", w.must("run", "--level", "high", "--template", "base", "--", "/bin/sh", "-c", look))
	require.Equal(t, "made\n", w.must("files", "cat", "out.txt"), "its changes were merged")

	id := strings.TrimSpace(w.must("sandbox", "create", "--template", "base", "--level", "high"))
	require.Equal(t, "gvisor\n1000\nfrom outside\n", w.must("sandbox", "exec", id, "--", "/bin/sh", "-c", look))
	stdout, stderr, code = w.weft("typed\n", "sandbox", "exec", "-i", id, "--", "/bin/sh", "-c", "cat; echo error >&2; exit 4")
	require.Equal(t, []any{"typed\n", 4}, []any{stdout, code})
	require.Contains(t, stderr, "error\n")
	box := item[workspace.Sandbox](t, w.must("sandbox", "get", id, "--json"))
	require.Equal(t, workspace.LevelHigh, box.Run.Level)
	require.Contains(t, w.must("sandbox", "inspect", id), "high")
	w.must("sandbox", "kill", id)

	// Beyond its limit of processes a task of this level ends, and the reason is known.
	file := filepath.Join(t.TempDir(), "narrow.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"kind": "Template", "name": "narrow", "spec": {"image": "base", "level": "high", "resources": {"pids": 8}}}`), 0o644))
	w.must("apply", "-f", file)
	bomb := workspace.Submission{Template: "narrow", Command: []string{"/bin/bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1000"}, MaxAttempts: 1}
	task := finish(t, w.as("alice"), bomb)
	require.NotNil(t, task.Attempt.Outcome, "%+v", task)
	require.Equal(t, workspace.ReasonPIDs, task.Attempt.Outcome.Exit.Reason)
}
