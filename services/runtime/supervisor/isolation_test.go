package supervisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/supervisor"
)

func TestPayloadIsKeptFromProcess1(t *testing.T) {
	b := newBox(t)
	for _, c := range []struct{ name, script, says string }{
		{"kill", "kill -9 1", "not permitted"},
		{"environment", "cat /proc/1/environ", "denied"},
		{"memory", "cat /proc/1/mem", "denied"},
		{"map", "cat /proc/1/maps", "denied"},
		{"descriptors", "ls /proc/1/fd", "denied"},
		{"root", "ls /proc/1/root/", "denied"},
		{"stack", "cat /proc/1/stack", "denied"},
		{"the node's socket", "ls /.weft/run", "denied"},
		{"the key", "cat /.weft/run/key", "denied"},
		{"its program", "echo x >/.weft/init", "Read-only"},
		{"oom score", "echo 1000 >/proc/1/oom_score_adj", "denied"},
		{"a group", "setpriv --groups 0 true", "not permitted"},
		{"to be root", "setpriv --reuid 0 true", "not permitted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			res := b.run(shell(c.script))
			require.NotZero(t, res.Exit.Code)
			require.Contains(t, string(res.Stderr), c.says)
		})
	}
	t.Run("ptrace", func(t *testing.T) {
		for _, request := range []int{unix.PTRACE_ATTACH, unix.PTRACE_SEIZE} {
			require.Equal(t, fmt.Sprint(int(unix.EPERM)), b.output("/payload", "syscall", fmt.Sprint(unix.SYS_PTRACE), fmt.Sprint(request), "1"))
		}
	})
	t.Run("the socket, had it the path", func(t *testing.T) {
		require.Contains(t, b.output("/payload", "socket", "/.weft/run/sock", b.id), "permission denied")
	})
	t.Run("privileges", func(t *testing.T) {
		status := b.output("cat", "/proc/self/status")
		for _, want := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
			"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2", "Uid:\t1000\t1000\t1000\t1000"} {
			require.Contains(t, status, want)
		}
	})
	t.Run("process 1 keeps three capabilities and is under its own filter", func(t *testing.T) {
		status := b.output("cat", "/proc/1/status")
		for _, want := range []string{"CapInh:\t0000000000000000", "CapPrm:\t00000000000000e0", "CapEff:\t00000000000000e0",
			"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
			require.Contains(t, status, want)
		}
		require.Zero(t, b.run(shell(`for t in /proc/1/task/*/status; do grep -q 'CapEff:.00000000000000e0' $t && grep -q 'Seccomp:.2' $t || exit 1; done`)).Exit.Code)
	})
	t.Run("nothing of process 1 is inherited", func(t *testing.T) {
		require.Equal(t, "0\n1\n2\n3", b.output("ls", "/proc/self/fd"), "and the directory itself")
	})
	t.Run("the kernel ends payload before process 1", func(t *testing.T) {
		require.Equal(t, "500", b.output("cat", "/proc/self/oom_score_adj"))
		// Process 1 takes its own back right after it has made the process that looks.
		require.Equal(t, "0", b.output("/bin/sh", "-c", `for i in $(seq 100); do read v < /proc/1/oom_score_adj; [ "$v" = 0 ] && break; sleep 0.05; done; echo $v`))
	})
}

func TestKeyIsGoneBeforePayloadRuns(t *testing.T) {
	b := newBox(t)
	run := filepath.Join(b.dir, b.id, "run")
	_, err := os.Stat(filepath.Join(run, "key"))
	require.ErrorIs(t, err, os.ErrNotExist)
	info, err := os.Stat(run)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
	key, err := os.Stat(filepath.Join(b.dir, b.id, "key"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o400), key.Mode().Perm())
	require.NoError(t, b.server.Remove(b.id))
	_, err = os.Stat(run)
	require.ErrorIs(t, err, os.ErrNotExist)
	known, err := b.server.Known()
	require.NoError(t, err)
	require.Empty(t, known)
}

