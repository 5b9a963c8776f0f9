package e2e

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/client"
	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh/stream"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
)

func inBox(p string) runtime.FilePath { return runtime.PathOf(p) }

// TestSandboxFiles does each operation on files over the mesh, on each level, and through the command line what
// people use.
func TestSandboxFiles(t *testing.T) {
	w := boot(t)
	c := w.as("alice")
	whole := ctx(t, 5*time.Minute)
	var box workspace.Sandbox
	for _, level := range []string{workspace.LevelHigh, workspace.LevelStandard} {
		t.Run(level, func(t *testing.T) {
			var err error
			box, err = c.CreateSandbox(ctx(t, 2*time.Minute), workspace.SandboxCreate{Template: "base", Level: level})
			require.NoError(t, err)
			f := c.SandboxFiles(box.ID)
			t.Run("one file", func(t *testing.T) { testOneFile(t, whole, f) })
			t.Run("trees", func(t *testing.T) { testFileTrees(t, whole, c, box.ID) })
			t.Run("watch", func(t *testing.T) { testFileWatch(t, whole, f) })
			t.Run("much", func(t *testing.T) { testMuch(t, whole, f) })
			t.Run("hostile tree", func(t *testing.T) { testHostileTree(t, whole, c, box.ID) })
			_, err = f.Write(whole, runtime.FileWrite{FilePath: inBox("/usr/x")}, strings.NewReader("x"))
			require.Equal(t, fault.Denied, fault.CodeOf(err))
			for _, p := range []string{"/proc/self/maps", "/proc/1/environ", "/proc/self/fd/0"} {
				_, err = f.Read(whole, runtime.FileRead{FilePath: inBox(p)}, io.Discard)
				require.Error(t, err, p)
			}
		})
	}
	f := c.SandboxFiles(box.ID)
	t.Run("refusals", func(t *testing.T) {
		for _, p := range []string{"", "relative", "/a\x00b", "/" + strings.Repeat("x", 5000)} {
			_, err := f.Stat(whole, runtime.FileStat{FilePath: inBox(p)})
			require.Equal(t, fault.Invalid, fault.CodeOf(err), "%.20q", p)
		}
		_, err := f.Stat(whole, runtime.FileStat{FilePath: inBox("/workspace/none")})
		require.Equal(t, fault.NotFound, fault.CodeOf(err))
		_, err = w.as("mallory").SandboxFiles("0123456789abcdefghij").Stat(whole, runtime.FileStat{FilePath: inBox("/")})
		require.Error(t, err)
	})
	t.Run("through the command line", func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "in", "deep"), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, "in", "deep", "f"), []byte("needle\n"), 0o644))
		w.must("sandbox", "cp", "-r", filepath.Join(dir, "in"), box.ID+":/workspace/cli")
		require.Contains(t, w.must("sandbox", "files", "grep", box.ID, "ne+dle", "/workspace/cli"), "deep/f:1:needle")
		w.must("sandbox", "cp", "-r", box.ID+":/workspace/cli", filepath.Join(dir, "out"))
		back, err := os.ReadFile(filepath.Join(dir, "out", "deep", "f"))
		require.NoError(t, err)
		require.Equal(t, "needle\n", string(back))
		_, stderr, code := w.weft("", "sandbox", "cp", "-r", box.ID+":/workspace/none", filepath.Join(dir, "none"))
		require.Equal(t, 3, code, stderr)
	})
}

