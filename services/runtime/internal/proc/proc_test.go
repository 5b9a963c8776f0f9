package proc

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T) (*exec.Cmd, Process) {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p, err := Identify(cmd.Process.Pid)
	require.NoError(t, err)
	require.Equal(t, os.Getpid(), p.Parent)
	return cmd, p.Process
}

func TestAProcessIsItselfOnlyWithItsStartTime(t *testing.T) {
	_, p := start(t)
	require.True(t, p.Alive())
	other := p
	other.Start++
	require.False(t, other.Alive(), "same pid, other start")
	require.NoError(t, other.Signal(syscall.SIGKILL), "one that is gone is no error")
	other = p
	other.Boot = "another"
	require.False(t, other.Alive(), "same pid and start, other boot")
	require.True(t, p.Alive(), "the signals went nowhere")
	require.False(t, Process{}.Alive())
}

func TestWait(t *testing.T) {
	cmd, p := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Wait(ctx) }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)

	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	go func() { done <- p.Wait(ctx) }()
	require.NoError(t, p.Signal(syscall.SIGKILL))
	require.NoError(t, <-done)
	// A zombie, which nobody has waited for, is gone as well.
	require.NoError(t, p.Wait(ctx))
	_, err := Identify(p.PID)
	require.ErrorIs(t, err, os.ErrNotExist)
	_ = cmd.Wait()
	require.NoError(t, p.Wait(ctx))
}

func TestFile(t *testing.T) {
	_, p := start(t)
	path := filepath.Join(t.TempDir(), "pid")
	_, err := Read(path)
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, Write(path, p))
	got, err := Read(path)
	require.NoError(t, err)
	require.Equal(t, p, got)
	require.NoError(t, os.WriteFile(path, []byte("12"), 0o600))
	_, err = Read(path)
	require.Error(t, err)
}
