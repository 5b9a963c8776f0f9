package sandbox

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/secrets"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// What a payload finds, asked from inside.
func TestWhatAPayloadSees(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	for _, c := range []struct {
		name, script, want string
	}{
		{"its user namespace is its range", "cat /proc/self/uid_map", fmt.Sprintf("%10d %10d %10d\n", 0, s.ids.first(), rangeSize)},
		{"no capability", "grep -c '^Cap.*:[[:space:]]0000000000000000$' /proc/self/status", "5\n"},
		{"no new privileges, and a filter", "grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\\t'", "NoNewPrivs:1\nSeccomp:2\n"},
		{"it is the payload", "id -u; id -g", "1000\n1000\n"},
		{"no other network than loopback", "sed -n 's/ *\\([^:]*\\):.*/\\1/p' /proc/net/dev; grep -c . /proc/net/route", "lo\n1\n"},
		{"the loopback interface is up", "grep -c lo /proc/net/if_inet6", "1\n"},
		{"the processors and nothing else of the machine", "find /sys -path /sys/devices/system/cpu -prune -o -print; [ $(cat /sys/devices/system/cpu/online | wc -l) = 1 ] && echo known", "/sys\n/sys/devices\n/sys/devices/system\nknown\n"},
		{"its own processes only", "ls /proc | grep -c '^[0-9]*$' | (read n; [ $n -lt 8 ] && echo few)", "few\n"},
		{"process 1 is closed to it", "cat /proc/1/environ 2>&1 >/dev/null | grep -o 'Permission denied'; ls -l /proc/1/fd 2>&1 >/dev/null | grep -o 'Permission denied' | head -1", "Permission denied\nPermission denied\n"},
		{"it can't kill process 1", "kill -9 1 2>&1 | grep -o 'not permitted'", "not permitted\n"},
		{"no core dumps, bounded files", "ulimit -c; ulimit -Hn | (read n; [ $n -le 65536 ] && echo bounded)", "0\nbounded\n"},
		{"its host name", "cat /proc/sys/kernel/hostname; cat /etc/hosts | head -1", "planner\n127.0.0.1\tlocalhost planner\n"},
		{"a home that is its own", "cd $HOME && touch x && ls", "x\n"},
		{"no secrets that it was not given", "ls -A /run/secrets; ls -ld /run/secrets | cut -c1-10", "dr-x------\n"},
		{"sockets work", "ls /.weft/run 2>&1 | grep -o 'Permission denied'", "Permission denied\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, out := sh(t, s, c.script)
			require.Equal(t, c.want, out)
		})
	}
}

// syscalls tries system calls and prints the name of what each is refused with.
const syscalls = `
import ctypes, errno, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    r = libc.syscall(*args)
    print(name, "done" if r >= 0 else errno.errorcode[ctypes.get_errno()])
def attempt(name, f):
    try:
        f(); print(name, "done")
    except OSError as e:
        print(name, errno.errorcode[e.errno])
call("mount", 165, b"x", b"/tmp", b"tmpfs", 0, 0)
call("umount", 166, b"/tmp", 2)
call("open_tree", 428, -100, b"/tmp", 1)
call("fsopen", 430, b"tmpfs", 0)
call("unshare-user", 272, 0x10000000)
call("unshare-net", 272, 0x40000000)
call("clone-user", 56, 0x10000000 | 17, 0, 0, 0, 0)
call("setns", 308, os.open("/proc/self/ns/net", os.O_RDONLY), 0)
call("ptrace-init", 101, 16, 1, 0, 0)
call("bpf", 321, 0, 0, 0)
call("keyctl", 250, 0, -3, 0)
call("init_module", 175, 0, 0, 0)
call("perf_event_open", 298, 0, 0, -1, -1, 0)
call("userfaultfd", 323, 0)
call("io_uring_setup", 425, 8, 0)
call("reboot", 169, 0xfee1dead, 672274793, 0, 0)
call("unknown", 999)
attempt("setuid", lambda: os.setuid(0))
attempt("setgroups", lambda: os.setgroups([0]))
attempt("mknod", lambda: os.mknod("/tmp/d", 0o60600, os.makedev(254, 0)))
attempt("kill-init", lambda: os.kill(1, 9))
attempt("raw-socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet-socket", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3))
attempt("af_alg", lambda: socket.socket(38, socket.SOCK_SEQPACKET, 0))
attempt("connect", lambda: socket.create_connection(("192.0.2.1", 80), 2))
attempt("chroot", lambda: os.chroot("/tmp"))
attempt("niceness", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
`

func TestWhatAPayloadMayNotCall(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, func(s *Spec) { s.Image = "python" })
	require.NoError(t, s.WriteInput([]byte(syscalls)))
	exit, out := sh(t, s, "python3 "+InputPath)
	require.Zero(t, exit.Code, out)
	got := map[string]string{}
	for line := range strings.Lines(out) {
		name, result, _ := strings.Cut(strings.TrimSpace(line), " ")
		got[name] = result
	}
	require.Equal(t, map[string]string{
		"mount": "EPERM", "umount": "EPERM", "open_tree": "EPERM", "fsopen": "EPERM",
		"unshare-user": "EPERM", "unshare-net": "EPERM", "clone-user": "EPERM", "setns": "EPERM",
		"ptrace-init": "EPERM", "bpf": "EPERM", "keyctl": "EPERM", "init_module": "EPERM",
		"perf_event_open": "EPERM", "userfaultfd": "EPERM", "io_uring_setup": "EPERM", "reboot": "EPERM", "unknown": "ENOSYS",
		"setuid": "EPERM", "setgroups": "EPERM", "mknod": "EPERM", "kill-init": "EPERM",
		"raw-socket": "EPERM", "packet-socket": "EAFNOSUPPORT", "af_alg": "EAFNOSUPPORT", "connect": "ENETUNREACH", "chroot": "EPERM", "niceness": "EACCES",
	}, got)
}

