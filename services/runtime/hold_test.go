package runtime

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

// TestVerdictIsSaidAgain: every renewal repeats the manager's verdict until the attempt has ended, with a
// reason or without.
func TestVerdictIsSaidAgain(t *testing.T) {
	for _, reason := range []string{"", "cancelled by alice"} {
		h, err := newHold(workspace.QueueItem{Tenant: "acme", Workspace: "demo", Task: schemas.NewID(), Attempt: 1}, schemas.NewID(), time.Now().Add(time.Minute))
		require.NoError(t, err)
		for range 3 {
			require.NoError(t, h.verdict(context.Background(), workspace.HeldReply{Verdict: workspace.VerdictStop, Reason: reason, Deadline: time.Now().Add(time.Minute)}, time.Now()))
		}
		select {
		case <-h.stop:
		default:
			t.Fatal("not told to stop")
		}
		for range 2 {
			require.NoError(t, h.verdict(context.Background(), workspace.HeldReply{Verdict: workspace.VerdictLost}, time.Now()))
		}
		<-h.lost
	}
}

// TestANewClaimIsRenewedOnce: between two times of renewing all, only those are renewed that have no user yet.
func TestANewClaimIsRenewedOnce(t *testing.T) {
	h, err := newHold(workspace.QueueItem{}, "box", time.Now().Add(time.Minute))
	require.NoError(t, err)
	require.False(t, h.fresh(), "it is not ours yet")
	h.confirm(time.Now().Add(time.Minute), "", time.Now())
	require.True(t, h.fresh())
	require.NoError(t, h.verdict(t.Context(), workspace.HeldReply{Verdict: workspace.VerdictKeep, Deadline: time.Now().Add(time.Minute), UserJWT: "a.b.c"}, time.Now()))
	require.False(t, h.fresh())
	require.True(t, h.renewable())
}
