package sandbox

import "testing"

// hostileCase is one attempt to get out of a sandbox, and how each level is to refuse it: words that the
// payload of testdata/hostile may say. Several in a row mean that the attempt has several parts.
type hostileCase struct {
	area, name, what string
	try              []string                                   // the payload's verb and arguments; {name} is replaced by what the test prepared
	node             func(t *testing.T, h *hostileRun) []string // or what is tried with the node's help
	filled           bool                                       // it uses something up: in a sandbox of small limits
	seen             string                                     // or which other test makes the attempt, as folder:TestName
	standard, high   string                                     // words that are refusals; high is as standard where empty
	root, rootHigh   string                                     // further ones for root inside, on either level, on high alone; may:x is what it may reach, by the beginning of its name
	apart            bool                                       // it harms its own sandbox where gVisor's kernel lets root inside: there it is made in one of its own
	apartHigh        bool                                       // it may end its own sandbox under gVisor, whoever makes it
}

const (
	areaFiles      = "The node's files"
	areaProcess1   = "Process 1"
	areaKernel     = "The kernel's settings"
	areaDevices    = "Devices and masked paths"
	areaCalls      = "System calls"
	areaReach      = "Other sandboxes, the node, the network"
	areaPrivileges = "Privileges"
	areaChannel    = "The channel to the node"
	areaOperations = "What the node does in the sandbox"
	areaExhaust    = "Exhaustion"
)

