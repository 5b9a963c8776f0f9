package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/internal/cgroup"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// groupFile reads a file of the sandbox's control group, as version 1 or version 2 calls it.
func groupFile(t *testing.T, s *Sandbox, controller, v1, v2 string) string {
	t.Helper()
	for _, path := range []string{filepath.Join("/sys/fs/cgroup", controller, s.group.Path(), v1), filepath.Join("/sys/fs/cgroup", s.group.Path(), v2)} {
		if b, err := os.ReadFile(path); err == nil {
			return strings.TrimSpace(string(b))
		}
	}
	t.Fatalf("the group %s has neither %s nor %s", s.group.Path(), v1, v2)
	return ""
}

// spin keeps one processor busy until the sandbox ends, always the same one: two that do compete.
func spin(t *testing.T, s *Sandbox) {
	p, err := s.Supervisor().Start(within(t, 30*time.Second), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/usr/bin/taskset", "-c", "0", "/bin/sh", "-c", "while :; do :; done"), Identity: s.Payload(), Env: supervisor.Texts("PATH=/usr/bin:/bin")})
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
}

// What a template says of CPU time is in the kernel's hands: the cap holds it back, and the heavier gets more.
func TestCPUWeightAndCapInForce(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	capped := create(t, n, func(s *Spec) { s.Resources.CPUMillis, s.Resources.CPUWeight = 100, 10 })
	quota := groupFile(t, capped, "cpu", "cpu.cfs_quota_us", "cpu.max")
	require.Equal(t, "10000", strings.Fields(quota)[0], "a tenth of each 100 ms")
	if weight := groupFile(t, capped, "cpu", "cpu.shares", "cpu.weight"); weight != "10" {
		require.Equal(t, strconv.FormatUint(cgroup.Shares(10), 10), weight)
	}
	spin(t, capped)
	require.Eventually(t, func() bool {
		for line := range strings.Lines(groupFile(t, capped, "cpu", "cpu.stat", "cpu.stat")) {
			if f := strings.Fields(line); f[0] == "nr_throttled" && f[1] != "0" {
				return true
			}
		}
		return false
	}, time.Minute, 20*time.Millisecond, "the kernel holds it back")
	require.NoError(t, capped.Destroy(within(t, 30*time.Second)))

	weights := []int64{2000, 20}
	var rivals []*Sandbox
	for _, w := range weights {
		s := create(t, n, func(s *Spec) { s.Resources.CPUMillis, s.Resources.CPUWeight = 2000, w })
		if got := groupFile(t, s, "cpu", "cpu.shares", "cpu.weight"); got != fmt.Sprint(w) {
			require.Equal(t, strconv.FormatUint(cgroup.Shares(w), 10), got)
		}
		rivals = append(rivals, s)
	}
	used := func(s *Sandbox) time.Duration {
		u, err := s.Stats()
		require.NoError(t, err)
		return u.CPU
	}
	spin(t, rivals[0])
	spin(t, rivals[1])
	heavy, light := used(rivals[0]), used(rivals[1])
	require.Eventually(t, func() bool { return used(rivals[0])-heavy+used(rivals[1])-light > 600*time.Millisecond }, 2*time.Minute, 20*time.Millisecond)
	require.Greater(t, used(rivals[0])-heavy, 2*(used(rivals[1])-light), "a hundred times the weight")
	for _, s := range rivals {
		require.NoError(t, s.Destroy(within(t, 30*time.Second)))
	}
}

// Reads of the node's disk are held to the rate, where the kernel can: none is faster, however busy the machine is. Of
// writes version 1 of control groups bounds only those that somebody waits for, which inspect says (NotEnforced).
func TestDiskTrafficInForce(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	const rate = 512 << 10
	s := create(t, n, func(s *Spec) { s.Resources.IOReadBPS, s.Resources.IOWriteBPS = rate, 32<<20 })
	d, err := s.Isolation()
	require.NoError(t, err)
	read, write := n.cgroups.LimitsIO()
	require.Equal(t, read, !strings.Contains(strings.Join(d.NotEnforced, " "), "io_read_bps"), d.NotEnforced)
	require.Equal(t, write, !strings.Contains(strings.Join(d.NotEnforced, " "), "io_write_bps"), d.NotEnforced)
	if !read {
		t.Logf("this kernel bounds no reads: %v", d.NotEnforced)
		return
	}
	require.Contains(t, groupFile(t, s, "blkio", "blkio.throttle.read_bps_device", "io.max"), strconv.Itoa(rate))
	require.Contains(t, groupFile(t, s, "blkio", "blkio.throttle.write_bps_device", "io.max"), strconv.Itoa(32<<20))
	at := time.Now()
	exit, out := sh(t, s, "dd if=/usr/bin/bash of=/dev/null bs=64k iflag=direct 2>&1 | grep -o '^[0-9]* bytes'")
	took := time.Since(at)
	require.Zero(t, exit.Code, out)
	var bytes int64
	_, err = fmt.Sscanf(out, "%d bytes", &bytes)
	require.NoError(t, err, out)
	require.GreaterOrEqual(t, took, time.Duration(bytes)*time.Second/rate/2, "%d bytes", bytes)
	require.NoError(t, s.Destroy(within(t, 30*time.Second)))
}
