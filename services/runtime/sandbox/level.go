package sandbox

import (
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/weftmesh/weft/pkg/fault"
	"github.com/weftmesh/weft/schemas/workspace"
)

// Level is how strongly a sandbox is isolated from the node and from other sandboxes. It is data, to
// be read in one place: Describe says what it comes to for one sandbox, spec.go only translates that.
//
// Whatever the level: the sandbox has its own user, network, mount, process, IPC, host name and
// control group namespaces; its range of ids belongs to no other; the network namespace has nothing
// but a loopback interface; process 1 puts its own seccomp filter on itself and so on all that it starts. Without
// root inside no_new_privs is set and the payload runs under PayloadUID without any capability. With it the
// payload is uid 0 of the range and has workspace.RootCapabilities there; see package weftinit for what keeps it from process 1.
type Level struct {
	Name string
	// Runtime of containerd that runs it, by name; empty is runc.
	Runtime string
	// Masked paths look empty inside, read-only ones can't be written.
	Masked, ReadOnly []string
	// Writable file systems in memory, with their sizes. All else of the root is read-only.
	Scratch []Scratch
	// Mounts of the kernel's own file systems.
	System []specs.Mount
	// OpenFiles and CoreBytes are limits of each process; the former is lowered to what the node itself may.
	OpenFiles uint64
	CoreBytes uint64
	// Reserve is what process 1 gets beyond the payload's limits, so that it can still end a payload
	// that has used up its own.
	ReservePIDs, ReserveMemory int64
	// Threads of the node for each process or thread of the payload; 0 is one.
	Threads int64
}

// Scratch is one tmpfs. It counts as the sandbox's memory.
type Scratch struct {
	Path    string
	Bytes   int64 // an upper bound; a sandbox's DiskBytes, where smaller, replaces it
	Options []string
	Mode    string
	Payload bool // owned by the payload instead of process 1
}

// The payload's identity inside. Outside it is the range's first id plus this.
const (
	PayloadUID = 1000
	PayloadGID = 1000
)

// Standard is the level for code that is not trusted with anything: runc, with the kernel shared.
var Standard = Level{
	Name: "standard",
	Masked: []string{
		"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys",
		"/proc/latency_stats", "/proc/modules", "/proc/sched_debug", "/proc/scsi", "/proc/slabinfo", "/proc/timer_list", "/proc/timer_stats",
		"/proc/vmallocinfo", "/proc/config.gz", "/proc/cmdline", "/proc/partitions", "/proc/diskstats", "/proc/pressure",
	},
	ReadOnly: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
	Scratch: []Scratch{
		{Path: "/tmp", Bytes: 256 << 20, Mode: "1777", Options: []string{"nosuid", "nodev"}},
		{Path: "/home/agent", Bytes: 128 << 20, Mode: "0700", Options: []string{"nosuid", "nodev"}, Payload: true},
		{Path: "/dev/shm", Bytes: 64 << 20, Mode: "1777", Options: []string{"nosuid", "nodev", "noexec"}},
		{Path: "/run", Bytes: 16 << 20, Mode: "0755", Options: []string{"nosuid", "nodev", "noexec"}},
	},
	System: []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "strictatime", "mode=755", "size=64k", "nr_inodes=1024"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts", Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		// Of the kernel's /sys only what programs ask for before they start threads. All else of it is the machine's, and no one's business.
		{Destination: "/sys", Type: "tmpfs", Source: "tmpfs", Options: []string{"nosuid", "noexec", "nodev", "ro", "mode=755", "size=64k", "nr_inodes=64"}},
		{Destination: cpus, Type: "bind", Source: cpus, Options: []string{"bind", "nosuid", "noexec", "nodev", "ro"}},
	},
	OpenFiles:     16384,
	CoreBytes:     0,
	ReservePIDs:   64,
	ReserveMemory: 32 << 20,
}

// cpus says how many processors there are, and how they lie to one another.
const cpus = "/sys/devices/system/cpu"

// Defaults of what a sandbox may use, where its template and agent say nothing.
var Defaults = workspace.Resources{
	CPUMillis:   1000,
	MemoryBytes: 512 << 20,
	PIDs:        256,
	DiskBytes:   1 << 30,
	OutputBytes: 64 << 20,
	CPUWeight:   100,
}

// Bounds of what can be asked for at all.
const (
	minCPUMillis   = 10
	minMemoryBytes = 16 << 20
	minPIDs        = 8
)

// Deadlines of the steps of a sandbox's life.
const (
	connectTimeout = 20 * time.Second // from the start of process 1 to its first word
	killTimeout    = 10 * time.Second // from SIGKILL until nothing runs any more
)

// LevelByName gives the level called name; empty is standard.
func LevelByName(name string) (Level, error) {
	switch name {
	case "", Standard.Name:
		return Standard, nil
	case High.Name:
		return High, nil
	case workspace.LevelCustom:
		l := Standard // but for what is stated; see Describe
		l.Name = workspace.LevelCustom
		return l, nil
	}
	return Level{}, fault.New(fault.Unavailable, "this node has no security level %q; it has %q and %q", name, Standard.Name, High.Name)
}

// Resolve fills in the defaults and refuses what no sandbox could live with.
func Resolve(r workspace.Resources) (workspace.Resources, error) {
	for _, f := range []struct {
		what     string
		v        *int64
		def, min int64
	}{
		{"cpu_millis", &r.CPUMillis, Defaults.CPUMillis, minCPUMillis},
		{"memory_bytes", &r.MemoryBytes, Defaults.MemoryBytes, minMemoryBytes},
		{"pids", &r.PIDs, Defaults.PIDs, minPIDs},
		{"disk_bytes", &r.DiskBytes, Defaults.DiskBytes, 1 << 20},
		{"output_bytes", &r.OutputBytes, Defaults.OutputBytes, 0},
		{"cpu_weight", &r.CPUWeight, Defaults.CPUWeight, 1},
	} {
		if *f.v == 0 {
			*f.v = f.def
		}
		if *f.v < f.min {
			return r, fault.New(fault.Invalid, "%s is %d; at least %d is needed", f.what, *f.v, f.min)
		}
	}
	return r, nil
}
