package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

// shimOf is the process under which a sandbox's process 1 runs, and what it says it is.
func shimOf(t *testing.T, s *Sandbox) (p proc.Process, id string) {
	init, err := proc.Identify(s.init.PID)
	require.NoError(t, err)
	shim, err := proc.Identify(init.Parent)
	require.NoError(t, err)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", shim.PID))
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(line), "\x00-id\x00")
	id, _, _ = strings.Cut(after, "\x00")
	return shim.Process, id
}

func spares(t testing.TB) []string {
	found, err := names(filepath.Join(machine.RunDir, "shim"))
	if !os.IsNotExist(err) {
		require.NoError(t, err)
	}
	return found
}

func untilSpare(t *testing.T) (id string) {
	require.Eventually(t, func() bool { return len(spares(t)) == 1 }, time.Minute, 5*time.Millisecond)
	return spares(t)[0]
}

// A shim waits for the next tenant, serves that one only, is no leftover, and ends with the node's process.
func TestASpareShim(t *testing.T) {
	engine := machine.Engine(t)
	n := newNodeWithoutCleanup(t, engine)
	create(t, n)
	spare := untilSpare(t)
	removed, err := n.Reconcile(within(t, time.Minute), func(string) bool { return true })
	require.NoError(t, err)
	require.True(t, removed.Empty(), "%v", removed)

	other := create(t, n, func(s *Spec) { s.Tenant = "bolt" })
	_, id := shimOf(t, other)
	require.Equal(t, spare, id)
	same := create(t, n, func(s *Spec) { s.Tenant = "bolt" })
	_, id = shimOf(t, same)
	require.Equal(t, spare, id, "of one tenant")
	third := create(t, n, func(s *Spec) { s.Tenant = "crux" })
	_, id = shimOf(t, third)
	require.NotEqual(t, spare, id, "never of two")

	untilSpare(t)
	require.NoError(t, n.Close())
	require.NoError(t, engine.Close())
	require.Empty(t, spares(t))
	engine = machine.Engine(t)
	killed, err := engine.KillIdleShims(within(t, time.Minute))
	require.NoError(t, err)
	require.Empty(t, killed)
	n = newNode(t, engine)
	removed, err = n.Reconcile(within(t, time.Minute), func(string) bool { return false })
	require.NoError(t, err)
	require.Len(t, removed.Sandboxes, 4)
	require.Empty(t, removed.Shims, "those that served end with the last that they served")
}

// Those that a process left which was killed go when the next one begins.
func TestSparesOfAProcessThatDied(t *testing.T) {
	engine := machine.Engine(t)
	n := newNode(t, engine)
	create(t, n)
	untilSpare(t)
	again, err := containerd.Open(within(t, time.Minute), machine.Config)
	require.NoError(t, err)
	require.Empty(t, spares(t))
	killed, err := again.KillIdleShims(within(t, time.Minute))
	require.NoError(t, err)
	require.Empty(t, killed)
	require.NoError(t, again.Close())
	s := create(t, n, func(s *Spec) { s.Tenant = "bolt" })
	code, _ := sh(t, s, "true")
	require.Zero(t, code.Code, "whoever counted on it starts another")
}

// A sandbox whose lane's shim has died gets another.
func TestAShimThatHasDied(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	shim, _ := shimOf(t, create(t, n))
	require.NoError(t, shim.Signal(syscall.SIGKILL))
	require.NoError(t, shim.Wait(within(t, time.Minute)))
	s := create(t, n)
	other, _ := shimOf(t, s)
	require.NotEqual(t, shim, other)
	code, _ := sh(t, s, "true")
	require.Zero(t, code.Code)
}

// Process 1 is let go by who made its container, and runc knows.
func TestNobodyWaitsAtTheGate(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	state := filepath.Join(machine.RunDir, "runc", containerd.Namespace, s.id)
	require.FileExists(t, filepath.Join(state, "state.json"))
	require.NoFileExists(t, filepath.Join(state, "exec.fifo"))
	task, err := n.engine.Client().LoadContainer(containerd.InNamespace(t.Context()), s.id)
	require.NoError(t, err)
	running, err := task.Task(containerd.InNamespace(t.Context()), nil)
	require.NoError(t, err)
	status, err := running.Status(containerd.InNamespace(t.Context()))
	require.NoError(t, err)
	require.Equal(t, "created", string(status.Status), "no `runc start` was run")
}
