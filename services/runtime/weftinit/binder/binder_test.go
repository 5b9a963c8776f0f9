package binder

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/needs"
)

// bound starts a process in a mount namespace of its own, speaks to it, and gives how it ended and what is then in the
// directory to.
func bound(t *testing.T, from, to string) (unix.WaitStatus, []string) {
	needs.Root(t)
	var status unix.WaitStatus
	var names []string
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends, and its namespace with it
		failed <- func() error {
			if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
				return err
			}
			if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
				return err
			}
			b, err := Start(from, to)
			if err != nil {
				return err
			}
			if before, err := os.ReadDir(to); err != nil || len(before) > 0 {
				return err
			}
			if err := b.Speak(); err != nil {
				return err
			}
			for {
				if _, err = unix.Wait4(b.PID, &status, 0, nil); err != unix.EINTR {
					break
				}
			}
			if err != nil {
				return err
			}
			entries, err := os.ReadDir(to)
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if err != nil {
				return err
			}
			return b.Close()
		}()
	}()
	require.NoError(t, <-failed)
	return status, names
}

func TestItBindsWhenItIsTold(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(from, "a.txt"), nil, 0o644))
	status, names := bound(t, from, to)
	require.True(t, status.Exited(), "%#x", status)
	require.Zero(t, status.ExitStatus())
	require.Equal(t, []string{"a.txt"}, names)
}

func TestItSaysWhyItCouldNot(t *testing.T) {
	status, names := bound(t, "/no/such/directory", t.TempDir())
	require.True(t, status.Exited(), "%#x", status)
	require.Equal(t, unix.ENOENT, unix.Errno(status.ExitStatus()))
	require.Empty(t, names)

	_, err := Start(string(make([]byte, maxPath)), "/")
	require.ErrorIs(t, err, unix.ENAMETOOLONG)
}
