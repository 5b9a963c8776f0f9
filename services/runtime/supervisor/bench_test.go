package supervisor_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// median reports the p50 and p95 of what was measured, in milliseconds.
func median(b *testing.B, took []time.Duration, name string) {
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms"+name)
	b.ReportMetric(ms(took[len(took)*95/100]), "p95-ms"+name)
}

// BenchmarkExecTrue runs /bin/true in a running sandbox, from the request to the exit, and beside it
// the same by a bare fork and exec on the host.
func BenchmarkExecTrue(b *testing.B) {
	box := newBox(b)
	ctx := context.Background()
	spec := command("/bin/true")
	var took, bare []time.Duration
	for b.Loop() {
		t0 := time.Now()
		res, err := box.Run(ctx, spec, nil, 1<<10)
		took = append(took, time.Since(t0))
		require.NoError(b, err)
		require.Zero(b, res.Exit.Code)
		t0 = time.Now()
		require.NoError(b, exec.Command("/bin/true").Run())
		bare = append(bare, time.Since(t0))
	}
	median(b, took, "")
	median(b, bare, "-bare")
}

// BenchmarkExec is of other ways to run a command.
func BenchmarkExec(b *testing.B) {
	box := newBox(b)
	limited, terminal, input := command("/bin/true"), command("/bin/true"), command("/bin/cat")
	limited.Rlimits = []supervisor.Rlimit{{Name: "nofile", Soft: 100, Hard: 100}}
	terminal.PTY = &supervisor.Size{Rows: 24, Cols: 80}
	for _, c := range []struct {
		name  string
		spec  supervisor.ProcessSpec
		stdin []byte
	}{
		{"echo", command("/bin/echo", "hello"), nil},
		{"path", command("true"), nil},
		{"stdin", input, []byte("hello")},
		{"rlimits", limited, nil},
		{"pty", terminal, nil},
	} {
		b.Run(c.name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				t0 := time.Now()
				res, err := box.Run(context.Background(), c.spec, c.stdin, 1<<10)
				took = append(took, time.Since(t0))
				require.NoError(b, err)
				require.Zero(b, res.Exit.Code)
			}
			median(b, took, "")
		})
	}
}

// BenchmarkStream moves output of 1 GiB.
func BenchmarkStream(b *testing.B) {
	const size = 1 << 30
	for _, mode := range []supervisor.OutputMode{supervisor.OutputAttached, supervisor.OutputLossless} {
		b.Run(string(mode), func(b *testing.B) {
			box := newBox(b)
			ctx := context.Background()
			spec := command("/payload", "zeros", fmt.Sprint(size))
			spec.Output = mode
			b.SetBytes(size)
			for b.Loop() {
				p, err := box.Start(ctx, spec)
				require.NoError(b, err)
				var got, acked uint64
				for {
					ev, err := p.Next(ctx)
					require.NoError(b, err)
					if ev.Exit != nil {
						require.Equal(b, uint64(size), ev.Exit.Stdout)
						break
					}
					require.Zero(b, ev.Dropped)
					if got += uint64(len(ev.Data)); got-acked > 256<<10 && mode == supervisor.OutputLossless {
						acked = got
						p.Ack(supervisor.Offsets{Stdout: got})
					}
				}
				require.Equal(b, uint64(size), got)
				require.NoError(b, p.Forget(ctx))
			}
			u, err := box.Usage(ctx)
			require.NoError(b, err)
			b.ReportMetric(float64(u.InitRSS)/(1<<20), "init-MiB")
		})
	}
}
