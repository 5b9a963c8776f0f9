package filesystem

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/pkg/mesh"
	"github.com/weftmesh/weft/schemas"
	wire "github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/filesystem/internal/manifest"
)

func TestPutAndGet(t *testing.T) {
	f := setup(t)
	first := f.put("a/b", "hello")
	require.Equal(t, 1, first.Files)
	require.EqualValues(t, 5, first.Bytes)
	require.Equal(t, first, f.put("a/b", "hello"), "the same again is no new version")
	second := f.put("a/b", "hello world")
	require.NotEqual(t, first.Snapshot, second.Snapshot)
	require.Equal(t, "hello world", f.get("a/b"))
	var old bytes.Buffer
	e, err := f.Get(f.ctx, alice, wire.GetRequest{Path: "a/b", Snapshot: first.Snapshot, Offset: 2}, &old)
	require.NoError(t, err)
	require.Equal(t, "llo", old.String())
	require.EqualValues(t, 5, e.Size)
	e, err = f.Stat(f.ctx, alice, wire.GetRequest{Path: "a"})
	require.NoError(t, err)
	require.Equal(t, "dir", e.Type)
	_, err = f.Put(f.ctx, alice, wire.PutRequest{Path: "run", Mode: 0o755}, strings.NewReader(""))
	require.NoError(t, err)
	e, err = f.Stat(f.ctx, alice, wire.GetRequest{Path: "run"})
	require.NoError(t, err)
	require.EqualValues(t, 0o755, e.Mode)
	require.Equal(t, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", e.Hash)
}

func TestPutRefuses(t *testing.T) {
	f := setup(t)
	f.spaces["acme/demo"] = workspace.Workspace{Name: "demo", State: "active", Quota: workspace.Quota{DiskBytes: 100}}
	f.spaces["acme/second"] = workspace.Workspace{Name: "second", State: "deleting"}
	snap := f.put("file", "x").Snapshot
	f.put("dir/x", "x")
	for name, c := range map[string]struct {
		by   mesh.Caller
		req  wire.PutRequest
		body string
		code fault.Code
	}{
		"dotdot":         {alice, wire.PutRequest{Path: "../x"}, "", fault.Invalid},
		"absolute":       {alice, wire.PutRequest{Path: "/etc/passwd"}, "", fault.Invalid},
		"NUL":            {alice, wire.PutRequest{Path: "a\x00b"}, "", fault.Invalid},
		"empty":          {alice, wire.PutRequest{}, "", fault.Invalid},
		"setuid":         {alice, wire.PutRequest{Path: "x", Mode: 0o4755}, "", fault.Invalid},
		"replace":        {alice, wire.PutRequest{Path: "x", Replace: true}, "", fault.Invalid},
		"through a file": {alice, wire.PutRequest{Path: "file/x"}, "", fault.Invalid},
		"over a dir":     {alice, wire.PutRequest{Path: "dir"}, "", fault.Invalid},
		"too large":      {alice, wire.PutRequest{Path: "x"}, strings.Repeat("x", 101), fault.Exhausted},
		"over the quota": {alice, wire.PutRequest{Path: "x"}, strings.Repeat("x", 99), fault.Exhausted},
		"parent":         {alice, wire.PutRequest{Path: "x", IfParent: snap}, "", fault.Conflict},
		"bad parent":     {alice, wire.PutRequest{Path: "x", IfParent: "x"}, "", fault.Invalid},
		"no workspace":   {mesh.Caller{Tenant: "acme", Workspace: "nowhere"}, wire.PutRequest{Path: "x"}, "", fault.NotFound},
		"tenant as such": {mesh.Caller{Tenant: "acme", Workspace: "-"}, wire.PutRequest{Path: "x"}, "", fault.Invalid},
		"being deleted":  {mesh.Caller{Tenant: "acme", Workspace: "second"}, wire.PutRequest{Path: "x"}, "", fault.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Put(f.ctx, c.by, c.req, strings.NewReader(c.body))
			code(t, c.code, err)
		})
	}
	require.Equal(t, []string{"dir/x", "file"}, keys(f.files()))
}

