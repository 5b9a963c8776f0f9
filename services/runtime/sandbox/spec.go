package sandbox

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/services/runtime/internal/cgroup"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Where things are inside a sandbox.
const (
	WorkspacePath = "/workspace"
	SecretsPath   = "/run/secrets"
	InputPath     = "/run/weft/input.json"
	HomePath      = "/home/agent"
	cliPath       = "/usr/local/bin/weft"
)

// oci translates what the level, the sandbox's own Spec and weft-init need into a container.
func (n *Node) oci(s *Sandbox, l Level, runtime string, launch supervisor.Launch) *specs.Spec {
	limits, period := s.limits(l), uint64(cgroup.Period)
	memory := &specs.LinuxMemory{Limit: &limits.Memory}
	if n.cgroups.SwapLimited() {
		memory.Swap = &limits.Memory // of memory and swap together: none
	}
	caps := slices.Clone(launch.Capabilities)
	return &specs.Spec{
		Version:  specs.Version,
		Root:     s.root(),
		Hostname: s.spec.hostname(),
		Process: &specs.Process{
			Args: launch.Args, Env: launch.Env, Cwd: "/",
			NoNewPrivileges: true,
			Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:         rlimits(l),
		},
		Mounts:      n.mounts(s, l, launch),
		Annotations: n.annotations(s, runtime),
		Linux: &specs.Linux{
			CgroupsPath:   s.group.Path(),
			MaskedPaths:   l.Masked,
			ReadonlyPaths: l.ReadOnly,
			Namespaces:    s.namespaces(runtime),
			// What the namespace at the path has. containerd opens the container's directory to its root
			// user by them; runc only compares.
			UIDMappings: s.ids.mapping(), GIDMappings: s.ids.mapping(),
			Resources: &specs.LinuxResources{
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
				Memory:  memory,
				CPU:     &specs.LinuxCPU{Quota: &limits.Quota, Period: &period},
				Pids:    &specs.LinuxPids{Limit: &limits.PIDs},
			},
		},
	}
}

// limits of the control group: the payload's, and what process 1 has beyond them.
func (s *Sandbox) limits(l Level) cgroup.Limits {
	r := s.spec.Resources
	return cgroup.Limits{Memory: r.MemoryBytes + l.ReserveMemory, Quota: r.CPUMillis * cgroup.Period / 1000, PIDs: r.PIDs*max(1, l.Threads) + l.ReservePIDs}
}

// rlimits of process 1, which all it starts inherit. None is over what this process itself may have.
func rlimits(l Level) []specs.POSIXRlimit {
	files := l.OpenFiles
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &own) == nil {
		files = min(files, own.Max)
	}
	return []specs.POSIXRlimit{
		{Type: "RLIMIT_NOFILE", Soft: files, Hard: files},
		{Type: "RLIMIT_CORE", Soft: l.CoreBytes, Hard: l.CoreBytes},
	}
}

// mounts in the order in which they are made: what lies under another comes later.
func (n *Node) mounts(s *Sandbox, l Level, launch supervisor.Launch) []specs.Mount {
	ms := slices.Clone(l.System)
	for _, t := range l.Scratch {
		if s.spec.Isolation.WritableRoot && onDisk(t.Path) {
			continue
		}
		ms = append(ms, t.mount(s.spec.Resources.DiskBytes))
	}
	ro := []string{"bind", "ro", "nosuid", "nodev"}
	bind := func(source, destination string, options ...string) {
		ms = append(ms, specs.Mount{Destination: destination, Type: "bind", Source: source, Options: append(slices.Clone(ro), options...)})
	}
	for _, m := range launch.Mounts {
		bind(m.Source, m.Destination)
	}
	if n.cfg.CLI != "" {
		bind(n.cfg.CLI, cliPath)
	}
	bind(s.secrets(), SecretsPath, "noexec")
	bind(s.path("input"), filepath.Dir(InputPath), "noexec")
	for _, f := range etcFiles {
		bind(s.path("etc", f), "/etc/"+f, "noexec")
	}
	// A slave of the node's own mount: what the node mounts there, now or later, appears inside.
	ms = append(ms, specs.Mount{Destination: WorkspacePath, Type: "bind", Source: s.path("workspace"), Options: []string{"rbind", "rslave", "nosuid", "nodev"}})
	return ms
}

// mount of a tmpfs. The number of files in it is bounded as well: each costs the kernel 1 KiB.
func (t Scratch) mount(disk int64) specs.Mount {
	size := min(t.Bytes, disk)
	options := append(slices.Clone(t.Options), "mode="+t.Mode, fmt.Sprintf("size=%d", size), fmt.Sprintf("nr_inodes=%d", max(1024, size>>12)))
	if t.Payload {
		options = append(options, fmt.Sprintf("uid=%d", PayloadUID), fmt.Sprintf("gid=%d", PayloadGID))
	}
	return specs.Mount{Destination: t.Path, Type: "tmpfs", Source: "tmpfs", Options: options}
}

// etcFiles are replaced in every sandbox: those of the image are of the machine that built it.
var etcFiles = []string{"hosts", "hostname", "resolv.conf"}

// etc is the content of one of them.
func (s Spec) etc(file string) string {
	switch file {
	case "hosts":
		return strings.Join([]string{"127.0.0.1\tlocalhost " + s.hostname(), "::1\tlocalhost", ""}, "\n")
	case "hostname":
		return s.hostname() + "\n"
	}
	return "" // no name server: there is no network
}
