package sandbox

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
)

const slowly = 30 * time.Second

// What a sandbox has changed of its root is a layer of an image, in which others find it; equal layers have equal digests.
func TestSnapshotOfARoot(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, rootInside, func(s *Spec) { s.Image = "base" })
	exit, out := asRoot(t, s, `set -e
		mkdir -p /opt/app && cd /opt/app && echo one > one && ln one hard && ln -s one soft && mkfifo pipe && chown 33:44 one && chmod 4750 one
		mkdir deep && head -c 300000 /dev/zero > deep/big; rm /etc/debian_version; rm -rf /usr/share/doc; mkdir /usr/share/doc; echo only > /usr/share/doc/only
		mkdir /opt/.wh.etc; echo x > /opt/.wh.usr; echo x > /tmp/not-in-it`)
	require.Zero(t, exit.Code, out)
	require.NoError(t, s.Pause(within(t, slowly)))
	var layer, again bytes.Buffer
	require.NoError(t, s.exportLayer(t.Context(), &layer))
	require.NoError(t, s.exportLayer(t.Context(), &again))
	require.True(t, bytes.Equal(layer.Bytes(), again.Bytes()))
	found := map[string]*tar.Header{}
	for r := tar.NewReader(&layer); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		require.NotContains(t, found, h.Name, "each name once")
		require.Less(t, h.Uid, 65536)
		require.NotContains(t, h.Name, ".weft")
		found[h.Name] = h
	}
	for name, kind := range map[string]byte{"opt/app/": tar.TypeDir, "opt/app/soft": tar.TypeSymlink, "opt/app/pipe": tar.TypeFifo, "opt/app/deep/big": tar.TypeReg,
		"etc/.wh.debian_version": tar.TypeReg, "usr/share/doc/.wh..wh..opq": tar.TypeReg, "usr/share/doc/only": tar.TypeReg} {
		require.Contains(t, found, name)
		require.Equal(t, kind, found[name].Typeflag, name)
	}
	require.Equal(t, byte(tar.TypeLink), found["opt/app/one"].Typeflag, "the later of the two names")
	require.Equal(t, "opt/app/hard", found["opt/app/one"].Linkname)
	require.EqualValues(t, []int64{0o4750, 33, 44}, []int64{found["opt/app/hard"].Mode, int64(found["opt/app/hard"].Uid), int64(found["opt/app/hard"].Gid)})
	for name := range found {
		require.False(t, strings.HasPrefix(name, "opt/.wh."), "%s would hide what it does not name", name)
		require.NotContains(t, name, "not-in-it")
	}

	name := workspace.SnapshotPrefix + s.spec.Tenant + "/n1/" + schemas.NewID()
	made, err := s.Snapshot(t.Context(), name)
	require.NoError(t, err)
	other, err := s.Snapshot(t.Context(), workspace.SnapshotPrefix+s.spec.Tenant+"/n1/"+schemas.NewID())
	require.NoError(t, err)
	require.Equal(t, made.Digest, other.Digest)
	_, err = s.Snapshot(t.Context(), name)
	require.Error(t, err, "a name is given once")
	require.NoError(t, s.Destroy(within(t, slowly)))
	list, err := n.Snapshots(t.Context())
	require.NoError(t, err)
	require.Len(t, list, 2)

	u := create(t, n, func(s *Spec) { s.Image = name }) // its root is read-only: what was installed is there all the same
	_, out = sh(t, u, "cat /opt/app/hard /opt/app/soft 2>&1; stat -c '%h %a %u %g' /opt/app/one; ls /usr/share/doc /etc/debian_version 2>&1; ls /tmp | wc -l")
	require.Contains(t, out, "2 4750 33 44\n")
	require.Contains(t, out, "No such file")
	require.Contains(t, out, "only\n")
	require.NoError(t, u.Destroy(within(t, slowly)))
	use := testSpec()
	use.Image, use.Tenant = name, "mallory"
	_, err = n.Create(t.Context(), use)
	require.ErrorContains(t, err, "another tenant")
	for _, i := range list {
		require.NoError(t, n.RemoveSnapshot(t.Context(), i.Name))
		require.NoError(t, n.RemoveSnapshot(t.Context(), i.Name))
	}
	use = testSpec()
	use.Image = name
	_, err = n.Create(t.Context(), use)
	require.ErrorContains(t, err, "not on this node")
	require.Error(t, n.RemoveSnapshot(t.Context(), "weft.archive/x"))
}

// A small disk holds files that are large: packed they would fill the node's.
func TestSnapshotOfWhatIsLargerThanItsDisk(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, writable)
	dir, ok := s.Layer()
	require.True(t, ok)
	huge := filepath.Join(dir, "home/agent/huge")
	exit, out := sh(t, s, "truncate -s 1T /home/agent/huge")
	require.Zero(t, exit.Code, out)
	name := workspace.SnapshotPrefix + s.spec.Tenant + "/n1/" + schemas.NewID()
	_, err := s.Snapshot(within(t, slowly), name)
	require.True(t, fault.Is(err, fault.Exhausted), "%v", err)

	require.NoError(t, os.Remove(huge))
	exit, out = sh(t, s, "cd /home/agent && for i in 1 2 3 4 5; do truncate -s 20M $i; done")
	require.Zero(t, exit.Code, out)
	written := &counting{}
	require.ErrorIs(t, s.exportLayer(t.Context(), written), errLarge, "each of them would fit")
	require.Less(t, written.n, int64(100<<20))
}

type counting struct{ n int64 }

func (c *counting) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

// Members of a pool are not made of what is another tenant's.
func TestAPoolHasNoSnapshotsOfOthers(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	mold := testMold()
	mold.Image = workspace.SnapshotPrefix + "mallory/n1/" + schemas.NewID()
	_, err := n.CreateBlank(within(t, slowly), mold)
	require.ErrorContains(t, err, "another tenant")
	requireNothing(t, n)
}