func testOneFile(t *testing.T, ctx context.Context, f *client.SandboxFiles) {
	e, err := f.Write(ctx, runtime.FileWrite{FilePath: inBox("/workspace/a/b/file"), Parents: true, Mode: 0o640}, strings.NewReader("one two"))
	require.NoError(t, err)
	require.EqualValues(t, 7, e.Size)
	require.EqualValues(t, 0o640, e.Mode)
	_, err = f.Write(ctx, runtime.FileWrite{FilePath: inBox("/workspace/a/b/file"), Keep: true}, strings.NewReader("x"))
	require.Equal(t, fault.Conflict, fault.CodeOf(err))
	_, err = f.Append(ctx, runtime.FileWrite{FilePath: inBox("/workspace/a/b/file")}, strings.NewReader(" three"))
	require.NoError(t, err)
	var out bytes.Buffer
	length := int64(5)
	_, err = f.Read(ctx, runtime.FileRead{FilePath: inBox("/workspace/a/b/file"), Offset: 4, Length: &length}, &out)
	require.NoError(t, err)
	require.Equal(t, "two t", out.String())
	odd := inBox("/workspace/a/\xff\n")
	_, err = f.Touch(ctx, odd, nil)
	require.NoError(t, err)
	e, err = f.Stat(ctx, runtime.FileStat{FilePath: odd})
	require.NoError(t, err)
	require.Equal(t, []byte("/workspace/a/\xff\n"), e.PathB64)
	require.NoError(t, f.Mkdir(ctx, runtime.FileMkdir{FilePath: inBox("/workspace/a/c")}))
	require.Equal(t, fault.Conflict, fault.CodeOf(f.Mkdir(ctx, runtime.FileMkdir{FilePath: inBox("/workspace/a/c")})))
	var seen []string
	for range 2 {
		seen = nil
		require.NoError(t, f.List(ctx, runtime.FileList{FilePath: inBox("/workspace/a"), Depth: -1, Limit: 2}, 0, func(e runtime.FileEntry) error { seen = append(seen, e.Raw()); return nil }))
	}
	require.Equal(t, []string{"b", "b/file", "c", "\xff\n"}, seen)
	n, err := f.Chmod(ctx, runtime.FileChmod{FilePath: inBox("/workspace/a"), Mode: 0o750, Recursive: true})
	require.NoError(t, err)
	require.EqualValues(t, 5, n.Files)
}

func testFileTrees(t *testing.T, ctx context.Context, c *client.Client, box string) {
	f := c.SandboxFiles(box)
	move := func(from, to string) runtime.FileMove {
		return runtime.FileMove{From: inBox(from), To: inBox(to)}
	}
	_, err := f.Copy(ctx, move("/workspace/a", "/workspace/copy"))
	require.NoError(t, err)
	_, err = f.Move(ctx, move("/workspace/copy", "/tmp/elsewhere")) // another file system
	require.NoError(t, err)
	var found []string
	_, err = f.Glob(ctx, runtime.FileGlob{FilePath: inBox("/tmp"), Glob: "**/f*"}, func(e runtime.FileEntry) error { found = append(found, e.Path); return nil })
	require.NoError(t, err)
	require.Contains(t, found, "elsewhere/b/file")
	var matches []runtime.FileMatch
	n, err := f.Search(ctx, runtime.FileSearch{FilePath: inBox("/tmp/elsewhere"), Pattern: "t(wo|hree)"}, func(m runtime.FileMatch) error { matches = append(matches, m); return nil })
	require.NoError(t, err)
	require.EqualValues(t, 1, n.Matches)
	require.Equal(t, "one two three", matches[0].Text)
	var done []runtime.FileReplaced
	_, err = f.Replace(ctx, runtime.FileReplace{FilePath: inBox("/tmp/elsewhere"), Pattern: "t(wo|hree)", With: "<$1>", Paths: []runtime.FilePath{inBox("b/file"), inBox("b/none")}},
		func(r runtime.FileReplaced) error { done = append(done, r); return nil })
	require.NoError(t, err)
	require.Equal(t, 2, done[0].Count)
	require.Equal(t, "not_found", done[1].Code)
	require.Equal(t, "one <wo> <hree>", execute(t, c, box, "", "cat", "/tmp/elsewhere/b/file").out)
	var packed bytes.Buffer
	n, err = f.TarOut(ctx, inBox("/tmp/elsewhere"), &packed)
	require.NoError(t, err)
	require.EqualValues(t, 2, n.Files)
	n, err = f.TarIn(ctx, inBox("/workspace/unpacked"), &packed)
	require.NoError(t, err)
	require.EqualValues(t, 2, n.Dirs)
	_, err = f.TarIn(ctx, inBox("/workspace/unpacked"), strings.NewReader("no tar, whatever it says"))
	require.Equal(t, fault.Invalid, fault.CodeOf(err))
	n, err = f.Remove(ctx, runtime.FileRemove{FilePath: inBox("/workspace/unpacked"), Recursive: true})
	require.NoError(t, err)
	require.EqualValues(t, 3, n.Dirs)
	_, err = f.Remove(ctx, runtime.FileRemove{FilePath: inBox("/workspace/a")})
	require.Equal(t, fault.Conflict, fault.CodeOf(err))
}

