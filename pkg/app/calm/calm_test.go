package calm

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Of one thread, not the first, the timers are late; of the others, and of children, they are as always.
func TestMonitor(t *testing.T) {
	tid, err := monitor("/proc/self/task")
	require.NoError(t, err)
	require.NotEqual(t, os.Getpid(), tid)
	entries, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	require.Greater(t, len(entries), 2, "there are more threads than those two")
	if os.Geteuid() != 0 {
		require.ErrorIs(t, Monitor(Slack), os.ErrPermission)
		return
	}
	require.NoError(t, Monitor(Slack))
	b, err := os.ReadFile("/proc/" + strconv.Itoa(tid) + "/timerslack_ns")
	require.NoError(t, err)
	require.Equal(t, strconv.FormatInt(Slack.Nanoseconds(), 10), strings.TrimSpace(string(b)))
	// A child is started by another thread, and has the timers that everybody has.
	out, err := exec.Command("cat", "/proc/self/timerslack_ns").Output()
	require.NoError(t, err)
	require.Equal(t, strconv.FormatInt((50*time.Microsecond).Nanoseconds(), 10), strings.TrimSpace(string(out)))
}
