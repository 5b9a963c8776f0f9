package sandbox

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/diskimage"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// writable gives a sandbox a root of 32 MiB that it can write.
func writable(s *Spec) { s.Isolation.WritableRoot, s.Resources.DiskBytes = true, 32<<20 }

// A writable root is bounded, its changes are seen by the node, and nothing of it stays.
func TestAWritableRoot(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, writable)
	exit, out := sh(t, s, `set -e
		echo mine > /tmp/a; echo mine > /home/agent/b; echo mine > /workspace/c; ln /tmp/a /tmp/a2; ln -s /etc/passwd /tmp/l; mkfifo /tmp/f
		grep ' / / ' /proc/self/mountinfo | cut -d' ' -f6; stat -c '%u %a' /etc /tmp /home/agent /workspace | sort -u | tr '\n' ';'
		touch /etc/x 2>&1 || true; touch /usr/bin/x 2>&1 || true`)
	require.Zero(t, exit.Code, out)
	require.Contains(t, out, "rw,nosuid,nodev")
	require.Contains(t, out, "0 755;", "the image's files belong to root inside")
	require.Contains(t, out, "1000 ", "what the payload needs is its own")
	require.Equal(t, 2, strings.Count(out, "Permission denied"), "it is writable, but not for everybody: %s", out)

	dir, ok := s.Layer()
	require.True(t, ok)
	require.EqualValues(t, PayloadUID, ownerOn(t, filepath.Join(dir, "tmp/a")), "owners on the disk are the ids inside")
	b, err := os.ReadFile(filepath.Join(dir, "workspace/c"))
	require.NoError(t, err)
	require.Equal(t, "mine\n", string(b))

	// Full: the payload is told, the node's disk keeps its room, and what is removed comes back.
	_, out = sh(t, s, "head -c 64m /dev/zero > /tmp/fill; stat -c %s /tmp/fill")
	require.Contains(t, out, "No space left on device")
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(n.layerFile(s.ID()), &st))
	require.LessOrEqual(t, st.Blocks*512, int64(40<<20))
	_, out = sh(t, s, "rm /tmp/fill; head -c 16m /dev/zero > /workspace/fill && stat -c %s /workspace/fill; rm /workspace/fill")
	require.Equal(t, "16777216\n", out)
	_, out = sh(t, s, "cd /tmp && mkdir d && cd d && i=0; while [ $i -lt 20000 ]; do : > $i || break; i=$((i+1)); done 2>/dev/null; ls | wc -l; rm -rf ../d")
	require.NotEqual(t, "20000", strings.TrimSpace(out), "the number of files is bounded, too")

	none := create(t, n)
	_, ok = none.Layer()
	require.False(t, ok)
	require.True(t, fault.Is(none.CopyLayer(filepath.Join(t.TempDir(), "x")), fault.Invalid))
	require.NotEmpty(t, loops(t, n.layerFile(s.ID())))
	image := n.layerFile(s.ID())
	require.NoError(t, s.Destroy(within(t, 30*time.Second)))
	require.NoError(t, none.Destroy(within(t, 30*time.Second)))
	requireNothing(t, n)
	require.Eventually(t, func() bool { return loops(t, image) == "" }, 30*time.Second, 20*time.Millisecond)
}

// One sandbox's layer is the beginning of others: as a disk, and as a tree.
func TestALayerGoesOn(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	source := create(t, n, writable)
	exit, out := sh(t, source, `set -e; cd /home/agent; mkdir -p a/b; echo one > a/b/f; ln a/b/f g; ln -s a/b l; mkfifo p; chmod 640 g; touch -d @1000000000 g
		truncate -s 100m sparse; rm -rf /workspace/*; echo two > /tmp/t`)
	require.Zero(t, exit.Code, out)
	const look = `cd /home/agent; cat a/b/f l/f /tmp/t; stat -c '%h %a %u %Y' g; stat -c %s sparse; readlink l; test -p p && echo fifo; id -u`
	_, want := sh(t, source, look)
	require.Contains(t, want, "2 640 1000 1000000000\n104857600\na/b\nfifo\n1000\n")

	disk := filepath.Join(t.TempDir(), "layer.img")
	require.NoError(t, source.CopyLayer(disk))
	require.Error(t, source.CopyLayer(disk), "it is there")
	dir, _ := source.Layer()
	for what, from := range map[string]string{"disk": disk, "tree": dir} {
		s := create(t, n, writable, func(s *Spec) { s.From = from })
		require.Empty(t, s.Spec().From)
		_, out := sh(t, s, look)
		require.Equal(t, want, out, what)
		exit, out := sh(t, s, "echo changed > /home/agent/a/b/f")
		require.Zero(t, exit.Code, "%s: %s", what, out)
	}
	_, out = sh(t, source, look)
	require.Equal(t, want, out, "the source is untouched")

	again := filepath.Join(n.layers, "again")
	require.NoError(t, source.CopyLayer(again))
	s := create(t, n, writable, func(s *Spec) { s.From, s.Take = again, true })
	require.NoFileExists(t, again)
	_, out = sh(t, s, look)
	require.Equal(t, want, out, "taken, not copied")

	spec := testSpec()
	writable(&spec)
	spec.From = "/no/such/layer"
	_, err := n.Create(within(t, 30*time.Second), spec)
	require.True(t, fault.Is(err, fault.NotFound), "%v", err)
	spec.From, spec.Resources.DiskBytes = disk, 16<<20
	_, err = n.Create(within(t, 30*time.Second), spec)
	require.True(t, fault.Is(err, fault.Exhausted), "%v", err)
	spec.Isolation.WritableRoot = false
	_, err = n.Create(within(t, 30*time.Second), spec)
	require.True(t, fault.Is(err, fault.Invalid), "%v", err)
}