func TestABrokenUploadChangesNothing(t *testing.T) {
	f := setup(t)
	before := f.put("f", "x")
	_, err := f.Put(f.ctx, alice, wire.PutRequest{Path: "f"}, io.MultiReader(strings.NewReader(strings.Repeat("y", 1<<20)), iotest.ErrReader(errors.New("gone"))))
	require.Error(t, err)
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	_, err = f.Put(ctx, alice, wire.PutRequest{Path: "f"}, strings.NewReader("z"))
	require.Error(t, err)
	require.Equal(t, before, f.put("f", "x"))
}

func TestAFullDisk(t *testing.T) {
	f := setup(t)
	require.NoError(t, f.Close())
	require.NoError(t, unix.Mount("tmpfs", f.cfg.DataDir, "tmpfs", 0, "size=24m"))
	t.Cleanup(func() { require.NoError(t, unix.Unmount(f.cfg.DataDir, unix.MNT_DETACH)) })
	f.Service = nil
	f.restart()
	t.Cleanup(func() { require.NoError(t, f.Close()) })
	f.put("small", "x")
	big := make([]byte, 40<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(big)
	_, err := f.Put(f.ctx, alice, wire.PutRequest{Path: "big"}, bytes.NewReader(big))
	code(t, fault.Exhausted, err)
	require.Equal(t, map[string]string{"small": "x"}, f.files())
	f.put("other", "y")
	a := f.begin(schemas.NewID(), 1)
	a.run("head -c 20000000 /dev/urandom > f")
	_, err = a.merge()
	code(t, fault.Exhausted, err)
	a.run("rm f; echo fits > f")
	a.merged()
	require.Equal(t, "fits\n", f.get("f"))
}

func TestConcurrentPutsAllArrive(t *testing.T) {
	f := setup(t)
	done := make(chan error)
	for i := range 20 {
		go func() {
			_, err := f.Put(f.ctx, alice, wire.PutRequest{Path: fmt.Sprintf("f%d", i)}, strings.NewReader("x"))
			done <- err
		}()
	}
	for range 20 {
		require.NoError(t, <-done)
	}
	require.Len(t, f.files(), 20)
}

// member is one of a tar archive.
type member struct {
	name, content, link string
	kind                byte
}

func archive(t testing.TB, ms ...member) *bytes.Buffer {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range ms {
		if m.kind == 0 {
			m.kind = tar.TypeReg
		}
		require.NoError(t, w.WriteHeader(&tar.Header{Name: m.name, Typeflag: m.kind, Linkname: m.link, Size: int64(len(m.content)), Mode: 0o644, ModTime: time.Unix(1e9, 0)}))
		_, err := w.Write([]byte(m.content))
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	return &b
}

func TestTarInAndOut(t *testing.T) {
	f := setup(t)
	f.put("tree/old", "stays")
	in := archive(t, member{name: "./", kind: tar.TypeDir}, member{name: "./d/", kind: tar.TypeDir}, member{name: "./d/a", content: "1"}, member{name: "d/l", kind: tar.TypeSymlink, link: "../d/a"},
		member{name: "h", kind: tar.TypeLink, link: "d/a"}, member{name: "e/", kind: tar.TypeDir}, member{name: "ü", content: "2"}, member{name: "ü", content: "3"})
	_, err := f.Put(f.ctx, alice, wire.PutRequest{Path: "tree", Tar: true}, in)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"tree/old": "stays", "tree/d/a": "1", "tree/d/l": "->../d/a", "tree/h": "1", "tree/ü": "3"}, f.files())
	var out bytes.Buffer
	_, err = f.Get(f.ctx, alice, wire.GetRequest{Path: "tree"}, &out)
	require.NoError(t, err)
	_, err = f.Put(f.ctx, alice, wire.PutRequest{Path: "copy", Tar: true}, bytes.NewReader(out.Bytes()))
	require.NoError(t, err)
	require.Equal(t, "stays", f.get("copy/old"))
	e, err := f.Stat(f.ctx, alice, wire.GetRequest{Path: "copy/d/a"})
	require.NoError(t, err)
	require.Equal(t, time.Unix(1e9, 0).UTC(), e.MTime)
	e, err = f.Stat(f.ctx, alice, wire.GetRequest{Path: "copy/e"})
	require.NoError(t, err)
	require.Equal(t, "dir", e.Type)
	_, err = f.Put(f.ctx, alice, wire.PutRequest{Path: "tree", Tar: true, Replace: true}, archive(t, member{name: "only", content: "x"}))
	require.NoError(t, err)
	_, err = f.Put(f.ctx, alice, wire.PutRequest{Tar: true, Replace: true}, archive(t, member{name: "only", content: "x"}))
	require.NoError(t, err)
	require.Equal(t, map[string]string{"only": "x"}, f.files())
}

