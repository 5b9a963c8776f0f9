package weftinit

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// TestADefectEndsItsOperationOnly has an operation meet what never should be.
func TestADefectEndsItsOperationOnly(t *testing.T) {
	c := &call{req: &wire.Request{Op: wire.OpList}} // no supervisor
	err := c.safely()
	require.Equal(t, fault.Internal, fault.CodeOf(err))
	require.NotContains(t, err.Error(), "nil pointer", "what went wrong is for the log")
}

// TestAWatchThatCannotBeSetAgainKeepsTheOldOne is what the end of a watch relies on.
func TestAWatchThatCannotBeSetAgainKeepsTheOldOne(t *testing.T) {
	old := &watched{}
	w := &watching{w: old, c: &call{req: &wire.Request{
		Path: wire.Text(filepath.Join(t.TempDir(), "gone")), As: &wire.Identity{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())},
	}}}
	require.ErrorIs(t, w.begin(), unix.ENOENT)
	require.Same(t, old, w.w)
}
