package runtime

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/app/toolchain"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/sandbox"
)

// putArchive puts a template's archive at path, as whoever builds one anew does: whole, under a name that it had before.
func putArchive(t *testing.T, template, path string) {
	t.Helper()
	from, err := toolchain.Image(template)
	require.NoError(t, err)
	in, err := os.Open(from)
	require.NoError(t, err)
	defer in.Close()
	out, err := os.Create(path + ".new")
	require.NoError(t, err)
	_, err = io.Copy(out, in)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	require.NoError(t, os.Rename(path+".new", path))
}

// An archive that is built anew under the same name makes the members that wait those of yesterday: they are replaced,
// with nothing said by the manager, and a claim gets the new content.
func TestMembersFollowTheirArchive(t *testing.T) {
	machine.Need(t)
	dir := t.TempDir()
	before := machine.Config.ImageDirs
	machine.Config.ImageDirs = append(slices.Clone(before), dir)
	t.Cleanup(func() { machine.Config.ImageDirs = before })
	archive := filepath.Join(dir, "changing.tar")
	putArchive(t, "base", archive)

	w, n := start(t)
	pool := w.wantPool("acme", 1, 1, func(p *workspace.WantedPool) { p.Run.Image = "changing" })
	old := w.state(t, pool, ready(1))
	has := func() (python bool, box *sandbox.Sandbox) {
		spec := warmSpec(newTask(), "acme")
		spec.Image = "changing"
		require.Eventually(t, func() bool { box = n.s.warm.claim(t.Context(), spec); return box != nil }, 60*time.Second, 20*time.Millisecond)
		_, _, err := box.Supervisor().Files(box.Payload()).Read(t.Context(), "/usr/bin/python3", 0, 1)
		return err == nil, box
	}
	python, first := has()
	require.False(t, python)
	require.NoError(t, first.Destroy(t.Context()))
	old = w.state(t, pool, func(p workspace.PoolState) bool { return ready(1)(p) && p.Oldest.After(*old.Oldest) })

	putArchive(t, "python", archive)
	w.state(t, pool, func(p workspace.PoolState) bool { return ready(1)(p) && p.Oldest.After(*old.Oldest) })
	python, second := has()
	require.True(t, python, "the member is made from what the archive has now")
	require.NoError(t, second.Destroy(t.Context()))
	w.noPools(t)
}