func TestHostileTar(t *testing.T) {
	f := setup(t, func(c *Config) { c.WorkspaceFiles = 50 })
	f.spaces["acme/demo"] = workspace.Workspace{Name: "demo", State: "active", Quota: workspace.Quota{DiskBytes: 1000}}
	f.put("keep", "x")
	before := f.files()
	many := []member{}
	for i := range 60 {
		many = append(many, member{name: fmt.Sprint(i)})
	}
	truncated := archive(t, member{name: "x", content: strings.Repeat("x", 600)})
	truncated.Truncate(700)
	for name, c := range map[string]struct {
		in   *bytes.Buffer
		code fault.Code
	}{
		"absolute":             {archive(t, member{name: "/etc/passwd"}), fault.Invalid},
		"dotdot":               {archive(t, member{name: "a/../../x"}), fault.Invalid},
		"inner dotdot":         {archive(t, member{name: "a/../x"}), fault.Invalid},
		"link out":             {archive(t, member{name: "a/l", kind: tar.TypeSymlink, link: "../../x"}), fault.Invalid},
		"absolute link":        {archive(t, member{name: "l", kind: tar.TypeSymlink, link: "/etc/shadow"}), fault.Invalid},
		"through a link":       {archive(t, member{name: "d/", kind: tar.TypeDir}, member{name: "l", kind: tar.TypeSymlink, link: "d"}, member{name: "l/x"}), fault.Invalid},
		"hard link out":        {archive(t, member{name: "h", kind: tar.TypeLink, link: "/etc/passwd"}), fault.Invalid},
		"hard link to nothing": {archive(t, member{name: "h", kind: tar.TypeLink, link: "keep"}), fault.Invalid},
		"device":               {archive(t, member{name: "d", kind: tar.TypeBlock}), fault.Invalid},
		"fifo":                 {archive(t, member{name: "d", kind: tar.TypeFifo}), fault.Invalid},
		"name not UTF-8":       {archive(t, member{name: "a\xff"}), fault.Invalid},
		"deep":                 {archive(t, member{name: strings.Repeat("d/", 100) + "x"}), fault.Invalid},
		"no tar":               {bytes.NewBufferString(strings.Repeat("not a tar archive ", 100)), fault.Invalid},
		"cut short":            {truncated, fault.Invalid},
		"too large":            {archive(t, member{name: "x", content: strings.Repeat("x", 600)}, member{name: "y", content: strings.Repeat("y", 600)}), fault.Exhausted},
		"too many":             {archive(t, many...), fault.Exhausted},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := f.Put(f.ctx, alice, wire.PutRequest{Tar: true}, c.in)
			code(t, c.code, err)
			require.Equal(t, before, f.files())
		})
	}
}

func FuzzTar(fz *testing.F) {
	fz.Add(archive(fz, member{name: "a/b", content: "x"}, member{name: "l", kind: tar.TypeSymlink, link: "a"}).Bytes())
	fz.Add(archive(fz, member{name: "../x"}, member{name: "h", kind: tar.TypeLink, link: "../x"}).Bytes())
	f := setup(fz)
	sp, err := f.space("acme", "demo")
	require.NoError(fz, err)
	fz.Fuzz(func(t *testing.T, in []byte) {
		b := sp.chunks.Batch()
		defer b.Abort()
		apply, err := f.putTar(b, wire.PutRequest{Tar: true}, bytes.NewReader(in), 1<<20)
		if err != nil {
			return
		}
		e, err := sp.tree.Edit(manifest.Empty, 1)
		require.NoError(t, err)
		if apply(e) != nil {
			return
		}
		root, err := e.Commit(b)
		require.NoError(t, err)
		require.NoError(t, sp.tree.Through(b).Walk(root, func(p string, e manifest.Entry) error {
			_, err := manifest.SplitPath(p)
			require.NoError(t, err)
			if e.Type == manifest.Symlink {
				require.NoError(t, checkTarget(p, e.Target))
			}
			return nil
		}))
	})
}

