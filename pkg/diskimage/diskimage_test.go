package diskimage

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/needs"
)

// need skips where images can't be mounted, or fails there under WEFT_TEST_REQUIRE=1.
func need(t *testing.T) *Images {
	t.Helper()
	v, err := Open(filepath.Join(t.TempDir(), "empty"))
	needs.All(t, err, needs.RootMissing())
	return v
}

func mounted(t *testing.T, image string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, Mount(image, dir))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	return dir
}

func TestAnImageIsSparseBoundedAndCopiedWhileMounted(t *testing.T) {
	v := need(t)
	dir := t.TempDir()
	image := filepath.Join(dir, "a.img")
	require.NoError(t, v.Create(t.Context(), image, 32<<20))
	require.Error(t, v.Create(t.Context(), image, 32<<20), "it exists")
	var st unix.Stat_t
	require.NoError(t, unix.Stat(image, &st))
	require.Less(t, st.Blocks*512, int64(1<<20), "what nobody wrote takes no room")

	at := mounted(t, image)
	require.NoError(t, os.WriteFile(filepath.Join(at, "kept"), []byte("written, not synced\n"), 0o640))
	err := os.WriteFile(filepath.Join(at, "fill"), bytes.Repeat([]byte{7}, 48<<20), 0o600)
	require.ErrorIs(t, err, unix.ENOSPC)
	full, err := os.Stat(filepath.Join(at, "fill"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, full.Size(), int64(32<<20), "all that was promised is there")
	require.NoError(t, os.Remove(filepath.Join(at, "fill")))

	copied := filepath.Join(dir, "b.img")
	require.NoError(t, Frozen(at, func() error { return Copy(image, copied) }))
	require.NoError(t, os.WriteFile(filepath.Join(at, "kept"), []byte("later"), 0o640), "thawed")
	b, err := os.ReadFile(filepath.Join(mounted(t, copied), "kept"))
	require.NoError(t, err)
	require.Equal(t, "written, not synced\n", string(b))
	require.Error(t, Frozen(filepath.Join(dir, "none"), nil))
}

func TestALoopDeviceGoesWithItsMount(t *testing.T) {
	v := need(t)
	image := filepath.Join(t.TempDir(), "a.img")
	require.NoError(t, v.Create(t.Context(), image, MinBytes))
	dir := t.TempDir()
	require.NoError(t, Mount(image, dir))
	require.NotEmpty(t, loops(t, image))
	require.NoError(t, unix.Unmount(dir, 0))
	require.Empty(t, loops(t, image))
	require.Error(t, Mount(filepath.Join(t.TempDir(), "none.img"), dir))
}

// What a process that was killed within Frozen leaves can be written again, and goes with its mount.
func TestAFrozenImageIsThawed(t *testing.T) {
	v := need(t)
	image := filepath.Join(t.TempDir(), "a.img")
	require.NoError(t, v.Create(t.Context(), image, MinBytes))
	dir := t.TempDir()
	require.NoError(t, Thaw(dir), "not mounted")
	require.NoError(t, Thaw(filepath.Join(dir, "none")))
	require.NoError(t, Mount(image, dir))
	require.NoError(t, Thaw(dir), "not frozen")
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetInt(fd, fiFreeze, 0))
	require.NoError(t, unix.Close(fd))
	require.Error(t, Frozen(dir, nil), "it still is")
	require.NoError(t, Thaw(dir))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a"), nil, 0o600))
	require.NoError(t, unix.Unmount(dir, 0))
	require.Empty(t, loops(t, image))
}

func loops(t *testing.T, image string) string {
	t.Helper()
	out, err := exec.Command("losetup", "-j", image).CombinedOutput()
	require.NoError(t, err)
	return string(out)
}
