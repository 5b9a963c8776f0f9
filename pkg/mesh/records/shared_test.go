package records

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestReadsAreSharedAndNeverOld: of many who ask while a read is under way one more read serves all; none is given what
// was read before it asked, nor kept by another's impatience.
func TestReadsAreSharedAndNeverOld(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var s shared
	var reads atomic.Int64
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	slow := func(context.Context) (*message, error) {
		n := reads.Add(1)
		select {
		case begun <- struct{}{}:
		default:
		}
		<-goOn
		return &message{seq: uint64(n)}, nil
	}
	got := make(chan uint64, 64)
	ask := func(ctx context.Context) {
		m, err := s.do(ctx, "a", slow)
		if err != nil {
			got <- 0
			return
		}
		got <- m.seq
	}
	waiting := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.busy["a"] != nil && s.busy["a"].next != nil
	}
	var all sync.WaitGroup
	all.Go(func() { ask(ctx) })
	<-begun
	hasty, leave := context.WithCancel(ctx)
	all.Go(func() { ask(hasty) }) // it is the second read's first
	require.Eventually(t, waiting, time.Minute, time.Millisecond)
	for range 30 {
		all.Go(func() { ask(ctx) })
	}
	m, err := s.do(ctx, "b", func(context.Context) (*message, error) { return nil, errors.New("no") })
	require.Nil(t, m)
	require.EqualError(t, err, "no", "another subject waits for nobody")
	leave()
	require.Zero(t, <-got)
	goOn <- struct{}{}
	require.EqualValues(t, 1, <-got)
	close(goOn)
	for range 30 {
		require.GreaterOrEqual(t, <-got, uint64(2), "no older than the question")
	}
	all.Wait()
	require.LessOrEqual(t, reads.Load(), int64(32))
	require.Eventually(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.busy) == 0 }, time.Minute, time.Millisecond)
}
