package sandbox

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/filesystem"
)

const diskUID = 2345 // any owner on disk

// tree makes a directory of files that belong to the fixed owner on disk.
func tree(t *testing.T, files map[string]string) string {
	dir := filepath.Join(t.TempDir(), "tree")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.Chown(dir, diskUID, diskUID))
	for name, content := range files {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o644))
		require.NoError(t, os.Chown(path, diskUID, diskUID))
	}
	return dir
}

func ownerOn(t *testing.T, path string) uint32 {
	st, err := os.Lstat(path)
	require.NoError(t, err)
	return st.Sys().(*syscall.Stat_t).Uid
}

func TestAWorkspaceComesLateAndKeepsItsOwnerOnDisk(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, func(s *Spec) { s.Files = true })
	dir := tree(t, map[string]string{"a.txt": "hello\n"})
	require.NoError(t, s.MountWorkspace(filesystem.Prepared{Path: dir, UID: diskUID, GID: diskUID}, false))
	require.NoError(t, s.MountWorkspace(filesystem.Prepared{Path: dir, UID: diskUID, GID: diskUID}, false), "twice changes nothing")
	_, out := sh(t, s, "cd /workspace && cat a.txt && stat -c '%u %a' . a.txt && echo more >> a.txt && echo new > b.txt && mkdir d && ln -s /etc/passwd l && chmod 700 b.txt")
	require.Equal(t, "hello\n1000 755\n1000 644\n", out)
	for _, f := range []string{"a.txt", "b.txt", "d", "l"} {
		require.EqualValues(t, diskUID, ownerOn(t, filepath.Join(dir, f)), f)
	}
	_, out = sh(t, s, "cp /bin/true /workspace/t && chmod 4755 /workspace/t && /workspace/t && echo runs; grep ' /workspace ' /proc/self/mountinfo | grep -c nosuid,nodev")
	require.Equal(t, "runs\n2\n", out, "the mount point and the workspace on it")
	require.NoError(t, s.Stop(within(t, 20*time.Second)))
	<-s.Gone()
	mounted, err := isMounted(s.path("workspace"))
	require.NoError(t, err)
	require.False(t, mounted, "stopped: its files are free to be read")
	require.NoError(t, s.Stop(within(t, 20*time.Second)), "twice is no error")
	require.NoError(t, s.Destroy(within(t, 20*time.Second)))
	b, err := os.ReadFile(filepath.Join(dir, "a.txt"))
	require.NoError(t, err)
	require.Equal(t, "hello\nmore\n", string(b), "destroying a sandbox leaves the files alone")
	requireNothing(t, n)
}

func TestAReadOnlyWorkspace(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, func(s *Spec) { s.Files = true })
	dir := tree(t, map[string]string{"a.txt": "hello\n"})
	require.NoError(t, s.MountWorkspace(filesystem.Prepared{Path: dir, UID: diskUID, GID: diskUID}, true))
	_, out := sh(t, s, "cat /workspace/a.txt; touch /workspace/x 2>&1")
	require.Contains(t, out, "hello\n")
	require.Contains(t, out, "Read-only file system")
}

func TestAnOverlayOfLayers(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, func(s *Spec) { s.Files = true })
	top, bottom := tree(t, map[string]string{"a.txt": "top\n"}), tree(t, map[string]string{"a.txt": "bottom\n", "b.txt": "kept\n", "gone.txt": "x\n"})
	upper, work := filepath.Join(t.TempDir(), "upper"), ""
	work = filepath.Join(filepath.Dir(upper), "work")
	require.NoError(t, os.Mkdir(upper, 0o755))
	require.NoError(t, os.Mkdir(work, 0o700))
	p := filesystem.Prepared{UID: diskUID, GID: diskUID, Layers: &filesystem.Layers{Lower: []string{top, bottom}, Upper: upper, Work: work}}
	require.NoError(t, s.MountWorkspace(p, false))
	exit, out := sh(t, s, "cd /workspace && cat a.txt b.txt && stat -c %u . a.txt b.txt && echo more >> b.txt && rm gone.txt && mkdir d && echo x > d/f && chmod 600 a.txt && ls")
	require.Zero(t, exit.Code, out)
	require.Equal(t, "top\nkept\n1000\n1000\n1000\na.txt\nb.txt\nd\n", out)
	b, err := os.ReadFile(filepath.Join(upper, "b.txt"))
	require.NoError(t, err)
	require.Equal(t, "kept\nmore\n", string(b))
	st, err := os.Lstat(filepath.Join(upper, "gone.txt"))
	require.NoError(t, err)
	require.Equal(t, os.ModeDevice|os.ModeCharDevice, st.Mode().Type(), "a whiteout")
	b, err = os.ReadFile(filepath.Join(bottom, "b.txt"))
	require.NoError(t, err)
	require.Equal(t, "kept\n", string(b), "lower layers are never written")
	require.NoError(t, s.Destroy(within(t, 20*time.Second)))
	requireNothing(t, n)

	// Read-only, of one layer.
	s = create(t, n, func(s *Spec) { s.Files = true })
	p.Layers = &filesystem.Layers{Lower: []string{top}}
	require.NoError(t, s.MountWorkspace(p, true))
	_, out = sh(t, s, "cat /workspace/a.txt; touch /workspace/x 2>&1")
	require.Contains(t, out, "top\n")
	require.Contains(t, out, "Read-only file system")
}

func TestAWorkspaceThatIsNotThere(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, func(s *Spec) { s.Files = true })
	require.ErrorIs(t, s.MountWorkspace(filesystem.Prepared{Path: "/no/such/tree", UID: 1, GID: 1}, false), unix.ENOENT)
	require.Error(t, s.MountWorkspace(filesystem.Prepared{Path: "tree", UID: 1, GID: 1}, false))
	for _, l := range []filesystem.Layers{{}, {Lower: []string{"relative"}}, {Lower: []string{"/a:b"}}, {Lower: []string{"/a"}, Upper: "/u,upperdir=/etc", Work: "/w"}} {
		require.Error(t, s.MountWorkspace(filesystem.Prepared{Layers: &l, UID: 1, GID: 1}, false), "%v", l)
	}
	_, out := sh(t, s, "ls -A /workspace")
	require.Empty(t, out)
	none := create(t, n)
	require.True(t, fault.Is(none.MountWorkspace(filesystem.Prepared{Path: "/tmp", UID: 1, GID: 1}, false), fault.Invalid))
}