// A node that starts anew takes up a sandbox with its layer, and removes the layers that nobody has.
func TestLayersAreAdoptedAndReconciled(t *testing.T) {
	engine := machine.Engine(t)
	n := newNodeWithoutCleanup(t, engine)
	kept, lost := create(t, n, writable), create(t, n, writable)
	_, _ = sh(t, kept, "echo before > /tmp/a")
	bare := testSpec().ID
	require.NoError(t, n.disks.Create(t.Context(), n.layerFile(bare), 8<<20))
	require.NoError(t, n.Close())
	require.NoError(t, engine.Close())

	n = newNode(t, machine.Engine(t))
	removed, err := n.Reconcile(within(t, time.Minute), func(id string) bool { return id == kept.ID() })
	require.NoError(t, err)
	require.ElementsMatch(t, []string{lost.ID(), bare}, slices.Collect(maps.Keys(removed.Sandboxes)))
	require.Subset(t, removed.Sandboxes[lost.ID()], []string{"container", "snapshot", "directory", "layer"})
	require.Contains(t, removed.Sandboxes[bare], "layer")
	adopted, err := n.Adopt(within(t, 30*time.Second))
	require.NoError(t, err)
	require.Len(t, adopted, 1)
	_, out := sh(t, adopted[0], "cat /tmp/a; echo after > /tmp/b")
	require.Equal(t, "before\n", out)
	dir, ok := adopted[0].Layer()
	require.True(t, ok)
	require.FileExists(t, filepath.Join(dir, "tmp/b"))
	require.NoError(t, adopted[0].Destroy(within(t, 30*time.Second)))
	requireNothing(t, n)
}

// A disk on which no layer is, is refused.
func TestADiskThatIsNoLayer(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	dir, image := t.TempDir(), filepath.Join(t.TempDir(), "a.img")
	require.NoError(t, n.disks.Create(t.Context(), image, 8<<20))
	require.NoError(t, diskimage.Mount(image, dir))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "upper"), nil, 0o600))
	require.NoError(t, unix.Unmount(dir, 0))
	spec := testSpec()
	writable(&spec)
	spec.From = image
	_, err := n.Create(within(t, 30*time.Second), spec)
	require.True(t, fault.Is(err, fault.Invalid), "%v", err)
	requireNothing(t, n)
}

// A process that is killed while it copies a layer leaves the disk frozen: the next one lets the sandbox go on, and whoever
// destroys it does not wait for processes that wait for the disk.
func TestADiskThatWasLeftFrozen(t *testing.T) {
	engine := machine.Engine(t)
	n := newNodeWithoutCleanup(t, engine)
	kept, lost := create(t, n, writable), create(t, n, writable)
	for _, s := range []*Sandbox{kept, lost} {
		p, err := s.Supervisor().Start(within(t, 10*time.Second), supervisor.ProcessSpec{
			Argv: supervisor.Texts("/bin/sh", "-c", "while :; do echo x >> /tmp/a; sleep 0.01; done"), Identity: Payload(), Output: supervisor.OutputRing,
			Env: supervisor.Texts("PATH=/bin:/usr/bin"),
		})
		require.NoError(t, err)
		require.NoError(t, p.Close())
		fd, err := unix.Open(s.path("disk"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		const freeze = 0xC0045877
		require.NoError(t, unix.IoctlSetInt(fd, freeze, 0))
		require.NoError(t, unix.Close(fd))
	}
	require.NoError(t, n.Close())
	require.NoError(t, engine.Close())

	n = newNode(t, machine.Engine(t))
	_, err := n.Reconcile(within(t, time.Minute), func(id string) bool { return id == kept.ID() })
	require.NoError(t, err)
	require.Empty(t, loops(t, n.layerFile(lost.ID())))
	adopted, err := n.Adopt(within(t, 30*time.Second))
	require.NoError(t, err)
	require.Len(t, adopted, 1)
	exit, out := sh(t, adopted[0], "echo after > /tmp/b")
	require.Zero(t, exit.Code, out)
	require.NoError(t, adopted[0].Destroy(within(t, 30*time.Second)))
	requireNothing(t, n)
}

func loops(t *testing.T, image string) string {
	t.Helper()
	out, err := exec.Command("losetup", "-j", image).CombinedOutput()
	require.NoError(t, err)
	return string(out)
}
