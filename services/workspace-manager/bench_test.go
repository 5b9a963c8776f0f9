package manager_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/pkg/meshtest"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	manager "github.com/weftmesh/weft/services/workspace-manager"
)

// durableBed is newBed with every write fsynced.
func durableBed(t testing.TB, tweak ...func(*manager.Config)) *bed {
	b := &bed{t: t, m: meshtest.StartDurable(t, t.TempDir(), "acme", "umbrella"), dir: t.TempDir()}
	b.op, b.user = b.m.Service(schemas.Operator), b.m.User("acme", "ann")
	b.s, b.stop = b.run("m1", tweak...)
	b.tenant("acme", workspace.Quota{})
	b.define(b.user, "acme", "demo")
	return b
}

// BenchmarkTask measures submission to final state of a task that does nothing, one after the other,
// every write fsynced.
func BenchmarkTask(bm *testing.B) {
	b := durableBed(bm)
	b.node("n1", 8, exit0)
	sub := watchFinals(b, b.user)
	run := func(key string) time.Duration {
		start := time.Now()
		id := b.submit(b.user, "acme", "demo", key, workspace.Submission{Agent: "worker"})
		for got := range sub {
			if got == id {
				break
			}
		}
		return time.Since(start)
	}
	for i := range 5 {
		run(fmt.Sprint("warm", i))
	}
	var all []time.Duration
	bm.ResetTimer()
	for i := 0; i < bm.N; i++ {
		all = append(all, run(fmt.Sprint("k", i)))
	}
	bm.StopTimer()
	slices.Sort(all)
	bm.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	bm.ReportMetric(float64(all[len(all)*95/100].Microseconds())/1000, "p95-ms")
}

// BenchmarkTaskRate measures how many tasks a second go through when many wait.
func BenchmarkTaskRate(bm *testing.B) {
	b := durableBed(bm)
	b.node("n1", 32, exit0)
	sub := watchFinals(b, b.user)
	bm.ResetTimer()
	for i := 0; i < bm.N; i++ {
		b.submit(b.user, "acme", "demo", fmt.Sprint("k", i), workspace.Submission{Agent: "worker"})
	}
	for range bm.N {
		<-sub
	}
	bm.StopTimer()
	bm.ReportMetric(float64(bm.N)/bm.Elapsed().Seconds(), "tasks/s")
}

// watchFinals gives the id of every task that completes, as a client follows it live.
func watchFinals(b *bed, c *mesh.Conn) <-chan string {
	out := make(chan string, 100_000)
	sub, err := c.NATS().Subscribe(schemas.Prefix+"evt.acme.demo.task.*", natsHandler(func(subject, kind string) {
		if kind == schemas.EventType("task", "complete") {
			s, err := schemas.ParseSubject(subject)
			require.NoError(b.t, err)
			out <- s.ID
		}
	}))
	require.NoError(b.t, err)
	require.NoError(b.t, c.NATS().Flush())
	b.t.Cleanup(func() { _ = sub.Unsubscribe() })
	return out
}
