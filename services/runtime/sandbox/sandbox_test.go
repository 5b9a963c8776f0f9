package sandbox

import (
	"context"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/internal/nodetest"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

var machine *nodetest.Machine

func TestMain(m *testing.M) {
	os.Exit(nodetest.Main(m, &machine, func() error { return goleak.Find() }))
}

// within is a context for one test's calls.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 4*d) // a busy machine is no failure
	t.Cleanup(cancel)
	return ctx
}

// newNode opens a node on the machine, and takes away all its sandboxes at the end of the test.
func newNode(t testing.TB, e *containerd.Engine) *Node {
	t.Helper()
	n, err := Open(e, Config{
		DataDir: machine.DataDir, RunDir: machine.RunDir, Init: machine.Init,
		Forwards: supervisor.DefaultForwards(), Log: nodetest.Log(),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		for _, s := range n.List() {
			require.NoError(t, s.Destroy(ctx))
		}
		require.NoError(t, n.Close())
	})
	return n
}

func testSpec() Spec {
	return Spec{
		ID: schemas.NewID(), Generation: 1, Tenant: "acme", Workspace: "demo", Principal: "planner",
		Image: "base", Resources: workspace.Resources{PIDs: 64, MemoryBytes: 64 << 20},
	}
}

func create(t testing.TB, n *Node, change ...func(*Spec)) *Sandbox {
	t.Helper()
	spec := testSpec()
	for _, c := range change {
		c(&spec)
	}
	s, err := n.Create(within(t, 30*time.Second), spec)
	require.NoError(t, err)
	return s
}

// sh runs a script as the payload and gives its exit and its output.
func sh(t testing.TB, s *Sandbox, script string) (supervisor.Exit, string) {
	t.Helper()
	r, err := s.Supervisor().Run(within(t, 20*time.Second), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/bin/sh", "-c", script), Identity: Payload(), Dir: "/",
		Env: supervisor.Texts("PATH=/usr/local/bin:/usr/bin:/bin", "HOME="+HomePath), KillLeftovers: true,
	}, nil, 1<<20)
	require.NoError(t, err)
	return r.Exit, string(r.Stdout) + string(r.Stderr)
}

func BenchmarkCreate(b *testing.B) {
	n := newNode(b, machine.Engine(b))
	require.NoError(b, n.Image(b.Context(), "base"))
	var created, executed, destroyed []time.Duration
	for b.Loop() {
		at := time.Now()
		s := create(b, n)
		created = append(created, time.Since(at))
		exit, _ := sh(b, s, "true")
		executed = append(executed, time.Since(at))
		require.Zero(b, exit.Code)
		at = time.Now()
		require.NoError(b, s.Destroy(b.Context()))
		destroyed = append(destroyed, time.Since(at))
	}
	for what, d := range map[string][]time.Duration{"create": created, "first-command": executed, "destroy": destroyed} {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, what+"-ms")
	}
}
