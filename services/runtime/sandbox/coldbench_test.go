package sandbox

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// From the order of a sandbox that nothing is ready for to the end of its first command, and its end. Each is the
// tenant's only one.
func BenchmarkCold(b *testing.B) {
	for _, level := range []string{"standard", "high"} {
		b.Run(level, func(b *testing.B) { benchmarkCold(b, level) })
	}
}

func benchmarkCold(b *testing.B, level string) {
	n := newNode(b, machine.Engine(b))
	require.NoError(b, n.Image(b.Context(), "base"))
	took := map[string][]time.Duration{}
	cold := func() {
		spec := testSpec()
		spec.Level = level
		at := time.Now()
		s, err := n.Create(b.Context(), spec)
		took["create"] = append(took["create"], time.Since(at))
		require.NoError(b, err)
		_, err = s.Supervisor().Run(b.Context(), supervisor.ProcessSpec{Argv: supervisor.Texts("/bin/true"), Identity: Payload(), Dir: "/"}, nil, 1<<10)
		took["first-command"] = append(took["first-command"], time.Since(at))
		require.NoError(b, err)
		at = time.Now()
		require.NoError(b, s.Destroy(b.Context()))
		took["destroy"] = append(took["destroy"], time.Since(at))
		time.Sleep(150 * time.Millisecond) // the machine has a moment, for what is made ahead
	}
	cold()
	clear(took) // what the first of a node makes for all
	for b.Loop() {
		cold()
	}
	for what, d := range took {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, what+"-ms")
		b.ReportMetric(float64(d[len(d)*95/100].Microseconds())/1000, what+"-p95-ms")
	}
}
