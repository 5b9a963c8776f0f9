package nofile_test

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/weftinit/nofile"
)

func TestMain(m *testing.M) {
	if os.Getenv("WEFT_TEST_NOFILE") != "" {
		fmt.Print(nofile.Soft, " ", nofile.Hard)
		return
	}
	os.Exit(m.Run())
}

// TestLimitIsFromBeforeGoRaisedIt would fail if a release of Go initialised packages in another order.
func TestLimitIsFromBeforeGoRaisedIt(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	c := exec.Command("sh", "-c", `ulimit -Sn 123 && ulimit -Hn 900 && exec "$0"`, self)
	c.Env = append(os.Environ(), "WEFT_TEST_NOFILE=1")
	out, err := c.Output()
	require.NoError(t, err)
	require.Equal(t, "123 900", string(out))
}
