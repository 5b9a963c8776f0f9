package sandbox

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// A sandbox of level high with a writable root goes on in a fork and in an image: with what it has written and not closed
// yet, what it has changed in place and what it has removed. The source stays as it was.
func TestHighGoesOnInForksAndImages(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	base := func(s *Spec) { s.Image = "base" }
	source := create(t, n, high, rootInside, base)
	exit, out := asRoot(t, source, `set -e; mkdir -p /opt/app; cd /opt/app; echo one > one; ln one hard; ln -s one soft; chown 33:44 one; chmod 4750 one
		head -c 3000000 /dev/zero | tr '\0' x > big; truncate -s 2000000 big; rm /etc/debian_version; rm -rf /usr/share/doc; mkdir /usr/share/doc; echo /workspace > /workspace/note`)
	require.Zero(t, exit.Code, out)
	writer, err := source.Supervisor().Start(within(t, slowly), supervisor.ProcessSpec{
		Argv:     supervisor.Texts("/bin/sh", "-c", `exec 3> /opt/app/open; echo written >&3; echo ready; read line; echo later >&3; echo done`),
		Identity: source.Payload(), Dir: "/", Env: supervisor.Texts("PATH=/usr/bin:/bin"), Stdin: true,
	})
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(readSome(t, writer, nil, 6)))

	disk := filepath.Join(t.TempDir(), "layer.img")
	name := workspace.SnapshotPrefix + source.spec.Tenant + "/n1/" + schemas.NewID()
	require.NoError(t, source.Pause(within(t, slowly)))
	require.NoError(t, source.CopyLayer(disk))
	_, err = source.Snapshot(within(t, slowly), name)
	require.NoError(t, err)
	require.NoError(t, source.Resume(within(t, slowly)))

	const look = `cd /opt/app; cat hard soft open; stat -c '%h %a %u %g' one; wc -c < big; tr -d x < big | wc -c; ls /usr/share/doc; ls /etc/debian_version 2>&1 | grep -o 'No such'; touch new one && rm new && echo writable; grep -o gvisor /proc/version`
	const want = "one\none\nwritten\n2 4750 33 44\n2000000\n0\nNo such\nwritable\ngvisor\n"
	for what, from := range map[string]func(*Spec){"fork": func(s *Spec) { s.From = disk }, "image": func(s *Spec) { s.Image = name }} {
		s := create(t, n, high, rootInside, base, from)
		_, out := asRoot(t, s, look)
		require.Equal(t, want, out, what)
		_, _ = asRoot(t, s, "echo other > /opt/app/one; rm /opt/app/big")
		require.NoError(t, s.Destroy(within(t, time.Minute)))
	}
	require.NoError(t, writer.WriteStdin(within(t, slowly), []byte("go on\n")))
	said, _ := finish(t, writer)
	require.Equal(t, "done\n", said[supervisor.Stdout])
	require.NoError(t, writer.Close())
	_, out = asRoot(t, source, "cat /opt/app/one /opt/app/open /workspace/note; wc -c < /opt/app/big")
	require.Equal(t, "one\nwritten\nlater\n/workspace\n2000000\n", out, "the source is untouched, and goes on")
	require.NoError(t, source.Destroy(within(t, time.Minute)))
	require.NoError(t, n.RemoveSnapshot(within(t, slowly), name))
	requireNothing(t, n)
	require.Empty(t, highTraces(t, n))
}