// hostileCases in the order of the table. Words: names of errors; empty, it is there and holds nothing; none,
// there is no such thing; own, what was got is the sandbox's; stays, process 1 is as it was; refused; silence.
var hostileCases = []hostileCase{
	{area: areaFiles, name: "proc-root", what: "a file of the node through every /proc/<pid>/root, cwd and fd", try: []string{"links", "{marker}", "{secret}"}, standard: "ENOENT EACCES ENOTDIR"},
	{area: areaFiles, name: "proc-1-root", what: "the root and the working directory of process 1", try: []string{"read", "/proc/1/root", "/proc/1/cwd", "/proc/1/root{marker}", "/proc/1/cwd{marker}"}, standard: "EACCES"},
	{area: areaFiles, name: "cwd", what: "a command's working directory that leads out (CVE-2024-21626)", node: workingDirectories, standard: "refused own"},
	{area: areaFiles, name: "descriptors", what: "descriptors that were left open for a command", try: []string{"descriptors"}, standard: "none"},
	{area: areaFiles, name: "handles", what: "files by handle instead of by name", try: []string{"handle"}, standard: "EPERM"},
	{area: areaFiles, name: "write-root", what: "any file or directory of the image that lets itself be written", try: []string{"writable", "/", "but", "/tmp", "/home/agent", "/dev/shm", "/workspace", "/proc", "/sys"}, standard: "none", root: "may:/.hostile may:/.weft/ may:/bin may:/boot may:/dev/ may:/etc may:/home may:/lib may:/opt may:/root may:/run may:/sbin may:/srv may:/usr may:/var may:/mnt may:/media"},
	{area: areaFiles, name: "preload", what: "a library for every program, by the image's shared files", try: []string{"create", "/etc", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/bin"}, standard: "EROFS EACCES ENOENT", root: "may:/etc may:/lib may:/usr EEXIST"},
	{area: areaFiles, name: "image-unharmed", what: "after all of it, the image as another sandbox sees it", node: imageUnharmed, standard: "own"},

	{area: areaProcess1, name: "signals", what: "all 64 signals", try: []string{"signals"}, standard: "EPERM stays", root: "may:", rootHigh: "ends", apart: true},
	{area: areaProcess1, name: "thread-signals", what: "signals to each of its threads", try: []string{"threads"}, standard: "EPERM ESRCH stays", root: "may:/proc/1/task", rootHigh: "ends", apart: true},
	{area: areaProcess1, name: "pidfd", what: "a signal, its files and namespaces through a pidfd", try: []string{"pidfd"}, standard: "EPERM stays", root: "may:signal", rootHigh: "ends", apart: true},
	{area: areaProcess1, name: "peek", what: "its memory, read and written, and ptrace", try: []string{"peek"}, standard: "EPERM stays"},
	{area: areaProcess1, name: "proc-memory", what: "its memory and its map through /proc", try: []string{"read", "/proc/1/mem", "/proc/1/maps", "/proc/1/smaps", "/proc/1/pagemap", "/proc/1/auxv", "/proc/1/map_files"}, standard: "EACCES EPERM", high: "EACCES EPERM ENOENT"},
	{area: areaProcess1, name: "environment", what: "its environment, stack and current system call", try: []string{"read", "/proc/1/environ", "/proc/1/stack", "/proc/1/syscall", "/proc/1/personality", "/proc/1/io"}, standard: "EACCES EPERM", high: "EACCES EPERM ENOENT", rootHigh: "may:/proc/1/io"},
	{area: areaProcess1, name: "files", what: "its descriptors and namespaces", try: []string{"read", "/proc/1/fd", "/proc/1/ns/mnt", "/proc/1/ns/net", "/proc/1/ns/user", "/proc/1/ns/pid"}, standard: "EACCES EPERM", high: "EACCES EPERM EINVAL ENOENT", root: "may:/proc/1/fd"},
	{area: areaProcess1, name: "descriptor-numbers", what: "how many descriptors it has, not what they are", try: []string{"look", "/proc/1/fdinfo"}, standard: "EACCES", high: "seen"},
	{area: areaProcess1, name: "settings", what: "its settings in /proc", try: []string{"write", "1", "/proc/1/oom_score_adj", "/proc/1/comm", "/proc/1/clear_refs", "/proc/1/coredump_filter", "/proc/1/uid_map", "/proc/1/setgroups", "/proc/1/attr/current", "/proc/1/autogroup"}, standard: "EACCES EPERM EINVAL ENOENT", root: "may:/proc/1/oom_score_adj may:/proc/1/coredump_filter may:/proc/1/clear_refs may:/proc/1/autogroup may:/proc/1/comm"},
	{area: areaProcess1, name: "weight", what: "its limits, priority, processors and scheduler", try: []string{"weigh"}, standard: "EPERM stays", root: "may:priority may:processors may:io may:scheduler"},
	{area: areaProcess1, name: "program", what: "its program, to be replaced where it lies", try: []string{"program", "/proc/1/exe", "/.weft/init"}, standard: "EACCES EROFS EPERM", high: "EACCES EROFS EPERM ENOTSUP"},
	{area: areaProcess1, name: "program-by-itself", what: "its program, run as a command's (CVE-2019-5736)", node: programByItself, standard: "own"},
	{area: areaProcess1, name: "covered", what: "its program, socket and /proc/1 covered or renamed", try: []string{"away", "/.weft/init", "/.weft/run", "/.weft"}, standard: "EACCES EROFS EBUSY EISDIR EXDEV EPERM ENOTDIR EEXIST", root: "may:/.weft ENOENT", apart: true},
	{area: areaProcess1, name: "parent-death", what: "orphans that want a signal when their parent dies", try: []string{"orphan"}, standard: "stays"},
	{area: areaProcess1, name: "zombies", what: "80 dead children left to it", try: []string{"zombies", "10"}, standard: "stays"},

	{area: areaKernel, name: "proc-sys", what: "any file of /proc/sys opened for writing", try: []string{"writable", "/proc/sys"}, standard: "none", rootHigh: "may:/proc/sys/"},
	{area: areaKernel, name: "proc", what: "any other file of /proc that is no process's", try: []string{"writable", "/proc", "but", "/proc/sys"}, standard: "none", rootHigh: "may:/proc/"},
	{area: areaKernel, name: "sys", what: "any file of /sys opened for writing", try: []string{"writable", "/sys"}, standard: "none"},
	{area: areaKernel, name: "sysrq", what: "the machine's reset button", try: []string{"write", "b", "/proc/sysrq-trigger"}, standard: "EACCES EROFS ENOENT", high: "EACCES EROFS ENOENT", rootHigh: "EIO"},
	{area: areaKernel, name: "core-pattern", what: "programs that the kernel runs on the node", try: []string{"write", "|/tmp/x", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug", "/sys/kernel/uevent_helper", "/proc/sys/fs/binfmt_misc/register", "/sys/kernel/mm/hugepages"}, standard: "EACCES EROFS ENOENT"},
	{area: areaKernel, name: "release-agent", what: "control groups: release_agent, notify_on_release, cgroup.procs, anywhere", try: []string{"find", "release_agent", "notify_on_release", "cgroup.procs", "devices.allow"}, standard: "none"},
	{area: areaKernel, name: "mount-cgroup", what: "a control group file system of its own", try: []string{"call", "mount", "s:cgroup", "s:/tmp", "s:cgroup", "0", "0"}, standard: "EPERM"},
	{area: areaKernel, name: "clock", what: "the clock", try: []string{"call", "clock_settime", "0", "x:16"}, standard: "EPERM"},
	{area: areaKernel, name: "clock-of-day", what: "the clock, the old way", try: []string{"call", "settimeofday", "x:16", "0"}, standard: "EPERM"},
	{area: areaKernel, name: "host-name", what: "the host name", try: []string{"call", "sethostname", "s:owned", "5"}, standard: "EPERM"},
	{area: areaKernel, name: "reboot", what: "a restart", try: []string{"call", "reboot", "0xfee1dead", "672274793", "0x1234567", "0"}, standard: "EPERM"},
	{area: areaKernel, name: "module", what: "a kernel module", try: []string{"call", "init_module", "x:64", "64", "s:"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaKernel, name: "module-file", what: "a kernel module from a file", try: []string{"call", "finit_module", "o:/etc/hostname", "s:", "0"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaKernel, name: "kexec", what: "another kernel", try: []string{"call", "kexec_load", "0", "0", "0", "0"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaKernel, name: "swap", what: "swap space", try: []string{"call", "swapon", "s:/etc/hostname", "0"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaKernel, name: "quota", what: "disk quotas", try: []string{"call", "quotactl", "0x800002", "s:/dev/sda", "0", "0"}, standard: "EPERM ENOSYS", high: "EPERM ENOSYS"},
	{area: areaKernel, name: "accounting", what: "process accounting", try: []string{"call", "acct", "s:/tmp/acct"}, standard: "EPERM ENOSYS", high: "EPERM ENOSYS"},
	{area: areaKernel, name: "messages", what: "the kernel's messages", try: []string{"call", "syslog", "3", "x:64", "64"}, standard: "EPERM", high: "EPERM own"},
	{area: areaKernel, name: "messages-device", what: "/dev/kmsg", try: []string{"read", "/dev/kmsg", "/proc/kmsg"}, standard: "ENOENT EACCES EPERM"},

	{area: areaDevices, name: "devices", what: "any device but null, zero, full, random, urandom, tty", try: []string{"devices"}, standard: "none", high: "gvisor"},
	{area: areaDevices, name: "mknod", what: "a disk and /dev/mem, made", try: []string{"make", "block", "8", "0", "/tmp/disk", "/dev/shm/disk", "/workspace/disk", "/home/agent/disk"}, standard: "EPERM"},
	{area: areaDevices, name: "mknod-memory", what: "the machine's memory and its messages, made", try: []string{"make", "char", "1", "1", "/tmp/mem", "/dev/mem", "/workspace/mem"}, standard: "EPERM EACCES"},
	{area: areaDevices, name: "raw-memory", what: "memory and disks by their usual names", try: []string{"read", "/dev/mem", "/dev/kmem", "/dev/port", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control", "/dev/kvm", "/dev/fuse", "/dev/net/tun", "/dev/mapper", "/dev/cpu", "/dev/vsock"}, standard: "ENOENT", high: "ENOENT EPERM EBADFD gvisor"},
	{area: areaDevices, name: "dev-null", what: "/dev/null, console and others replaced by links (CVE-2025-31133)", try: []string{"away", "/dev/null", "/dev/console", "/dev/ptmx", "/dev/pts", "/dev/fd"}, standard: "EACCES ENOENT EROFS EXDEV EPERM EBUSY EISDIR ENOTDIR EEXIST", root: "may:/dev/fd may:/dev/ptmx", rootHigh: "may:/dev/null", apart: true},
	{area: areaDevices, name: "masked", what: "what is masked of /proc and /sys", try: []string{"read", "/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kallsyms", "/proc/kcore", "/proc/keys", "/proc/modules", "/proc/timer_list", "/proc/vmallocinfo", "/proc/cmdline", "/proc/partitions", "/proc/diskstats", "/proc/scsi", "/proc/slabinfo", "/sys/firmware", "/sys/dev", "/sys/block", "/sys/kernel", "/sys/module", "/sys/fs", "/sys/devices/virtual/powercap", "/sys/devices/virtual/dmi"}, standard: "empty ENOENT EACCES", high: "empty ENOENT EACCES gvisor"},
	{area: areaDevices, name: "masks", what: "the masks taken away", try: []string{"call", "umount2", "s:/proc/kcore", "2"}, standard: "EPERM"},
	{area: areaDevices, name: "ports", what: "the machine's ports", try: []string{"call", "iopl", "3"}, standard: "EPERM ENOSYS", high: "EPERM ENOSYS"},

	{area: areaCalls, name: "mount", what: "mount", try: []string{"call", "mount", "s:x", "s:/tmp", "s:tmpfs", "0", "0"}, standard: "EPERM"},
	{area: areaCalls, name: "bind", what: "a bind mount over process 1's program", try: []string{"call", "mount", "s:/tmp", "s:/.weft", "0", "4096", "0"}, standard: "EPERM"},
	{area: areaCalls, name: "new-mounts", what: "fsopen", try: []string{"call", "fsopen", "s:tmpfs", "0"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "open-tree", what: "open_tree", try: []string{"call", "open_tree", "-100", "s:/tmp", "1"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "move-mount", what: "move_mount", try: []string{"call", "move_mount", "-100", "s:/tmp", "-100", "s:/workspace", "0"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "mount-setattr", what: "mount_setattr: a read-only mount made writable", try: []string{"call", "mount_setattr", "-100", "s:/", "0", "x:32", "32"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "pivot-root", what: "pivot_root", try: []string{"call", "pivot_root", "s:/tmp", "s:/tmp"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "chroot", what: "chroot", try: []string{"call", "chroot", "s:/tmp"}, standard: "EPERM", root: "may:chroot"},
	{area: areaCalls, name: "unshare", what: "unshare with a user namespace", try: []string{"call", "unshare", "0x10000000"}, standard: "EPERM"},
	{area: areaCalls, name: "namespaces", what: "each kind of namespace with a new process", try: []string{"clone"}, standard: "EPERM"},
	{area: areaCalls, name: "setns", what: "setns", try: []string{"call", "setns", "o:/proc/self/ns/net", "0"}, standard: "EPERM"},
	{area: areaCalls, name: "bpf", what: "bpf", try: []string{"call", "bpf", "0", "x:64", "64"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "userfaultfd", what: "userfaultfd", try: []string{"call", "userfaultfd", "0"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "io-uring", what: "io_uring", try: []string{"call", "io_uring_setup", "8", "x:120"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "perf", what: "perf_event_open", try: []string{"call", "perf_event_open", "x:128", "0", "-1", "-1", "0"}, standard: "EPERM", high: "EPERM ENOSYS ENODEV"},
	{area: areaCalls, name: "keyctl", what: "the kernel's key rings: keyctl", try: []string{"call", "keyctl", "0", "-3", "0"}, standard: "EPERM", high: "EPERM ENOSYS EACCES"},
	{area: areaCalls, name: "add-key", what: "add_key", try: []string{"call", "add_key", "s:user", "s:x", "s:y", "1", "-3"}, standard: "EPERM", high: "EPERM ENOSYS EACCES"},
	{area: areaCalls, name: "request-key", what: "request_key", try: []string{"call", "request_key", "s:user", "s:x", "0", "-3"}, standard: "EPERM", high: "EPERM ENOSYS EACCES"},
	{area: areaCalls, name: "fanotify", what: "fanotify", try: []string{"call", "fanotify_init", "0", "0"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "kcmp", what: "kcmp with process 1", try: []string{"call", "kcmp", "1", "1", "0", "0", "0"}, standard: "EPERM", high: "EPERM ENOSYS"},
	{area: areaCalls, name: "unknown", what: "a system call that nobody knows", try: []string{"call", "unknown"}, standard: "ENOSYS"},
	{area: areaCalls, name: "x32", what: "the other numbering of system calls", try: []string{"call", "x32_getpid"}, standard: "ENOSYS"},
	{area: areaCalls, name: "af-alg", what: "AF_ALG: the kernel's ciphers", try: []string{"socket", "38", "5", "0"}, standard: "EAFNOSUPPORT"},
	{area: areaCalls, name: "vsock", what: "AF_VSOCK: the machine's hypervisor", try: []string{"socket", "40", "1", "0"}, standard: "EAFNOSUPPORT"},
	{area: areaCalls, name: "packets", what: "raw, packet and XDP sockets", try: []string{"pack"}, standard: "EPERM EAFNOSUPPORT", high: "EPERM EAFNOSUPPORT EACCES"},
	{area: areaCalls, name: "filter", what: "every rule of the system call filter, by number", seen: "services/runtime/supervisor:TestSystemCallFilter", standard: "EPERM"},

	{area: areaReach, name: "loopback", what: "a port that listens on the node's loopback", try: []string{"dial", "tcp:127.0.0.1:{port}", "tcp:[::1]:{port}", "tcp:0.0.0.0:{port}"}, standard: "ECONNREFUSED EADDRNOTAVAIL ENETUNREACH"},
	{area: areaReach, name: "addresses", what: "the node by each of its addresses", try: []string{"dial", "{addresses}"}, standard: "ENETUNREACH EHOSTUNREACH EADDRNOTAVAIL"},
	{area: areaReach, name: "network", what: "the net, its metadata service, a name server, IPv6", try: []string{"dial", "tcp:192.0.2.1:80", "tcp:169.254.169.254:80", "udp:192.0.2.53:53", "tcp:[2001:db8::1]:80"}, standard: "ENETUNREACH EHOSTUNREACH EADDRNOTAVAIL"},
	{area: areaReach, name: "abstract", what: "an abstract unix socket of the node", try: []string{"dial", "unix:{abstract}"}, standard: "ECONNREFUSED"},
	{area: areaReach, name: "unix", what: "the sockets of containerd and of other sandboxes", try: []string{"dial", "unix:{containerd}", "unix:{socket}", "unix:/run/containerd/containerd.sock", "unix:/var/run/docker.sock"}, standard: "ENOENT"},
	{area: areaReach, name: "shared-memory", what: "System V memory of the node", try: []string{"shm", "{key}"}, standard: "ENOENT"},
	{area: areaReach, name: "queues", what: "a POSIX message queue of the node", try: []string{"queue", "{queue}"}, standard: "ENOENT", high: "ENOENT ENOSYS"},
	{area: areaReach, name: "processes", what: "processes of the node by their numbers", try: []string{"pids", "{pids}"}, standard: "ESRCH own"},
	{area: areaReach, name: "sandboxes", what: "processes, files, sockets and ports of another sandbox", seen: "services/runtime/sandbox:TestTwoSandboxesAreApart", standard: "none"},

	{area: areaPrivileges, name: "identity", what: "who it is", try: []string{"become"}, standard: "own"},
	{area: areaPrivileges, name: "gain", what: "ids, groups, capabilities, limits, the end of no_new_privs and of the filter", try: []string{"gain"}, standard: "EPERM EINVAL EACCES EROFS EIO own", high: "EPERM EINVAL EACCES EROFS EIO own gvisor", root: "may:uid may:gid may:resuid may:resgid may:groups"},
	{area: areaPrivileges, name: "setuid", what: "setuid programs of its own, in every place that it can write", try: []string{"setuid", "/workspace", "/tmp", "/home/agent", "/dev/shm"}, standard: "own EACCES"},

	{area: areaChannel, name: "socket", what: "the supervisor's socket and its key", try: []string{"read", "/.weft/run", "/.weft/run/key", "/.weft/run/sock"}, standard: "EACCES", root: "ENOENT ENOTDIR empty", rootHigh: "ENXIO may:/.weft/run"},
	{area: areaChannel, name: "speak", what: "to speak on the socket as process 1", try: []string{"speak", "/.weft/run/sock", "{id}"}, standard: "EACCES", root: "ENOENT ENOTDIR", rootHigh: "refused"},
	{area: areaChannel, name: "speak-as-process-1", what: "the same under process 1's own uid, without the key", node: speakAsProcess1, standard: "refused"},
	{area: areaChannel, name: "after-restart", what: "the same after a restart of the node's daemon", node: speakAfterRestart, standard: "EACCES refused", root: "ENOENT ENOTDIR empty", rootHigh: "may:/.weft/run"},
	{area: areaChannel, name: "uids", what: "the same under other uids, with another sandbox's id", seen: "services/runtime/supervisor:TestOnlyProcess1SpeaksOnTheSocket", standard: "refused"},
	{area: areaChannel, name: "garbage", what: "garbage, huge frames, wrong answers from a process 1 that was taken over", seen: "services/runtime/supervisor:TestGarbageFromTheSandbox", standard: "refused"},
	{area: areaChannel, name: "slow", what: "a process 1 that says nothing, or one byte at a time", seen: "services/runtime/supervisor:TestSilenceFromTheSandbox", standard: "refused"},
	{area: areaChannel, name: "forwards", what: "thousands of connections out of the sandbox at once", seen: "services/runtime/supervisor:TestForwardsOfAnUnfriendlySandbox", standard: "refused"},

	{area: areaOperations, name: "race-read", what: "a file read while its directory is swapped with links", node: raceRead, standard: "refused own"},
	{area: areaOperations, name: "race-write", what: "a file written and renamed meanwhile", node: raceWrite, standard: "refused own"},
	{area: areaOperations, name: "race-list", what: "a directory listed meanwhile", node: raceList, standard: "refused own", rootHigh: "may:/.weft/run"},
	{area: areaOperations, name: "race-remove", what: "a tree removed while parts of it become links", node: raceRemove, standard: "own"},
	{area: areaOperations, name: "file-links", what: "files of the node by links, devices and pipes for files", node: oddFiles, standard: "refused"},
	{area: areaOperations, name: "arguments", what: "2 MiB of arguments, of environment", node: bigArguments, standard: "refused"},

	{area: areaExhaust, name: "use-processes", what: "as many processes as it gets", filled: true, try: []string{"bomb"}, standard: "EAGAIN", high: "EAGAIN ENOMEM ends", apartHigh: true},
	{area: areaExhaust, name: "fork-bomb", what: "processes that fork for ever; the others go on", seen: "services/runtime/sandbox:TestAForkBombStaysInside", standard: "EAGAIN"},
	{area: areaExhaust, name: "use-memory", what: "as much memory as it gets", seen: "services/runtime/sandbox:TestMemoryBeyondTheLimitIsKilledAndKnown", standard: "SIGKILL"},
	{area: areaExhaust, name: "use-descriptors", what: "as many descriptors as it gets", filled: true, try: []string{"files"}, standard: "EMFILE"},
	{area: areaExhaust, name: "use-disk", what: "every place that it can write, filled", filled: true, try: []string{"fill", "/tmp", "/home/agent", "/dev/shm", "/workspace"}, standard: "ENOSPC"},
	{area: areaExhaust, name: "use-inodes", what: "links without end, which take no block", filled: true, node: filesWithoutEnd, standard: "ENOSPC", high: "ENOSPC oom"},
	{area: areaExhaust, name: "use-output", what: "64 MiB of output that nobody reads", filled: true, node: outputUnread, standard: "own"},
	{area: areaExhaust, name: "use-log", what: "a task's whole output: 1 GiB", seen: "services/e2e:TestHostilePayload", standard: "own"},
}
