package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/runtime"
	"github.com/weftmesh/weft/schemas/workspace"
	"github.com/weftmesh/weft/services/runtime/internal/cgroup"
	"github.com/weftmesh/weft/services/runtime/internal/containerd"
	"github.com/weftmesh/weft/services/runtime/supervisor"
)

// Describe says all that a level enforces on the sandbox of a spec. The container is made from what it gives, and
// inspect shows it: there is no second place that could say something else.
func Describe(l Level, spec Spec) runtime.Isolation {
	iso, custom := spec.Isolation, workspace.Custom{}
	if iso.Custom != nil {
		custom = *iso.Custom
	}
	d := runtime.Isolation{
		Level: l.Name, Runtime: firstOf(custom.Runtime, l.Runtime, containerd.Runc),
		User: spec.user(), RootInside: iso.RootInside, WritableRoot: iso.WritableRoot,
		NoNewPrivileges: !iso.RootInside, Capabilities: []string{}, SupervisorCapabilities: slices.Clone(supervisorCaps),
		Seccomp:  firstOf(iso.Seccomp, workspace.SeccompBase),
		Masked:   slices.Concat(l.Masked, custom.Masked),
		ReadOnly: slices.Concat(l.ReadOnly, custom.ReadOnly),
		Limits:   spec.Resources, Rlimits: l.rlimits(spec.Resources),
		Namespaces: []string{"user", "network", "mount", "pid", "ipc", "uts", "cgroup"},
		Network:    "loopback only; 127.0.0.1:4222 (NATS) and 127.0.0.1:8200 (Vault) lead out through process 1",
	}
	if iso.RootInside {
		d.Capabilities = slices.Clone(workspace.RootCapabilities)
		if len(custom.Capabilities) > 0 {
			d.Capabilities = slices.Clone(custom.Capabilities) // the level custom states all of them
		}
		slices.Sort(d.Capabilities)
		d.SupervisorCapabilities = append(d.SupervisorCapabilities, apartCap)
	}
	for _, t := range l.Scratch {
		if iso.WritableRoot && onDisk(t.Path) {
			continue // a directory on the sandbox's own disk
		}
		if bytes := map[string]int64{"/tmp": custom.Tmp, HomePath: custom.Home, "/dev/shm": custom.Shm}[t.Path]; bytes > 0 {
			t.Bytes = bytes
		}
		d.Tmpfs = append(d.Tmpfs, t.describe(spec.Resources.DiskBytes))
	}
	return d
}

// Capabilities of process 1: those with which it runs payload under other ids, and the one that keeps it apart
// from root inside.
var supervisorCaps = []string{"CAP_KILL", "CAP_SETGID", "CAP_SETUID"}

const apartCap = "CAP_SETPCAP"

// describe a tmpfs. The number of files in it is bounded as well: each costs the kernel 1 KiB.
func (t Scratch) describe(disk int64) runtime.Tmpfs {
	size := min(t.Bytes, disk)
	d := runtime.Tmpfs{Path: t.Path, Bytes: size, Files: max(1024, size>>12), Mode: t.Mode, Options: t.Options}
	if t.Payload {
		d.Owner = PayloadUID
	}
	return d
}

// tmpfs translates it into a mount.
func tmpfs(d runtime.Tmpfs) specs.Mount {
	options := append(slices.Clone(d.Options), "mode="+d.Mode, fmt.Sprintf("size=%d", d.Bytes), fmt.Sprintf("nr_inodes=%d", d.Files))
	if d.Owner != 0 {
		options = append(options, fmt.Sprintf("uid=%d", d.Owner), fmt.Sprintf("gid=%d", d.Owner))
	}
	return specs.Mount{Destination: d.Path, Type: "tmpfs", Source: "tmpfs", Options: options}
}

// rlimits of process 1, which all it starts inherit. None is over what this process itself may have.
func (l Level) rlimits(r workspace.Resources) []runtime.Rlimit {
	files := l.OpenFiles
	if r.OpenFiles > 0 {
		files = uint64(r.OpenFiles)
	}
	var own unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &own) == nil {
		files = min(files, own.Max)
	}
	return []runtime.Rlimit{{Name: "nofile", Soft: files, Hard: files}, {Name: "core", Soft: l.CoreBytes, Hard: l.CoreBytes}}
}

// ociRlimits translates them.
func ociRlimits(ls []runtime.Rlimit) []specs.POSIXRlimit {
	var out []specs.POSIXRlimit
	for _, r := range ls {
		out = append(out, specs.POSIXRlimit{Type: "RLIMIT_" + strings.ToUpper(r.Name), Soft: r.Soft, Hard: r.Hard})
	}
	return out
}

// confined tells process 1 what of it is its own to enforce.
func confined(l supervisor.Launch, d runtime.Isolation) supervisor.Launch {
	l = l.Seccomp(d.Seccomp)
	if d.RootInside {
		l = l.Root(capNumbers(d.Capabilities))
	}
	return l
}

