package needs

import (
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// ended notes how a test was ended, and ends the goroutine as a test does.
type ended struct {
	testing.TB
	failed, skipped []any
}

func (e *ended) Helper()           {}
func (e *ended) Fatal(args ...any) { e.failed = args; runtime.Goexit() }
func (e *ended) Skip(args ...any)  { e.skipped = args; runtime.Goexit() }

func (e *ended) run(missing ...error) {
	done := make(chan struct{})
	go func() { defer close(done); All(e, missing...) }()
	<-done
}

func TestAll(t *testing.T) {
	one, other := errors.New("no runc"), errors.New("no bao")
	for value, fails := range map[string]bool{"1": true, "": false} {
		t.Setenv("WEFT_TEST_REQUIRE", value)
		e := &ended{}
		e.run(nil, nil)
		require.Empty(t, append(e.failed, e.skipped...))
		e.run(one, nil, other)
		said, silent := e.skipped, e.failed
		if fails {
			said, silent = silent, said
		}
		require.Len(t, said, 1)
		require.ErrorContains(t, said[0].(error), "no runc")
		require.ErrorContains(t, said[0].(error), "no bao")
		require.Empty(t, silent)
	}
}
