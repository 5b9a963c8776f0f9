package cgroup

import (
	"context"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/needs"
)

func TestMountOf(t *testing.T) {
	fstype, point, options := mountOf("39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:9 - cgroup cgroup rw,pids")
	require.Equal(t, []string{"cgroup", "/sys/fs/cgroup/pids", "rw,pids"}, []string{fstype, point, options})
	fstype, point, _ = mountOf("41 31 0:38 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw")
	require.Equal(t, []string{"cgroup2", "/sys/fs/cgroup"}, []string{fstype, point})
	for _, bad := range []string{"", "x", " - ", "1 2 3 - cgroup"} {
		fstype, _, _ = mountOf(bad)
		require.Empty(t, fstype)
	}
}

// A group of our own with a process in it: measured, frozen, thawed, killed frozen, and removed.
func TestGroup(t *testing.T) {
	tree := openTree(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	g := tree.Group("one")
	_, err := g.Usage()
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, g.Kill(ctx), "one that is not there has no processes")
	require.NoError(t, g.Remove(ctx))

	cmd := exec.Command("sh", "-c", "while :; do :; done")
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // its parent takes its exit status, or it stays in the group
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	for _, c := range []string{"cpuacct", "memory", "pids", "freezer"} {
		require.NoError(t, os.MkdirAll(g.dir(c), 0o755))
		require.NoError(t, os.WriteFile(g.dir(c)+"/cgroup.procs", []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	}
	names, err := tree.List()
	require.NoError(t, err)
	require.Equal(t, []string{"one"}, names)
	require.Eventually(t, func() bool { u, err := g.Usage(); return err == nil && u.CPU > 0 && u.PIDs == 1 }, 10*time.Second, time.Millisecond)
	require.NoError(t, g.Freeze(ctx))
	frozen, err := g.Frozen()
	require.NoError(t, err)
	require.True(t, frozen)
	require.NoError(t, g.Thaw(ctx))
	require.NoError(t, g.Freeze(ctx))
	require.NoError(t, g.Kill(ctx))
	require.NoError(t, g.Remove(ctx))
	names, err = tree.List()
	require.NoError(t, err)
	require.Empty(t, names)
}

// openTree is a tree of this test's own; it takes root.
func openTree(t testing.TB) *Tree {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short: it makes control groups")
	}
	needs.Root(t)
	tree, err := Open("/weft/test-" + strconv.Itoa(os.Getpid()))
	require.NoError(t, err)
	t.Cleanup(tree.Prune)
	return tree
}