func TestWhatAPayloadMayNotTouch(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	for _, c := range []struct{ name, script, says string }{
		{"write the root", "touch /x", "Read-only file system"},
		{"write /etc", "touch /etc/x", "Read-only file system"},
		{"write weft-init", "echo >> /.weft/init", "Read-only file system|Permission denied"},
		{"change kernel settings", "echo 1 > /proc/sys/kernel/core_pattern", "Read-only file system|Permission denied"},
		{"see the firmware", "ls -A /sys/firmware 2>/dev/null | wc -l", "^0\n$"},
		{"see disks", "ls -A /sys/block /sys/dev 2>/dev/null | grep -v : | wc -w", "^0\n$"},
		{"see the kernel's messages", "dmesg", "not permitted|Permission denied"},
		{"see the kernel's command line", "cat /proc/cmdline | wc -c", "^0\n$"},
		{"find a disk in /dev", "ls -l /dev | grep -c ^b", "^0\n$"},
		{"walk to the host", "ls /proc/1/root", "Permission denied"},
		{"read process 1's memory", "cat /proc/1/mem", "Permission denied"},
		{"give itself another range", "echo 0 0 4294967295 > /proc/self/uid_map", "not permitted|Permission denied|I/O error"},
		{"hide from the OOM killer", "echo -1000 > /proc/self/oom_score_adj", "Permission denied|I/O error"},
		{"run what is in /dev/shm", "cp /bin/true /dev/shm/t && /dev/shm/t", "Permission denied"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, out := sh(t, s, "{ "+c.script+"; } 2>&1")
			require.Regexp(t, c.says, out)
		})
	}
}

// Two sandboxes of two tenants: neither sees the other's processes, files, sockets or host ids.
func TestTwoSandboxesAreApart(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	a := create(t, n, func(s *Spec) { s.Image = "python" })
	b := create(t, n, func(s *Spec) { s.Tenant, s.Principal = "bolt", "spy" })
	require.NotEqual(t, a.HostUID(), b.HostUID())
	require.NoError(t, a.WriteSecrets([]secrets.File{{Name: "token", Value: []byte("hunter2")}}))

	p, err := a.Supervisor().Start(within(t, 10*time.Second), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/bin/sh", "-c", "echo mine > /tmp/mine; echo mine > /dev/shm/mine; exec python3 -m http.server --bind 127.0.0.1 5000"), Identity: Payload(),
		Env: supervisor.Texts("PATH=/bin:/usr/bin"),
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Close()) }()
	require.Eventually(t, func() bool { _, out := sh(t, a, "cat /tmp/mine"); return out == "mine\n" }, time.Minute, 20*time.Millisecond)

	_, out := sh(t, b, "ls -A /tmp /dev/shm /run/secrets /workspace; cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'http.serve[r]'")
	require.Equal(t, "/dev/shm:\n\n/run/secrets:\n\n/tmp:\n\n/workspace:\n0\n", out)
	_, out = sh(t, b, "bash -c ': < /dev/tcp/127.0.0.1/5000' 2>&1; cat /proc/net/unix | grep -c "+n.base())
	require.Contains(t, out, "refused")
	require.True(t, strings.HasSuffix(out, "0\n"), out)
}

func TestSecretsAndInput(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n)
	require.NoError(t, s.WriteSecrets([]secrets.File{{Name: "token", Value: []byte("one")}, {Name: "key.pem", Value: []byte("pem")}}))
	require.NoError(t, s.WriteSecrets([]secrets.File{{Name: "token", Value: []byte("hunter2")}}), "again replaces")
	require.NoError(t, s.WriteInput([]byte(`{"n":1}`)))
	_, out := sh(t, s, "cat /run/secrets/token; echo; ls -ln /run/secrets | tail -n +2 | cut -d' ' -f1,3,4 ; cat "+InputPath)
	require.Equal(t, "hunter2\n-r-------- 1000 1000\n-r-------- 1000 1000\n{\"n\":1}", out)
	_, out = sh(t, s, "rm -f /run/secrets/token 2>&1; cp /bin/true /run/secrets/x 2>&1; echo > "+InputPath)
	require.Contains(t, out, "Read-only file system")
	// In memory, and nowhere else.
	fstype, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	require.Regexp(t, s.path("memory")+` .* - tmpfs tmpfs `, string(fstype))
	require.NoError(t, s.Keep([]byte("kept")))
	kept, err := s.Kept()
	require.NoError(t, err)
	require.Equal(t, "kept", string(kept))
	_, out = sh(t, s, "cat /run/secrets/../kept /run/secrets/.kept /run/kept 2>&1; ls -a /run/secrets | wc -l")
	require.NotContains(t, out, "kept\n4")
	require.True(t, strings.HasSuffix(out, "\n4\n"), out)
	for _, bad := range []string{"../x", "a/b", "", ".", ".."} {
		require.Error(t, s.WriteSecrets([]secrets.File{{Name: bad, Value: []byte("v")}}), bad)
	}
}
