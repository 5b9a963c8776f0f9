package supervisor

import (
	"fmt"
	"slices"

	"github.com/weftmesh/weft/services/runtime/supervisor/wire"
)

// Forward is one address inside the sandbox whose connections weft-init carries out to the node.
type Forward struct {
	Name string // given to the ForwardHandler, as "nats"
	Addr string // TCP address to listen at inside, as "127.0.0.1:4222"
}

// Mount is one bind mount that process 1 needs. All are read-only, nosuid, nodev, private.
type Mount struct{ Source, Destination string }

// Where process 1 finds what is mounted for it.
const (
	InitPath = wire.InitPath
	RunPath  = "/.weft/run"
)

// Launch says how process 1 of the container has to be started: as user 0:0 of the sandbox's user
// namespace, with noNewPrivileges (but see Root), without a seccomp profile (weft-init installs its own), without a
// terminal, in the root directory, with a pid namespace of its own and /proc mounted. Group ids up to
// 65535 must be mapped (see wire.TagFirst).
//
// The rlimits of the spec are inherited by all payload: set there what every process is to have, since
// ProcessSpec.Rlimits that differ cost a millisecond per start. NOFILE is best 1024 soft and at least 4096 hard:
// programs expect the first, and weft-init works with the second.
type Launch struct {
	Args         []string
	Env          []string // holds no secret, and reaches no payload
	Mounts       []Mount
	Capabilities []string // bounding, effective and permitted; not inheritable, not ambient
}

// Launch gives that for weft-init at the host path initBinary.
func (s *Sandbox) Launch(initBinary string, forwards ...Forward) Launch {
	args := []string{InitPath, "-sandbox=" + s.id, "-run=" + RunPath}
	for _, f := range forwards {
		args = append(args, "-forward="+f.Name+"="+f.Addr)
	}
	return Launch{
		Args:   args,
		Env:    []string{},
		Mounts: []Mount{{initBinary, InitPath}, {s.dir.run(), RunPath}},
		// The last three are given up before anything runs: to bring lo up, to have the timers of its own runtime less exact
		// (see package calm), to empty the bounding set.
		Capabilities: []string{"CAP_KILL", "CAP_SETUID", "CAP_SETGID", "CAP_NET_ADMIN", "CAP_SYS_NICE", "CAP_SETPCAP"},
	}
}

// ReservedPIDs are process 1's own; see Launch.LimitPIDs.
const ReservedPIDs = wire.ReservedPIDs

// LimitPIDs tells process 1 how many processes and threads the sandbox may have in all: its pids
// cgroup's limit. It keeps ReservedPIDs for itself, since at the limit it could not work, and gives
// payload an RLIMIT_NPROC of the rest: so for n processes of payload the limit is n + ReservedPIDs.
func (l Launch) LimitPIDs(limit int64) Launch {
	l.Args = append(slices.Clone(l.Args), fmt.Sprintf("-pids=%d", limit))
	return l
}

// NoSpareThreads says that the kernel under process 1 refuses it no thread as long as it runs: so it need not make ahead those
// that it may want (see weftinit). Under gVisor that takes 45 ms.
func (l Launch) NoSpareThreads() Launch {
	l.Args = append(slices.Clone(l.Args), "-spare-threads=0")
	return l
}

// LimitMemory tells process 1 how much memory the sandbox has in all: an eighth of it, and at most 64 MiB,
// is what kept output may take up.
func (l Launch) LimitMemory(bytes int64) Launch {
	l.Args = append(slices.Clone(l.Args), fmt.Sprintf("-rings=%d", wire.Limits{Memory: bytes}.RingBytes()))
	return l
}

// Seccomp names the profile of system calls that process 1 puts on itself and all it starts; see package seccomp.
func (l Launch) Seccomp(profile string) Launch {
	l.Args = append(slices.Clone(l.Args), "-seccomp="+profile)
	return l
}

// Root lets payload be uid 0, with these capabilities, by number. Process 1 has to be started without noNewPrivileges
// then, so that setuid programs work, and with CAP_SYS_ADMIN and those in its bounding set, too.
func (l Launch) Root(capabilities []int) Launch {
	bits := uint64(0)
	for _, c := range capabilities {
		bits |= 1 << c
	}
	l.Args = append(slices.Clone(l.Args), "-root", fmt.Sprintf("-caps=%d", bits))
	l.Capabilities = append(slices.Clone(l.Capabilities), "CAP_SYS_ADMIN")
	return l
}

// Late is for a sandbox whose kernel does not see what is mounted on a directory that it has already: process 1 shows the
// directory from at to when Show says so, and starts nothing before. It makes a process for it that keeps CAP_SYS_ADMIN.
func (l Launch) Late(from, to string) Launch {
	l.Args = append(slices.Clone(l.Args), "-late="+from+"="+to)
	l.Capabilities = append(slices.Clone(l.Capabilities), "CAP_SYS_ADMIN")
	return l
}

// DefaultForwards are the mesh and Vault, where the environment of every payload says they are.
func DefaultForwards() []Forward {
	return []Forward{{"nats", "127.0.0.1:4222"}, {"vault", "127.0.0.1:8200"}}
}

// Version of the protocol between node and weft-init; both must be of the same.
const Version = wire.Version
