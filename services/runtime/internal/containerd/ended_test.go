package containerd

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATaskIsOverWhenItsRuntimeOrItsProcessSaysSo(t *testing.T) {
	told := make(chan int, 1)
	told <- 0
	require.True(t, ended(t.Context(), told, func() bool { return true }))
	looks := 0
	require.True(t, ended(t.Context(), told, func() bool { looks++; return looks < 2 }), "nobody tells, but it is gone")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.False(t, ended(over, told, func() bool { return true }))
}
