package runtime

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Snapshots are kept as long as templates name them: on a disk that is nearly full none is begun.
func TestNoSnapshotOnAFullDisk(t *testing.T) {
	id := schemas.NewID()
	s := &Service{cfg: Config{Node: "n1", DataDir: t.TempDir(), Slots: 1, MinFree: math.MaxInt64}, serving: map[string]*interactive{
		id: {e: boxEntry{Sandbox: workspace.Sandbox{ID: id, Tenant: "acme"}}},
	}}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, err := s.SandboxSnapshot(ctx, runtime.SandboxSnapshot{ID: id, Image: workspace.SnapshotPrefix + "acme/n1/" + schemas.NewID()})
	require.True(t, fault.Is(err, fault.Exhausted), "%v", err)
	require.Zero(t, s.free())
	s.cfg.MinFree = 1
	require.NoError(t, s.diskLeft())
	require.Equal(t, 1, s.free())
}

// silent answers a renewal with nothing.
type silent struct{ Secrets }

func (silent) Renew(context.Context, secrets.RenewRequest) (secrets.RenewReply, error) {
	return secrets.RenewReply{}, nil
}

// A paused sandbox does not go on while nobody says that its credentials hold.
func TestNoResumeWithoutAWordOnItsCredentials(t *testing.T) {
	cfg := Config{Secrets: silent{}}
	cfg.timing.ask = time.Minute
	i := &interactive{s: &Service{cfg: cfg}, h: &hold{sandbox: schemas.NewID()}}
	i.e.Sandbox.Run.Secrets = make([]workspace.SecretUse, 1)
	err := i.reissue(t.Context())
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
}
