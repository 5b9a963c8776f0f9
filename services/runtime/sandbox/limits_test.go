package sandbox

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// A fork bomb fills its own limit, process 1 still answers, and the end of its tree ends it.
func TestAForkBombStaysInside(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	p, err := s.Supervisor().Start(within(t, 10*time.Second), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/bin/bash", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1000"), Identity: Payload(),
		Env: supervisor.Texts("PATH=/usr/bin"), Output: supervisor.OutputRing,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	limit := int(s.Spec().Resources.PIDs)
	require.Eventually(t, func() bool { u, err := s.Stats(); return err == nil && u.PIDs >= limit }, time.Minute, 10*time.Millisecond)
	u, err := s.Supervisor().Usage(within(t, 10*time.Second))
	require.NoError(t, err, "process 1 answers in the middle of it")
	require.LessOrEqual(t, u.PIDs, limit+int(Standard.ReservePIDs))
	_, out := sh(t, create(t, n), "echo others go on")
	require.Equal(t, "others go on\n", out)
	require.NoError(t, s.Supervisor().KillAll(within(t, 20*time.Second), 0))
	require.Eventually(t, func() bool { u, err := s.Stats(); return err == nil && u.PIDs < limit/2 }, time.Minute, 10*time.Millisecond)
	require.NoError(t, s.Destroy(within(t, 20*time.Second)))
}

func TestMemoryBeyondTheLimitIsKilledAndKnown(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	require.False(t, s.OutOfMemory())
	exit, _ := sh(t, s, "tail /dev/zero")
	require.Equal(t, 137, exit.Code)
	require.True(t, s.OutOfMemory())
	exit, out := sh(t, s, "echo alive")
	require.Zero(t, exit.Code)
	require.Equal(t, "alive\n", out, "process 1 lives on")
	u, err := s.Stats()
	require.NoError(t, err)
	require.Greater(t, u.Peak, s.Spec().Resources.MemoryBytes*9/10)
	require.LessOrEqual(t, u.Peak, s.Spec().Resources.MemoryBytes+Standard.ReserveMemory)
}

func TestFileSystemsInMemoryAreBounded(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, func(s *Spec) { s.Resources.DiskBytes = 4 << 20 })
	for _, dir := range []string{"/tmp", "/home/agent", "/dev/shm", "/workspace"} {
		_, out := sh(t, s, "head -c 8m /dev/zero 2>&1 > "+dir+"/fill; stat -c %s "+dir+"/fill; rm "+dir+"/fill")
		require.Contains(t, out, "4194304\n", dir)
		_, out = sh(t, s, "cd "+dir+" && mkdir d && cd d && i=0; while [ $i -lt 20000 ]; do : > $i || break; i=$((i+1)); done 2>/dev/null; ls | wc -l; rm -rf ../d")
		require.NotEqual(t, "20000", strings.TrimSpace(out), "the number of files in %s is bounded", dir)
	}
}

func TestCPUIsLimited(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, func(s *Spec) { s.Resources.CPUMillis = 200 })
	before, err := s.Stats()
	require.NoError(t, err)
	start := time.Now()
	_, _ = sh(t, s, "timeout 1 sh -c 'while :; do :; done'")
	after, err := s.Stats()
	require.NoError(t, err)
	require.Less(t, (after.CPU - before.CPU).Seconds(), 0.4*time.Since(start).Seconds())
}
