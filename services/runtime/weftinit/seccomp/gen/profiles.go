package main

import (
	"fmt"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// profile is one of the filters: the common policy, without some calls.
type profile struct {
	name    string
	without []without
}

// without says which calls a profile denies beyond `denied`, and why.
type without struct {
	why   string
	calls []string
}

// looking into another process: what debuggers and profilers do.
var looking = []string{"ptrace", "process_vm_readv", "process_vm_writev"}

// profiles by the names that a template gives.
var profiles = []profile{
	{"base", []without{
		{"a shell and its tools look into no other process, and tracing has a record of kernel bugs; a template for debugging takes python", looking},
	}},
	{"python", []without{
		{"kept, all of it: pdb attaches with process_vm_writev, profilers read with process_vm_readv, extensions are debugged by ptrace", nil},
		{"no module of the standard library takes System V semaphores or queues (multiprocessing uses POSIX ones); shared memory stays, for databases' drivers",
			[]string{"semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl"}},
	}},
	{"node", []without{
		{"the inspector speaks over a socket; nothing of V8 or libuv looks into another process", looking},
		{"neither V8 nor libuv uses System V IPC or POSIX queues",
			[]string{"semget", "semop", "semctl", "semtimedop", "msgget", "msgsnd", "msgrcv", "msgctl", "shmget", "shmat", "shmdt", "shmctl",
				"mq_open", "mq_unlink", "mq_notify", "mq_getsetattr", "mq_timedsend", "mq_timedreceive"}},
	}},
}

// variant of a profile. One for root inside is told by its name.
func (p profile) variant(root bool) string {
	if root {
		return p.name + "-root"
	}
	return p.name
}

// apply takes the profile's calls away.
func (p *policy) apply(pr profile, numbers map[string]uint32) error {
	for _, w := range pr.without {
		for _, name := range w.calls {
			n, ok := numbers[name]
			if !ok {
				continue // another architecture's
			}
			if p.actions[n].result != retAllow && len(p.actions[n].allow) == 0 {
				return fmt.Errorf("profile %s denies %s, which is denied already", pr.name, name)
			}
			p.actions[n] = action{result: retErrno(unix.EPERM)}
		}
	}
	return nil
}

// forRoot changes a policy for sandboxes whose payload may be uid 0, as process 1 is. The kernel then asks for no
// capability where it compares ids, so what could disturb process 1 is closed here.
func (p *policy) forRoot(numbers map[string]uint32) {
	deny := action{result: retErrno(unix.EPERM)}
	only := func(name string, index uint, op specs.LinuxSeccompOperator, value uint64) {
		p.actions[numbers[name]] = action{result: retErrno(unix.EPERM), allow: [][]specs.LinuxSeccompArg{{{Index: index, Op: op, Value: value}}}}
	}
	// Signals with a made-up origin: Go takes a SIGSEGV of unknown origin for its own, and ends. Plain ones it survives.
	p.actions[numbers["rt_sigqueueinfo"]] = deny
	p.actions[numbers["rt_tgsigqueueinfo"]] = deny
	only("pidfd_send_signal", 2, specs.OpEqualTo, 0)
	only("fcntl", 1, specs.OpNotEqual, unix.F_SETSIG) // any signal at all, sent by the kernel to whom F_SETOWN names
	// Another process's limits: process 1 could be left without descriptors or memory.
	only("prlimit64", 0, specs.OpEqualTo, 0)
	// A capability comes back with root that the common policy has no use for.
	p.actions[numbers["chroot"]] = action{result: retAllow}
}