func TestSystemCallFilter(t *testing.T) {
	b := newBox(t)
	eperm, enosys := int(unix.EPERM), int(unix.ENOSYS)
	for _, c := range []struct {
		name string
		call []int
		want int
	}{
		{"AF_ALG", []int{unix.SYS_SOCKET, unix.AF_ALG, unix.SOCK_SEQPACKET}, int(unix.EAFNOSUPPORT)},
		{"AF_ALG with high bits", []int{unix.SYS_SOCKET, 1<<40 | unix.AF_ALG, unix.SOCK_SEQPACKET}, int(unix.EAFNOSUPPORT)},
		{"AF_VSOCK", []int{unix.SYS_SOCKET, unix.AF_VSOCK, unix.SOCK_STREAM}, int(unix.EAFNOSUPPORT)},
		{"AF_PACKET", []int{unix.SYS_SOCKET, unix.AF_PACKET, unix.SOCK_RAW}, int(unix.EAFNOSUPPORT)},
		{"AF_INET", []int{unix.SYS_SOCKET, unix.AF_INET, unix.SOCK_STREAM}, 0},
		{"keyctl", []int{unix.SYS_KEYCTL}, eperm},
		{"add_key", []int{unix.SYS_ADD_KEY}, eperm},
		{"request_key", []int{unix.SYS_REQUEST_KEY}, eperm},
		{"bpf", []int{unix.SYS_BPF}, eperm},
		{"userfaultfd", []int{unix.SYS_USERFAULTFD}, eperm},
		{"io_uring_setup", []int{unix.SYS_IO_URING_SETUP, 1}, eperm},
		{"io_uring_enter", []int{unix.SYS_IO_URING_ENTER}, eperm},
		{"unshare", []int{unix.SYS_UNSHARE, unix.CLONE_NEWUSER}, eperm},
		{"setns", []int{unix.SYS_SETNS}, eperm},
		{"mount", []int{unix.SYS_MOUNT}, eperm},
		{"umount", []int{unix.SYS_UMOUNT2}, eperm},
		{"fsopen", []int{unix.SYS_FSOPEN}, eperm},
		{"open_tree", []int{unix.SYS_OPEN_TREE}, eperm},
		{"move_mount", []int{unix.SYS_MOVE_MOUNT}, eperm},
		{"pivot_root", []int{unix.SYS_PIVOT_ROOT}, eperm},
		{"clone with a user namespace", []int{unix.SYS_CLONE, unix.CLONE_NEWUSER | int(unix.SIGCHLD)}, eperm},
		{"clone3", []int{unix.SYS_CLONE3}, enosys},
		{"unknown", []int{999}, enosys},
		{"beyond the table", []int{0x3fffffff}, enosys},
		{"x32", []int{0x40000000 + unix.SYS_GETPID}, enosys},
		{"perf_event_open", []int{unix.SYS_PERF_EVENT_OPEN}, eperm},
		{"ptrace, even of itself: base does not debug", []int{unix.SYS_PTRACE, unix.PTRACE_TRACEME}, eperm},
		{"getpid", []int{unix.SYS_GETPID}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"/payload", "syscall"}
			for _, a := range c.call {
				args = append(args, fmt.Sprint(a))
			}
			require.Equal(t, fmt.Sprint(c.want), b.output(args...))
		})
	}
}

// TestOnlyProcess1SpeaksOnTheSocket connects from outside, with root's permissions, in every wrong way.
func TestOnlyProcess1SpeaksOnTheSocket(t *testing.T) {
	b := newBox(t)
	sock := filepath.Join(b.dir, b.id, "run", "sock")
	for name, id := range map[string]string{"right id, no key": b.id, "another id": strings.Repeat("0", 20)} {
		t.Run(name, func(t *testing.T) {
			for _, uid := range []int{0, firstID} {
				said := speak(t, sock, id, uid)
				require.True(t, strings.HasPrefix(said, "refused: 0"), said)
			}
			require.Equal(t, "still here", b.output("echo", "still here"))
		})
	}
	require.True(t, b.Connected())
}

// speak runs payload's socket mode on the host as uid.
func speak(t *testing.T, sock, id string, uid int) string {
	t.Helper()
	c := asHostUser(payloadBinary, uid, "socket", sock, id)
	out, err := c.CombinedOutput()
	require.NoError(t, err, string(out))
	return string(out)
}

func TestWaitConnectedGivesUp(t *testing.T) {
	s, err := supervisor.NewServer(filepath.Join(t.TempDir(), strings.Repeat("deep/", 60)), supervisor.Options{})
	require.NoError(t, err)
	box, err := s.Add(strings.Repeat("a", 20), supervisor.Owner{})
	require.NoError(t, err)
	require.Error(t, box.WaitConnected(within(t, 50*time.Millisecond)))
	done := make(chan error, 1)
	go func() { done <- box.WaitConnected(within(t, 10*time.Second)) }()
	require.NoError(t, s.Close())
	require.Error(t, <-done, "closing the server ends the wait")
	_, err = s.Add(strings.Repeat("b", 20), supervisor.Owner{})
	require.Error(t, err)
}
