package workspace

// Isolation is what a template states beyond the name of its level. Its fields lie flat in templates and runs.
type Isolation struct {
	// RootInside lets the payload be uid 0 of the sandbox's own range of ids, which is nobody on the host, so that
	// apt and sudo work. Listed capabilities and setuid programs come back with it; SYS_PTRACE does not.
	RootInside bool `json:"root_inside,omitempty"`
	// WritableRoot makes the root file system writable, under the quota of Resources.DiskBytes.
	WritableRoot bool `json:"writable_root,omitempty"`
	// Seccomp names the profile of system calls: base (default), python or node.
	Seccomp string `json:"seccomp,omitempty"`
	// Custom states the level custom field by field. It is there if and only if the level is custom.
	Custom *Custom `json:"custom,omitempty"`
}

// Custom is the level custom: the level standard, but for what is stated. A tenant's policy bounds it.
type Custom struct {
	// Runtime is a containerd runtime by name, as io.containerd.kata.v2; empty is runc.
	Runtime string `json:"runtime,omitempty"`
	// Masked are further paths that the sandbox does not see; ReadOnly further paths that it can't write.
	Masked   []string `json:"masked,omitempty"`
	ReadOnly []string `json:"read_only,omitempty"`
	// Tmp, Home and Shm are the sizes of /tmp, /home/agent and /dev/shm in bytes; 0 is the level standard's.
	Tmp  int64 `json:"tmp_bytes,omitempty"`
	Home int64 `json:"home_bytes,omitempty"`
	Shm  int64 `json:"shm_bytes,omitempty"`
	// Capabilities of the payload, as CAP_NET_BIND_SERVICE; only with root inside, and only those that it may have.
	Capabilities []string `json:"capabilities,omitempty"`
}

// RootCapabilities are what uid 0 inside has with root inside, in the sandbox's own user namespace: to own files, to
// become other users, to install packages, to listen below port 1024, and chroot.
var RootCapabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETFCAP",
	"CAP_SETGID", "CAP_SETUID", "CAP_SYS_CHROOT",
}

// CustomCapabilities are those that the level custom may state beside them, where the tenant's policy has them. All
// others are nobody's: they would reach process 1, or parts of the kernel that know no namespaces.
var CustomCapabilities = []string{"CAP_AUDIT_WRITE", "CAP_IPC_LOCK", "CAP_LEASE", "CAP_NET_RAW"}

// The profiles of system calls.
const (
	SeccompBase   = "base"
	SeccompPython = "python"
	SeccompNode   = "node"
)

// The security levels.
const (
	LevelStandard = "standard" // runc
	LevelHigh     = "high"     // the same under gVisor
	LevelCustom   = "custom"   // stated by Custom
)