func testFileWatch(t *testing.T, whole context.Context, f *client.SandboxFiles) {
	watching, stop := context.WithCancel(whole)
	defer stop()
	changes, end := make(chan runtime.FileChange, 1000), make(chan error, 1)
	go func() {
		end <- f.Watch(watching, runtime.FileWatch{FilePath: inBox("/workspace"), Recursive: true, WindowMS: 5}, func(c runtime.FileChange) error {
			changes <- c
			return nil
		})
	}()
	limit := ctx(t, time.Minute)
	next := func(kind, path string) {
		t.Helper()
		for {
			select {
			case c := <-changes:
				if c.Kind == kind && c.Path == path {
					return
				}
			case err := <-end:
				t.Fatalf("the watch ended: %v", err)
			case <-limit.Done():
				t.Fatalf("no %s of %q", kind, path)
			}
		}
	}
	next("ready", "")
	start := time.Now()
	_, err := f.Write(whole, runtime.FileWrite{FilePath: inBox("/workspace/w/x/y"), Parents: true}, strings.NewReader("x"))
	require.NoError(t, err)
	next("create", "w/x/y")
	t.Logf("watched after %s, the writing included", time.Since(start))
	stop()
	require.Error(t, <-end)
}

// testMuch writes and reads back a large file, and says how fast that was.
func testMuch(t *testing.T, ctx context.Context, f *client.SandboxFiles) {
	size := int64(16 << 20)
	if os.Getenv("WEFT_SOAK") == "1" {
		size = 100 << 20
	}
	blob := make([]byte, size)
	_, _ = rand.Read(blob)
	start := time.Now()
	_, err := f.Write(ctx, runtime.FileWrite{FilePath: inBox("/workspace/blob")}, bytes.NewReader(blob))
	require.NoError(t, err)
	wrote := time.Since(start)
	start = time.Now()
	sum := sha256.New()
	e, err := f.Read(ctx, runtime.FileRead{FilePath: inBox("/workspace/blob")}, sum)
	require.NoError(t, err)
	require.Equal(t, size, e.Size)
	want := sha256.Sum256(blob)
	require.Equal(t, want[:], sum.Sum(nil))
	mb := float64(size) / 1e6
	t.Logf("%.0f MB written at %.0f MB/s, read at %.0f MB/s", mb, mb/wrote.Seconds(), mb/time.Since(start).Seconds())
}

// testHostileTree works on a tree of what no program expects, in which a directory and a link change places all the time.
func testHostileTree(t *testing.T, ctx context.Context, c *client.Client, box string) {
	f := c.SandboxFiles(box)
	r := execute(t, c, box, "", "/bin/sh", "-c", `set -e; mkdir -p /tmp/witness /tmp/h/dir; cd /tmp/h; mkfifo pipe; ln -s /dev/zero zero; ln -s . self
		echo secret >/tmp/witness/secret; chmod 600 /tmp/witness/secret; echo text >dir/file; ln -s /tmp/witness link`)
	require.Equal(t, 0, r.Exit.Code, r.err)
	const levels = 200
	deep := strings.Repeat("d/", levels)
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	require.NoError(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: deep, Mode: 0o755}))
	require.NoError(t, w.Close())
	n, err := f.TarIn(ctx, inBox("/tmp/h"), &packed)
	require.NoError(t, err)
	require.EqualValues(t, 1, n.Dirs)
	swap, err := c.Exec(ctx, box, runtime.ExecRequest{Argv: []string{"/bin/sh", "-c", "cd /tmp/h; echo up; while :; do mv dir d2; mv link dir; mv dir link; mv d2 dir; done"}})
	require.NoError(t, err)
	up := make([]byte, 3)
	_, err = io.ReadFull(swap.Channel(stream.Stdout), up)
	require.NoError(t, err)
	for range 5 {
		_, _ = f.Search(ctx, runtime.FileSearch{FilePath: inBox("/tmp/h"), Pattern: "."}, func(m runtime.FileMatch) error {
			require.NotContains(t, m.Path+m.Text, "secret")
			return nil
		})
		_, _ = f.Replace(ctx, runtime.FileReplace{FilePath: inBox("/tmp/h"), Glob: "**", Pattern: "secret|text", With: "text"}, func(runtime.FileReplaced) error { return nil })
		_, _ = f.Chmod(ctx, runtime.FileChmod{FilePath: inBox("/tmp/h"), Mode: 0o755, Recursive: true})
	}
	_ = swap.Close()
	// Its process ends with the stream, soon: until then the tree may change under the removal.
	require.Eventually(t, func() bool {
		_, err := f.Remove(ctx, runtime.FileRemove{FilePath: inBox("/tmp/h"), Recursive: true})
		return err == nil || fault.Is(err, fault.NotFound)
	}, time.Minute, 50*time.Millisecond)
	require.Equal(t, "secret\n600\n", execute(t, c, box, "", "/bin/sh", "-c", "cat /tmp/witness/*; stat -c %a /tmp/witness/secret").out)
}
