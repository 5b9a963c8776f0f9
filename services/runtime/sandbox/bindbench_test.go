package sandbox

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// From the claim of a sandbox that waits to the end of its first command.
func BenchmarkClaim(b *testing.B) {
	for _, level := range []string{"standard", "high"} {
		b.Run(level, func(b *testing.B) { benchmarkClaim(b, level) })
	}
}

func benchmarkClaim(b *testing.B, level string) {
	n := newNode(b, machine.Engine(b))
	require.NoError(b, n.Image(b.Context(), "base"))
	var bound, executed []time.Duration
	for b.Loop() {
		mold, spec := testMold(), testSpec()
		mold.Level, spec.Level = level, level
		m, err := n.CreateBlank(b.Context(), mold)
		require.NoError(b, err)
		at := time.Now()
		s, err := n.Bind(b.Context(), m, spec)
		bound = append(bound, time.Since(at))
		require.NoError(b, err)
		_, err = s.Supervisor().Run(b.Context(), supervisor.ProcessSpec{Argv: supervisor.Texts("/bin/true"), Identity: Payload(), Dir: "/"}, nil, 1<<10)
		executed = append(executed, time.Since(at))
		require.NoError(b, err)
		require.NoError(b, s.Destroy(b.Context()))
	}
	for what, d := range map[string][]time.Duration{"bind": bound, "first-command": executed} {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, what+"-ms")
		b.ReportMetric(float64(d[len(d)*95/100].Microseconds())/1000, what+"-p95-ms")
	}
}
