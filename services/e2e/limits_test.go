package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestQuotas: what is over a quota is refused with a code and a sentence, and what waits has its turn.
func TestQuotas(t *testing.T) {
	w := boot(t)
	w.must("workspace", "create", "small", "--max-pending", "2", "--max-running", "1", "--max-sandboxes", "1")
	c := w.in("small", "alice")
	var ids []string
	submit := func() string {
		sub, err := c.Submit(ctx(t, 10*time.Second), shell("sleep 0.7"), "")
		require.NoError(t, err)
		ids = append(ids, sub.Task)
		return sub.Task
	}
	waitState(t, c.Task, submit(), workspace.Running)
	waitState(t, c.Task, submit(), workspace.Pending)
	waitState(t, c.Task, submit(), workspace.Pending)
	over := ended(t, c, submit())
	require.Equal(t, workspace.Rejected, over.State)
	require.Equal(t, "exhausted", over.Fault.Code)
	require.Contains(t, over.Fault.Message, "2 tasks waiting")
	_, stderr, code := w.weft("", "--workspace", "small", "run", "--template", "base", "--", "true")
	require.Equal(t, 6, code, stderr)

	var runs []workspace.Attempt
	for _, id := range ids[:3] {
		task := ended(t, c, id)
		require.Equal(t, workspace.Complete, task.State)
		runs = append(runs, task.Attempt)
	}
	slices.SortFunc(runs, func(a, b workspace.Attempt) int { return a.StartedAt.Compare(*b.StartedAt) })
	for i := 1; i < len(runs); i++ {
		require.False(t, runs[i].StartedAt.Before(*runs[i-1].EndedAt), "two ran at once")
	}

	s, err := c.CreateSandbox(ctx(t, 30*time.Second), workspace.SandboxCreate{Template: "base"})
	require.NoError(t, err)
	_, stderr, code = w.weft("", "--workspace", "small", "sandbox", "create")
	require.Equal(t, 6, code, stderr)
	_, err = c.KillSandbox(ctx(t, 10*time.Second), s.ID)
	require.NoError(t, err)

	t.Run("of files", func(t *testing.T) {
		w.must("workspace", "create", "narrow", "--max-disk", "1MiB")
		big := filepath.Join(t.TempDir(), "big")
		require.NoError(t, os.WriteFile(big, []byte(strings.Repeat("0123456789abcdef", 1<<17)), 0o644))
		_, stderr, code := w.weft("", "--workspace", "narrow", "files", "put", big, "big")
		require.Equal(t, 6, code, stderr)
	})
}

// TestMissingComponents: a machine that lacks something is told what, and which command gets it.
func TestMissingComponents(t *testing.T) {
	requireComponents(t)
	cache := func(t *testing.T, programs ...string) string {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "bin"), 0o755))
		for _, p := range programs {
			path, err := toolchain.Find(p)
			require.NoError(t, err)
			require.NoError(t, os.Symlink(path, filepath.Join(dir, "bin", p)))
		}
		return dir
	}
	const path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
	for _, m := range []struct {
		name string
		env  []string
		says []string
	}{
		{"nothing", []string{path, "WEFT_CACHE=" + cache(t)}, []string{"make setup"}},
		{"no containerd", []string{path, "WEFT_CACHE=" + cache(t, "bao", "runc")}, []string{"containerd", "make setup"}},
		{"no vault", []string{path, "WEFT_CACHE=" + cache(t, "containerd", "containerd-shim-runc-v2", "runc")}, []string{"bao", "make setup"}},
		{"a wrong path", []string{path, "WEFT_RUNC_BIN=/nowhere/runc"}, []string{"WEFT_RUNC_BIN", "/nowhere/runc"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			w := &world{t: t, dir: t.TempDir()}
			w.launch(m.env...)
			t.Cleanup(w.end)
			w.exited(30 * time.Second)
			require.Equal(t, 1, w.cmd.ProcessState.ExitCode())
			lines := strings.Split(strings.TrimSpace(w.logs()), "\n")
			last := lines[len(lines)-1]
			require.Contains(t, last, "weftd: ")
			for _, s := range m.says {
				require.Contains(t, last, s)
			}
			require.Empty(t, processes(t, w.dir, runDir(w.dir)), "nothing was begun that has to be ended")
		})
	}
	t.Run("a directory that can't be written", func(t *testing.T) {
		w := &world{t: t, dir: "/proc/weft"}
		w.launch()
		w.exited(10 * time.Second)
		require.Contains(t, w.logs(), "-data-dir")
	})
	t.Run("an address that is taken", func(t *testing.T) {
		first := boot(t)
		second := &world{t: t, dir: t.TempDir(), listen: first.listen}
		second.launch()
		t.Cleanup(second.end)
		second.exited(20 * time.Second)
		require.Contains(t, second.logs(), first.listen)
		require.Contains(t, second.logs(), "-listen")
	})
}
