package sandbox

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/diskimage"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
)

// One of each kind of thing that can be left is planted, each under an id that nothing else leads to. All go, and
// are told; a sandbox that runs meanwhile notices nothing.
func TestReconcileFindsEachKind(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	running := create(t, n)
	planted := map[Item]func(t *testing.T) bool{} // by what is to be told: whether it is still there
	plantMounts(t, n, planted)
	plantLoop(t, n, planted)
	plantTask(t, n, planted)
	plantLease(t, n, planted)
	plantNameless(t, n, planted)
	require.GreaterOrEqual(t, len(planted), 9)
	for item, there := range planted {
		require.True(t, there(t), "%v was not planted", item)
	}
	n.opened = time.Now() // as if all of it were of the process before

	removed, err := n.Reconcile(within(t, 2*time.Minute), func(string) bool { return false })
	require.NoError(t, err)
	items := removed.Items()
	for item, there := range planted {
		require.Contains(t, items, item, "it was not told")
		require.Eventually(t, func() bool { return !there(t) }, 30*time.Second, 10*time.Millisecond, "%v is still there", item)
	}
	for _, i := range items {
		require.NotEqual(t, running.ID(), i.ID)
	}
	_, out := sh(t, running, "echo goes on")
	require.Equal(t, "goes on\n", out)
	again, err := n.Reconcile(within(t, time.Minute), func(string) bool { return false })
	require.NoError(t, err)
	require.True(t, again.Empty(), "%v", again.Items())
}

func exists(path string) func(*testing.T) bool {
	return func(*testing.T) bool { _, err := os.Lstat(path); return err == nil }
}

func mounted(path string) func(*testing.T) bool {
	return func(t *testing.T) bool {
		is, err := isMounted(path)
		require.NoError(t, err)
		return is
	}
}

// plantMounts leaves a mount and a pinned namespace whose directories are not where directories are looked for.
func plantMounts(t *testing.T, n *Node, planted map[Item]func(*testing.T) bool) {
	tmpfs := schemas.NewID()
	at := filepath.Join(machine.RunDir, "elsewhere", tmpfs, "memory")
	require.NoError(t, os.MkdirAll(at, 0o700))
	require.NoError(t, mountMemory(at))
	planted[Item{"mount", tmpfs}] = mounted(at)

	ns := schemas.NewID()
	dir := filepath.Join(machine.RunDir, "elsewhere", ns, "ns")
	require.NoError(t, pinNamespaces(dir, 4095))
	planted[Item{"namespace", ns}] = mounted(filepath.Join(dir, "net"))
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(filepath.Join(machine.RunDir, "elsewhere"))) })
}

// plantLoop leaves a loop device that nothing is mounted from, and whose disk was deleted under it.
func plantLoop(t *testing.T, n *Node, planted map[Item]func(*testing.T) bool) {
	id := schemas.NewID()
	images, err := diskimage.Open(t.TempDir())
	require.NoError(t, err)
	file := n.layerFile(id)
	require.NoError(t, images.Create(within(t, time.Minute), file, 8<<20))
	out, err := exec.Command("losetup", "--find", "--show", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { _ = releaseLoop(strings.TrimSpace(string(out))) })
	require.NoError(t, os.Remove(file))
	planted[Item{"loop", id}] = func(t *testing.T) bool {
		loops, err := n.loopDevices()
		require.NoError(t, err)
		return len(loops[id]) > 0
	}
}

// plantTask leaves a running task without its container's record.
func plantTask(t *testing.T, n *Node, planted map[Item]func(*testing.T) bool) {
	s := create(t, n)
	id, ctx := s.ID(), containerd.InNamespace(within(t, time.Minute))
	require.NoError(t, n.engine.Client().ContainerService().Delete(ctx, id))
	s.unwatch()
	n.drop(s)                                                                                                         // as a process that never knew it
	for _, kind := range []string{"task", "bundle", "directory", "socket", "cgroup", "range", "mount", "namespace"} { // the snapshot goes to containerd's garbage
		planted[Item{kind, id}] = func(t *testing.T) bool {
			found, _, err := n.lookedFor(ctx)
			require.NoError(t, err)
			return slices.Contains(found[id], kind)
		}
	}
	planted[Item{"runtime", id}] = func(*testing.T) bool { return s.init.Alive() }
}

func plantLease(t *testing.T, n *Node, planted map[Item]func(*testing.T) bool) {
	ctx := containerd.InNamespace(within(t, time.Minute))
	l, err := n.engine.Client().LeasesService().Create(ctx, leases.WithRandomID())
	require.NoError(t, err)
	planted[Item{"lease", l.ID}] = func(t *testing.T) bool {
		err := n.engine.Client().LeasesService().Delete(context.WithoutCancel(ctx), leases.Lease{ID: l.ID})
		if err == nil { // put back under the same name: only looked
			_, err = n.engine.Client().LeasesService().Create(ctx, leases.WithID(l.ID))
			require.NoError(t, err)
			return true
		}
		require.True(t, errdefs.IsNotFound(err), "%v", err)
		return false
	}
}

// plantNameless leaves what was only half made.
func plantNameless(t *testing.T, n *Node, planted map[Item]func(*testing.T) bool) {
	half := filepath.Join(n.base(), ".half-made")
	require.NoError(t, os.MkdirAll(filepath.Join(half, "in"), 0o700))
	require.NoError(t, mountMemory(filepath.Join(half, "in")))
	planted[Item{"directory", ".half-made"}] = exists(half)

	id := schemas.NewID()
	require.NoError(t, os.WriteFile(filepath.Join(machine.RunDir, "ranges", "."+id), []byte(id), 0o600))
	planted[Item{"range", id}] = exists(filepath.Join(machine.RunDir, "ranges", "."+id))

	taken := schemas.NewID()
	_, err := n.ranges.take(taken)
	require.NoError(t, err)
	planted[Item{"range", taken}] = func(t *testing.T) bool {
		held, err := n.ranges.taken()
		require.NoError(t, err)
		for _, by := range held {
			if by == taken {
				return true
			}
		}
		return false
	}

	group := filepath.Join("/sys/fs/cgroup/pids/weft", n.owner, "stray")
	if _, err := os.Stat("/sys/fs/cgroup/pids"); err != nil {
		group = filepath.Join("/sys/fs/cgroup/weft", n.owner, "stray")
	}
	require.NoError(t, os.MkdirAll(group, 0o755))
	p := exec.Command("sleep", "1000")
	p.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	ended := make(chan struct{})
	go func() { _, _ = p.Process.Wait(); close(ended) }()
	require.NoError(t, os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(p.Process.Pid)), 0))
	planted[Item{"cgroup", "stray"}] = exists(group)
	t.Cleanup(func() { <-ended })
}

// A daemon hides a task's directory before it removes it. Killed in between, it never looks at it again.
func TestAHiddenBundleIsRemoved(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	id := schemas.NewID()
	dir := filepath.Join(machine.RunDir, "state", "io.containerd.runtime.v2.task", "weft", "."+id)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "rootfs"), 0o700))
	removed, err := n.Reconcile(within(t, time.Minute), func(string) bool { return false })
	require.NoError(t, err)
	require.Equal(t, []string{"bundle"}, removed.Sandboxes[id])
	require.NoDirExists(t, dir)
}
