package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/schemas/filesystem"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// asRoot runs a script as uid 0 inside.
func asRoot(t testing.TB, s *Sandbox, script string) (supervisor.Exit, string) {
	t.Helper()
	r, err := s.Supervisor().Run(within(t, 20*time.Second), supervisor.ProcessSpec{
		Argv: supervisor.Texts("/bin/sh", "-c", script), Identity: s.Payload(), Dir: "/",
		Env: supervisor.Texts("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME="+s.Home()), KillLeftovers: true,
	}, nil, 1<<20)
	require.NoError(t, err, "process 1 said: %s", s.lastWords())
	return r.Exit, string(r.Stdout) + string(r.Stderr)
}

func rootInside(s *Spec) {
	writable(s)
	s.Isolation.RootInside, s.Image, s.Resources.DiskBytes = true, "python", 64<<20
}

// Root inside: what installing software takes works, for root and through a setuid program.
func TestRootInside(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, rootInside)
	require.GreaterOrEqual(t, s.HostUID(), uint32(rangeFirst), "nobody on the host")
	helper := filepath.Join(t.TempDir(), "become")
	build := exec.Command("go", "build", "-o", helper, "./testdata/become")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))
	b, err := os.ReadFile(helper)
	require.NoError(t, err)
	_, err = s.Supervisor().Files(s.Payload()).Write(within(t, 30*time.Second), "/usr/bin/become", 0o755, strings.NewReader(string(b)))
	require.NoError(t, err, "files are touched with root's rights, too")

	exit, said := asRoot(t, s, `set -e
		id -u; echo $HOME; grep -E '^(NoNewPrivs|Seccomp):' /proc/self/status | tr -d '\t' | tr '\n' ' '; grep CapEff /proc/self/status | cut -f2
		mkdir -p /opt/pkg/bin /var/lib/pkg; echo hello > /opt/pkg/bin/tool; chmod 755 /opt/pkg/bin/tool; ln -s /opt/pkg/bin/tool /usr/bin/tool
		chown -R 100:100 /var/lib/pkg; stat -c '%u:%g' /var/lib/pkg; mv /etc/hostname /etc/hostname.old 2>/dev/null || true; rm /etc/passwd; echo root:x:0:0:::/bin/sh > /etc/passwd
		cp /usr/bin/env /tmp/env && mv /tmp/env /usr/bin/env; chmod 4755 /usr/bin/become; ls -l /usr/bin/become | cut -c1-10
		/usr/bin/become 1000 1000 sh -c 'id -u; touch /opt/x 2>&1 || echo refused; grep CapEff /proc/self/status | cut -f2; /usr/bin/become 0 0 sh -c "id -u; touch /opt/y && echo done"'
		/usr/bin/become 1000 1000 sleep 1000 & kill $!; echo killed; python3 -c 'import os; os.chroot("/"); print("chrooted")'`)
	require.Zero(t, exit.Code, said)
	want := uint64(0)
	for _, c := range capNumbers(Describe(Standard, s.Spec()).Capabilities) {
		want |= 1 << c
	}
	require.Equal(t, fmt.Sprintf("0\n/root\nNoNewPrivs:0 Seccomp:2 %016x\n100:100\n-rwsr-xr-x\n1000\ntouch: cannot touch '/opt/x': Permission denied\nrefused\n0000000000000000\n0\ndone\nkilled\nchrooted\n", want), said)

	// A user other than root is what it always was; there, uid 0 is refused without root inside.
	_, said = sh(t, s, "id -u; grep CapEff /proc/self/status | cut -f2; touch /usr/x 2>&1 || true")
	require.Equal(t, "1000\n0000000000000000\ntouch: cannot touch '/usr/x': Permission denied\n", said)
	plain := create(t, n)
	_, err = plain.Supervisor().Run(within(t, 30*time.Second), supervisor.ProcessSpec{Argv: supervisor.Texts("/bin/true")}, nil, 10)
	require.ErrorContains(t, err, "uid 0 is not for payload")
	_, _, err = plain.Supervisor().Files(supervisor.Identity{}).Read(within(t, 30*time.Second), "/etc/passwd", 0, -1)
	require.ErrorContains(t, err, "uid 0 is not for payload")
	require.NoError(t, s.Destroy(within(t, 30*time.Second)))
	require.NoError(t, plain.Destroy(within(t, 30*time.Second)))
	requireNothing(t, n)
}

