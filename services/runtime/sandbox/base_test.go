package sandbox

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// TestSandboxesLieInMemory: also where the run directory is on a disk; what an earlier boot has left there stays in sight.
func TestSandboxesLieInMemory(t *testing.T) {
	machine.Need(t)
	inMemory := func(dir string) bool {
		var st unix.Statfs_t
		require.NoError(t, unix.Statfs(dir, &st))
		return st.Type == unix.TMPFS_MAGIC
	}
	for _, left := range []bool{false, true} {
		dir := t.TempDir()
		before := inMemory(dir)
		if left {
			require.NoError(t, os.Mkdir(filepath.Join(dir, "left"), 0o700))
		}
		require.NoError(t, shareBase(dir))
		t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
		require.Equal(t, !left || before, inMemory(dir))
		if left {
			require.DirExists(t, filepath.Join(dir, "left"))
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600))
		require.NoError(t, shareBase(dir))
		require.FileExists(t, filepath.Join(dir, "kept"), "the next process mounts nothing over it")
	}
	n := newNode(t, machine.Engine(t))
	require.True(t, inMemory(n.base()))
}

// TestARehearsalLeavesNothing: a member has run nothing that its owner could see. What is rehearsed can be no program, and is all that
// process 1 starts where the workspace is not shown yet.
func TestARehearsalLeavesNothing(t *testing.T) {
	n := patientNode(t)
	for _, level := range []string{"standard", "high"} {
		t.Run(level, func(t *testing.T) {
			mold := testMold()
			mold.Level = level
			m, err := n.CreateBlank(within(t, time.Minute), mold)
			require.NoError(t, err)
			list, err := m.Supervisor().List(within(t, time.Minute))
			require.NoError(t, err)
			require.Empty(t, list)
			run := func(program string) (supervisor.Result, error) {
				return m.Supervisor().Run(within(t, time.Minute), supervisor.ProcessSpec{Argv: supervisor.Texts(program), Dir: "/", Identity: m.Payload()}, nil, 1<<10)
			}
			r, err := run(wire.NoProgram)
			require.NoError(t, err)
			require.Equal(t, 127, r.Exit.Code)
			if level == "high" {
				_, err = run("/bin/true")
				require.True(t, fault.Is(err, fault.Conflict), "%v", err)
			}
			require.NoError(t, m.Destroy(within(t, time.Minute)))
		})
	}
}
