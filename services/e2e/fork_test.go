package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// testFork: a sandbox with changes to its root and to the workspace's files, and two with the same.
func testFork(t *testing.T, w *world) {
	c := w.as("alice")
	writableTemplate(t, c, "roomy")
	_, err := c.PutFile(ctx(t, 10*time.Second), filesystem.PutRequest{Path: "shared.txt"}, strings.NewReader("head\n"))
	require.NoError(t, err)
	source := strings.TrimSpace(w.must("sandbox", "create", "--template", "roomy", "-e", "MOOD=calm"))
	w.must("sandbox", "exec", source, "--", "/bin/sh", "-c",
		"mkdir ~/d && cd ~/d && for i in $(seq 100); do echo $i > f$i; done; echo mine > /workspace/shared.txt; echo new > /workspace/new.txt; echo t > /tmp/t")
	forks := items[workspace.Sandbox](t, w.must("--json", "sandbox", "fork", source, "-n", "2"))
	require.Len(t, forks, 2)
	for _, f := range forks {
		require.Equal(t, source, f.ForkedFrom)
		require.Equal(t, "100\n100\nmine\nnew\nt\ncalm "+f.ID+"\n", w.must("sandbox", "exec", f.ID, "--", "/bin/sh", "-c",
			"ls ~/d | wc -l; cat ~/d/f100 /workspace/shared.txt /workspace/new.txt /tmp/t; echo $MOOD $WEFT_SANDBOX"))
		w.must("sandbox", "exec", f.ID, "--", "/bin/sh", "-c", "echo "+f.ID+" > /workspace/new.txt; rm /workspace/shared.txt; echo x > ~/d/f1")
	}
	require.Equal(t, "mine\nnew\n1\n", w.must("sandbox", "exec", source, "--", "/bin/sh", "-c", "cat /workspace/shared.txt /workspace/new.txt ~/d/f1"))
	// What it has changed of its root, as a template: its own workspace, and no process, are not in it.
	w.must("sandbox", "snapshot", source, "--template", "with-files")
	made := strings.TrimSpace(w.must("sandbox", "create", "--template", "with-files"))
	require.Equal(t, "100\nhead\n", w.must("sandbox", "exec", made, "--", "/bin/sh", "-c", "cat ~/d/f100 /workspace/shared.txt; cat /tmp/t 2>/dev/null; true"))
	w.must("sandbox", "kill", source, made, forks[0].ID, forks[1].ID)

	_, stderr, code := w.weft("", "sandbox", "fork", source)
	require.Equal(t, 5, code)
	require.Contains(t, stderr, "has ended")
	plain := strings.TrimSpace(w.must("sandbox", "create", "--template", "base"))
	_, stderr, code = w.weft("", "sandbox", "fork", plain)
	require.Equal(t, 2, code, stderr)
	require.Contains(t, stderr, "writable_root")
	w.must("sandbox", "kill", plain)
}