// disturb tries, as root inside, all that could read, trace, replace, silence or end process 1.
const disturb = `
import ctypes, errno, fcntl, glob, os, resource, signal, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *args):
    r = libc.syscall(*args)
    print(name, "done" if r >= 0 else errno.errorcode[ctypes.get_errno()])
def attempt(name, f):
    try:
        f(); print(name, "done")
    except OSError as e:
        print(name, errno.errorcode[e.errno])
for again in range(5):
    for s in range(1, 65):
        for pid in (1, int(sorted(os.listdir("/proc/1/task"), key=int)[-1])):
            try: os.kill(pid, s)
            except OSError: pass
info = struct.pack("iii", signal.SIGSEGV, 0, -1) + bytes(116)
call("queue-segv", 129, 1, 11, info)
call("tgqueue-segv", 297, 1, 1, 11, info)
fd = os.pidfd_open(1)
call("pidfd-queue-segv", 424, fd, 11, info, 0)
call("pidfd-signal", 424, fd, 15, None, 0)
call("pidfd-getfd", 438, fd, 0, 0)
def fown():
    r, w = os.pipe()
    fcntl.fcntl(r, fcntl.F_SETOWN, 1)
    fcntl.fcntl(r, 10, 11)
attempt("setsig", fown)
call("prlimit", 302, 1, 7, struct.pack("QQ", 0, 0), None)
call("ptrace", 101, 16, 1, 0, 0)
call("seize", 101, 0x4206, 1, 0, 0)
buf = ctypes.create_string_buffer(16)
iov = struct.pack("QQ", ctypes.addressof(buf), 16)
call("vm-read", 310, 1, iov, ctypes.c_long(1), iov, ctypes.c_long(1), ctypes.c_long(0))
call("kcmp", 312, 1, os.getpid(), 0, 0, 0)
for f in ("mem", "environ", "maps", "auxv", "root", "cwd", "exe", "fd/0", "ns/user", "syscall", "stack", "fdinfo/0"):
    def look(f=f):
        if f in ("root", "cwd", "exe", "fd/0", "ns/user"): os.readlink("/proc/1/" + f)
        else: open("/proc/1/" + f, "rb").read(16)
    attempt(f, look)
for tid in os.listdir("/proc/1/task"):
    for f in ("mem", "environ"):
        try: open("/proc/1/task/%s/%s" % (tid, f), "rb").read(16); print("task", f, "done")
        except OSError: pass
try: open("/proc/1/oom_score_adj", "w").write("1000")
except OSError: pass
attempt("socket", lambda: socket.socket(socket.AF_UNIX).connect("/.weft/run/sock"))
print("run", os.listdir("/.weft/run"))
attempt("init", lambda: open("/.weft/init", "r+b"))
attempt("remount", lambda: os.chroot("/proc/1/root"))
call("mount", 165, b"x", b"/tmp", b"tmpfs", 0, 0)
call("umount", 166, b"/.weft/init", 2)
call("unshare", 272, 0x10000000)
call("bpf", 321, 0, 0, 0)
call("keyctl", 250, 0, -3, 0)
call("perf", 298, 0, 0, -1, -1, 0)
call("userfaultfd", 323, 0)
call("io_uring", 425, 8, 0)
call("clone3", 435, None, 0)
call("module", 175, 0, 0, 0)
call("sethostname", 170, b"x", 1)
attempt("af_alg", lambda: socket.socket(38, socket.SOCK_SEQPACKET, 0))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("mknod", lambda: os.mknod("/tmp/d", 0o60600, os.makedev(254, 0)))
attempt("sysctl", lambda: open("/proc/sys/kernel/core_pattern", "w"))
attempt("uid_map", lambda: os.write(os.open("/proc/self/uid_map", os.O_WRONLY), b"0 0 4294967295\n"))
attempt("kill-all", lambda: os.kill(-1, 0))
`

// Root inside can neither look into process 1 nor end it, and is nobody outside.
func TestRootInsideAndProcess1(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	for _, profile := range []string{"base", "python"} { // python may trace: the kernel's own refusal is what counts there
		s := create(t, n, rootInside, func(s *Spec) { s.Isolation.Seccomp = profile })
		require.NoError(t, s.WriteInput([]byte(disturb)))
		exit, said := asRoot(t, s, "python3 "+InputPath)
		require.Zero(t, exit.Code, said)
		got := map[string]string{}
		for line := range strings.Lines(said) {
			name, result, _ := strings.Cut(strings.TrimSpace(line), " ")
			got[name] = result
		}
		want := map[string]string{
			"queue-segv": "EPERM", "tgqueue-segv": "EPERM", "pidfd-queue-segv": "EPERM", "pidfd-signal": "done", "pidfd-getfd": "EPERM", "setsig": "EPERM",
			"prlimit": "EPERM", "ptrace": "EPERM", "seize": "EPERM", "vm-read": "EPERM", "kcmp": "EPERM",
			"mem": "EACCES", "environ": "EACCES", "maps": "EACCES", "auxv": "EACCES", "root": "EACCES", "cwd": "EACCES", "exe": "EACCES", "fd/0": "EACCES",
			"ns/user": "EACCES", "syscall": "EPERM", "stack": "EACCES", "fdinfo/0": "EACCES",
			"socket": "ENOENT", "run": "[]", "init": "EACCES", "remount": "EACCES",
			"mount": "EPERM", "umount": "EPERM", "unshare": "EPERM", "bpf": "EPERM", "keyctl": "EPERM", "perf": "EPERM", "userfaultfd": "EPERM",
			"io_uring": "EPERM", "clone3": "ENOSYS", "module": "EPERM", "sethostname": "EPERM", "af_alg": "EAFNOSUPPORT", "raw": "EPERM",
			"mknod": "EPERM", "sysctl": "EROFS", "uid_map": "EPERM", "kill-all": "done",
		}
		require.Equal(t, want, got, profile)
		select {
		case <-s.Gone():
			t.Fatal("process 1 was ended")
		default:
		}
		_, said = asRoot(t, s, `echo alive; for i in $(seq 300); do read v < /proc/1/oom_score_adj; [ "$v" -lt 500 ] && break; sleep 0.1; done; [ "$v" -lt 500 ] && echo low`)
		require.Equal(t, "alive\nlow\n", said, "and it set its score right again")
		s.Supervisor().Disconnect()
		_, said = asRoot(t, s, "echo again")
		require.Equal(t, "again\n", said, "it still finds the node's socket")
		require.NoError(t, s.Destroy(within(t, 30*time.Second)))
	}
	requireNothing(t, n)
}

