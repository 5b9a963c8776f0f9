package lockfile

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "it.lock")
	first, _, err := Take(path)
	require.NoError(t, err)
	_, holder, err := Take(path)
	require.ErrorIs(t, err, ErrHeld)
	require.Equal(t, strconv.Itoa(os.Getpid()), holder)
	require.NoError(t, first.Close())
	again, _, err := Take(path)
	require.NoError(t, err)
	require.NoError(t, again.Close())
}

// The holder was killed, and a process that it had started has its descriptor for a while yet.
func TestHolderIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "it.lock")
	f, err := os.Create(path)
	require.NoError(t, err)
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX))
	gone := exec.Command("true")
	require.NoError(t, gone.Run())
	_, err = f.WriteString(fmt.Sprintln(gone.Process.Pid))
	require.NoError(t, err)

	child := exec.Command("sh", "-c", "echo ready; read line <&4; exit 0")
	child.ExtraFiles = []*os.File{f, nil}
	hold, end, err := os.Pipe()
	require.NoError(t, err)
	child.ExtraFiles[1] = hold
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	require.NoError(t, f.Close())
	require.NoError(t, hold.Close())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)

	taken := make(chan error, 1)
	go func() {
		l, _, err := Take(path)
		if err == nil {
			err = l.Close()
		}
		taken <- err
	}()
	select {
	case err := <-taken:
		t.Fatalf("it did not wait for the child: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, end.Close())
	require.NoError(t, child.Wait())
	require.NoError(t, <-taken)
}
