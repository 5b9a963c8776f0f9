package weftinit

import (
	"testing"

	"github.com/stretchr/testify/require"

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
