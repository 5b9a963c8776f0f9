package sandbox

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// A command in a running sandbox, an answer of process 1's, and fork and exec inside without the node.
func BenchmarkExec(b *testing.B) {
	for _, level := range []string{"standard", "high"} {
		b.Run(level, func(b *testing.B) { benchmarkExec(b, level) })
	}
}

func benchmarkExec(b *testing.B, level string) {
	n := newNode(b, machine.Engine(b))
	s := create(b, n, func(s *Spec) { s.Level, s.Resources.CPUMillis = level, 2000 })
	took := map[string][]time.Duration{}
	measure := func(name string, do func()) {
		t0 := time.Now()
		do()
		took[name] = append(took[name], time.Since(t0))
	}
	run := func(argv ...string) supervisor.Result {
		r, err := s.Supervisor().Run(b.Context(), supervisor.ProcessSpec{Argv: supervisor.Texts(argv...), Identity: Payload(), Dir: "/", Env: supervisor.Texts("PATH=/bin:/usr/bin")}, nil, 1<<10)
		require.NoError(b, err)
		return r
	}
	measure("first", func() { run("/bin/true") })
	for b.Loop() {
		measure("exec", func() { run("/bin/true") })
		measure("answer", func() {
			_, err := s.Supervisor().List(b.Context())
			require.NoError(b, err)
		})
	}
	measure("100-inside", func() { run("/bin/sh", "-c", "i=0; while [ $i -lt 100 ]; do /bin/true; i=$((i+1)); done") })
	for what, d := range took {
		slices.Sort(d)
		b.ReportMetric(float64(d[len(d)/2].Microseconds())/1000, what+"-ms")
		b.ReportMetric(float64(d[len(d)*95/100].Microseconds())/1000, what+"-p95-ms")
	}
}
