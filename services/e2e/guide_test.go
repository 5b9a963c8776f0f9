package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

// TestGuideOfSandboxes types the commands of the guide, all of them and in their order, into one shell.
func TestGuideOfSandboxes(t *testing.T) {
	b, err := os.ReadFile("../../deploy/guides/sandboxes.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?ms)^```sh\n(.*?)^```$").FindAllStringSubmatch(string(b), -1)
	require.Len(t, blocks, 10, "ten commands")
	script := "set -euo pipefail\n"
	for _, block := range blocks {
		script += block[1]
	}
	w := boot(t)
	w.must("check") // makes the context
	cmd := exec.CommandContext(ctx(t, 5*time.Minute), "bash", "-c", script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "WEFT_CONTEXTS="+filepath.Join(w.dir, "contexts.json"), "PATH="+binDir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	said := string(out)
	for _, want := range []string{"standard", "counter", "\n1 of blue\n", "\n30 of blue\n", "-gvisor", "template workbench created"} {
		require.True(t, strings.Contains(said, want), "%q is missing in\n%s", want, said)
	}
	require.Equal(t, 1, strings.Count(said, "\n17 of blue\n"), "nothing comes twice")

	forks := items[workspace.Sandbox](t, w.must("sandbox", "list", "--json"))
	running := 0
	for _, s := range forks {
		if s.Template == "workbench" && s.State == workspace.SandboxRunning {
			require.Equal(t, "ready\n", w.must("sandbox", "exec", s.ID, "--", "cat", "/opt/tool/state"))
			running++
		}
	}
	require.Equal(t, 3, running, "the source and its forks")
}
