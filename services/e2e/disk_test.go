package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

const watermark = 128 << 20

// smallDisk is a world on a file system of its own, that the test can fill.
func smallDisk(t testing.TB, bytes int64) *world {
	t.Helper()
	requireComponents(t)
	at, err := os.MkdirTemp("", "weft-e2e-disk-")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(at) })
	image, disk := filepath.Join(at, "image"), filepath.Join(at, "d")
	require.NoError(t, os.Mkdir(disk, 0o755))
	require.NoError(t, os.WriteFile(image, nil, 0o600))
	require.NoError(t, os.Truncate(image, bytes))
	for _, cmd := range [][]string{{"mkfs.ext4", "-q", "-m", "0", image}, {"mount", "-o", "loop", image, disk}} {
		out, err := exec.Command(cmd[0], cmd[1:]...).CombinedOutput()
		require.NoError(t, err, "%v: %s", cmd, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", disk).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	w := &world{t: t, dir: filepath.Join(disk, "w"), args: []string{"-disk-watermark", "134217728"}}
	require.NoError(t, os.Mkdir(w.dir, 0o711))
	t.Cleanup(w.end)
	w.start()
	return w
}

// fill leaves so many bytes free.
func fill(t testing.TB, w *world, leave int64) (empty func()) {
	t.Helper()
	path := filepath.Join(filepath.Dir(w.dir), "ballast")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	var st unix.Statfs_t
	require.NoError(t, unix.Fstatfs(int(f.Fd()), &st))
	if n := int64(st.Bavail)*st.Bsize - leave; n > 0 {
		_ = unix.Fallocate(int(f.Fd()), 0, 0, n)
	}
	for b := make([]byte, 4096); leave == 0; { // the last blocks
		if _, err := f.Write(b); err != nil {
			break
		}
	}
	return func() { require.NoError(t, os.Remove(path)) }
}

// TestFullDisk: a disk that fills stops new work first, then submissions; what was accepted is done when
// there is room again.
func TestFullDisk(t *testing.T) {
	w := smallDisk(t, 1200<<20)
	c := w.as("alice")
	require.Equal(t, workspace.Complete, finish(t, c, shell("true")).State)

	_, stderr, code := w.weft("", "task", "list") // the CLI's context is written while there is room
	require.Zero(t, code, stderr)
	empty := fill(t, w, watermark/2)
	waits, err := c.Submit(ctx(t, 10*time.Second), shell("echo waited"), "")
	require.NoError(t, err, "there is room for what is to be done")
	require.Eventually(t, func() bool {
		ns, err := c.Nodes(ctx(t, 5*time.Second))
		return err == nil && len(ns) == 1 && strings.Contains(ns[0].Reason, "disk")
	}, 30*time.Second, 100*time.Millisecond, "the node says why it takes nothing")
	empty()
	require.Equal(t, workspace.Complete, ended(t, c, waits.Task).State)

	running, err := c.Submit(ctx(t, 10*time.Second), shell("sleep 3; echo done"), "")
	require.NoError(t, err)
	waitState(t, c.Task, running.Task, workspace.Running)
	empty = fill(t, w, 0)
	accepted := []string{running.Task}
	for range 2 {
		s := shell("true")
		s.Env = map[string]string{"PAD": strings.Repeat("x", 64<<10)}
		sub, err := c.Submit(ctx(t, 5*time.Second), s, "")
		if err == nil {
			accepted = append(accepted, sub.Task)
			continue
		}
		require.Contains(t, []fault.Code{fault.Exhausted, fault.Unavailable, fault.Deadline}, fault.CodeOf(err), "%v", err)
		t.Logf("refused: %v", err)
	}
	var told error // by now the server has found out, and whoever submits is told what is the matter
	require.Eventually(t, func() bool {
		sub, err := c.Submit(ctx(t, 30*time.Second), shell("true"), "")
		if err == nil {
			accepted = append(accepted, sub.Task)
			return false
		}
		told = err
		return fault.Is(err, fault.Exhausted)
	}, 2*time.Minute, 100*time.Millisecond)
	require.ErrorContains(t, told, "the disk of the mesh is full, and nothing is accepted until its operator frees some space")
	_, stderr, code = w.weft("", "run", "--detach", "--template", "base", "--", "true")
	require.NotZero(t, code)
	require.Contains(t, stderr, "the disk of the mesh is full")
	fill(t, w, 0) // what has ended meanwhile has left some room
	_, err = c.Send(ctx(t, 30*time.Second), "bob", make([]byte, 256<<10), client.SendOptions{})
	require.True(t, fault.Is(err, fault.Exhausted), "%v", err)
	empty()
	if failing, ok := w.ready(); !ok {
		t.Logf("not ready: %v", failing)
	}
	var again client.Submitted
	require.Eventually(t, func() bool {
		again, err = c.Submit(ctx(t, 5*time.Second), shell("echo again"), "")
		return err == nil
	}, 60*time.Second, 200*time.Millisecond, "with room again it goes on")
	for _, id := range append(accepted, again.Task) {
		require.Equal(t, workspace.Complete, ended(t, c, id).State)
	}
	require.Equal(t, "done\n", output(t, c, running.Task, "stdout"))
}
