package dirs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func open(t *testing.T) (*Dir, string) {
	path := t.TempDir()
	d, err := Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d, path
}

func TestNamesOnly(t *testing.T) {
	d, path := open(t)
	require.NoError(t, os.MkdirAll(filepath.Join(path, "a/b"), 0o755))
	for _, bad := range []string{"", ".", "..", "a/b", "/etc", "a\x00", strings.Repeat("a", 256)} {
		_, err := d.Sub(bad)
		require.Error(t, err, bad)
		_, _, err = d.OpenFile(bad)
		require.Error(t, err, bad)
		_, err = d.Create(bad)
		require.Error(t, err, bad)
		_, err = d.Mkdir(bad)
		require.Error(t, err, bad)
		_, err = d.Stat(bad)
		require.Error(t, err, bad)
		_, err = d.Readlink(bad)
		require.Error(t, err, bad)
		require.Error(t, errors.Join(d.Symlink("x", bad)), bad)
		require.Error(t, d.Rename("a", bad), bad)
		require.Error(t, d.Whiteout(bad), bad)
		require.Error(t, d.Own(bad, 0, 0), bad)
		require.Error(t, d.Chtimes(bad, time.Now()), bad)
	}
}

func TestNothingIsFollowedOrWaitedFor(t *testing.T) {
	d, path := open(t)
	require.NoError(t, os.Symlink("/etc", filepath.Join(path, "dir")))
	require.NoError(t, os.Symlink("/etc/passwd", filepath.Join(path, "file")))
	require.NoError(t, os.Symlink("new", filepath.Join(path, "dangling")))
	require.NoError(t, unix.Mkfifo(filepath.Join(path, "fifo"), 0o644))
	_, err := d.Sub("dir")
	require.Error(t, err)
	_, _, err = d.OpenFile("file")
	require.ErrorIs(t, err, ErrNotRegular)
	_, err = d.Create("dangling")
	require.Error(t, err)
	require.NoFileExists(t, filepath.Join(path, "new"))
	done := make(chan error, 1)
	go func() { _, _, err := d.OpenFile("fifo"); done <- err }()
	select {
	case err := <-done:
		require.ErrorIs(t, err, ErrNotRegular)
	case <-time.After(5 * time.Second):
		t.Fatal("the open of a FIFO waits")
	}
	_, err = Open(filepath.Join(path, "dir"))
	require.Error(t, err)
	before, err := os.Stat("/etc/passwd")
	require.NoError(t, err)
	require.NoError(t, d.Chtimes("file", time.Unix(1, 0)))
	after, err := os.Stat("/etc/passwd")
	require.NoError(t, err)
	require.Equal(t, before.ModTime(), after.ModTime())
}

// TestARaceLeadsNowhere swaps a directory and a symlink while they are opened: either the directory is opened or nothing.
func TestARaceLeadsNowhere(t *testing.T) {
	d, path := open(t)
	real, link, at := filepath.Join(path, "real"), filepath.Join(path, "link"), filepath.Join(path, "at")
	require.NoError(t, os.Mkdir(real, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(real, "passwd"), []byte("mine"), 0o644))
	require.NoError(t, os.Symlink("/etc", link))
	require.NoError(t, os.Symlink("/etc", at))
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_ = unix.Renameat2(unix.AT_FDCWD, real, unix.AT_FDCWD, at, unix.RENAME_EXCHANGE)
		}
	}()
	opened := 0
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
		sub, err := d.Sub("at")
		if err != nil {
			continue
		}
		f, _, err := sub.OpenFile("passwd")
		require.NoError(t, err)
		b, err := io.ReadAll(f)
		require.NoError(t, err)
		require.Equal(t, "mine", string(b))
		require.NoError(t, errors.Join(f.Close(), sub.Close()))
		opened++
	}
	close(stop)
	<-done
	require.Positive(t, opened)
}

func TestNamesAreLimited(t *testing.T) {
	d, path := open(t)
	for _, n := range []string{"a", "b", "c"} {
		require.NoError(t, os.WriteFile(filepath.Join(path, n), nil, 0o644))
	}
	names, more, err := d.Names(2)
	require.NoError(t, err)
	require.Len(t, names, 2)
	require.True(t, more)
	for range 2 {
		names, more, err = d.Names(3)
		require.NoError(t, err)
		require.Len(t, names, 3)
		require.False(t, more)
	}
}

func TestMake(t *testing.T) {
	d, path := open(t)
	sub, err := d.Mkdir("sub")
	require.NoError(t, err)
	require.NoError(t, errors.Join(sub.MetaSelf(0o711, uint32(os.Getuid()), uint32(os.Getgid())), sub.ChtimesSelf(time.Unix(5, 6))))
	f, err := sub.Create("f")
	require.NoError(t, err)
	require.NoError(t, f.Close())
	_, err = sub.Create("f")
	require.ErrorIs(t, err, os.ErrExist)
	require.NoError(t, sub.Rename("f", "g"))
	require.NoError(t, sub.Symlink("anywhere", "l"))
	target, err := sub.Readlink("l")
	require.NoError(t, err)
	require.Equal(t, "anywhere", target)
	st, err := d.Stat("sub")
	require.NoError(t, err)
	require.EqualValues(t, unix.S_IFDIR|0o711, st.Mode)
	require.FileExists(t, filepath.Join(path, "sub/g"))
	x, err := sub.Xattr("user.none")
	require.NoError(t, err)
	require.Empty(t, x)
	require.NoError(t, sub.Close())
}
