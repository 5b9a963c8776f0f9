package manager_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/workspace"
)

// Two replicas, three nodes, 200 tasks: each finishes once.
func TestTwoReplicasDoNoHarm(t *testing.T) {
	b := newBed(t)
	b.run("m2")
	for i := range 3 {
		b.node(fmt.Sprint("n", i), 6, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
			if r.Task.Submission.Labels["flaky"] == "true" && r.Task.Attempt.Number == 1 {
				return exit1(ctx, r)
			}
			return exit0(ctx, r)
		})
	}
	const n = 200
	var ids []string
	for i := range n {
		ids = append(ids, b.submit(b.user, "acme", "demo", fmt.Sprint(i), workspace.Submission{Agent: "worker", MaxAttempts: 2, Labels: map[string]string{"flaky": fmt.Sprint(i%5 == 0)}}))
	}
	for _, id := range ids {
		b.untilLong(id, workspace.Complete)
		b.checkHistory(id)
	}
}

func TestTheOtherReplicaGoesOn(t *testing.T) {
	b := newBed(t)
	b.run("m2")
	n := b.node("n1", 4, exit0)
	first := b.submit(b.user, "acme", "demo", "a", workspace.Submission{Agent: "worker"})
	b.until(first, workspace.Complete)
	b.stop() // the leader goes, and gives its lease away
	id := b.submit(b.user, "acme", "demo", "b", workspace.Submission{Agent: "worker"})
	b.untilLong(id, workspace.Complete)
	require.NotNil(t, n)
}

// A restart takes a running attempt for just renewed: it goes on under its number.
func TestRestartKeepsWhatRuns(t *testing.T) {
	b := newBed(t)
	release := make(chan struct{})
	b.node("n1", 2, func(ctx context.Context, r workspace.ClaimReply) workspace.Finish {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return exit0(ctx, r)
	})
	id := b.submit(b.user, "acme", "demo", "a", workspace.Submission{Agent: "worker"})
	b.until(id, workspace.Running)
	b.stop()
	time.Sleep(700 * time.Millisecond) // longer than a claim lasts: nobody was there to take renewals
	b.run("m1")
	close(release)
	require.Equal(t, 1, b.until(id, workspace.Complete, workspace.Error).Attempt.Number)
	require.Equal(t, workspace.Complete, b.task(id).State)
}