// What process 1 does for somebody never goes by its own descriptors: one of them is the way to the node's socket.
func TestRootInsideCantUseProcess1sDescriptors(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, rootInside)
	exit, out := asRoot(t, s, "ln -s /proc/self/fd /tmp/fds")
	require.Zero(t, exit.Code, out)
	for fd := range 24 {
		for _, fds := range []string{"/proc/self/fd", "/proc/1/fd", "/tmp/fds"} {
			dir := fmt.Sprintf("%s/%d", fds, fd)
			r, err := s.Supervisor().Run(within(t, 20*time.Second), supervisor.ProcessSpec{
				Argv: supervisor.Texts("/bin/ls", "-a"), Identity: s.Payload(), Dir: supervisor.Text(dir), Env: supervisor.Texts("PATH=/bin"),
			}, nil, 1<<20)
			require.NoError(t, err)
			require.NotContains(t, string(r.Stdout), "sock", dir)
			c, err := s.Supervisor().DialAs(within(t, 20*time.Second), s.Payload(), dir+"/sock")
			if err == nil {
				_ = c.Close()
			}
			require.Error(t, err, dir)
		}
	}
	_, out = asRoot(t, s, "pwd") // in a directory that is there, all goes as ever
	require.Equal(t, "/\n", out)
}

// The workspace belongs to root where root is inside.
func TestRootInsideHasTheWorkspace(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	s := create(t, n, func(s *Spec) { s.Isolation.RootInside, s.Files = true, true })
	dir := tree(t, map[string]string{"a.txt": "hello\n"})
	require.NoError(t, s.MountWorkspace(filesystem.Prepared{Path: dir, UID: diskUID, GID: diskUID}, false))
	_, out := asRoot(t, s, "cd /workspace && stat -c %u . a.txt && echo more > b.txt && stat -c %u b.txt; touch /etc/x 2>&1")
	require.Equal(t, "0\n0\n0\ntouch: cannot touch '/etc/x': Read-only file system\n", out)
	require.EqualValues(t, diskUID, ownerOn(t, filepath.Join(dir, "b.txt")))
}

// Every place that can be written at all is bounded, in bytes and in files, for root inside and for the payload.
func TestEveryWritablePlaceIsBounded(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	// A file system is full, not the sandbox out of memory: each of those in memory is a sixteenth of it.
	const disk, memory = 8 << 20, 128 << 20
	for name, change := range map[string]func(*Spec){
		"standard": func(*Spec) {},
		"writable": func(s *Spec) { s.Isolation.WritableRoot, s.Isolation.RootInside = true, true },
	} {
		s := create(t, n, change, func(s *Spec) { s.Resources.DiskBytes, s.Resources.MemoryBytes = disk, memory })
		_, out := asRoot(t, s, `
			awk '$6 ~ /^rw/ {print $5}' /proc/self/mountinfo | sort -u | while read at; do
				case $at in /proc*|/sys*|/dev/pts) continue;; esac
				[ -d $at ] && mkdir $at/fill 2>/dev/null || continue
				head -c 40m /dev/zero > $at/fill/bytes 2>/dev/null && bytes=unbounded || bytes=$(( $(stat -c %s $at/fill/bytes 2>/dev/null || echo 0) >> 20 ))
				rm -rf $at/fill/bytes
				i=0; while [ $i -lt 5000 ] && { true > $at/fill/$i; } 2>/dev/null; do i=$((i+1)); done
				rm -rf $at/fill
				echo $at $bytes $i
			done`)
		places := 0
		for line := range strings.Lines(out) {
			var at string
			var mib, files int
			_, err := fmt.Sscanf(line, "%s %d %d", &at, &mib, &files)
			require.NoError(t, err, "%s: %s", name, line)
			require.LessOrEqual(t, mib, disk>>20+1, "%s: %s", name, line)
			require.Less(t, files, 5000, "%s: %s", name, line)
			places++
		}
		require.GreaterOrEqual(t, places, 4, "%s: %s", name, out)
		require.False(t, s.OutOfMemory(), name)
		require.NoError(t, s.Destroy(within(t, 30*time.Second)))
	}
}
