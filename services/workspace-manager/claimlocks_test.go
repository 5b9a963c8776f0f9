package manager

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
)

// TestASlowClaimHoldsUpNobodyElse: while one name is decided about, all others are free, and who waits for it may leave.
func TestASlowClaimHoldsUpNobodyElse(t *testing.T) {
	var locks claimLocks
	by := func(tenant string) mesh.Caller { return mesh.Caller{Tenant: tenant, Workspace: "lab"} }
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	slow, err := locks.lock(ctx, by("slow"), "name")
	require.NoError(t, err)
	for i := range 1000 {
		unlock, err := locks.lock(ctx, by(fmt.Sprintf("tenant-%d", i)), "name")
		require.NoError(t, err)
		unlock()
		unlock()
	}
	short, leave := context.WithCancel(ctx)
	leave()
	_, err = locks.lock(short, by("slow"), "name")
	require.True(t, fault.Is(err, fault.Deadline), "%v", err)

	var inside int
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			unlock, err := locks.lock(ctx, by("slow"), "name")
			if err != nil {
				t.Error(err)
				return
			}
			defer unlock()
			inside++ // the race detector looks on
		})
	}
	slow()
	all.Wait()
	require.Equal(t, 50, inside)
	require.Empty(t, locks.held, "nothing is kept of names that nobody asks for")
}
