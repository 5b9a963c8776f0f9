package nodetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/needs"
	"github.com/weftmesh/weft/services/runtime/internal/proc"
)

// What a killed test process left goes: a daemon, a mount, directories. What a living one has stays, and so does what was made just now.
func TestWhatDeadTestsLeftIsCleared(t *testing.T) {
	needs.Root(t)
	dir := func() string {
		d, err := os.MkdirTemp("/var/tmp", "weft-test-")
		require.NoError(t, err)
		t.Cleanup(func() { _ = unix.Unmount(filepath.Join(d, "mnt"), unix.MNT_DETACH); _ = os.RemoveAll(d) })
		return d
	}
	killed, living, fresh, old := dir(), dir(), dir(), dir()
	require.NoError(t, own(living))
	long := time.Now().Add(-time.Hour)
	require.NoError(t, os.Chtimes(old, long, long))

	owner := exec.Command("sleep", "1000")
	require.NoError(t, owner.Start())
	p, err := proc.Identify(owner.Process.Pid)
	require.NoError(t, err)
	require.NoError(t, proc.Write(filepath.Join(killed, ownerFile), p.Process))
	require.NoError(t, os.Mkdir(filepath.Join(killed, "mnt"), 0o700))
	require.NoError(t, unix.Mount("tmpfs", filepath.Join(killed, "mnt"), "tmpfs", 0, ""))
	// A shell under a daemon's name that waits, and whose command line names the directory.
	daemon := exec.Command("/bin/sh", "-c", "read line; true # "+killed+"/config")
	daemon.Args[0] = "containerd"
	stdin, err := daemon.StdinPipe()
	require.NoError(t, err)
	defer stdin.Close()
	require.NoError(t, daemon.Start())
	ended := make(chan struct{})
	go func() { _ = daemon.Wait(); close(ended) }()
	t.Cleanup(func() { _ = daemon.Process.Kill(); <-ended })

	clearNow(t, living)
	require.DirExists(t, killed, "its owner lives")
	require.NoError(t, owner.Process.Kill())
	_ = owner.Wait()
	clearNow(t, killed)
	require.NoDirExists(t, killed)
	require.NoDirExists(t, old)
	require.DirExists(t, living)
	require.DirExists(t, fresh)
	select {
	case <-ended:
	case <-time.After(30 * time.Second):
		t.Fatal("the daemon of the dead runs on")
	}
}

// clearNow clears, waiting while somebody else does.
func clearNow(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	was := dead(dir)
	require.Eventually(t, func() bool {
		require.NoError(t, ClearDead(ctx))
		_, err := os.Stat(dir)
		return !was || os.IsNotExist(err)
	}, time.Minute, 50*time.Millisecond)
}
