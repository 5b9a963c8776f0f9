package sandbox

import (
	"fmt"
	"hash/fnv"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
)

// High is the level for code that may attack the kernel: Standard, and between the payload and the node's
// kernel gVisor's own, the sentry. It is a process of the sandbox's user namespace and control group that
// may make few system calls; of the node's files it has those directories that the gofer, another process, handed to it.
var High = func() Level {
	l := Standard
	l.Name = workspace.LevelHigh
	l.Runtime = containerd.Runsc
	// gVisor makes /proc and /sys itself and knows of no path to mask; what Standard masks is not in them.
	l.Masked, l.ReadOnly = nil, nil
	l.System = slices.DeleteFunc(slices.Clone(l.System), func(m specs.Mount) bool { return strings.HasPrefix(m.Destination, "/sys") })
	l.System = append(l.System, specs.Mount{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}})
	// The sentry's and the gofer's own memory and threads, which the payload does not see, and what each process of
	// the payload takes: two that hold its memory, one thread in each, and the sentry's for it. gVisor has no limit of
	// its own on the number of processes: a payload that goes beyond this one takes the sandbox with it.
	l.ReserveMemory = 96 << 20
	l.ReservePIDs = 256
	l.Threads = 3
	return l
}()

// runtimeOf gives the containerd runtime for a sandbox: its level's, or the one that it states itself; empty is
// runc. A node that does not have it refuses.
func (n *Node) runtimeOf(s Spec, l Level) (string, error) {
	name := l.Runtime
	if s.Isolation.Custom != nil && s.Isolation.Custom.Runtime != "" {
		name = s.Isolation.Custom.Runtime
	}
	if name == "" {
		return "", nil
	}
	return name, n.engine.HasRuntime(name)
}

// OutOfPIDs reports, of a sandbox that has ended, whether it was too many processes that ended it: gVisor's kernel does
// not survive it when the node refuses it a thread. Under runc the limit only hurts who exceeds it.
func (s *Sandbox) OutOfPIDs() bool {
	select {
	case <-s.Gone():
	default:
		return false
	}
	u, err := s.group.Usage()
	return err == nil && u.Refused > 0
}

// Levels of sandboxes that this node can make.
func (n *Node) Levels() []string {
	levels := []string{workspace.LevelStandard, workspace.LevelCustom}
	if n.engine.HasRuntime(High.Runtime) == nil {
		levels = append(levels, workspace.LevelHigh)
	}
	return levels
}

// Annotations that runtimes understand.
const (
	// groupAnnotation puts containers with the same value under one shim: 0.6 MiB each instead of 6.4.
	groupAnnotation = "io.containerd.runc.v2.group"
	// kindAnnotation tells gVisor's shim that a container is a sandbox of its own; it waits for a pod to join otherwise.
	kindAnnotation = "io.kubernetes.cri.container-type"
)

// joinShim gives the sandbox the shim of its lane; nil: its runtime shares none. first: the sandbox is the first in it.
func (n *Node) joinShim(s *Sandbox, runtime string) (shim *containerd.Shim, first bool) {
	switch runtime {
	case "", containerd.Runc:
		s.shim = s.tenant
	case containerd.Runsc:
		s.shim = fmt.Sprintf("%s-high-%d", s.tenant, lane(s.id))
	default:
		return nil, false
	}
	return n.shims.join(s.shim, s.id, func() *containerd.Shim { return n.engine.TakeShim(runtime) })
}

// annotations tell the runtime what the container's description does not.
func annotations(runtime string, shim *containerd.Shim) map[string]string {
	switch runtime {
	case "", containerd.Runc:
		return map[string]string{groupAnnotation: shim.Group()}
	case containerd.Runsc:
		return map[string]string{kindAnnotation: "sandbox", groupAnnotation: shim.Group()}
	}
	return nil
}

// lane spreads sandboxes of gVisor's over as many shims for each tenant as there are cores: each makes one sandbox
// at a time. gVisor's own shim knows nothing of groups, and serves one sandbox each; Weft's build of it does.
func lane(id string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // it never fails
	return int(h.Sum32() % uint32(goruntime.NumCPU()))
}

// namespaces of the container. gVisor's programs can't join a user namespace that somebody else made; theirs gets the
// same ids. They join the network namespace that is there.
func (s *Sandbox) namespaces(runtime string) []specs.LinuxNamespace {
	user := specs.LinuxNamespace{Type: specs.UserNamespace}
	if runtime != containerd.Runsc {
		user.Path = s.path("ns", "user")
	}
	return []specs.LinuxNamespace{
		user, {Type: specs.NetworkNamespace, Path: s.path("ns", "net")},
		{Type: specs.MountNamespace}, {Type: specs.PIDNamespace}, {Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace}, {Type: specs.CgroupNamespace},
	}
}
