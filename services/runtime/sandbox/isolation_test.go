package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// custom is a level stated in every field.
func custom(s *Spec) {
	s.Level = workspace.LevelCustom
	s.Isolation.Custom = &workspace.Custom{
		Masked: []string{"/proc/meminfo", "/usr/share"}, ReadOnly: []string{"/proc/self/comm", "/proc/net"},
		Tmp: 8 << 20, Home: 12 << 20, Shm: 4 << 20,
	}
	s.Resources = workspace.Resources{PIDs: 50, MemoryBytes: 96 << 20, DiskBytes: 32 << 20, CPUWeight: 250, OpenFiles: 777, IOReadBPS: 50 << 20}
}

// What inspect says is what is found inside.
func TestWhatInspectSaysIsSo(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	for name, change := range map[string]func(*Spec){
		"standard": func(*Spec) {},
		"custom":   custom,
		"root": func(s *Spec) {
			custom(s)
			rootInside(s)
			s.Isolation.Custom.Capabilities = []string{"CAP_CHOWN", "CAP_NET_RAW"}
		},
	} {
		s := create(t, n, change)
		d, err := s.Isolation()
		require.NoError(t, err)
		// Each line: a thing that is said, as it looks from inside.
		var want, script []string
		expect := func(what, command string) {
			want, script = append(want, what), append(script, command)
		}
		bits := uint64(0)
		for _, c := range capNumbers(d.Capabilities) {
			bits |= 1 << c
		}
		nnp := 0
		if d.NoNewPrivileges {
			nnp = 1
		}
		expect(fmt.Sprintf("CapInh 0000000000000000 CapPrm %016x CapEff %016x CapBnd %016x CapAmb 0000000000000000 NoNewPrivs %d Seccomp 2 ", bits, bits, bits, nnp),
			`grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status | tr -d ':' | tr '\t\n' '  '`)
		expect(fmt.Sprint(d.User), "id -u")
		expect(fmt.Sprintf("0 %d %d", d.FirstID, d.IDs), "cat /proc/self/uid_map | xargs echo")
		for _, r := range d.Rlimits {
			flag := map[string]string{"nofile": "n", "core": "c"}[r.Name]
			expect(fmt.Sprint(r.Hard), "ulimit -H"+flag)
		}
		for _, m := range d.Tmpfs {
			expect(fmt.Sprintf("%d %d", m.Bytes, m.Files), fmt.Sprintf(`stat -f -c '%%b %%S %%c' %s | (read b s c; echo $((b*s)) $c)`, m.Path))
		}
		for _, p := range d.Masked {
			expect("empty", fmt.Sprintf(`[ -e %[1]s ] || echo empty; [ -d %[1]s ] && { [ -z "$(ls -A %[1]s)" ] && echo empty; }; [ -e %[1]s ] && ! [ -d %[1]s ] && { [ -s %[1]s ] || [ -z "$(cat %[1]s)" ] && echo empty; }`, p))
		}
		root := "no"
		if d.WritableRoot {
			root = "yes"
		}
		expect(root, `grep -q ' / / rw' /proc/self/mountinfo && echo yes || echo no`)
		expect("lo", `sed -n 's/ *\([^:]*\):.*/\1/p' /proc/net/dev`)
		_, out := asRoot(t, s, strings.Join(script, "\necho\n")+"\n")
		got := strings.Fields(strings.ReplaceAll(out, "\n", " "))
		require.Equal(t, strings.Fields(strings.Join(want, " ")), got, "%s: %s", name, out)

		limits, err := s.group.Limits()
		require.NoError(t, err)
		require.Equal(t, s.limits(Standard), limits, name)
		require.Equal(t, d.Limits, s.Spec().Resources)
		if read, _ := n.cgroups.LimitsIO(); read && d.Limits.IOReadBPS > 0 {
			found, err := filepath.Glob("/sys/fs/cgroup/*" + s.group.Path() + "/*io.throttle.read_bps_device")
			require.NoError(t, err)
			more, err := filepath.Glob("/sys/fs/cgroup" + s.group.Path() + "/io.max")
			require.NoError(t, err)
			said := ""
			for _, f := range append(found, more...) {
				b, err := os.ReadFile(f)
				require.NoError(t, err)
				said += string(b)
			}
			require.Contains(t, said, fmt.Sprint(d.Limits.IOReadBPS), name)
		}
		require.NoError(t, s.Destroy(within(t, 30*time.Second)))
	}
	requireNothing(t, n)
}

