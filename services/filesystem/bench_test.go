package filesystem

import (
	"archive/tar"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
)

// tenThousand is a tar of 10,000 small files in 110 directories.
func tenThousand(t testing.TB) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range 10_000 {
		c := fmt.Appendf(nil, "package p%d\n\nfunc F%d() int { return %d }\n%s", i, i, i, bytes.Repeat([]byte("// text\n"), i%100))
		require.NoError(t, w.WriteHeader(&tar.Header{Name: benchFile(i), Typeflag: tar.TypeReg, Size: int64(len(c)), Mode: 0o644, ModTime: time.Unix(1e9, 0)}))
		_, err := w.Write(c)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &b
}

func benchFile(i int) string { return fmt.Sprintf("d%d/e%d/f%d.go", i%10, i%110, i) }

func benchSetup(b *testing.B) *fixture {
	f := setup(b)
	_, err := f.Put(f.ctx, alice, wire.PutRequest{Tar: true}, tenThousand(b))
	require.NoError(b, err)
	f.ctx = b.Context()
	return f
}

// BenchmarkSnapshotIncremental is the merge of an overlay over 10,000 files in which ten were changed: read back, stored, synced, recorded,
// zipped, unmounted. Preparing the next overlay is not in it, see BenchmarkNextPrepare.
func BenchmarkSnapshotIncremental(b *testing.B) {
	f := benchSetup(b)
	a := f.begin(schemas.NewID(), 1)
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		for i := range 10 {
			require.NoError(b, os.WriteFile(filepath.Join(a.path, benchFile(i*997)), fmt.Appendf(nil, "changed %d %d\n", n, i), 0o644))
		}
		b.StartTimer()
		m, err := a.merge()
		b.StopTimer()
		require.NoError(b, err)
		require.Equal(b, 10, m.FilesChanged)
		a = f.begin(schemas.NewID(), 1)
		b.StartTimer()
	}
}

// BenchmarkGitCommit does to the same tree what people would do.
func BenchmarkGitCommit(b *testing.B) {
	dir := b.TempDir()
	git := func(args ...string) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=x", "-c", "user.email=x@x", "-c", "gc.auto=0"}, args...)...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		require.NoError(b, err, string(out))
	}
	tarIn := exec.Command("tar", "x")
	tarIn.Dir, tarIn.Stdin = dir, tenThousand(b)
	require.NoError(b, tarIn.Run())
	git("init", "-q")
	git("add", "-A")
	git("commit", "-qm", "x")
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		for i := range 10 {
			require.NoError(b, os.WriteFile(filepath.Join(dir, benchFile(i*997)), fmt.Appendf(nil, "changed %d %d\n", n, i), 0o644))
		}
		b.StartTimer()
		git("add", "-A")
		git("commit", "-qm", "x")
	}
}

// BenchmarkPrepareAndDiscard is what an attempt that changes nothing pays.
func BenchmarkPrepareAndDiscard(b *testing.B) {
	for name, base := range map[string]uint32{"mounted": idBase, "parts": 0} {
		b.Run(name, func(b *testing.B) {
			f := benchSetup(b)
			f.begin(schemas.NewID(), 1)
			b.ResetTimer()
			for b.Loop() {
				task, sandbox := schemas.NewID(), schemas.NewID()
				f.holders.set(task, 1, sandbox, workspace.Running)
				_, err := f.Prepare(f.ctx, node, wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: task, Attempt: 1, Sandbox: sandbox, IDBase: base})
				require.NoError(b, err)
				_, err = f.Discard(f.ctx, node, wire.Discard{Tenant: "acme", Workspace: "demo", Owner: task, Attempt: 1, Sandbox: sandbox})
				require.NoError(b, err)
			}
		})
	}
}

// BenchmarkNextPrepare is the first overlay over a head in which ten of 10,000 files are new: a layer is made.
func BenchmarkNextPrepare(b *testing.B) {
	f := benchSetup(b)
	f.begin(schemas.NewID(), 1)
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		var ms []member
		for i := range 10 {
			ms = append(ms, member{name: benchFile(i * 997), content: fmt.Sprint("changed ", n, i)})
		}
		_, err := f.Put(f.ctx, alice, wire.PutRequest{Tar: true}, archive(b, ms...))
		require.NoError(b, err)
		task, sandbox := schemas.NewID(), schemas.NewID()
		f.holders.set(task, 1, sandbox, workspace.Running)
		b.StartTimer()
		_, err = f.Prepare(f.ctx, node, wire.Prepare{Tenant: "acme", Workspace: "demo", Owner: task, Attempt: 1, Sandbox: sandbox, IDBase: idBase})
		require.NoError(b, err)
	}
}

// BenchmarkMergeTen is a merge of ten changed files into a head that has moved meanwhile.
func BenchmarkMergeTen(b *testing.B) {
	f := benchSetup(b)
	b.ResetTimer()
	for n := range b.N {
		b.StopTimer()
		a := f.begin(schemas.NewID(), 1)
		for i := range 10 {
			require.NoError(b, os.WriteFile(filepath.Join(a.path, benchFile(i*997)), fmt.Appendf(nil, "changed %d %d\n", n, i), 0o644))
		}
		f.put(benchFile(5), fmt.Sprint(n))
		b.StartTimer()
		_, err := a.merge()
		require.NoError(b, err)
	}
}
