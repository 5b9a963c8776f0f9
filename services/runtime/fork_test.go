package runtime

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// writable gives a sandbox a root of its own.
func writable(b *workspace.Sandbox) {
	b.Run.Isolation = workspace.Isolation{WritableRoot: true, RootInside: true}
	b.Run.Resources.DiskBytes, b.Run.Resources.MemoryBytes = 64<<20, 128<<20
}

// asRoot runs a script as the root that is inside.
func asRoot(script string) runtime.ExecRequest {
	req := shell(script)
	req.User = &runtime.User{}
	return req
}

// forksOf describes forks as the manager does, and lets the fakes know them.
func (w *world) forksOf(source workspace.Sandbox, count int, change func(int, *workspace.Sandbox)) runtime.SandboxFork {
	req := runtime.SandboxFork{Source: source.ID}
	for n := range count {
		b := source
		b.ID, b.ForkedFrom = schemas.NewID(), source.ID
		if change != nil {
			change(n, &b)
		}
		w.with(func() { w.boxes[b.ID] = b })
		req.Sandboxes = append(req.Sandboxes, b)
	}
	return req
}

// Two sandboxes with the files of a third: its root's and the workspace's. Each goes on by itself, and the source as before.
func TestForksHaveTheFiles(t *testing.T) {
	w, m, n := onMesh(t)
	alice := m.User("acme", "alice")
	source := w.createBox(t, writable)
	_, out, _ := execute(t, alice, source, asRoot(`mkdir -p /opt/many && cd /opt/many && for i in $(seq 1000); do echo $i > f$i; done
		ln f1 hard; ln -s f2 soft; chmod 4711 f3; echo mine > /workspace/note; rm /etc/debian_version; rm -rf /usr/share/doc; mkdir /usr/share/doc; echo issue > /etc/issue; echo done`), "")
	require.Equal(t, "done\n", out)
	req := w.forksOf(source, 2, nil)
	require.NoError(t, w.askNode(t, runtime.OpSandboxFork, req))
	look := asRoot(`cd /opt/many; ls | wc -l; cat f1000 soft; stat -c '%h %a' hard f3; cat /workspace/note /workspace/head.txt /etc/issue; ls /etc/debian_version /usr/share/doc; touch hard /etc/x /usr/share/doc/y && echo writable; cat /etc/hostname`)
	want := "1002\n1000\n2\n2 644\n1 4711\nmine\nfrom the head\nissue\n/usr/share/doc:\nwritable\n"
	for _, b := range req.Sandboxes {
		_, out, _ := execute(t, alice, b, look, "")
		require.True(t, strings.HasPrefix(out, want), out)
		_, _, _ = execute(t, alice, b, asRoot("echo other > /opt/many/f1; echo other > /workspace/note"), "")
	}
	_, out, _ = execute(t, alice, source, asRoot("cat /opt/many/f1 /workspace/note; ls /usr/share/doc"), "")
	require.Equal(t, "1\nmine\n", out, "the source is as it was")
	left, err := os.ReadDir(filepath.Join(machine.DataDir, forkDir))
	require.NoError(t, err)
	require.Empty(t, left)

	// No room for two more of four: none is made.
	err = w.askNode(t, runtime.OpSandboxFork, w.forksOf(source, 2, nil))
	require.True(t, fault.Is(err, fault.Exhausted), "%v", err)
	require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: req.Sandboxes[0].ID}))
	n.held(t, 2)
	// One of them can't be made: nothing is left of the other, and nobody hears of it. A paused source stays paused.
	require.NoError(t, w.askNode(t, runtime.OpSandboxPause, runtime.SandboxRef{ID: source.ID}))
	bad := w.forksOf(source, 2, func(k int, b *workspace.Sandbox) {
		if k == 1 {
			b.Run.Image = "/etc/passwd"
		}
	})
	err = w.askNode(t, runtime.OpSandboxFork, bad)
	require.True(t, fault.Is(err, fault.Denied), "%v", err)
	n.held(t, 2)
	in, err := mesh.Request[runtime.Inspect](meshtest.Context(t), alice, sbx(t, source, runtime.OpInspect), workspace.Empty{})
	require.NoError(t, err)
	require.True(t, in.Paused)
	w.with(func() {
		for _, b := range bad.Sandboxes {
			require.True(t, w.overlays[b.ID].gone)
			for _, e := range w.ended {
				require.NotEqual(t, b.ID, e.ID)
			}
		}
	})
	for name, c := range map[string]struct {
		req  runtime.SandboxFork
		code fault.Code
	}{
		"another tenant's": {w.forksOf(source, 1, func(_ int, b *workspace.Sandbox) { b.Tenant = "globex" }), fault.Denied},
		"not here":         {w.forksOf(workspace.Sandbox{ID: schemas.NewID()}, 1, nil), fault.NotFound},
		"none":             {runtime.SandboxFork{Source: source.ID}, fault.Invalid},
		"too many":         {w.forksOf(source, workspace.MaxForks+1, nil), fault.Invalid},
	} {
		err := w.askNode(t, runtime.OpSandboxFork, c.req)
		require.True(t, fault.Is(err, c.code), "%s: %v", name, err)
	}
	for _, id := range []string{source.ID, req.Sandboxes[1].ID} {
		require.NoError(t, w.askNode(t, runtime.OpSandboxKill, runtime.SandboxKill{ID: id}))
	}
	n.empty(t)
}

// held waits until the node holds so many sandboxes.
func (n *node) held(t testing.TB, count int) {
	t.Helper()
	require.Eventually(t, func() bool { return n.s.status().Used == count }, slow, 5*time.Millisecond)
}

// BenchmarkFork is one more sandbox with 1,000 changed files: copy-ms of it the source stands still.
func BenchmarkFork(b *testing.B) {
	w, m, n := onMesh(b)
	alice := m.User("acme", "alice")
	source := w.createBox(b, writable, func(s *workspace.Sandbox) { s.Run.Files = "none" })
	_, _, _ = execute(b, alice, source, asRoot(`mkdir -p /opt/many && cd /opt/many && for i in $(seq 1000); do echo $i > f$i; done`), "")
	var copies time.Duration
	for b.Loop() {
		req := w.forksOf(source, 1, nil)
		require.NoError(b, w.askNode(b, runtime.OpSandboxFork, req))
		b.StopTimer()
		at := time.Now()
		p := &parent{id: source.ID, layer: filepath.Join(b.TempDir(), "layer.img")}
		require.NoError(b, n.boxOf(b, source.ID).copyTo(b.Context(), p, nil))
		copies += time.Since(at)
		require.NoError(b, os.Remove(p.layer))
		require.NoError(b, w.askNode(b, runtime.OpSandboxKill, runtime.SandboxKill{ID: req.Sandboxes[0].ID}))
		n.held(b, 1)
		b.StartTimer()
	}
	b.ReportMetric(float64(copies.Microseconds())/1000/float64(b.N), "copy-ms/op")
	require.NoError(b, w.askNode(b, runtime.OpSandboxKill, runtime.SandboxKill{ID: source.ID}))
	n.empty(b)
}