// profiled are calls on which the profiles differ, and some that all deny.
const profiled = `
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for name, args in {"ptrace": (101, 0x4206, 999999, 0, 0), "vm_readv": (310, 999999, None, 1, None, 1, 0), "semget": (64, 0x77, 1, 0), "shmget": (29, 0x77, 4096, 0),
    "mq_unlink": (241, b"none"), "bpf": (321, 0, 0, 0), "keyctl": (250, 0, -3, 0), "add_key": (248, b"user", b"x", b"y", 1, -3), "userfaultfd": (323, 0), "io_uring_setup": (425, 8, 0), "unshare": (272, 0),
    "mount": (165, b"x", b"/tmp", b"tmpfs", 0, 0), "perf_event_open": (298, 0, 0, -1, -1, 0), "clone3": (435, None, 0), "af_alg": (41, 38, 5, 0), "kexec_load": (246, 0, 0, 0, 0)}.items():
    r = libc.syscall(*args)
    print(name, "done" if r >= 0 else errno.errorcode[ctypes.get_errno()])
`

// A language's profile allows what its tools need, and no profile what all deny.
func TestProfilesOfSystemCalls(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	always := map[string]string{"bpf": "EPERM", "keyctl": "EPERM", "add_key": "EPERM", "userfaultfd": "EPERM", "io_uring_setup": "EPERM", "unshare": "EPERM", "mount": "EPERM",
		"perf_event_open": "EPERM", "clone3": "ENOSYS", "af_alg": "EAFNOSUPPORT", "kexec_load": "EPERM"}
	for profile, own := range map[string]map[string]string{
		"":                      {"ptrace": "EPERM", "vm_readv": "EPERM", "semget": "ENOENT", "shmget": "ENOENT", "mq_unlink": "ENOENT"},
		workspace.SeccompPython: {"ptrace": "ESRCH", "vm_readv": "EINVAL", "semget": "EPERM", "shmget": "ENOENT", "mq_unlink": "ENOENT"},
		workspace.SeccompNode:   {"ptrace": "EPERM", "vm_readv": "EPERM", "semget": "EPERM", "shmget": "EPERM", "mq_unlink": "EPERM"},
	} {
		s := create(t, n, func(s *Spec) { s.Image, s.Isolation.Seccomp = "python", profile })
		require.NoError(t, s.WriteInput([]byte(profiled)))
		exit, out := sh(t, s, "python3 "+InputPath)
		require.Zero(t, exit.Code, out)
		got := map[string]string{}
		for line := range strings.Lines(out) {
			call, result, _ := strings.Cut(strings.TrimSpace(line), " ")
			got[call] = result
		}
		for call, result := range always {
			own[call] = result
		}
		require.Equal(t, own, got, "profile %q", profile)
		require.NoError(t, s.Destroy(within(t, 30*time.Second)))
	}
}

// What would weaken a level is refused by the node itself, whatever the manager let through.
func TestIsolationThatIsRefused(t *testing.T) {
	n := newNode(t, machine.Engine(t))
	for what, change := range map[string]func(*Spec){
		"profile":                   func(s *Spec) { s.Isolation.Seccomp = "none" },
		"custom without the level":  func(s *Spec) { s.Isolation.Custom = &workspace.Custom{} },
		"the level without custom":  func(s *Spec) { s.Level = workspace.LevelCustom },
		"capability":                func(s *Spec) { custom(s); rootInside(s); s.Isolation.Custom.Capabilities = []string{"CAP_SYS_ADMIN"} },
		"tracing":                   func(s *Spec) { custom(s); rootInside(s); s.Isolation.Custom.Capabilities = []string{"CAP_SYS_PTRACE"} },
		"capability without root":   func(s *Spec) { custom(s); s.Isolation.Custom.Capabilities = []string{"CAP_CHOWN"} },
		"a path that leads nowhere": func(s *Spec) { custom(s); s.Isolation.Custom.Masked = []string{"etc"} },
	} {
		spec := testSpec()
		change(&spec)
		_, err := n.Create(within(t, 30*time.Second), spec)
		require.True(t, fault.Is(err, fault.Invalid), "%s: %v", what, err)
	}
	requireNothing(t, n)
}
