package supervisor_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

func TestFiles(t *testing.T) {
	b := newBox(t)
	ctx := within(t, 60*time.Second)
	f := b.Files(as)
	read := func(path string, offset, length int64) string {
		r, _, err := f.Read(ctx, path, offset, length)
		require.NoError(t, err)
		got, err := io.ReadAll(r)
		require.NoError(t, err)
		require.NoError(t, r.Close())
		return string(got)
	}
	code := func(err error) fault.Code { t.Helper(); return fault.CodeOf(err) }

	t.Run("write, stat, read, list, rename, remove", func(t *testing.T) {
		big := bytes.Repeat([]byte("0123456789"), 500_000)
		info, err := f.Write(ctx, "/tmp/a", 0o640, bytes.NewReader(big))
		require.NoError(t, err)
		require.EqualValues(t, len(big), info.Size)
		require.EqualValues(t, 0o640, info.Mode)
		require.EqualValues(t, payload, info.UID)
		require.Equal(t, supervisor.FileRegular, info.Type)
		require.Equal(t, string(big), read("/tmp/a", 0, -1))
		require.Equal(t, "345", read("/tmp/a", 3, 3))
		require.Equal(t, "89", read("/tmp/a", int64(len(big))-2, 100))
		require.Empty(t, read("/tmp/a", 1<<40, -1))
		require.Empty(t, read("/tmp/a", 0, 0))

		require.NoError(t, f.Mkdir(ctx, "/tmp/d/e/f", 0o750, true))
		require.NoError(t, f.Mkdir(ctx, "/tmp/d/e/f", 0o750, true), "twice")
		require.Equal(t, fault.Conflict, code(f.Mkdir(ctx, "/tmp/d", 0o755, false)))
		_, err = f.Move(ctx, "/tmp/a", "/tmp/d/e/b", supervisor.FileQuery{})
		require.NoError(t, err)
		_, err = f.Stat(ctx, "/tmp/a")
		require.Equal(t, fault.NotFound, code(err))
		b.run(shell("ln -s b /tmp/d/e/link"))
		l := pages(t, ctx, f, "/tmp/d/e", supervisor.FileQuery{Depth: 1})
		require.Len(t, l, 3)
		require.Equal(t, []supervisor.Text{"b", "f", "link"}, []supervisor.Text{l[0].Path, l[1].Path, l[2].Path})
		require.Equal(t, supervisor.FileDir, l[1].Type)
		require.Equal(t, supervisor.Text("b"), l[2].Target)
		require.Equal(t, fault.Conflict, code(f.Remove(ctx, "/tmp/d", false)))
		require.NoError(t, f.Remove(ctx, "/tmp/d", true))
		require.Equal(t, fault.NotFound, code(f.Remove(ctx, "/tmp/d", true)))
	})
	t.Run("names of any bytes", func(t *testing.T) {
		_, err := f.Write(ctx, "/tmp/\xff\n", 0o600, strings.NewReader("x"))
		require.NoError(t, err)
		require.Equal(t, "x", read("/tmp/\xff\n", 0, -1))
		l := pages(t, ctx, f, "/tmp", supervisor.FileQuery{Depth: 1})
		require.Equal(t, supervisor.Text("\xff\n"), l[len(l)-1].Path)
		require.NoError(t, f.Remove(ctx, "/tmp/\xff\n", false))
	})
	t.Run("a directory of many", func(t *testing.T) {
		b.run(shell("mkdir /tmp/many; cd /tmp/many; seq 1 5000 | xargs touch"))
		l := pages(t, ctx, f, "/tmp/many", supervisor.FileQuery{Depth: 1})
		require.Len(t, l, 5000)
		require.NoError(t, f.Remove(ctx, "/tmp/many", true))
	})
	t.Run("the identity's permissions, not process 1's", func(t *testing.T) {
		b.run(shell("echo secret >/tmp/mine; chmod 600 /tmp/mine; mkdir -m 700 /tmp/closed; echo x >/tmp/closed/x"))
		other := b.Files(supervisor.Identity{UID: 2000, GID: 2000})
		_, _, err := other.Read(ctx, "/tmp/mine", 0, -1)
		require.Equal(t, fault.Denied, code(err))
		_, err = other.Stat(ctx, "/tmp/closed/x")
		require.Equal(t, fault.Denied, code(err))
		_, err = other.Write(ctx, "/tmp/mine", 0o644, strings.NewReader("x"))
		require.Equal(t, fault.Denied, code(err), "the directory is sticky")
		require.Equal(t, "secret\n", read("/tmp/mine", 0, -1))
		b.run(shell("chgrp 1000 /tmp/mine; chmod 640 /tmp/mine"))
		grouped := b.Files(supervisor.Identity{UID: 2000, GID: 2000, Groups: []uint32{payload}})
		_, _, err = grouped.Read(ctx, "/tmp/mine", 0, 0)
		require.NoError(t, err)
		for _, path := range []string{"/.weft/run/sock", "/.weft/run", "/proc/1/environ", "/proc/self/environ"} {
			_, _, err = f.Read(ctx, path, 0, -1)
			require.Error(t, err, path)
		}
		_, err = f.Write(ctx, "/usr/x", 0o644, strings.NewReader("x"))
		require.Equal(t, fault.Denied, code(err))
	})
	t.Run("what is no regular file is not opened", func(t *testing.T) {
		b.run(shell("mkfifo /tmp/fifo; ln -s fifo /tmp/tofifo; ln -s loop /tmp/loop"))
		for _, path := range []string{"/tmp/fifo", "/tmp/tofifo", "/dev/zero", "/dev/tty", "/tmp", "/tmp/loop"} {
			_, _, err := f.Read(ctx, path, 0, -1)
			require.Equal(t, fault.Invalid, code(err), "%s: %v", path, err)
		}
		for _, path := range []string{"/tmp/fifo", "/tmp"} {
			_, err := f.Write(ctx, path, 0o644, strings.NewReader("x"))
			require.Equal(t, fault.Invalid, code(err), path)
		}
		_, _, err := f.Entries(ctx, "/tmp/fifo", supervisor.FileQuery{})
		require.Equal(t, fault.Invalid, code(err))
	})
	t.Run("a link is replaced, not followed", func(t *testing.T) {
		b.run(shell("echo target >/tmp/target; ln -s target /tmp/link"))
		_, err := f.Write(ctx, "/tmp/link", 0o644, strings.NewReader("new"))
		require.NoError(t, err)
		require.Equal(t, "target\n", read("/tmp/target", 0, -1))
		require.Equal(t, "new", read("/tmp/link", 0, -1))
	})
	t.Run("a write that breaks off leaves everything as it was", func(t *testing.T) {
		_, err := f.Write(ctx, "/tmp/whole", 0o644, strings.NewReader("whole"))
		require.NoError(t, err)
		boom := errors.New("boom")
		_, err = f.Write(ctx, "/tmp/whole", 0o644, io.MultiReader(strings.NewReader("half"), iotest.ErrReader(boom)))
		require.ErrorIs(t, err, boom)
		require.Equal(t, "whole", read("/tmp/whole", 0, -1))
		require.Eventually(t, func() bool {
			for _, i := range pages(t, ctx, f, "/tmp", supervisor.FileQuery{Depth: 1}) {
				if strings.HasPrefix(string(i.Path), ".weft-") {
					return false
				}
			}
			return true
		}, time.Minute, 10*time.Millisecond, "no temporary file is left")
	})
	t.Run("a large write that is refused at once", func(t *testing.T) {
		t0 := time.Now()
		_, err := f.Write(ctx, "/usr/x", 0o644, bytes.NewReader(make([]byte, 8<<20)))
		require.Equal(t, fault.Denied, code(err))
		require.Less(t, time.Since(t0), 30*time.Second)
	})
	t.Run("bad paths", func(t *testing.T) {
		for _, path := range []string{"", "relative", "/a\x00b", "/" + strings.Repeat("x", 5000), "/" + strings.Repeat("x", 300)} {
			_, err := f.Stat(ctx, path)
			require.Equal(t, fault.Invalid, code(err), "%.20q: %v", path, err)
		}
		_, err := b.Files(supervisor.Identity{}).Stat(ctx, "/")
		require.Equal(t, fault.Invalid, code(err))
		require.Equal(t, fault.Invalid, code(f.Remove(ctx, "/", true)))
	})
}
