package supervisor_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// TestFileRaces does everything to a tree in which payload exchanges a directory and a link to another one
// as fast as it can. That other directory is payload's own, so that no permission protects it: what it has
// is never read, and it stays as it is.
func TestFileRaces(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 3*minute)
	f := b.Files(as)
	res := b.run(shell(`set -e; mkdir -p /tmp/witness/sub /tmp/tree/dir/sub; ln -s /tmp/witness /tmp/tree/link
		for d in /tmp/witness /tmp/tree/dir; do echo text >$d/file; echo text >$d/sub/file; done
		echo secret >/tmp/witness/secret; echo secret >/tmp/witness/sub/secret; chmod 600 /tmp/witness/file /tmp/witness/secret; chmod 711 /tmp/witness/sub`))
	require.Zero(t, res.Exit.Code, string(res.Stderr))
	state := func() string {
		return b.output("sh", "-c", "cd /tmp/witness; find . -printf '%p %m %s %T@ %n\\n' | sort; cat file secret sub/secret")
	}
	before := state()
	p, err := b.Start(ctx, command("/payload", "swap", "/tmp/tree/dir", "/tmp/tree/link"))
	require.NoError(t, err)
	ev, err := p.Next(ctx)
	require.NoError(t, err)
	require.Equal(t, "ready\n", string(ev.Data))

	rounds := 60
	if soak() {
		rounds = 2000
	}
	none := func(path supervisor.Text) {
		require.NotContains(t, string(path), "secret")
	}
	for i := range rounds {
		_, _ = f.Search(ctx, "/tmp/tree", supervisor.FileQuery{Pattern: "."}, func(m []supervisor.FileMatch) error {
			for _, m := range m {
				none(m.Path)
				none(m.Text)
			}
			return nil
		})
		page, _, err := f.Entries(ctx, "/tmp/tree", supervisor.FileQuery{})
		if err == nil {
			for _, e := range page {
				none(e.Path)
			}
		}
		_, _ = f.Replace(ctx, "/tmp/tree", supervisor.FileQuery{Pattern: "text|secret", With: "text", Glob: "**"}, func([]supervisor.Replaced) error { return nil })
		_, _ = f.Chmod(ctx, "/tmp/tree", 0o755, true)
		var out bytes.Buffer
		if _, err := f.TarOut(ctx, "/tmp/tree", &out); err == nil {
			r := tar.NewReader(&out)
			for {
				h, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				require.NoError(t, err)
				none(supervisor.Text(h.Name))
			}
		}
		_, _ = f.TarIn(ctx, "/tmp/tree", tarOf(t, file("dir/new", "x"), file("link/new", "x"), file("dir/sub/new", "x")))
		if _, err = f.Copy(ctx, "/tmp/tree", "/tmp/copy", supervisor.FileQuery{}); err == nil {
			require.Empty(t, b.output("sh", "-c", "find /tmp/copy -name '*secret*'"))
		}
		if i%10 == 9 {
			_, _ = f.RemoveTree(ctx, "/tmp/copy", true)
			for _, name := range []string{"dir/sub", "dir", "link"} {
				_, _ = f.RemoveTree(ctx, "/tmp/tree/"+name+"/none", true)
			}
		}
	}
	require.NoError(t, p.Stop(ctx, 0))
	require.Equal(t, before, state())

	// And removing the tree itself, while two such go on in it; each ends when its names are gone.
	for range max(rounds/10, 3) {
		require.Zero(t, b.run(shell("mkdir -p /tmp/gone/t/dir/sub; touch /tmp/gone/t/dir/sub/f; ln -s /tmp/witness /tmp/gone/t/link")).Exit.Code)
		p, err := b.Start(ctx, command("/payload", "swap", "/tmp/gone/t/dir", "/tmp/gone/t/link"))
		require.NoError(t, err)
		_, err = p.Next(ctx)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			_, err := f.RemoveTree(ctx, "/tmp/gone", true)
			return err == nil
		}, minute, 1)
		require.NoError(t, p.Stop(ctx, 0))
	}
	require.Equal(t, before, state())
	require.True(t, strings.Contains(before, "secret"))
}
