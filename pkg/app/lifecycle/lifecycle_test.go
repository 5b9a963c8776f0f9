package lifecycle

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type recorder struct {
	mu  sync.Mutex
	log []string
}

func (r *recorder) add(s string) { r.mu.Lock(); r.log = append(r.log, s); r.mu.Unlock() }

func (r *recorder) part(name string, startErr error) Part {
	return Part{Name: name,
		Start: func(context.Context) error { r.add("+" + name); return startErr },
		Run:   func(ctx context.Context) error { <-ctx.Done(); r.add("." + name); return ctx.Err() },
		Stop:  func() { r.add("-" + name) }}
}

func TestOrder(t *testing.T) {
	var r recorder
	ctx, cancel := context.WithCancel(context.Background())
	require.NoError(t, Run(ctx, slog.New(slog.DiscardHandler), cancel, r.part("a", nil), r.part("b", nil)))
	require.Equal(t, []string{"+a", "+b", ".b", "-b", ".a", "-a"}, r.log)
}

func TestFailedStartStopsWhatRan(t *testing.T) {
	var r recorder
	boom := errors.New("boom")
	err := Run(context.Background(), slog.New(slog.DiscardHandler), func() { t.Error("must not be ready") }, r.part("a", nil), r.part("b", boom), r.part("c", nil))
	require.ErrorIs(t, err, boom)
	require.Equal(t, []string{"+a", "+b", ".a", "-a"}, r.log)
}

func TestPartThatGivesUpEndsAll(t *testing.T) {
	var r recorder
	boom := errors.New("boom")
	err := Run(context.Background(), slog.New(slog.DiscardHandler), func() {}, r.part("a", nil),
		Part{Name: "b", Run: func(context.Context) error { return boom }})
	require.ErrorIs(t, err, boom)
	require.Equal(t, []string{"+a", ".a", "-a"}, r.log)
}
