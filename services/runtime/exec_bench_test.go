package runtime

import (
	"io"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// BenchmarkExecRunning runs /bin/true in a running sandbox through the mesh, beside the same at the node, and a bare
// fork and exec: in turns, so that they meet the same machine.
func BenchmarkExecRunning(b *testing.B) {
	w, m, n := onMesh(b)
	alice, box := m.User("acme", "alice"), w.createBox(b, func(s *workspace.Sandbox) { s.Run.Resources = workspace.Resources{CPUMillis: 2000} })
	here, ok := n.s.node.Get(box.ID)
	require.True(b, ok)
	ctx := meshtest.Context(b)
	took := map[string][]time.Duration{}
	measure := func(name string, do func()) {
		t0 := time.Now()
		do()
		took[name] = append(took[name], time.Since(t0))
	}
	for b.Loop() {
		measure("mesh", func() {
			s, err := stream.Open(ctx, alice, sbx(b, box, runtime.OpExec), runtime.ExecRequest{Argv: []string{"/bin/true"}})
			require.NoError(b, err)
			var res runtime.ExecResult
			require.NoError(b, s.Result(ctx, &res))
			_ = s.Close()
			require.Zero(b, res.Exit.Code)
		})
		measure("node", func() {
			_, err := here.Supervisor().Run(ctx, supervisor.ProcessSpec{Argv: supervisor.Texts("/bin/true"), Identity: sandbox.Payload()}, nil, 100)
			require.NoError(b, err)
		})
		measure("bare", func() { require.NoError(b, exec.Command("/bin/true").Run()) })
	}
	for name, t := range took {
		slices.Sort(t)
		ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
		b.ReportMetric(ms(t[len(t)/2]), "p50-ms-"+name)
		b.ReportMetric(ms(t[len(t)*99/100]), "p99-ms-"+name)
		b.ReportMetric(ms(t[0]), "min-ms-"+name)
	}
	require.NoError(b, w.askNode(b, runtime.OpSandboxKill, runtime.SandboxKill{ID: box.ID}))
}

// BenchmarkStdout is what one process writes, through the mesh.
func BenchmarkStdout(b *testing.B) {
	w, m, _ := onMesh(b)
	alice, box := m.User("acme", "alice"), w.createBox(b, func(s *workspace.Sandbox) { s.Run.Resources = workspace.Resources{CPUMillis: 2000} })
	ctx := meshtest.Context(b)
	b.SetBytes(256 << 20)
	for b.Loop() {
		s, err := stream.Open(ctx, alice, sbx(b, box, runtime.OpExec), runtime.ExecRequest{Argv: []string{"head", "-c", "268435456", "/dev/zero"}})
		require.NoError(b, err)
		n, err := io.Copy(io.Discard, s.Channel(stream.Stdout))
		require.NoError(b, err)
		require.EqualValues(b, 256<<20, n)
		require.NoError(b, s.Result(ctx, nil))
		_ = s.Close()
	}
	require.NoError(b, w.askNode(b, runtime.OpSandboxKill, runtime.SandboxKill{ID: box.ID}))
}
