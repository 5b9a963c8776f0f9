package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestFiltersAreFresh compares what is checked in with what the generator makes now.
func TestFiltersAreFresh(t *testing.T) {
	for _, a := range architectures {
		want, err := generate(a)
		require.NoError(t, err)
		have, err := os.ReadFile(filepath.Join("..", fileName(a)))
		require.NoError(t, err)
		require.Equal(t, string(want), string(have), "run go generate in services/runtime/weftinit/seccomp")
	}
}

// filter interprets a program on the virtual machine of golang.org/x/net/bpf, which knows nothing of
// ours. It reads packets in big-endian order, so seccomp_data is laid out for it that way.
type filter struct {
	t    *testing.T
	vm   *bpf.VM
	a    architecture
	nums map[string]uint32
}

func newFilter(t *testing.T, a architecture, pr profile, root bool) *filter {
	t.Helper()
	nums, err := systemCalls(a)
	require.NoError(t, err)
	p, err := newPolicy(a, nums, pr, root)
	require.NoError(t, err)
	var raw []bpf.Instruction
	for _, i := range p.compile() {
		raw = append(raw, bpf.RawInstruction{Op: i.code, Jt: i.jt, Jf: i.jf, K: i.k}.Disassemble())
	}
	vm, err := bpf.NewVM(raw)
	require.NoError(t, err)
	return &filter{t, vm, a, nums}
}

func (f *filter) run(arch, number uint32, args ...uint64) uint32 {
	f.t.Helper()
	data := make([]byte, 64)
	binary.BigEndian.PutUint32(data[offsetNumber:], number)
	binary.BigEndian.PutUint32(data[offsetArch:], arch)
	for i, a := range args {
		binary.BigEndian.PutUint32(data[offsetArgs+8*i:], uint32(a))
		binary.BigEndian.PutUint32(data[offsetArgs+8*i+4:], uint32(a>>32))
	}
	n, err := f.vm.Run(data)
	require.NoError(f.t, err)
	return uint32(n)
}

func (f *filter) call(name string, args ...uint64) uint32 {
	f.t.Helper()
	n, ok := f.nums[name]
	require.True(f.t, ok, name)
	return f.run(f.a.audit, n, args...)
}

// each runs f for every filter there is.
func each(t *testing.T, f func(t *testing.T, a architecture, pr profile, root bool)) {
	for _, a := range architectures {
		for _, pr := range profiles {
			for _, root := range []bool{false, true} {
				t.Run(a.goarch+" "+pr.variant(root), func(t *testing.T) { f(t, a, pr, root) })
			}
		}
	}
}

func TestFilter(t *testing.T) {
	each(t, func(t *testing.T, a architecture, pr profile, root bool) {
		f := newFilter(t, a, pr, root)
		eperm, enosys, family := retErrno(unix.EPERM), retErrno(unix.ENOSYS), retErrno(unix.EAFNOSUPPORT)

		for _, name := range []string{"read", "write", "openat", "execve", "futex", "epoll_pwait", "kill", "setuid", "setgid",
			"setgroups", "setfsuid", "capset", "prctl", "wait4", "waitid", "pidfd_open", "pidfd_send_signal", "prlimit64", "fcntl", "seccomp",
			"memfd_create", "statx", "close_range", "faccessat2", "rseq"} {
			require.EqualValues(t, retAllow, f.call(name), name)
		}
		for _, name := range denied {
			if _, ok := f.nums[name]; ok && !(root && name == "chroot") {
				require.Equal(t, eperm, f.call(name), name)
			}
		}
		for _, w := range pr.without {
			for _, name := range w.calls {
				if _, ok := f.nums[name]; ok {
					require.Equal(t, eperm, f.call(name), name)
				}
			}
		}
		if pr.name == "python" {
			require.EqualValues(t, retAllow, f.call("ptrace"))
			require.EqualValues(t, retAllow, f.call("process_vm_writev"))
		}
		require.Equal(t, enosys, f.call("clone3"))

		for domain := range uint64(64) {
			want := family
			switch domain {
			case unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK:
				want = retAllow
			}
			require.Equal(t, want, f.call("socket", domain, unix.SOCK_STREAM), "socket family %d", domain)
			require.Equal(t, family, f.call("socket", domain|1<<32), "with a high bit set")
		}
		require.Equal(t, family, f.call("socket", ^uint64(0)))

		require.EqualValues(t, retAllow, f.call("clone", unix.CLONE_VM|unix.CLONE_VFORK|uint64(unix.SIGCHLD)))
		for bit := range 64 {
			want := uint32(retAllow)
			switch uint64(1) << bit {
			case unix.CLONE_NEWNS, unix.CLONE_NEWUTS, unix.CLONE_NEWIPC, unix.CLONE_NEWUSER, unix.CLONE_NEWPID,
				unix.CLONE_NEWNET, unix.CLONE_NEWCGROUP:
				want = eperm
			}
			require.Equal(t, want, f.call("clone", 1<<bit), "clone flag 1<<%d", bit)
		}
		for value, want := range map[uint64]uint32{0: retAllow, 8: retAllow, 0x20000: retAllow, 0x20008: retAllow, 0xffffffff: retAllow,
			0x0040000: eperm, 1: eperm, 0xffffffffffffffff: eperm, 1 << 32: eperm} {
			require.Equal(t, want, f.call("personality", value), "personality %#x", value)
		}
	})
}

