package sqlite_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weftmesh/weft/services/memory/internal/sqlite"
	"github.com/weftmesh/weft/services/memory/internal/store"
	"github.com/weftmesh/weft/services/memory/storetest"
)

func TestMain(m *testing.M) {
	if crashChild() {
		return
	}
	goleak.VerifyTestMain(m)
}

func open(t *testing.T) store.Store {
	t.Helper()
	s, err := sqlite.Open(t.TempDir(), sqlite.Options{})
	require.NoError(t, err)
	return s
}

func TestContract(t *testing.T) {
	storetest.Run(t, open, storetest.Gaps{})
}

// With room for two open databases the suite opens and closes them all the time.
func TestContractWithFewOpen(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store {
		s, err := sqlite.Open(t.TempDir(), sqlite.Options{MaxOpen: 2})
		require.NoError(t, err)
		return s
	}, storetest.Gaps{})
}
