package supervisor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

func TestRun(t *testing.T) {
	b := newBox(t)
	t.Run("outputs apart and exit code", func(t *testing.T) {
		res := b.run(shell("echo out; echo err >&2; exit 7"))
		require.Equal(t, "out\n", string(res.Stdout))
		require.Equal(t, "err\n", string(res.Stderr))
		require.Equal(t, 7, res.Exit.Code)
		require.Equal(t, supervisor.ReasonExited, res.Exit.Reason)
		require.Equal(t, uint64(4), res.Exit.Stdout)
	})
	t.Run("identity", func(t *testing.T) {
		require.Equal(t, "1000", b.output("id", "-u"))
	})
}