// With root inside the calls are closed that the kernel would let uid 0 use against process 1.
func TestRootIsKeptFromProcess1(t *testing.T) {
	each(t, func(t *testing.T, a architecture, pr profile, root bool) {
		f := newFilter(t, a, pr, root)
		closed := uint32(retAllow)
		if root {
			closed = retErrno(unix.EPERM)
		}
		require.Equal(t, closed, f.call("rt_sigqueueinfo", 1, uint64(unix.SIGSEGV)))
		require.Equal(t, closed, f.call("rt_tgsigqueueinfo", 1, 1, uint64(unix.SIGSEGV)))
		require.Equal(t, closed, f.call("pidfd_send_signal", 3, uint64(unix.SIGSEGV), 1<<40))
		require.EqualValues(t, retAllow, f.call("pidfd_send_signal", 3, uint64(unix.SIGTERM), 0))
		require.Equal(t, closed, f.call("fcntl", 3, unix.F_SETSIG, uint64(unix.SIGSEGV)))
		require.Equal(t, closed, f.call("fcntl", 3, unix.F_SETSIG|1<<32, uint64(unix.SIGSEGV)), "the kernel drops the high bits")
		require.EqualValues(t, retAllow, f.call("fcntl", 3, unix.F_SETOWN, 1))
		require.Equal(t, closed, f.call("prlimit64", 1))
		require.EqualValues(t, retAllow, f.call("prlimit64", 0))
	})
}

// TestEveryNumber compares the program's answer on every number with the policy it was made from.
func TestEveryNumber(t *testing.T) {
	each(t, func(t *testing.T, a architecture, pr profile, root bool) {
		f := newFilter(t, a, pr, root)
		p, err := newPolicy(a, f.nums, pr, root)
		require.NoError(t, err)
		for n := range uint32(2000) {
			want := retErrno(unix.ENOSYS)
			act, known := p.actions[n]
			if known {
				want = act.result
			}
			if p.names[n] == "fcntl" && root { // any command but one
				want = retAllow
			}
			got := f.run(a.audit, n, ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0))
			require.Equal(t, want, got, "%s: %d %s", a.goarch, n, p.names[n])
		}
		for _, n := range []uint32{0x3fffffff, 0x40000000, 0x40000001, 0x7fffffff, 0x80000000, 0xffffffff} {
			require.Equal(t, retErrno(unix.ENOSYS), f.run(a.audit, n), "%s: %#x", a.goarch, n)
		}
	})
}

func TestOtherArchitecturesAreKilled(t *testing.T) {
	for _, a := range architectures {
		f := newFilter(t, a, profiles[0], false)
		for _, arch := range []uint32{0, 0x40000003 /* i386 */, 0x40000028 /* arm */, 0xc000003e, 0xc00000b7, 0xffffffff} {
			want := uint32(retKill)
			if arch == a.audit {
				want = retAllow
			}
			require.Equal(t, want, f.run(arch, f.nums["read"]), fmt.Sprintf("%s: %#x", a.goarch, arch))
		}
	}
}

// TestLongJumps assembles a search whose halves are farther apart than a condition can jump.
func TestLongJumps(t *testing.T) {
	var l []interval
	for n := range uint32(600) {
		l = append(l, interval{first: n, act: action{result: retErrno(unix.Errno(n%100 + 1))}})
	}
	prog := append([]instruction{{code: opLoad, k: offsetNumber}}, search(l)...)
	var raw []bpf.Instruction
	for _, i := range prog {
		raw = append(raw, bpf.RawInstruction{Op: i.code, Jt: i.jt, Jf: i.jf, K: i.k}.Disassemble())
	}
	vm, err := bpf.NewVM(raw)
	require.NoError(t, err)
	f := &filter{t: t, vm: vm}
	for n := range uint32(600) {
		require.Equal(t, retErrno(unix.Errno(n%100+1)), f.run(0, n))
	}
}
