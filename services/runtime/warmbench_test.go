package runtime

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

// From the manager's request for an interactive sandbox to the end of its first command, over a real mesh.
func BenchmarkClaimOverTheMesh(b *testing.B) {
	w, m, n := onMesh(b)
	alice := m.User("acme", "alice")
	own := w.wantPool("acme", 2, 2)
	var made, executed []time.Duration
	for b.Loop() {
		w.state(b, own, ready(2))
		run := script("")
		run.Argv, run.Principal, run.Files = nil, "alice", "none"
		box := workspace.Sandbox{ID: schemas.NewID(), Tenant: "acme", Workspace: "demo", Principal: "alice", Generation: 1, Node: "node-1", Run: run}
		w.with(func() { w.boxes[box.ID] = box })
		at := time.Now()
		require.NoError(b, w.askNode(b, runtime.OpSandboxCreate, runtime.SandboxCreate{Sandbox: box}))
		made = append(made, time.Since(at))
		s, err := stream.Open(context.Background(), alice, sbx(b, box, runtime.OpExec), runtime.ExecRequest{Argv: []string{"/bin/true"}})
		require.NoError(b, err)
		require.NoError(b, s.Result(context.Background(), nil))
		executed = append(executed, time.Since(at))
		_ = s.Close()
		require.NoError(b, w.askNode(b, runtime.OpSandboxKill, runtime.SandboxKill{ID: box.ID}))
	}
	for what, d := range map[string][]time.Duration{"claim": made, "first-command": executed} {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, what+"-ms")
		b.ReportMetric(float64(d[len(d)*95/100].Microseconds())/1000, what+"-p95-ms")
	}
	w.state(b, own, func(p workspace.PoolState) bool { return p.Misses == 0 })
	w.noPools(b)
	require.Eventually(b, func() bool { return n.s.status().Used == 0 }, 30*time.Second, time.Millisecond)
}