// Isolation is what is enforced on this sandbox, on this machine.
func (s *Sandbox) Isolation() (runtime.Isolation, error) {
	l, err := LevelByName(s.spec.Level)
	if err != nil {
		return runtime.Isolation{}, err
	}
	d := Describe(l, s.spec)
	d.FirstID, d.IDs = s.ids.first(), rangeSize
	d.NotEnforced = s.notEnforced()
	return d, nil
}

// Payload is under whom everything runs in this sandbox that asks for nobody else.
func (s *Sandbox) Payload() supervisor.Identity {
	return supervisor.Identity{UID: s.spec.user(), GID: s.spec.user()}
}

// user inside: root where it may be, as in any container.
func (s Spec) user() uint32 {
	if s.Isolation.RootInside {
		return 0
	}
	return PayloadUID
}

// Home is the directory of that user.
func (s *Sandbox) Home() string {
	if s.spec.Isolation.RootInside {
		return "/root"
	}
	return HomePath
}

// checkIsolation refuses what would weaken the level, whoever asks for it. Tenants' policies are the manager's.
func (s Spec) checkIsolation() error {
	i := s.Isolation
	switch i.Seccomp {
	case "", workspace.SeccompBase, workspace.SeccompPython, workspace.SeccompNode:
	default:
		return fmt.Errorf("there is no profile %.40q of system calls", i.Seccomp)
	}
	if (i.Custom != nil) != (s.Level == workspace.LevelCustom) {
		return fault.New(fault.Invalid, "the level custom, and only it, is stated field by field")
	}
	if i.Custom == nil {
		return nil
	}
	if len(i.Custom.Capabilities) > 0 && !i.RootInside {
		return fault.New(fault.Invalid, "capabilities need root_inside")
	}
	for _, c := range i.Custom.Capabilities {
		if !slices.Contains(workspace.RootCapabilities, c) && !slices.Contains(workspace.CustomCapabilities, c) {
			return fmt.Errorf("%.40q is no capability that payload may have", c)
		}
	}
	for _, p := range slices.Concat(i.Custom.Masked, i.Custom.ReadOnly) {
		if !strings.HasPrefix(p, "/") || strings.Contains(p, "\x00") || len(p) > 4095 {
			return fmt.Errorf("path %.80q is not absolute", p)
		}
	}
	return nil
}

// limits of the control group: the payload's, and what process 1 has beyond them.
func (s *Sandbox) limits(l Level) cgroup.Limits {
	r := s.spec.Resources
	if c := s.spec.Isolation.Custom; c != nil && c.Runtime == containerd.Runsc {
		l = High // what it reserves is gVisor's own
	}
	return cgroup.Limits{Memory: r.MemoryBytes + l.ReserveMemory, Quota: r.CPUMillis * cgroup.Period / 1000, PIDs: r.PIDs*max(1, l.Threads) + l.ReservePIDs, Weight: r.CPUWeight}
}

// notEnforced names what was asked for in vain.
func (s *Sandbox) notEnforced() []string {
	var names []string
	read, write := s.node.cgroups.LimitsIO()
	if s.spec.Resources.IOReadBPS > 0 && !read {
		names = append(names, "io_read_bps")
	}
	if s.spec.Resources.IOWriteBPS > 0 && !write {
		names = append(names, "io_write_bps")
	}
	return names
}

// limitIO bounds its traffic with the node's disk.
func (s *Sandbox) limitIO() error {
	r := s.spec.Resources
	return s.group.SetIO(s.node.cfg.DataDir, cgroup.IO{Read: r.IOReadBPS, Write: r.IOWriteBPS})
}

// capNumbers of capabilities by name; the names are ours, and known.
func capNumbers(names []string) []int {
	var out []int
	for _, n := range names {
		if c, ok := capabilities[n]; ok {
			out = append(out, c)
		}
	}
	return out
}

var capabilities = map[string]int{
	"CAP_CHOWN": unix.CAP_CHOWN, "CAP_DAC_OVERRIDE": unix.CAP_DAC_OVERRIDE, "CAP_FOWNER": unix.CAP_FOWNER, "CAP_FSETID": unix.CAP_FSETID,
	"CAP_KILL": unix.CAP_KILL, "CAP_NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "CAP_SETFCAP": unix.CAP_SETFCAP, "CAP_SETGID": unix.CAP_SETGID,
	"CAP_SETUID": unix.CAP_SETUID, "CAP_SYS_CHROOT": unix.CAP_SYS_CHROOT, "CAP_AUDIT_WRITE": unix.CAP_AUDIT_WRITE,
	"CAP_IPC_LOCK": unix.CAP_IPC_LOCK, "CAP_LEASE": unix.CAP_LEASE, "CAP_NET_RAW": unix.CAP_NET_RAW, "CAP_SETPCAP": unix.CAP_SETPCAP,
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