func TestListPages(t *testing.T) {
	f := setup(t)
	var ms []member
	for i := range 300 {
		ms = append(ms, member{name: fmt.Sprintf("d%d/e%d/f%d", i%3, i%7, i), content: "x"})
	}
	ms = append(ms, member{name: "d1-x", content: "x"}, member{name: "d1.x/y", content: "x"})
	_, err := f.Put(f.ctx, alice, wire.PutRequest{Tar: true}, archive(t, ms...))
	require.NoError(t, err)
	whole, err := f.List(f.ctx, alice, wire.ListRequest{Recursive: true})
	require.NoError(t, err)
	require.Len(t, whole.Entries, 302+1+3+21)
	for _, limit := range []int{1, 7, 100} {
		var got []wire.Entry
		req := wire.ListRequest{Recursive: true, Limit: limit}
		for {
			r, err := f.List(f.ctx, alice, req)
			require.NoError(t, err)
			require.LessOrEqual(t, len(r.Entries), limit)
			got = append(got, r.Entries...)
			if r.Cursor == "" {
				break
			}
			req.Cursor, req.Snapshot = r.Cursor, r.Snapshot
		}
		require.Equal(t, whole.Entries, got, limit)
	}
	top, err := f.List(f.ctx, alice, wire.ListRequest{})
	require.NoError(t, err)
	require.Len(t, top.Entries, 5)
	top, err = f.List(f.ctx, alice, wire.ListRequest{Path: "d0", Limit: 2, Cursor: "d0/e1"})
	require.NoError(t, err)
	require.Equal(t, "d0/e2", top.Entries[0].Path)
	require.Equal(t, "d0/e3", top.Cursor)
	one, err := f.List(f.ctx, alice, wire.ListRequest{Path: "d1-x"})
	require.NoError(t, err)
	require.Len(t, one.Entries, 1)
	for _, bad := range []wire.ListRequest{{Path: "../x"}, {Limit: -1}, {Limit: 10_001}, {Cursor: "/x"}, {Snapshot: "x"}} {
		_, err := f.List(f.ctx, alice, bad)
		code(t, fault.Invalid, err)
	}
	_, err = f.List(f.ctx, alice, wire.ListRequest{Path: "nowhere"})
	code(t, fault.NotFound, err)
	_, err = f.List(f.ctx, alice, wire.ListRequest{Snapshot: schemas.NewID()})
	code(t, fault.NotFound, err)
}

func TestOneTenantNeverSeesAnother(t *testing.T) {
	f := setup(t)
	snap := f.put("secret", "of acme").Snapshot
	other := mesh.Caller{Tenant: "other", Workspace: "demo", Principal: "mallory"}
	r, err := f.List(f.ctx, other, wire.ListRequest{})
	require.NoError(t, err)
	require.Empty(t, r.Entries)
	_, err = f.Get(f.ctx, other, wire.GetRequest{Path: "secret", Snapshot: snap}, io.Discard)
	code(t, fault.NotFound, err)
	_, err = f.Restore(f.ctx, other, wire.RestoreRequest{Snapshot: snap})
	code(t, fault.NotFound, err)
	second := mesh.Caller{Tenant: "acme", Workspace: "second", Principal: "alice"}
	_, err = f.Get(f.ctx, second, wire.GetRequest{Path: "secret", Snapshot: snap}, io.Discard)
	code(t, fault.NotFound, err)
}

func TestRemove(t *testing.T) {
	f := setup(t)
	f.put("a/b", "1")
	f.put("a/c", "2")
	f.put("d", "3")
	r, err := f.Remove(f.ctx, alice, wire.RemoveRequest{Path: "a"})
	require.NoError(t, err)
	require.Equal(t, 1, r.Files)
	_, err = f.Remove(f.ctx, alice, wire.RemoveRequest{Path: "a"})
	code(t, fault.NotFound, err)
	_, err = f.Remove(f.ctx, alice, wire.RemoveRequest{Path: "d/x"})
	code(t, fault.Invalid, err)
	_, err = f.Remove(f.ctx, alice, wire.RemoveRequest{Path: "../d"})
	code(t, fault.Invalid, err)
	_, err = f.Remove(f.ctx, alice, wire.RemoveRequest{})
	require.NoError(t, err)
	require.Empty(t, f.files())
}
