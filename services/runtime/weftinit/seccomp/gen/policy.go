package main

import (
	"fmt"
	"slices"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// policy says for each system call what happens to it.
type policy struct {
	arch    architecture
	names   map[uint32]string
	actions map[uint32]action
}

// action on one system call: result, unless one of the alternatives holds, which allow it.
type action struct {
	result uint32
	allow  [][]specs.LinuxSeccompArg // each: all of its conditions must hold
}

// denied are calls that payload never gets, whatever the profile says now or in a later release:
// namespaces and mounts, other kernel interfaces with a record of escapes, and keys, which are not
// confined to a container.
var denied = []string{
	"add_key", "bpf", "chroot", "delete_module", "finit_module", "fsconfig", "fsmount", "fsopen", "fspick",
	"init_module", "io_uring_enter", "io_uring_register", "io_uring_setup", "kexec_file_load", "kexec_load",
	"keyctl", "kcmp", "lookup_dcookie", "mount", "mount_setattr", "move_mount", "open_by_handle_at", "open_tree",
	"open_tree_attr", "perf_event_open", "pidfd_getfd", "pivot_root", "process_madvise", "quotactl",
	"quotactl_fd", "reboot", "request_key", "setns", "swapoff", "swapon", "syslog", "umount2", "unshare",
	"userfaultfd", "vhangup",
}

// socketFamilies are all that payload can use without capabilities. The profile allows every family
// but a few, and the others are where kernel bugs were found.
var socketFamilies = []uint64{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

func newPolicy(a architecture, numbers map[string]uint32, pr profile, root bool) (*policy, error) {
	p := &policy{arch: a, names: map[uint32]string{}, actions: map[uint32]action{}}
	for name, n := range numbers {
		p.names[n] = name
		p.actions[n] = action{result: retErrno(unix.EPERM)}
	}
	spec := &specs.Spec{Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{}}, Linux: &specs.Linux{}}
	common := seccomp.DefaultProfile(spec)
	if common.DefaultAction != specs.ActErrno {
		return nil, fmt.Errorf("the profile's default is %s, not an errno", common.DefaultAction)
	}
	for _, rule := range common.Syscalls {
		for _, name := range rule.Names {
			if n, ok := numbers[name]; ok { // else one of another architecture
				if err := p.add(n, rule); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			}
		}
	}
	for _, name := range denied {
		if n, ok := numbers[name]; ok {
			p.actions[n] = action{result: retErrno(unix.EPERM)}
		}
	}
	if err := p.apply(pr, numbers); err != nil {
		return nil, err
	}
	if root {
		p.forRoot(numbers)
	}
	return p, p.restrictSockets(numbers["socket"])
}

func (p *policy) add(n uint32, rule specs.LinuxSyscall) error {
	a := p.actions[n]
	switch rule.Action {
	case specs.ActAllow:
		if len(rule.Args) == 0 {
			a = action{result: retAllow}
		} else if a.result != retAllow {
			a.allow = append(a.allow, rule.Args)
		}
	case specs.ActErrno:
		if rule.ErrnoRet == nil {
			return fmt.Errorf("rule without an errno")
		}
		a = action{result: retErrno(unix.Errno(*rule.ErrnoRet))}
	default:
		return fmt.Errorf("action %s is not known", rule.Action)
	}
	p.actions[n] = a
	return nil
}

// restrictSockets keeps the families that are wanted, if the profile allows them too.
func (p *policy) restrictSockets(socket uint32) error {
	profile := p.actions[socket]
	a := action{result: retErrno(unix.EAFNOSUPPORT)}
	for _, f := range socketFamilies {
		allowed := profile.result == retAllow || slices.ContainsFunc(profile.allow, func(args []specs.LinuxSeccompArg) bool {
			return len(args) == 1 && args[0].Index == 0 && (args[0].Op == specs.OpEqualTo && args[0].Value == f ||
				args[0].Op == specs.OpLessThan && f < args[0].Value)
		})
		if !allowed {
			return fmt.Errorf("the profile does not allow socket family %d", f)
		}
		a.allow = append(a.allow, []specs.LinuxSeccompArg{{Index: 0, Value: f, Op: specs.OpEqualTo}})
	}
	p.actions[socket] = a
	return nil
}

// interval is a run of numbers with one fate.
type interval struct {
	first uint32
	act   action
	note  string
}

// intervals covers all numbers from 0 on; the last one has no end. Numbers without a name get ENOSYS.
func (p *policy) intervals() []interval {
	top := uint32(0)
	for n := range p.names {
		top = max(top, n)
	}
	var out []interval
	for n := uint32(0); n <= top+1; n++ {
		act, ok := p.actions[n]
		if !ok {
			act = action{result: retErrno(unix.ENOSYS)}
		}
		same := len(out) > 0 && len(act.allow) == 0 && len(out[len(out)-1].act.allow) == 0 && out[len(out)-1].act.result == act.result
		if same {
			continue
		}
		name := p.names[n]
		if name == "" {
			name = "unknown"
		}
		out = append(out, interval{n, act, fmt.Sprintf("from %d, %s", n, name)})
	}
	return out
}
