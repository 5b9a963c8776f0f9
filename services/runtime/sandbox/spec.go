package sandbox

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/services/runtime/internal/cgroup"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
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

// oci translates what Describe says of the level, the sandbox's own Spec and weft-init need into a container.
func (n *Node) oci(s *Sandbox, l Level, driver string, shim *containerd.Shim, launch supervisor.Launch) *specs.Spec {
	limits, period := s.limits(l), uint64(cgroup.Period)
	shares := cgroup.Shares(limits.Weight)
	memory := &specs.LinuxMemory{Limit: &limits.Memory}
	if n.cgroups.SwapLimited() {
		memory.Swap = &limits.Memory // of memory and swap together: none
	}
	d := Describe(l, s.spec)
	// What uid 0 inside may have is in process 1's bounding set, and only there; see weftinit.
	caps := slices.Concat(launch.Capabilities, d.Capabilities)
	slices.Sort(caps)
	caps = slices.Compact(caps)
	return &specs.Spec{
		Version:  specs.Version,
		Root:     s.root(),
		Hostname: s.spec.hostname(),
		Process: &specs.Process{
			Args: launch.Args, Env: launch.Env, Cwd: "/",
			NoNewPrivileges: d.NoNewPrivileges,
			Capabilities:    &specs.LinuxCapabilities{Bounding: caps, Effective: caps, Permitted: caps},
			Rlimits:         ociRlimits(d.Rlimits),
		},
		Mounts:      n.mounts(s, l, d, launch),
		Annotations: annotations(driver, shim),
		Linux: &specs.Linux{
			CgroupsPath:   s.group.Path(),
			MaskedPaths:   d.Masked,
			ReadonlyPaths: d.ReadOnly,
			Namespaces:    s.namespaces(driver),
			// What the namespace at the path has. containerd opens the container's directory to its root
			// user by them; runc only compares.
			UIDMappings: s.ids.mapping(), GIDMappings: s.ids.mapping(),
			Resources: &specs.LinuxResources{
				Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}},
				Memory:  memory,
				CPU:     &specs.LinuxCPU{Quota: &limits.Quota, Period: &period, Shares: &shares},
				Pids:    &specs.LinuxPids{Limit: &limits.PIDs},
			},
		},
	}
}

// mounts in the order in which they are made: what lies under another comes later.
func (n *Node) mounts(s *Sandbox, l Level, d runtime.Isolation, launch supervisor.Launch) []specs.Mount {
	ms := slices.Clone(l.System)
	for _, t := range d.Tmpfs {
		ms = append(ms, tmpfs(t))
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
	if s.hasLate() {
		return append(ms, s.lateMounts()...)
	}
	// A slave of the node's own mount: what the node mounts there, now or later, appears inside.
	ms = append(ms, specs.Mount{Destination: WorkspacePath, Type: "bind", Source: s.path("workspace"), Options: []string{"rbind", "rslave", "nosuid", "nodev"}})
	return ms
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
